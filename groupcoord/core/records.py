"""What is durable: the records of ``__consumer_offsets`` as values, without their bytes.

Hard state is a fold over these and nothing else (see :mod:`groupcoord.core.partition`). Treat them as immutable;
they are not frozen because a commit makes one for each partition. Sources: Kafka's ``OffsetCommitKey/Value`` and
``GroupMetadataKey/Value`` schemas, KIP-98 for the transaction markers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple
from uuid import UUID

from attrs import define, frozen

from groupcoord.core.consumer.records import (
    AssignedTopicPartitions,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    PartitionMetadata,
    TopicMetadata,
    TopicPartitions,
)
from groupcoord.core.lazy_sequence import LazySequence
from groupcoord.core.record_keys import RecordKey

__all__ = [
    "CLASSIC_GROUP_KEY",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_TIMESTAMP",
    "ZERO_UUID",
    "AssignedTopicPartitions",
    "ClassicMemberMetadata",
    "ClassicProtocol",
    "CommittedTopic",
    "ConsumerGroupCurrentMemberAssignmentRecord",
    "ConsumerGroupMemberMetadataRecord",
    "ConsumerGroupMetadataRecord",
    "ConsumerGroupPartitionMetadataRecord",
    "ConsumerGroupRecord",
    "ConsumerGroupRegularExpressionRecord",
    "ConsumerGroupTargetAssignmentMemberRecord",
    "ConsumerGroupTargetAssignmentMetadataRecord",
    "GroupMetadataRecord",
    "GroupRecord",
    "GroupTombstone",
    "MemberRecord",
    "OffsetCommitRecord",
    "OffsetTombstone",
    "OpaqueRecord",
    "PartitionMetadata",
    "PlainCommits",
    "Record",
    "RecordKey",
    "TopicMetadata",
    "TopicPartitions",
    "TransactionMarker",
]

ZERO_UUID = UUID(int=0)
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1


@define
class OffsetCommitRecord:
    """A committed offset of one partition (record type 1).

    With a ``producer_id`` it is part of a transaction (KIP-98): invisible until that producer's marker commits it.
    ``value_version`` is the version of the value as it stands in a log; None: the one that Kafka 4.4 would write.
    ``key_version`` is 0 for the keys of brokers before 0.9. ``raw_value`` is the value's bytes if the fields alone
    would give others: it has tagged fields that this library does not know.
    """

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: UUID = ZERO_UUID
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    value_version: int | None = None
    key_version: int = 1
    raw_value: bytes | None = None


class CommittedTopic(NamedTuple):
    """The part of :class:`PlainCommits` that concerns one topic: at least one partition, each column as long.

    Attributes:
        like: a record that is the same as each here but for partition, offset and leader epoch.
        partition_indexes: the partitions, in the order of the records.
        offsets: what is committed for each.
        leader_epochs: of each offset.
    """

    like: OffsetCommitRecord
    partition_indexes: tuple[int, ...]
    offsets: tuple[int, ...]
    leader_epochs: tuple[int, ...]

    def records(self) -> Iterator[OffsetCommitRecord]:
        """Make the records."""
        like = self.like
        for partition, offset, leader_epoch in zip(
            self.partition_indexes, self.offsets, self.leader_epochs, strict=True
        ):
            yield OffsetCommitRecord(
                like.group_id,
                like.topic,
                partition,
                offset,
                leader_epoch,
                "",
                like.commit_timestamp_ms,
                NO_TIMESTAMP,
                like.topic_id,
                like.producer_id,
                like.producer_epoch,
            )


class PlainCommits(LazySequence[OffsetCommitRecord]):
    """The records of one commit, none of which has metadata, an expiry or a version of its own, kept as columns.

    A record is made for each only when it is looked at.

    Attributes:
        topics: what is committed for each topic, in the order of the records; at least one.
        is_transactional: a producer's marker decides what becomes of it.
    """

    __slots__ = ("_record_count", "is_transactional", "topics")

    def __init__(self, topics: Sequence[CommittedTopic]) -> None:
        self.topics = topics
        self.is_transactional = topics[0].like.producer_id != NO_PRODUCER_ID
        self._record_count = 0
        for topic in topics:
            self._record_count += len(topic.offsets)

    def __len__(self) -> int:
        return self._record_count

    def __iter__(self) -> Iterator[OffsetCommitRecord]:
        for topic in self.topics:
            yield from topic.records()


@define
class OffsetTombstone:
    """A committed offset is gone: deleted, expired, or its group or topic deleted."""

    group_id: str
    topic: str
    partition: int
    key_version: int = 1


@define
class MemberRecord:
    """One member inside a :class:`GroupMetadataRecord`: what survives of it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


CLASSIC_GROUP_KEY: RecordKey = (2, "")


@define
class GroupMetadataRecord:
    """A generation of a classic group with its members and their assignments (record type 2).

    ``value_version`` and ``raw_value`` are those of :class:`OffsetCommitRecord`.
    """

    group_id: str
    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int = NO_TIMESTAMP
    members: tuple[MemberRecord, ...] = ()
    value_version: int | None = None
    raw_value: bytes | None = None

    key: ClassVar[RecordKey] = CLASSIC_GROUP_KEY


@frozen
class GroupTombstone:
    """The record of a group that ``key`` names is gone: by default that of a classic group, and the group with it."""

    group_id: str
    key: RecordKey = CLASSIC_GROUP_KEY


@define
class TransactionMarker:
    """The end of a producer's transaction: a control record (KIP-98)."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int = 0


@define
class OpaqueRecord:
    """A record of a type or version that the coordinator does not know: kept as it is, never interpreted.

    Producer and ``is_control`` are those of its batch.
    """

    key: bytes
    value: bytes | None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    is_control: bool = False


GroupRecord = GroupMetadataRecord | ConsumerGroupRecord
"""A record of a group of any kind that isn't a tombstone."""

Record = OffsetCommitRecord | OffsetTombstone | GroupRecord | GroupTombstone | TransactionMarker | OpaqueRecord
