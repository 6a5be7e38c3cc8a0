"""Small logs written batch by batch, for results that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from groupcoord.core.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    encode_assignment,
    encode_subscription,
)
from groupcoord.core.log.records import GroupMetadataRecord, MemberRecord, OffsetCommitRecord, Record, TransactionMarker
from groupcoord.records.batches import encode_batch
from groupcoord.records.codec import encode_record
from groupcoord.records.typed import TypedRecord, build_record

GROUP, TOPIC = "g", "t"


def commit(partition: int, offset: int, producer_id: int = -1) -> OffsetCommitRecord:
    return OffsetCommitRecord(GROUP, TOPIC, partition, offset, commit_timestamp_ms=5, producer_id=producer_id)


def generation(number: int, at_ms: int, group_id: str = GROUP, **members: Sequence[int]) -> GroupMetadataRecord:
    """Return the record of a classic group, with members and their partitions."""
    names = list(members)
    leader, protocol = (names[0], "range") if names else (None, None)
    subscription = encode_subscription(Subscription((TOPIC,)))
    made = tuple(
        MemberRecord(name, None, name[0], "/h", 60_000, 10_000, subscription, _assignment(held))
        for name, held in members.items()
    )
    return GroupMetadataRecord(group_id, "consumer", number, protocol, leader, at_ms, made)


def _assignment(partitions: Sequence[int]) -> bytes:
    return encode_assignment(Assignment(tuple(TopicPartition(TOPIC, index) for index in partitions)))


def batch(
    offset: int, at_ms: int, *records: Record | TypedRecord, producer_id: int = -1, leader_epoch: int = 0
) -> bytes:
    """Return a batch with one timestamp, transactional if a producer is given."""
    made = [build_record(one) if isinstance(one, TypedRecord) else encode_record(one) for one in records]
    return encode_batch(
        offset,
        [(key, value, at_ms) for key, value in made],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=min(producer_id, 0),
        is_transactional=producer_id >= 0,
        is_control=isinstance(records[0], TransactionMarker),
    )


class Log:
    """A log partition that is written batch by batch."""

    def __init__(self, folder: Path, partition: int = 0) -> None:
        self._path = folder / f"__consumer_offsets-{partition}" / f"{0:020d}.log"
        self._path.parent.mkdir(parents=True)
        self._offset = 0
        self.leader_epoch = 0

    def add(self, *records: Record, at_ms: int | None = None, producer_id: int = -1, skipped: int = 0) -> Log:
        """Write a batch; ``skipped`` offsets before it are missing, as after compaction."""
        self._offset += skipped
        at_ms = 1_000 + self._offset if at_ms is None else at_ms
        with self._path.open("ab") as file:
            file.write(batch(self._offset, at_ms, *records, producer_id=producer_id, leader_epoch=self.leader_epoch))
        self._offset += len(records)
        return self

    def end(self, producer_id: int, *, committed: bool) -> Log:
        """Write a transaction marker."""
        return self.add(TransactionMarker(producer_id, 0, committed), producer_id=producer_id)

    def commit(self, at_ms: int, group_id: str, offset: int, partition: int = 0, producer_id: int = -1) -> Log:
        record = OffsetCommitRecord(
            group_id, TOPIC, partition, offset, commit_timestamp_ms=at_ms, producer_id=producer_id
        )
        return self.add(record, at_ms=at_ms, producer_id=producer_id)

    def generation(self, at_ms: int, group_id: str, number: int, **members: Sequence[int]) -> Log:
        return self.add(generation(number, at_ms, group_id, **members), at_ms=at_ms)
