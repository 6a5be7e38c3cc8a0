"""The laws that hold at every moment of every run, whatever happened before (docs/design.md lists them)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from groupcoord import GroupCoordinator, GroupState, LogStore
from groupcoord.core.hard_state import HardState
from groupcoord.core.records import (
    GroupMetadataRecord,
    GroupTombstone,
    OffsetCommitRecord,
    OffsetTombstone,
    TransactionMarker,
)
from groupcoord.messages import GroupToFetch, OffsetFetch, OffsetFetchResponse


def replayed(log_store: LogStore, partition: int) -> dict[str, object]:
    """Return the hard state that a log partition makes, built from nothing but its records."""
    hard = HardState()
    for entry in log_store.read(partition):
        hard.apply(entry.record, entry.offset)
    return hard.facts()


def offsets_in_log(log_store: LogStore, partition: int) -> dict[tuple[str, str, int], int]:
    """Return (group, topic, partition) → committed offset, folded from the log in the plainest way there is."""
    committed: dict[tuple[str, str, int], tuple[int, int]] = {}
    pending: dict[int, dict[tuple[str, str, int], tuple[int, int]]] = {}
    for entry in log_store.read(partition):
        match entry.record:
            case OffsetCommitRecord(group_id=group_id, topic=topic, partition=index, producer_id=producer_id) as record:
                target = committed if producer_id == -1 else pending.setdefault(producer_id, {})
                target[group_id, topic, index] = (entry.offset, record.offset)
            case OffsetTombstone(group_id=group_id, topic=topic, partition=index):
                for offsets in (committed, *pending.values()):
                    offsets.pop((group_id, topic, index), None)
            case TransactionMarker(producer_id=producer_id, committed=is_commit):
                for key, value in pending.pop(producer_id, {}).items():
                    if is_commit and value > committed.get(key, (-1, -1)):
                        committed[key] = value
    return {key: offset for key, (_, offset) in committed.items()}


def check_fetch_is_the_log(coordinator: GroupCoordinator, group_ids: Iterable[str]) -> None:
    """What consumers are told is what the log says: transactions count from their marker on, and not after an abort."""
    for group_id in group_ids:
        index = coordinator.partition_of(group_id)
        if coordinator.partition(index) is None:
            continue
        response = coordinator.call(OffsetFetch((GroupToFetch(group_id),)))
        assert isinstance(response, OffsetFetchResponse)
        fetched = {
            (group_id, topic.name, partition.partition_index): partition.committed_offset
            for topic in response.groups[0].topics
            for partition in topic.partitions
        }
        in_log = offsets_in_log(coordinator.log_store, index)
        assert fetched == {key: offset for key, offset in in_log.items() if key[0] == group_id}


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
