"""Offset cache: committed and pending offsets, open transactions, and epochs of producers (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from groupcoord.core.columns import NO_LEADER_EPOCH, NO_OFFSET, OffsetColumns, offset_columns
from groupcoord.core.fast_construct import define
from groupcoord.core.log.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ZERO_UUID,
    CommitKind,
    CommitRecords,
    OffsetCommitRecord,
    OffsetTombstone,
    TransactionMarker,
    record_at,
    topic_of_record,
)
from groupcoord.errors import ErrorCode, InvariantError

NO_COORDINATOR_EPOCH = -1

TRACKED_PRODUCERS_MAX = 10_000
"""Maximum number of producers of a log partition; Kafka removes them by time (``producer.id.expiration.ms``)."""


class ProducerEpochs(NamedTuple):
    """Epoch of a producer's last write, and epoch of the coordinator of its last marker."""

    producer_epoch: int
    coordinator_epoch: int = NO_COORDINATOR_EPOCH


class Producers:
    """Epochs of the last producers with transactional records or markers in a log partition."""

    __slots__ = ("_epochs",)

    def __init__(self) -> None:
        self._epochs: dict[int, ProducerEpochs] = {}

    def wrote(self, producer_id: int, producer_epoch: int, coordinator_epoch: int | None = None) -> None:
        # Popped and put, so that the order is that of the last writes.
        known = self._epochs.pop(producer_id, None)
        if coordinator_epoch is None:
            coordinator_epoch = NO_COORDINATOR_EPOCH if known is None else known.coordinator_epoch
        self._epochs[producer_id] = ProducerEpochs(producer_epoch, coordinator_epoch)
        if len(self._epochs) > TRACKED_PRODUCERS_MAX:
            # Soft state: markers of a forgotten producer are accepted.
            del self._epochs[next(iter(self._epochs))]

    def marker_error(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> ErrorCode:
        """Return why a marker may not be written, or NONE."""
        known = self._epochs.get(producer_id)
        # A later transaction, or (below) a later coordinator, was here already.
        # An equal epoch passes: it ends the producer's own transaction.
        if known is not None and producer_epoch < known.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if known is not None and coordinator_epoch < known.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    def highest_id(self) -> int:
        """Return the highest producer id that is remembered; -1 if none is."""
        return max(self._epochs, default=-1)


LoggedCommit = tuple[int, OffsetCommitRecord]


@define(eq=False)
class DurableCommit:
    """Remaining offsets of a commit to one topic: at least one partition, once each.

    Attributes:
        kind: common fields of the offsets.
        log_offset: log offset of the first; the others follow.
    """

    NOT_COUNTED = ("_places",)

    kind: CommitKind
    columns: OffsetColumns
    log_offset: int
    _places: dict[int, int] | None = None

    def place_of(self, partition: int) -> int:
        indexes = self.columns.partition_indexes
        if len(indexes) == 1:
            # One partition needs no index.
            return 0
        if self._places is None:
            self._places = {index: place for place, index in enumerate(indexes)}
        return self._places[partition]

    def logged(self, partition: int) -> LoggedCommit:
        """Return the log offset and the record of one of the partitions."""
        place = self.place_of(partition)
        return self.log_offset + place, record_at(self.kind, self.columns, place)

    def agrees(self, partition: int, other: DurableCommit) -> bool:
        """Return whether another commit has the same offset of a partition, at the same place in the log."""
        place, others = self.place_of(partition), other.place_of(partition)
        return (
            self.log_offset + place == other.log_offset + others
            and self.columns.offsets[place] == other.columns.offsets[others]
            and self.columns.leader_epochs[place] == other.columns.leader_epochs[others]
            and self.columns.texts()[place] == other.columns.texts()[others]
            and self.kind == other.kind
        )


OffsetsOfTopic = dict[int, DurableCommit]
"""Commits by partition; a commit is listed under each partition that it committed last."""

OffsetsOfGroup = dict[str, OffsetsOfTopic]


def put(of_topic: OffsetsOfTopic, kind: CommitKind, columns: OffsetColumns, log_offset: int) -> None:
    """Replace the offsets of a commit's partitions by those logged from ``log_offset`` on."""
    indexes = columns[0]
    known = of_topic.get(indexes[0])
    if known is not None and known.columns[0] == indexes:  # consumers usually commit the same partitions again
        # In place, because each of its partitions refers to this commit.
        known.kind, known.columns, known.log_offset = kind, columns, log_offset
    # A peer may name a partition twice; the last one counts.
    elif len(indexes) == 1 or len(set(indexes)) == len(indexes):
        if of_topic:
            take_out(of_topic, indexes)
        of_topic.update(dict.fromkeys(indexes, DurableCommit(kind, columns, log_offset)))
    else:
        last = {index: place for place, index in enumerate(indexes)}
        take_out(of_topic, tuple(last))
        for index, place in last.items():
            of_topic[index] = DurableCommit(kind, columns.select([place]), log_offset + place)


def take_out(of_topic: OffsetsOfTopic, indexes: tuple[int, ...]) -> None:
    """Remove partitions from the columns of their commits; they stay listed."""
    # Each commit once, though it is listed under several partitions.
    found = {id(known): known for index in indexes if (known := of_topic.get(index)) is not None}
    for known in found.values():
        columns = known.columns
        if len(columns.offsets) > 1:
            taken = set(indexes)
            for place, index in enumerate(columns.partition_indexes):
                if index not in taken:
                    # The others become separate commits.
                    of_topic[index] = DurableCommit(known.kind, columns.select([place]), known.log_offset + place)


def delete(of_topic: OffsetsOfTopic, indexes: Iterable[int]) -> None:
    known = tuple(dict.fromkeys(index for index in indexes if index in of_topic))
    # Deletions of groups clear whole topics, without touching each commit.
    if len(known) == len(of_topic):
        of_topic.clear()
        return
    take_out(of_topic, known)
    for index in known:
        del of_topic[index]


def fetch_columns(of_topic: OffsetsOfTopic, indexes: tuple[int, ...], topic_id: UUID) -> OffsetColumns:
    """Return the committed offsets of a topic; -1 for partitions without one."""
    if indexes:
        known = of_topic.get(indexes[0])
        # Consumers usually fetch the partitions that they have committed.
        if known is not None and known.columns[0] == indexes and is_of_topic(known.kind, topic_id):
            return known.columns
    offsets, leader_epochs, metadata = [], [], []
    for index in indexes:
        known = of_topic.get(index)
        if known is None or not is_of_topic(known.kind, topic_id):
            offsets.append(NO_OFFSET)
            leader_epochs.append(NO_LEADER_EPOCH)
            metadata.append("")
            continue
        columns, place = known.columns, known.place_of(index)
        offsets.append(columns.offsets[place])
        leader_epochs.append(columns.leader_epochs[place])
        metadata.append("" if columns.metadata is None else columns.metadata[place])
    return offset_columns(indexes, offsets, leader_epochs, metadata)


def is_of_topic(kind: CommitKind, topic_id: UUID) -> bool:
    """Return whether offsets belong to this topic, not to a deleted one of the same name (KIP-848)."""
    # Identity first, because UUIDs compare in Python code.
    return topic_id is ZERO_UUID or topic_id == ZERO_UUID or kind.topic_id in (ZERO_UUID, topic_id)


class OffsetCache:
    """Offsets of all groups of one log partition.

    ``committed`` and ``transactions`` are hard state: they change only by applying durable records, in the order of the
    log.

    Attributes:
        committed: group id → topic → partition → the commit with its offset.
        transactions: producer id → (group id, topic, partition) → its last offset in the open transaction (KIP-98).
        pending: append number → commits in flight; soft.
        producers: producers of transactional commits and markers; soft.
    """

    NOT_COUNTED = ("_open", "pending")

    def __init__(self) -> None:
        self.committed: dict[str, OffsetsOfGroup] = {}
        self.transactions: dict[int, dict[tuple[str, str, int], LoggedCommit]] = {}
        self.pending: dict[int, CommitRecords] = {}
        self.producers = Producers()
        # Index of transactions: group id → (topic, partition) → producer ids, in the order of writes.
        self._open: dict[str, dict[tuple[str, int], dict[int, None]]] = {}

    # ------------------------------------------------------------ hard state

    def apply(self, commit: CommitRecords, log_offset: int) -> None:
        """Apply a durable commit, which lies in the log from ``log_offset`` on."""
        topics = commit.topics
        # All topics of a commit have one group and one producer.
        kind = topics[0][0]
        # Visible when the marker of the transaction comes.
        if kind.producer_id != NO_PRODUCER_ID:
            self._put_aside(commit, log_offset)
            return
        group_id = kind.group_id
        of_group = self.committed.get(group_id)
        if of_group is None:
            of_group = self.committed[group_id] = {}
        for kind, columns in topics:
            of_topic = of_group.get(kind.topic)
            if of_topic is None:
                of_topic = of_group[kind.topic] = {}
            put(of_topic, kind, columns, log_offset)
            log_offset += len(columns[0])

    def _put_aside(self, commit: CommitRecords, log_offset: int) -> None:
        for place, record in enumerate(commit):
            key = (record.group_id, record.topic, record.partition)
            self.transactions.setdefault(record.producer_id, {})[key] = (log_offset + place, record)
            open_offsets = self._open.setdefault(record.group_id, {})
            open_offsets.setdefault((record.topic, record.partition), {})[record.producer_id] = None
            self.producers.wrote(record.producer_id, record.producer_epoch)

    def apply_tombstones(self, records: Sequence[OffsetTombstone]) -> None:
        """Delete offsets of one group, also in open transactions."""
        group_id = records[0].group_id
        of_group = self.committed.get(group_id)
        if of_group is not None:
            gone: dict[str, list[int]] = {}
            for record in records:
                gone.setdefault(record.topic, []).append(record.partition)
            for topic, indexes in gone.items():
                if topic in of_group:
                    delete(of_group[topic], indexes)
                    if not of_group[topic]:
                        del of_group[topic]
            if not of_group:
                del self.committed[group_id]
        # Kafka 4 drops them for a tombstone of any producer.
        if group_id in self._open:
            for record in records:
                key = (record.topic, record.partition)
                # A copy, since dropping the last offset removes the entry.
                for producer_id in self._open.get(group_id, {}).get(key, {}).copy():
                    self._drop_open(producer_id, (group_id, *key))

    def apply_marker(self, marker: TransactionMarker) -> None:
        self.producers.wrote(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch)
        # Nothing if compaction left only the marker.
        for key, (log_offset, record) in self.transactions.get(marker.producer_id, {}).copy().items():
            self._drop_open(marker.producer_id, key)
            if marker.committed:
                group_id, topic, partition = key
                of_topic = self.committed.setdefault(group_id, {}).setdefault(topic, {})
                current = of_topic.get(partition)
                # A commit outside of the transaction that was written later wins.
                if current is None or log_offset > current.log_offset + current.place_of(partition):
                    # From here on it is an offset like any other, as in a compacted log without the marker.
                    kind, columns = topic_of_record(record)
                    kind = kind._replace(producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
                    put(of_topic, kind, columns, log_offset)

    def _drop_open(self, producer_id: int, key: tuple[str, str, int]) -> None:
        group_id, topic, partition = key
        of_producer = self.transactions[producer_id]
        del of_producer[key]
        if not of_producer:
            del self.transactions[producer_id]
        of_group = self._open[group_id]
        del of_group[topic, partition][producer_id]
        if not of_group[topic, partition]:
            del of_group[topic, partition]
        if not of_group:
            del self._open[group_id]

    # ------------------------------------------------------------ reading

    def of_group(self, group_id: str) -> OffsetsOfGroup:
        return self.committed.get(group_id, {})

    def committed_records(self) -> dict[str, dict[str, dict[int, LoggedCommit]]]:
        """Return every committed offset as its log offset and its record, by group, topic and partition."""
        return {
            group_id: {
                topic: {index: commit.logged(index) for index, commit in partitions.items()}
                for topic, partitions in topics.items()
            }
            for group_id, topics in self.committed.items()
        }

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction has an offset for this partition (KIP-447)."""
        return (topic, partition) in self._open.get(group_id, {})

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._open

    def pending_keys(self, group_id: str) -> Iterator[tuple[str, int]]:
        for commit in self.pending.values():
            for kind, columns in commit.topics:
                if kind.group_id == group_id:
                    for index in columns.partition_indexes:
                        yield kind.topic, index

    def known_keys(self, group_id: str) -> dict[tuple[str, int], None]:
        """Return the (topic, partition) keys that a deletion has to cover: committed, in flight, in
        open transactions.
        """
        keys = {(topic, p): None for topic, partitions in self.of_group(group_id).items() for p in partitions}
        keys.update(dict.fromkeys(self.pending_keys(group_id)))
        keys.update(dict.fromkeys(self._open.get(group_id, {})))
        return keys

    def known_partitions(self, group_id: str, topic: str, partitions: Iterable[int]) -> list[int]:
        committed = self.of_group(group_id).get(topic, {})
        pending = {index for name, index in self.pending_keys(group_id) if name == topic}
        return [
            index
            for index in partitions
            if index in committed or index in pending or self.is_unstable(group_id, topic, index)
        ]

    def check(self) -> None:
        """Raise InvariantError unless the index of open transactions mirrors them, and no container is empty."""
        listed = {(key, pid) for pid, keys in self.transactions.items() for key in keys}
        indexed = {
            ((group_id, *tp), pid)
            for group_id, of_group in self._open.items()
            for tp, producers in of_group.items()
            for pid in producers
        }
        if listed != indexed:
            raise InvariantError(f"open transactions {listed} are indexed as {indexed}")
        for topics in self.committed.values():
            if not topics or not all(topics.values()):
                raise InvariantError("the offset cache keeps empty containers")
            for topic, of_topic in topics.items():
                _check_topic(topic, of_topic)


def _check_topic(topic: str, of_topic: OffsetsOfTopic) -> None:
    commits = {id(commit): commit for commit in of_topic.values()}
    listed = [index for commit in commits.values() for index in commit.columns.partition_indexes]
    if sorted(listed) != sorted(of_topic):
        raise InvariantError(f"commits of {topic!r} have {sorted(listed)}, but {sorted(of_topic)} are listed")
    for index, commit in of_topic.items():
        if commit.columns.partition_indexes[commit.place_of(index)] != index or commit.kind.topic != topic:
            raise InvariantError(f"partition {index} of {topic!r} is listed under another's commit")
