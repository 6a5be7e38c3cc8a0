"""What a server holds that makes small requests dear: a group of 2,000 offsets, and one with a large assignment."""

from __future__ import annotations

from tests.attack.target import TOPICS, Target
from tests.crash.harness import ask
from tests.crash.requests import commit_errors, fetched_offsets, join_group, offset_commit, offset_fetch, sync_group

WIDE, CROWDED = "wide", "crowded"
WIDE_COUNT = TOPICS[WIDE]
COMMIT_COUNT = 1_000
ASSIGNMENT_BYTES = 100_000


def prepare(target: Target) -> None:
    """Commit 2,000 offsets in the group ``wide``; let a member with a large assignment into ``crowded``. Once only."""
    with target.connect() as sock:
        if fetched_offsets(ask(sock, offset_fetch(1, WIDE))):
            return
        for first in range(0, WIDE_COUNT, COMMIT_COUNT):
            offsets = dict.fromkeys(range(first, first + COMMIT_COUNT), 7)
            errors = commit_errors(ask(sock, offset_commit(1, WIDE, -1, "", WIDE, offsets)))
            assert not max(errors), f"a commit was refused with {max(errors)}"
        member_id = ""
        for _ in range(2):
            answer = ask(sock, join_group(1, CROWDED, member_id))
            answer.int32(), answer.int16()
            generation_id = answer.int32()
            answer.string(), answer.string()
            member_id = answer.string()
        ask(sock, sync_group(1, CROWDED, generation_id, member_id, {member_id: bytes(ASSIGNMENT_BYTES)}))
