"""Random lives of one member: whatever comes, nothing is raised, its own rules hold, and it recovers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from groupcoord.core.consumer_protocol import encode_assignment
from groupcoord.core.records import ZERO_UUID
from groupcoord.errors import ErrorCode
from groupcoord.member import (
    Assignment,
    Cluster,
    MemberState,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    Send,
    TopicPartition,
)
from groupcoord.messages import (
    FetchedGroup,
    FindCoordinator,
    FindCoordinatorResponse,
    FoundCoordinator,
    Heartbeat,
    HeartbeatResponse,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionResult,
    SyncGroup,
    SyncGroupResponse,
    TopicResult,
)
from tests.tables import as_one_test

from .script import GROUP, NODE, TOPIC, Script, partitions, subscription

ROOT = Path(__file__).parents[2]
LIVES, STEPS = 150, 300
USUAL = (
    *(ErrorCode.NONE,) * 8,
    *(ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID),
    *(ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED),
)


class Life:
    """A member at the mercy of a random source."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.script = Script(
            partition_assignment_strategy=random.choice(["range", "cooperative-sticky", "range,sticky"]),
            enable_auto_commit=random.random() < 0.5,
            group_instance_id=random.choice([None, "instance"]),
            max_poll_interval_ms=random.choice([2_000, 60_000]),
            request_timeout_ms=random.choice([500, 30_000]),
            waits_for_listener=random.random() < 0.3,
        )
        self.member = self.script.member
        self.owned: set[TopicPartition] = set()
        self.generation_id = 0
        self.failed_at: int | None = None
        self.seen = 0
        self.waiting: list[Send] = []
        self.member.subscribe([TOPIC], self.script.now_ms)

    def step(self, *, is_kind: bool) -> None:
        """Do something; kindly, without errors and with polls."""
        script, random = self.script, self.random
        script.look()
        self.waiting = [send for send in script.sent if send.request_id in self.member._link.in_flight]
        choice = random.random()
        if self.waiting and choice < 0.55:
            send = random.choice(self.waiting)
            script.sent.remove(send)
            code = ErrorCode.NONE if is_kind else random.choice(USUAL)
            self.member.receive(send.request_id, self.answer(send.request, code), script.now_ms)
        elif choice < 0.75:
            script.wait(random.choice([1, 50, 500, 3_000]))
        elif is_kind or choice < 0.85:
            self.member.listener_returned(script.now_ms)
            self.member.poll(script.now_ms, random.choice([0, 100, 10_000]))
        else:
            self.disturb()
        self.check()

    def answer(self, request: Any, code: ErrorCode) -> Any:
        """Return an answer that a coordinator could give, more or less."""
        random = self.random
        if isinstance(request, FindCoordinator):
            return FindCoordinatorResponse((FoundCoordinator(GROUP, NODE, retriable(code)),))
        if isinstance(request, JoinGroup):
            self.generation_id += 1
            member_id = request.member_id or f"member-{self.generation_id}"
            leads = random.random() < 0.5
            members = (JoinedMember(member_id, None, request.protocols[0].metadata), other())
            return JoinGroupResponse(
                code,
                member_id,
                self.generation_id if code is ErrorCode.NONE else -1,
                "consumer",
                request.protocols[0].name,
                member_id if leads else "other",
                random.random() < 0.1,
                members if leads else (),
            )
        if isinstance(request, SyncGroup):
            chosen = partitions(*random.sample(range(4), random.randrange(5)))
            return SyncGroupResponse(code, "consumer", request.protocol_name, encode_assignment(Assignment(chosen)))
        if isinstance(request, Heartbeat):
            return HeartbeatResponse(code)
        if isinstance(request, LeaveGroup):
            return LeaveGroupResponse(code)
        if isinstance(request, OffsetFetch):
            return OffsetFetchResponse((FetchedGroup(GROUP, code, ()),))
        assert isinstance(request, OffsetCommit)
        results = tuple(PartitionResult(p.partition_index, code) for p in request.topics[0].partitions)
        return OffsetCommitResponse((TopicResult(request.topics[0].name, ZERO_UUID, results),))

    def disturb(self) -> None:
        """Do what a kind host would not."""
        member, random, now_ms = self.member, self.random, self.script.now_ms
        action = random.randrange(9)
        if action == 0:
            member.disconnected(now_ms)
        elif action == 1 and self.waiting:
            send = random.choice(self.waiting)
            member.request_failed(send.request_id, ErrorCode.NETWORK_EXCEPTION, now_ms)
        elif action == 2 and self.waiting:
            nonsense = random.choice([HeartbeatResponse(ErrorCode.NONE), SyncGroupResponse(ErrorCode.NONE), object()])
            member.receive(random.choice(self.waiting).request_id, nonsense, now_ms)  # type: ignore[arg-type]
        elif action == 3:
            member.update_metadata(Cluster.of({TOPIC: random.randrange(3, 6)}), now_ms)
        elif action == 4:
            member.commit_async(dict.fromkeys(member.assignment[:1], 1), now_ms)
        elif action == 5:
            member.commit_sync(dict.fromkeys(member.assignment[:1], 1), now_ms, 1_000)
        elif action == 6:
            member.fetch_offsets(member.assignment, now_ms, 1_000)
        elif action == 7:
            member.enforce_rebalance(now_ms)
        elif action == 8 and member.state is MemberState.FAILED:
            member.recover(now_ms)

    def check(self) -> None:
        """The member's own rules."""
        script, member = self.script, self.member
        script.look()
        joins = [s for s in member._link.in_flight.values() if isinstance(s.request, JoinGroup | SyncGroup)]
        assert len(joins) <= 1
        lookups = [s for s in member._link.in_flight.values() if isinstance(s.request, FindCoordinator)]
        assert len(lookups) <= 1
        assert all((send.to is None) == isinstance(send.request, FindCoordinator) for send in script.sent)
        if member.state is not MemberState.FAILED:
            self.failed_at = None
        elif self.failed_at is None:
            self.failed_at = len(script.sent)
        assert self.failed_at is None or len(script.sent) <= self.failed_at, "a failed member sends nothing"
        deadline_ms = member.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= script.now_ms:
            member.tick(script.now_ms)
            script.look()
            later_ms = member.next_deadline_ms()
            assert later_ms is None or later_ms > script.now_ms, "a tick at the deadline leaves nothing due"
        self.follow()

    def follow(self) -> None:
        """Nothing is revoked or lost that is not owned, and nothing assigned that is owned already."""
        for event in self.script.events[self.seen :]:
            if isinstance(event, PartitionsAssigned):
                assert not self.owned & set(event.partitions), event
                self.owned |= set(event.partitions)
            elif isinstance(event, PartitionsRevoked | PartitionsLost):
                assert self.owned >= set(event.partitions), event
                self.owned -= set(event.partitions)
        self.seen = len(self.script.events)


def retriable(code: ErrorCode) -> ErrorCode:
    """Return an error that a lookup survives."""
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if code is not ErrorCode.NONE else code


def other() -> JoinedMember:
    return JoinedMember("other", None, subscription(TOPIC))


@as_one_test
@pytest.mark.parametrize("seed", range(LIVES))
def test_a_random_life(seed: int) -> None:
    """Through errors, nonsense, lost connections and pauses it keeps its rules; once all is well, it gets its share."""
    life = Life(seed)
    for _ in range(STEPS):
        life.step(is_kind=False)
    life.script.wait(100_000)
    for _ in range(STEPS):
        life.step(is_kind=True)
        if life.member.state is MemberState.FAILED:  # of nonsense that it was told before
            life.member.recover(life.script.now_ms)
        life.member.poll(life.script.now_ms, 10_000)
        if life.member.is_steady and life.member.state is MemberState.STABLE:
            break
    script = life.script
    script.member.poll(script.now_ms)
    script.member.listener_returned(script.now_ms)
    assert life.member.state is MemberState.STABLE, [str(event) for event in script.events[-5:]]
    life.check()
    assert life.owned == set(life.member.assignment)
    life.member.close(script.now_ms, timeout_ms=1_000)
    life.member.listener_returned(script.now_ms)
    script.wait(1_000)
    assert life.member.state is MemberState.CLOSED
    life.follow()
    assert life.owned == set()


STORIES = """
import hashlib
from tests.member.test_random_lives import STEPS, Life

digest = hashlib.sha256()
for seed in range(10):
    life = Life(seed)
    for _ in range(STEPS):
        life.step(is_kind=False)
    digest.update(repr([life.script.events, [send.request for send in life.script.sent]]).encode())
print(digest.hexdigest())
"""


def test_the_same_lives_twice() -> None:
    """The same inputs lead to the same outputs, whatever Python's hashes are."""
    told = {
        subprocess.run(
            [sys.executable, "-c", STORIES],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
