"""Loading of streams groups from any legal compaction, with restarts anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from random import Random

import pytest

from groupcoord import GroupCoordinator, MemoryLogStore
from groupcoord.core.groups.streams.group import StreamsGroup
from groupcoord.core.log.records import GroupTombstone
from groupcoord.log_store import LogRecord, Ticket
from groupcoord.messages import (
    DeleteGroups,
    DescribedStreamsGroup,
    JoinGroup,
    JoinProtocol,
    ListedGroup,
    ListGroups,
    StreamsGroupDescribe,
)
from groupcoord.testing.topics import Topics
from tests.core.driver import Driver
from tests.core.streams.members import COUNTS, SETTINGS, Threads
from tests.samples import seeds

Seen = tuple[tuple[ListedGroup, ...], DescribedStreamsGroup, object]
"""All groups as they are listed, the streams group as it is described, and all facts about it."""


def compacted(records: Sequence[LogRecord], chance: Random) -> list[LogRecord]:
    """Return what compaction may leave: of what a later record replaces, and of tombstones with nothing before, any."""
    keys = [record.encoded()[0] for record in records]
    last = {key: place for place, key in enumerate(keys)}
    kept, there = [], set()
    for place, (key, record) in enumerate(zip(keys, records, strict=True)):
        is_tombstone = isinstance(record.record, GroupTombstone)
        may_go = place < last[key] or (is_tombstone and key not in there)
        if not may_go or chance.random() < 0.6:
            there.add(key)
            kept.append(record)
    return kept


def seen(coordinator: GroupCoordinator) -> Seen:
    """Return what there is to see of a coordinator's groups."""
    (described,) = coordinator.call(StreamsGroupDescribe(("group",))).groups
    partition = coordinator.partition(0)
    assert partition is not None
    group = partition.groups.get("group")
    members = tuple(sorted(described.members, key=lambda member: member.member_id))
    facts = group.state.facts() if isinstance(group, StreamsGroup) else None
    return coordinator.call(ListGroups()).groups, described._replace(members=members), facts


def loaded(driver: Driver, records: Sequence[LogRecord]) -> Seen:
    """Return what another coordinator makes of these records."""
    store = MemoryLogStore()
    for number, record in enumerate(records):
        store.append(0, Ticket(0, number), [copy(record)])
    coordinator = driver.make_coordinator(driver.config, store)
    coordinator.load_all()
    return seen(coordinator)


def act(threads: Threads, chance: Random) -> None:
    """Apply one action of a member, an administrator or the clock."""
    member_id = chance.choice("abcd")
    instance_id = f"i-{member_id}" if member_id in "ab" else None
    members = {member.member_id: member for member in threads.described.members}
    kind = chance.choice(
        ["join", "beat", "beat", "beat", "give back", "give back", "leave", "wait", "delete", "classic"]
    )
    if kind == "join":
        threads.join(member_id, instance_id=instance_id)
    elif kind == "wait":
        threads.driver.advance(chance.choice([1_000, 46_000]))
    elif kind == "delete":
        threads.driver.submit(DeleteGroups(("group",)))
    elif kind == "classic":
        threads.driver.submit(JoinGroup("group", protocols=(JoinProtocol("range", b""),)))
    elif kind == "leave":
        threads.beat(member_id, chance.choice([-1, -2]) if instance_id else -1, instance_id=instance_id)
    elif member_id in members:
        member = members[member_id]
        assigned = member.assignment.active_tasks if kind == "give back" else ()
        runs = {task.subtopology_id: task.partitions for task in assigned}
        threads.beat(member_id, member.member_epoch, runs if kind == "give back" else None, instance_id=instance_id)


@pytest.mark.parametrize("seed", seeds(6))
def test_any_legal_compaction_loads_to_the_same_group(seed: int) -> None:
    """Members join and leave, tasks move, the group ends and begins: any legal compaction keeps its state."""
    chance = Random(seed)
    topics = Topics(lines=4, counts=4)
    driver = Driver(topics=topics, **SETTINGS, group_streams_num_standby_replicas=1)
    threads = Threads(driver, COUNTS)
    for _ in range(12):
        for _ in range(10):
            act(threads, chance)
        records = list(driver.store.read(0))
        expected = loaded(driver, records)
        for _ in range(3):
            assert loaded(driver, compacted(records, chance)) == expected
