"""The offset cache: committed offsets, pending commits, and pending offsets of open transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

from attrs import evolve

from groupcoord.core.offsets.producers import Producers
from groupcoord.core.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    OffsetCommitRecord,
    OffsetTombstone,
    PlainCommits,
    TransactionMarker,
)
from groupcoord.errors import InvariantError

CommittedOffset = tuple[int, int, int, OffsetCommitRecord]
"""The place of a committed offset in the log, the offset, its leader epoch, and a record that tells the rest.

That record is the same but for partition, offset and leader epoch: a commit shares one among its partitions.
:func:`record_of` gives the whole. A plain tuple, since a commit makes one per partition.
"""

LoggedCommit = tuple[int, OffsetCommitRecord]
"""The place of a commit in the log, and its record."""

OffsetsOfGroup = dict[str, dict[int, CommittedOffset]]
"""By topic and partition."""


def record_of(partition: int, entry: CommittedOffset) -> OffsetCommitRecord:
    """Return the whole record of a committed offset."""
    _, offset, leader_epoch, like = entry
    if (like.partition, like.offset, like.leader_epoch) == (partition, offset, leader_epoch):
        return like
    return evolve(like, partition=partition, offset=offset, leader_epoch=leader_epoch)


class OffsetCache:
    """The offsets of all groups of one log partition.

    ``committed`` and ``transactions`` are hard state: they change only in :meth:`apply_commit`,
    :meth:`apply_tombstone` and :meth:`apply_marker`, which are given records of the log in their order. ``pending``
    is soft.

    Attributes:
        committed: group id → topic → partition → committed offset.
        transactions: producer id → (group id, topic, partition) → its last offset in the open transaction (KIP-98).
        pending: append number → plain and transactional commits on their way to the log.
        producers: who wrote transactional commits and markers; soft as well.
    """

    def __init__(self) -> None:
        self.committed: dict[str, OffsetsOfGroup] = {}
        self.transactions: dict[int, dict[tuple[str, str, int], LoggedCommit]] = {}
        self.pending: dict[int, Sequence[OffsetCommitRecord]] = {}
        self.producers = Producers()
        self._open: dict[str, dict[tuple[str, int], dict[int, None]]] = {}

    # ------------------------------------------------------------ hard state

    def apply_commit(self, record: OffsetCommitRecord, log_offset: int) -> None:
        """Take a commit over: at once, or (from a transaction) aside until its marker."""
        if record.producer_id != NO_PRODUCER_ID:
            key = (record.group_id, record.topic, record.partition)
            self.transactions.setdefault(record.producer_id, {})[key] = (log_offset, record)
            open_offsets = self._open.setdefault(record.group_id, {})
            open_offsets.setdefault((record.topic, record.partition), {})[record.producer_id] = None
            self.producers.wrote(record.producer_id, record.producer_epoch)
            return
        entry = (log_offset, record.offset, record.leader_epoch, record)
        try:
            self.committed[record.group_id][record.topic][record.partition] = entry
        except KeyError:
            self.committed.setdefault(record.group_id, {}).setdefault(record.topic, {})[record.partition] = entry

    def apply_plain_commits(self, commits: PlainCommits, log_offset: int) -> None:
        """Take over a commit of one group outside of any transaction, which lies in the log from ``log_offset`` on.

        The same as :meth:`apply_commit` for each record, in one pass.
        """
        of_group = self.committed.setdefault(commits.topics[0].like.group_id, {})
        for like, partition_indexes, offsets, leader_epochs in commits.topics:
            next_log_offset = log_offset + len(offsets)
            entries = zip(range(log_offset, next_log_offset), offsets, leader_epochs, repeat(like))
            of_group.setdefault(like.topic, {}).update(zip(partition_indexes, entries, strict=True))
            log_offset = next_log_offset

    def apply_tombstone(self, record: OffsetTombstone) -> None:
        """Forget a partition's offset, pending ones of open transactions included."""
        topics = self.committed.get(record.group_id)
        if topics is not None and record.topic in topics:
            topics[record.topic].pop(record.partition, None)
            if not topics[record.topic]:
                del topics[record.topic]
            if not topics:
                del self.committed[record.group_id]
        key = (record.group_id, record.topic, record.partition)
        for producer_id in self._open.get(record.group_id, {}).get((record.topic, record.partition), {}).copy():
            self._drop_open(producer_id, key)

    def apply_marker(self, marker: TransactionMarker) -> None:
        """End a producer's transaction: its offsets become visible where nothing newer was committed, or vanish."""
        self.producers.wrote(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch)
        for key, (log_offset, record) in self.transactions.get(marker.producer_id, {}).copy().items():
            self._drop_open(marker.producer_id, key)
            if marker.committed:
                group_id, topic, partition = key
                of_topic = self.committed.setdefault(group_id, {}).setdefault(topic, {})
                current = of_topic.get(partition)
                if current is None or log_offset > current[0]:
                    # From here on it is an offset like any other, as it would be in a compacted log without the marker.
                    plain = evolve(record, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
                    of_topic[partition] = (log_offset, plain.offset, plain.leader_epoch, plain)

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

    # ------------------------------------------------------------ pending commits

    def begin(self, number: int, records: Sequence[OffsetCommitRecord]) -> None:
        """Remember commits that are on their way to the log as append ``number``."""
        self.pending[number] = records

    def settle(self, number: int) -> Sequence[OffsetCommitRecord] | None:
        """Forget the pending commits of an append, which is durable or has failed; return them if there were any."""
        return self.pending.pop(number, None)

    # ------------------------------------------------------------ reading

    def of_group(self, group_id: str) -> OffsetsOfGroup:
        """Return a group's committed offsets, by topic and partition; not a copy."""
        return self.committed.get(group_id, {})

    def committed_records(self) -> dict[str, dict[str, dict[int, LoggedCommit]]]:
        """Return every committed offset as its place in the log and its whole record, by group, topic and partition."""
        return {
            group_id: {
                topic: {index: (entry[0], record_of(index, entry)) for index, entry in partitions.items()}
                for topic, partitions in topics.items()
            }
            for group_id, topics in self.committed.items()
        }

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Tell whether an open transaction has an offset for this partition (KIP-447)."""
        return (topic, partition) in self._open.get(group_id, {})

    def has_open_transaction(self, group_id: str) -> bool:
        """Tell whether an open transaction has offsets of this group."""
        return group_id in self._open

    def pending_keys(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Return (topic, partition) of every commit of a group that is on its way to the log."""
        for records in self.pending.values():
            for record in records:
                if record.group_id == group_id:
                    yield record.topic, record.partition

    def known_keys(self, group_id: str) -> dict[tuple[str, int], None]:
        """Return (topic, partition) of all that a deletion must cover, in order.

        Committed offsets come first, then those only on their way, then those only in open transactions.
        """
        keys = {(topic, p): None for topic, partitions in self.of_group(group_id).items() for p in partitions}
        keys.update(dict.fromkeys(self.pending_keys(group_id)))
        keys.update(dict.fromkeys(self._open.get(group_id, {})))
        return keys

    def check(self) -> None:
        """Prove that the index of open transactions mirrors them.

        Raises:
            InvariantError: it does not, or an empty container was left behind.
        """
        listed = {(key, pid) for pid, keys in self.transactions.items() for key in keys}
        indexed = {
            ((group_id, *tp), pid)
            for group_id, of_group in self._open.items()
            for tp, producers in of_group.items()
            for pid in producers
        }
        if listed != indexed:
            raise InvariantError(f"open transactions {listed} are indexed as {indexed}")
        if not all(topics and all(topics.values()) for topics in self.committed.values()):
            raise InvariantError("the offset cache keeps empty containers")
