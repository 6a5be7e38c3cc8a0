"""Random consumer groups: their records alone give the coordinator's actions and causes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from groupcoord.analysis.fold.history import (
    DUPLICATE,
    EPOCH,
    GROUP,
    MEMBER,
    MEMBERSHIP,
    MOVE,
    REBALANCE,
    REVOCATION,
    Row,
)
from groupcoord.analysis.fold.history.causes import (
    EXPIRY_OR_LEAVE,
    LEAVE,
    REBALANCE_TIMEOUT,
    SESSION_EXPIRY,
    STATIC_REPLACE,
    UNKNOWN,
)
from groupcoord.analysis.fold.history.ownership import SWAP
from groupcoord.core.events import Cause, Event, MemberRemoved, MemberReplaced, RebalanceStarted
from groupcoord.core.groups.consumer.group import ConsumerGroup
from groupcoord.schema.engine import uuid_text
from tests.samples import seeds
from tests.tables import as_one_test

from .consumer_story import CREW, NEVER_MS, Story, write_story
from .test_consumer_groups import Rows, read

STEPS = 40
LONGEST_PAUSE_MS = 20_000


def wander(story: Story, draw: random.Random) -> None:
    """Run random members that join, leave, delay and change subscriptions."""
    serial = 0

    def anybody() -> str:
        return draw.choice(sorted(story.clients))

    for _ in range(STEPS):
        act = draw.random()
        if not story.clients or act < 0.3:
            serial += 1
            static = f"static-{draw.randrange(3)}" if draw.random() < 0.3 else None
            if static not in [client.instance_id for client in story.clients.values()] or static is None:
                story.join(f"m{serial}", *draw.choice([("orders",), ("orders", "payments")]), instance_id=static)
        elif act < 0.45:
            leaver = anybody()
            story.leave(leaver, epoch=-2 if story.clients[leaver].instance_id and draw.random() < 0.7 else -1)
        elif act < 0.55:
            story.vanish(anybody())
        elif act < 0.7:
            story.clients[anybody()].gives_up_ms = draw.choice([0, 3_000, NEVER_MS])
        elif act < 0.8:
            story.tell(anybody(), *draw.choice([("orders",), ("payments",), ("orders", "payments")]))
        elif act < 0.9:
            story.tell(anybody(), assignor=draw.choice(["range", "uniform"]))
        else:
            story.topics.grow("orders", draw.randrange(3))
            story.coordinator.topics_changed(["orders"])
        story.live_until(story.clock.now_ms() + draw.randrange(LONGEST_PAUSE_MS))


def history_of(seed: int, folder: Path) -> tuple[Rows, ConsumerGroup, list[Event]]:
    """Return the log's history of a random run, the coordinator's group, and its events."""
    kept: list[ConsumerGroup] = []
    events: list[Event] = []

    def tell(story: Story) -> None:
        story.coordinator.observe()
        wander(story, random.Random(seed))
        events.extend(story.coordinator.take_events())
        partition = story.coordinator.partition(0)
        assert partition is not None
        group = partition.groups[CREW]
        assert isinstance(group, ConsumerGroup)
        kept.append(group)

    rows = read(write_story(folder, tell))
    return rows, kept[0], events


def pairs(topics: list[Row]) -> set[tuple[str, int]]:
    return {(one["topic_id"], number) for one in topics for number in one["partitions"]}


@as_one_test
@pytest.mark.parametrize("seed", seeds(8))
def test_random_stories(seed: int, tmp_path: Path) -> None:
    """The history ends where the coordinator is, and its rows fit together."""
    rows, group, events = history_of(seed, tmp_path)
    check_the_end(rows, group)
    check_the_rows(rows)
    check_the_reasons(rows, events)


ENDS = {
    Cause.LEAVE: {LEAVE, EXPIRY_OR_LEAVE},
    Cause.SESSION_EXPIRY: {SESSION_EXPIRY, EXPIRY_OR_LEAVE},
    Cause.REBALANCE_TIMEOUT: {REBALANCE_TIMEOUT},
}
"""What may be told of a member's end, by what it was: a leave and an expiry may look the same, and nothing else may."""


def check_the_reasons(rows: Rows, events: list[Event]) -> None:
    """All removals of members and all new epochs agree with the coordinator's events."""
    lives = {row["member_id"]: row for row in rows[CREW, MEMBERSHIP]}
    removed = [event for event in events if isinstance(event, MemberRemoved)]
    replaced = {event.old_member_id for event in events if isinstance(event, MemberReplaced)}

    for event in removed:
        life = lives[event.member_id]
        assert life["ended_ms"] == event.at_ms
        assert life["end"] in ENDS[event.cause], (event, life)
    ended = {member_id for member_id, life in lives.items() if life["end"] is not None}
    assert ended == {event.member_id for event in removed} | replaced
    begun = {event.generation_id + 1: event for event in events if isinstance(event, RebalanceStarted)}
    for row in rows[CREW, REBALANCE]:
        if row["cause"] != STATIC_REPLACE:
            assert row["started_ms"] == begun[row["to_generation"]].at_ms


def check_the_end(rows: Rows, group: ConsumerGroup) -> None:
    """Members with their epochs, what they have, are to have and to give up are those of the coordinator."""
    state = group.state
    (told,) = rows[CREW, GROUP]
    last = [row for row in rows.get((CREW, MEMBER), ()) if row["generation"] == state.epoch]
    now = {row["member_id"]: row for row in last[len(last) - len(state.members) :]}

    assert (told["generation_or_epoch"], told["assignment_epoch"]) == (state.epoch, state.assignment_epoch)
    assert now.keys() == state.members.keys()
    for member_id, member in state.members.items():
        parts = (member.assignment.assigned, member.assignment.pending_revocation, state.targets.get(member_id, {}))
        for column, found in zip(("assignment", "pending", "target"), parts, strict=True):
            held = {(uuid_text(topic_id.bytes), number) for topic_id, numbers in found.items() for number in numbers}
            assert pairs(now[member_id][column]) == held
        assert now[member_id]["member_epoch"] == member.assignment.member_epoch
    alive = {row["member_id"] for row in rows[CREW, MEMBERSHIP] if row["end"] is None}
    assert alive == set(state.members)


def check_the_rows(rows: Rows) -> None:
    """Moves chain from owner to owner, revocations belong to members, every rebalance has a cause."""
    lives = {row["member_id"]: row for row in rows[CREW, MEMBERSHIP]}
    ends = {row["member_id"]: row["end"] for row in rows[CREW, MEMBERSHIP]}

    assert (CREW, DUPLICATE) not in rows
    assert [row["to_generation"] for row in rows[CREW, REBALANCE] if row["cause"] == UNKNOWN] == []
    for row in rows[CREW, REBALANCE]:
        assert all(ends[member_id] is not None for member_id in row["left"])
    owners: dict[tuple[str, int], str | None] = {}
    for row in sorted(rows[CREW, MOVE], key=lambda row: (row["log_offset"], row["topic_id"], row["topic_partition"])):
        place = row["topic_id"], row["topic_partition"]
        replaced = lives[row["from_member"]]["replaced_member"] if row["from_member"] in lives else None
        assert owners.get(place) in (None, row["from_member"], replaced) or row["from_member"] is None
        owners[place] = row["to_member"]
        assert row["is_necessary"] == (row["reason"] != SWAP)
        times = [row[name] for name in ("decided_ms", "assigned_ms") if row[name] is not None]
        assert times == sorted(times)
        assert row["unowned_ms"] is None or row["unowned_ms"] >= 0
    for row in rows.get((CREW, REVOCATION), ()):
        assert row["member_id"] in lives
        assert row["end"] is not None or ends[row["member_id"]] is None
    for row in rows[CREW, EPOCH]:
        assert row["group_epoch"] >= row["target_epoch"] >= (row["member_epoch"] or 0)
