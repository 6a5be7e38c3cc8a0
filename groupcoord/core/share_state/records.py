"""States of share-partitions: their records as values, the merging of batches, and the state that records add up to.

Source of the merging: ``PersisterStateBatchCombiner`` of Apache Kafka 4.4.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from enum import IntEnum
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from attrs import evolve

from groupcoord.core.fast_construct import frozen, plain_members

NO_START_OFFSET = -1
"""The start offset is not decided yet."""

UNKNOWN_COUNT = -1
"""The number of finished records is unknown."""

_UUID_TEXT_LENGTH = 22


@plain_members
class DeliveryState(IntEnum):
    """Delivery state of a record, by Kafka's numbers (``RecordState``).

    Acquisitions are never logged: only the partition's leader knows them.
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """Records that follow each other and have the same state.

    Attributes:
        first_offset, last_offset: offsets of the first and last record.
        delivery_state: a :class:`DeliveryState`, or an unknown number.
        delivery_count: how often they were delivered.
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class SharePartitionKey(NamedTuple):
    """A partition of a topic as one share group sees it."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def text(self) -> str:
        """Kafka's text of the key for FindCoordinator: group, topic id in base 64, number."""
        encoded = urlsafe_b64encode(self.topic_id.bytes).decode().rstrip("=")
        return f"{self.group_id}:{encoded}:{self.partition}"


def parse_share_partition(text: str) -> SharePartitionKey:
    """Return the key of a :attr:`SharePartitionKey.text`.

    Raises:
        ValueError: invalid text.
    """
    # From the right, because group ids may hold colons.
    group_id, topic_id, partition = text.rsplit(":", 2)
    if not group_id or len(topic_id) != _UUID_TEXT_LENGTH:
        raise ValueError(f"{text!r} names no share-partition")
    return SharePartitionKey(group_id, UUID(bytes=urlsafe_b64decode(topic_id + "==")), int(partition))


@frozen
class ShareSnapshot:
    """State of a share-partition.

    Attributes:
        snapshot_epoch: number of the snapshot.
        state_epoch: epoch of the share group when it was initialized.
        leader_epoch: epoch of the last leader that read it.
        start_offset: first unfinished offset; -1: not decided.
        create_time_ms, write_time_ms: time of the snapshot; a rewrite keeps the first.
        delivery_complete_count: number of finished records from there on; -1: unknown.
        state_batches: batches from there on that are not in their initial state.
    """

    key: SharePartitionKey
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    create_time_ms: int
    write_time_ms: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...]


@frozen
class ShareUpdate:
    """Changes of a share-partition since the snapshot with ``snapshot_epoch``; leader epoch or start offset -1:
    unchanged.
    """

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...]


@frozen
class ShareTombstone:
    """Tombstone of a share-partition's state."""

    key: SharePartitionKey


ShareStateRecord = ShareSnapshot | ShareUpdate | ShareTombstone

RangeT = TypeVar("RangeT", bound=tuple[Any, ...])
"""Named tuple that begins with the first and last offset."""


def merge_batches(
    known: Iterable[StateBatch], changed: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Return the union of two lists of batches from ``start_offset`` on; -1: all.

    Where they overlap, the higher delivery count wins, then the higher state number: accepted over available.
    """
    pending = sorted(_cut([*known, *changed], start_offset))
    merged: list[StateBatch] = []
    open_batches: list[tuple[int, int, int]] = []  # heap by precedence: -count, -state, last offset
    position = index = 0
    while open_batches or index < len(pending):
        if not open_batches:
            # A hole between batches stays a hole.
            position = pending[index].first_offset
        while index < len(pending) and pending[index].first_offset == position:
            batch = pending[index]
            heappush(open_batches, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            index += 1
        count, state, last = open_batches[0]
        # Batches of higher precedence have covered the rest of it.
        if last < position:
            heappop(open_batches)
            continue
        # A batch that begins later may win from there on.
        end = last if index == len(pending) else min(last, pending[index].first_offset - 1)
        append_joined(merged, StateBatch(position, end, -state, -count))
        position = end + 1
    return tuple(merged)


def _cut(batches: list[StateBatch], start_offset: int) -> list[StateBatch]:
    if start_offset < 0:
        return batches
    return [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    ]


def append_joined(ranges: list[RangeT], new: RangeT) -> None:
    """Append a range of offsets, or extend the last one if that ends before it and has the same other fields."""
    last = ranges[-1] if ranges else None
    if last is not None and last[1] + 1 == new[0] and last[2:] == new[2:]:
        ranges[-1] = type(new)(last[0], *new[1:])
    else:
        ranges.append(new)


@frozen
class ShareState:
    """State of a share-partition.

    Attributes:
        snapshot: the last snapshot with all later updates applied.
        update_count: number of these updates.
        log_offset: log offset of the snapshot, before which nothing is needed.
    """

    snapshot: ShareSnapshot
    update_count: int
    log_offset: int

    def moved(self, start_offset: int, delivery_complete_count: int) -> tuple[int, int]:
        """Return start offset and delivery complete count after an update."""
        known = self.snapshot
        # A count belongs to its start offset, which never decreases; at an equal one the larger count wins.
        if start_offset in (NO_START_OFFSET, known.start_offset):
            return known.start_offset, max(delivery_complete_count, known.delivery_complete_count)
        if start_offset < known.start_offset:
            return known.start_offset, known.delivery_complete_count
        return start_offset, delivery_complete_count


class ShareStates:
    """States of the share-partitions of a log partition.

    Attributes:
        states: by share-partition; missing if it was never initialized, or is deleted.
        redundant_offset: offset before which a load needs nothing of the log.
    """

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, ShareState] = {}
        self._next_offset = 0

    @property
    def redundant_offset(self) -> int:
        return min((state.log_offset for state in self.states.values()), default=self._next_offset)

    def apply(self, record: Any, log_offset: int) -> None:
        # Also for tombstones and unknown types: without states all of the log is redundant.
        self._next_offset = log_offset + 1
        match record:
            case ShareSnapshot(key):
                self.states[key] = ShareState(record, 0, log_offset)
            case ShareTombstone(key):
                # Pruning may have deleted the state's records, but not its tombstone.
                self.states.pop(key, None)
            case ShareUpdate(key):
                # An update without its snapshot in the log.
                known = self.states.get(key) or _unknown(record, log_offset)
                start_offset, count = known.moved(record.start_offset, record.delivery_complete_count)
                changed = evolve(
                    known.snapshot,
                    leader_epoch=known.snapshot.leader_epoch if record.leader_epoch < 0 else record.leader_epoch,
                    start_offset=start_offset,
                    delivery_complete_count=count,
                    state_batches=merge_batches(known.snapshot.state_batches, record.state_batches, start_offset),
                )
                # The snapshot's offset stays, because a load needs the log from there.
                self.states[key] = ShareState(changed, known.update_count + 1, known.log_offset)

    def facts(self) -> dict[SharePartitionKey, ShareState]:
        """Return all of it as plain values that compare equal for equal states."""
        return dict(self.states)


def _unknown(update: ShareUpdate, log_offset: int) -> ShareState:
    nothing = ShareSnapshot(
        update.key, update.snapshot_epoch, 0, update.leader_epoch, NO_START_OFFSET, 0, 0, UNKNOWN_COUNT, ()
    )
    return ShareState(nothing, 0, log_offset)
