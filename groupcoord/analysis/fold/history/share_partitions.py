"""Share-partitions from ``__share_group_state``: redeliveries, and archived records.

Current locks are only in the memory of the partition's leader, and members are in the log of groups. Counts cover the
records that are still in the log: compaction leaves the last snapshot and later records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import define

from groupcoord.analysis.fold.history.rows import Row
from groupcoord.core.share_state.records import (
    NO_START_OFFSET,
    UNKNOWN_COUNT,
    DeliveryState,
    SharePartitionKey,
    ShareSnapshot,
    ShareStateRecord,
    ShareStates,
    ShareTombstone,
    ShareUpdate,
    StateBatch,
    merge_batches,
)
from groupcoord.schema.engine import uuid_text

SHARE_PARTITION = "share partition"
"""The kind of the rows."""

_GIVEN_UP = (DeliveryState.ARCHIVING, DeliveryState.ARCHIVED)


@define
class _Seen:
    """Counts of a share-partition.

    Attributes:
        last: its state, also after a deletion; None before the first.
        is_deleted: its last record is a tombstone.
    """

    log_offset: int
    first_ms: int
    last_ms: int
    redeliveries: int = 0
    archived: int = 0
    snapshots: int = 0
    updates: int = 0
    last: ShareSnapshot | None = None
    is_deleted: bool = False


class SharePartitions:
    """Folds the records of a log partition of ``__share_group_state``."""

    def __init__(self, log_partition: int | None = None) -> None:
        self._log_partition = log_partition
        self._states = ShareStates()
        self._seen: dict[SharePartitionKey, _Seen] = {}

    def add(self, log_offset: int, timestamp_ms: int, record: ShareStateRecord) -> None:
        seen = self._seen.get(record.key)
        if seen is None:
            seen = self._seen[record.key] = _Seen(log_offset, timestamp_ms, timestamp_ms)
        seen.log_offset, seen.last_ms = log_offset, timestamp_ms
        if isinstance(record, ShareTombstone):
            seen.is_deleted = True
        else:
            before = () if seen.last is None or seen.is_deleted else seen.last.state_batches
            # A record that finishes the first batches may advance the start offset past them at once.
            after = merge_batches(before, record.state_batches, NO_START_OFFSET)
            for old, new, count in _differences(before, after):
                old_count = 1 if old is None else old.delivery_count
                seen.redeliveries += count * max(new.delivery_count - old_count, 0)
                was_given_up = old is not None and old.delivery_state in _GIVEN_UP
                seen.archived += count * (new.delivery_state in _GIVEN_UP and not was_given_up)
            seen.is_deleted = False
            seen.updates += isinstance(record, ShareUpdate)
            seen.snapshots += isinstance(record, ShareSnapshot)
        self._states.apply(record, log_offset)
        state = self._states.states.get(record.key)
        if state is not None:
            seen.last = state.snapshot

    def rows(self) -> Iterator[Row]:
        for key, seen in self._seen.items():
            yield {
                "group_id": key.group_id,
                "topic_id": uuid_text(key.topic_id.bytes),
                "topic_partition": key.partition,
                **_state_of(seen.last),
                "redeliveries": seen.redeliveries,
                "archived_records": seen.archived,
                "snapshots": seen.snapshots,
                "updates": seen.updates,
                "first_ms": seen.first_ms,
                "last_ms": seen.last_ms,
                "is_deleted": seen.is_deleted,
                "log_partition": self._log_partition,
                "log_offset": seen.log_offset,
            }


def _state_of(last: ShareSnapshot | None) -> Row:
    batches = () if last is None else last.state_batches
    counts = {state: sum(_size(one) for one in batches if one.delivery_state == state) for state in DeliveryState}
    start_offset = None if last is None or last.start_offset == NO_START_OFFSET else last.start_offset
    count = None if last is None or last.delivery_complete_count == UNKNOWN_COUNT else last.delivery_complete_count
    return {
        "start_offset": start_offset,
        "delivery_complete_count": count,
        "acknowledged": counts[DeliveryState.ACKNOWLEDGED],
        "archived": sum(counts[state] for state in _GIVEN_UP),
        "released": counts[DeliveryState.AVAILABLE],
        "delivery_count_max": max((one.delivery_count for one in batches), default=None),
        "state_epoch": None if last is None else last.state_epoch,
        "leader_epoch": None if last is None else last.leader_epoch,
    }


def _size(batch: StateBatch) -> int:
    return batch.last_offset - batch.first_offset + 1


def _differences(
    before: Iterable[StateBatch], after: Iterable[StateBatch]
) -> Iterator[tuple[StateBatch | None, StateBatch, int]]:
    """Yield changed ranges with their old and new state and their size; both lists are sorted."""
    old = list(before)
    number = 0
    for new in after:
        position = new.first_offset
        while position <= new.last_offset:
            while number < len(old) and old[number].last_offset < position:
                number += 1
            known = old[number] if number < len(old) and old[number].first_offset <= position else None
            end = new.last_offset
            if known is not None:
                end = min(end, known.last_offset)
            elif number < len(old):
                end = min(end, old[number].first_offset - 1)
            if known is None or known[2:] != new[2:]:
                yield known, new, end - position + 1
            position = end + 1
