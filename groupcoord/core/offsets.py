"""The offset cache: committed offsets, pending commits, and pending offsets of open transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import evolve

from groupcoord.core.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    OffsetCommitRecord,
    OffsetTombstone,
    TransactionMarker,
)
from groupcoord.errors import InvariantError

CommittedOffset = tuple[int, OffsetCommitRecord]
"""A committed offset and the place of its record in the log. A plain tuple, since a commit makes one per partition."""

OffsetsOfGroup = dict[str, dict[int, CommittedOffset]]
"""By topic and partition."""


class OffsetCache:
    """The offsets of all groups of one log partition.

    ``committed`` and ``transactions`` are hard state: they change only in :meth:`apply_commit`,
    :meth:`apply_tombstone` and :meth:`apply_marker`, which are given records of the log in their order. ``pending``
    is soft.

    Attributes:
        committed: group id → topic → partition → committed offset.
        transactions: producer id → (group id, topic, partition) → its last offset in the open transaction (KIP-98).
        pending: append number → plain and transactional commits on their way to the log.
    """

    def __init__(self) -> None:
        self.committed: dict[str, OffsetsOfGroup] = {}
        self.transactions: dict[int, dict[tuple[str, str, int], CommittedOffset]] = {}
        self.pending: dict[int, list[OffsetCommitRecord]] = {}
        self._open: dict[str, dict[tuple[str, int], dict[int, None]]] = {}

    # ------------------------------------------------------------ hard state

    def apply_commit(self, record: OffsetCommitRecord, log_offset: int) -> None:
        """Take a commit over: at once, or (from a transaction) aside until its marker."""
        if record.producer_id != NO_PRODUCER_ID:
            key = (record.group_id, record.topic, record.partition)
            self.transactions.setdefault(record.producer_id, {})[key] = (log_offset, record)
            open_offsets = self._open.setdefault(record.group_id, {})
            open_offsets.setdefault((record.topic, record.partition), {})[record.producer_id] = None
            return
        try:
            self.committed[record.group_id][record.topic][record.partition] = (log_offset, record)
        except KeyError:
            topics = self.committed.setdefault(record.group_id, {})
            topics.setdefault(record.topic, {})[record.partition] = (log_offset, record)

    def apply_plain_commits(self, records: Sequence[OffsetCommitRecord], log_offset: int) -> None:
        """Take over the commits of one group outside of any transaction, which lie in the log from ``log_offset`` on.

        The same as :meth:`apply_commit` for each, in one pass.
        """
        topics = self.committed.setdefault(records[0].group_id, {})
        name, partitions = None, {}
        for record in records:
            if record.topic != name:
                name = record.topic
                partitions = topics.setdefault(name, {})
            partitions[record.partition] = (log_offset, record)
            log_offset += 1

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
        for key, (log_offset, record) in self.transactions.get(marker.producer_id, {}).copy().items():
            self._drop_open(marker.producer_id, key)
            if marker.committed:
                group_id, topic, partition = key
                of_topic = self.committed.setdefault(group_id, {}).setdefault(topic, {})
                current = of_topic.get(partition)
                if current is None or log_offset > current[0]:
                    # From here on it is an offset like any other, as it would be in a compacted log without the marker.
                    plain = evolve(record, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
                    of_topic[partition] = (log_offset, plain)

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

    def begin(self, number: int, records: list[OffsetCommitRecord]) -> None:
        """Remember commits that are on their way to the log as append ``number``."""
        self.pending[number] = records

    def settle(self, number: int) -> list[OffsetCommitRecord] | None:
        """Forget the pending commits of an append, which is durable or has failed; return them if there were any."""
        return self.pending.pop(number, None)

    # ------------------------------------------------------------ reading

    def of_group(self, group_id: str) -> OffsetsOfGroup:
        """Return a group's committed offsets, by topic and partition; not a copy."""
        return self.committed.get(group_id, {})

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
