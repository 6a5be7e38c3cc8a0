"""Records of ``__consumer_offsets`` as values.

Treat them as immutable; many are not frozen, since freezing slows construction. Sources: Kafka's
``OffsetCommitKey/Value`` and ``GroupMetadataKey/Value`` schemas, KIP-98 for markers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar, NamedTuple
from uuid import UUID

from groupcoord.core.columns import OffsetColumns, Rows
from groupcoord.core.fast_construct import define, frozen, maker
from groupcoord.core.groups.consumer.records import (
    AssignedTopicPartitions as AssignedTopicPartitions,
    ClassicMemberMetadata as ClassicMemberMetadata,
    ClassicProtocol as ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentRecord as ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord as ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord as ConsumerGroupMetadataRecord,
    ConsumerGroupPartitionMetadataRecord as ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRecord as ConsumerGroupRecord,
    ConsumerGroupRegularExpressionRecord as ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord as ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord as ConsumerGroupTargetAssignmentMetadataRecord,
    PartitionMetadata as PartitionMetadata,
    TopicMetadata as TopicMetadata,
)
from groupcoord.core.groups.share.records import (
    NamedTopic as NamedTopic,
    NamedTopicPartitions as NamedTopicPartitions,
    ShareGroupCurrentMemberAssignmentRecord as ShareGroupCurrentMemberAssignmentRecord,
    ShareGroupMemberMetadataRecord as ShareGroupMemberMetadataRecord,
    ShareGroupMetadataRecord as ShareGroupMetadataRecord,
    ShareGroupRecord as ShareGroupRecord,
    ShareGroupStatePartitionMetadataRecord as ShareGroupStatePartitionMetadataRecord,
    ShareGroupTargetAssignmentMemberRecord as ShareGroupTargetAssignmentMemberRecord,
    ShareGroupTargetAssignmentMetadataRecord as ShareGroupTargetAssignmentMetadataRecord,
)
from groupcoord.core.groups.streams.records import (
    AssignedTaskIds as AssignedTaskIds,
    CopartitionGroup as CopartitionGroup,
    Endpoint as Endpoint,
    KeyValue as KeyValue,
    StreamsGroupCurrentMemberAssignmentRecord as StreamsGroupCurrentMemberAssignmentRecord,
    StreamsGroupMemberMetadataRecord as StreamsGroupMemberMetadataRecord,
    StreamsGroupMetadataRecord as StreamsGroupMetadataRecord,
    StreamsGroupRecord as StreamsGroupRecord,
    StreamsGroupTargetAssignmentMemberRecord as StreamsGroupTargetAssignmentMemberRecord,
    StreamsGroupTargetAssignmentMetadataRecord as StreamsGroupTargetAssignmentMetadataRecord,
    StreamsGroupTopologyRecord as StreamsGroupTopologyRecord,
    Subtopology as Subtopology,
    TaskIds as TaskIds,
    TopicInfo as TopicInfo,
)
from groupcoord.core.log.record_keys import RecordKey as RecordKey, TopicPartitions as TopicPartitions
from groupcoord.schema.primitives import ZERO_UUID as ZERO_UUID

NEVER_CHANGES = True  # all of its classes: see forking/copies.py


OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1


@define(unsafe_hash=True)
class OffsetCommitRecord:
    """Committed offset of one partition (record type 1).

    With a ``producer_id`` it belongs to a transaction (KIP-98), invisible until the producer's marker commits it.
    ``value_version`` is the version in a log; None: that of Kafka 4.4. ``raw_value`` holds the original bytes of a
    value with unknown tagged fields.
    """

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    # Zero in values before version 4, which have no field for it.
    topic_id: UUID = ZERO_UUID
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    value_version: int | None = None
    # 0 is the key type of Kafka 0.8; today's coordinators write 1.
    key_version: int = 1
    raw_value: bytes | None = None


class RecordForm(NamedTuple):
    """Encoding of a committed offset that differs from Kafka 4.4's; fields as in :class:`OffsetCommitRecord`."""

    value_version: int | None = None
    key_version: int = 1
    raw_value: bytes | None = None


_USUAL_FORM = RecordForm()


class CommitKind(NamedTuple):
    """Common fields of the offsets of one topic of a commit, as in :class:`OffsetCommitRecord`."""

    group_id: str
    topic: str
    topic_id: UUID = ZERO_UUID
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    form: RecordForm | None = None


make_commit_kind = maker(CommitKind)


class CommittedTopic(NamedTuple):
    """Offsets of one topic of a commit; at least one."""

    kind: CommitKind
    columns: OffsetColumns


make_committed_topic = maker(CommittedTopic)


# A commit of a hundred partitions is one object until its records are read.
class CommitRecords(Rows[OffsetCommitRecord]):
    """Records of one commit, of one group and at most one producer, as columns.

    Attributes:
        topics: the offsets of each topic, in the order of the records; at least one.
        record_count: number of records.
    """

    __slots__ = ("record_count", "topics")

    def __init__(self, topics: Sequence[CommittedTopic]) -> None:
        self.topics = topics
        count = 0
        for topic in topics:
            count += len(topic[1][1])  # by index, for speed: each commit does this
        self.record_count = count

    def __len__(self) -> int:
        return self.record_count

    # Rows are made for stores and checks; hard state takes the columns.
    def __iter__(self) -> Iterator[OffsetCommitRecord]:
        records: list[OffsetCommitRecord] = []
        for kind, columns in self.topics:
            records += map(partial(record_at, kind, columns), range(len(columns.offsets)))
        return iter(records)


def record_at(kind: CommitKind, columns: OffsetColumns, place: int) -> OffsetCommitRecord:
    """Return the record of one of the offsets of a topic of a commit."""
    indexes, offsets, leader_epochs, metadata = columns
    record = OffsetCommitRecord(
        kind.group_id,
        kind.topic,
        indexes[place],
        offsets[place],
        leader_epochs[place],
        "" if metadata is None else metadata[place],
        kind.commit_timestamp_ms,
        kind.expire_timestamp_ms,
        kind.topic_id,
        kind.producer_id,
        kind.producer_epoch,
    )
    if kind.form is not None:
        record.value_version, record.key_version, record.raw_value = kind.form
    return record


def topic_of_record(record: OffsetCommitRecord) -> CommittedTopic:
    """Return one record as columns: the inverse of :func:`record_at`."""
    form = RecordForm(record.value_version, record.key_version, record.raw_value)
    kind = make_commit_kind(
        (
            record.group_id,
            record.topic,
            record.topic_id,
            record.commit_timestamp_ms,
            record.expire_timestamp_ms,
            record.producer_id,
            record.producer_epoch,
            # None as in new commits, so that equal offsets have equal kinds.
            None if form == _USUAL_FORM else form,
        )
    )
    metadata = (record.metadata,) if record.metadata else None
    return CommittedTopic(kind, OffsetColumns((record.partition,), (record.offset,), (record.leader_epoch,), metadata))


@define(unsafe_hash=True)
class OffsetTombstone:
    """Tombstone of a committed offset."""

    group_id: str
    topic: str
    partition: int
    key_version: int = 1


@define(unsafe_hash=True)
class MemberRecord:
    """One member in a :class:`GroupMetadataRecord`."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    # -1 in value version 0: a load uses the session timeout.
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


CLASSIC_GROUP_KEY: RecordKey = (2, "")


@define(unsafe_hash=True)
class GroupMetadataRecord:
    """Generation of a classic group with members and assignments (record type 2).

    ``value_version`` and ``raw_value`` are as in :class:`OffsetCommitRecord`.
    """

    group_id: str
    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    # -1 in value versions 0 and 1: offsets then age from their commit.
    state_timestamp_ms: int = NO_TIMESTAMP
    members: tuple[MemberRecord, ...] = ()
    value_version: int | None = None
    raw_value: bytes | None = None

    key: ClassVar[RecordKey] = CLASSIC_GROUP_KEY


@frozen
class GroupTombstone:
    """Tombstone of the group record with ``key``, by default a classic group's only one."""

    group_id: str
    key: RecordKey = CLASSIC_GROUP_KEY


@define(unsafe_hash=True)
class TransactionMarker:
    """The end of a producer's transaction: a control record (KIP-98)."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int = 0


@define(unsafe_hash=True)
class OpaqueRecord:
    """Record of an unknown type or version, kept as it is; producer and ``is_control`` are those of its batch."""

    key: bytes
    value: bytes | None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    is_control: bool = False


GroupRecord = GroupMetadataRecord | ConsumerGroupRecord | ShareGroupRecord | StreamsGroupRecord
"""Record of a group of any type, not a tombstone."""

LoggedGroupRecord = tuple[int, GroupRecord]
"""Offset in the log, and the record there."""

RecordsOfGroup = dict[RecordKey, LoggedGroupRecord]
"""The last record of each key of a group."""

Record = OffsetCommitRecord | OffsetTombstone | GroupRecord | GroupTombstone | TransactionMarker | OpaqueRecord
