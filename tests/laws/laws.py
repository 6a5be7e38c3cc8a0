"""The laws that hold at every moment of every run, whatever happened before (docs/design.md lists them)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from groupcoord import GroupCoordinator, GroupState, LogStore
from groupcoord.core.hard_state import HardState
from groupcoord.core.records import GroupMetadataRecord, GroupTombstone


def replayed(log_store: LogStore, partition: int) -> dict[str, object]:
    """Return the hard state that a log partition makes, built from nothing but its records."""
    hard = HardState()
    for entry in log_store.read(partition):
        hard.apply(entry.record, entry.offset)
    return hard.facts()


def check_hard_state_is_the_log(coordinator: GroupCoordinator) -> None:
    """Hard state == replay(durable log)."""
    for index in range(coordinator.config.offsets_topic_num_partitions):
        partition = coordinator.partition(index)
        if partition is not None:
            assert partition.hard_facts() == replayed(coordinator.log_store, index)


def check_snapshot_rebuilds(coordinator: GroupCoordinator) -> None:
    """Replaying the snapshot gives the same hard state, but for groups whose offsets are all gone."""
    for index in range(coordinator.config.offsets_topic_num_partitions):
        partition = coordinator.partition(index)
        if partition is None:
            continue
        hard = HardState()
        for log_offset, record in partition.snapshot():
            hard.apply(record, log_offset)
        facts, rebuilt = partition.hard_facts(), hard.facts()
        assert facts["committed"] == rebuilt["committed"]
        assert facts["transactions"] == rebuilt["transactions"]
        assert {key: value for key, value in facts["groups"].items() if value is not None} == {
            key: value for key, value in rebuilt["groups"].items() if value is not None
        }


def check_tokens(coordinator: GroupCoordinator, outstanding: Iterable[Hashable]) -> None:
    """Every request without an answer waits in exactly one place, and nothing else waits."""
    assert Counter(coordinator.waiting_tokens()) == Counter(list(outstanding))


def check_size(coordinator: GroupCoordinator) -> None:
    """No generation is larger than ``group.max.size``."""
    for index in range(coordinator.config.offsets_topic_num_partitions):
        partition = coordinator.partition(index)
        for group in partition.groups.values() if partition is not None else ():
            if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
                assert len(group.members) <= coordinator.config.group_max_size


def check_generations_grow(log_store: LogStore, partition: int) -> None:
    """In the log, a group's generation never goes back as long as the group lives."""
    last: dict[str, int] = {}
    for entry in log_store.read(partition):
        record = entry.record
        if isinstance(record, GroupMetadataRecord):
            assert record.generation_id >= last.get(record.group_id, 0)
            last[record.group_id] = record.generation_id
        elif isinstance(record, GroupTombstone):
            last.pop(record.group_id, None)
