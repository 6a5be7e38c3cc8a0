"""Records of a consumer group (KIP-848) as values: types 3 to 8 and 16.

Fields have the names of Kafka's schemas ``ConsumerGroup…Key/Value``. ``raw_value`` holds the original bytes of a value
that has unknown tagged fields.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from groupcoord.core.fast_construct import frozen
from groupcoord.core.log.record_keys import GroupWideRecord, MemberRecord, RecordKey, TopicPartitions

NEVER_CHANGES = True  # all of its classes: see forking/copies.py


class AssignedTopicPartitions(NamedTuple):
    """Partitions of one topic, assigned to a member or being revoked.

    Attributes:
        topic_id: the topic.
        partitions: their numbers.
        assignment_epochs: member epoch of each partition's assignment (Kafka 4.3); empty or None in older records.
    """

    topic_id: UUID
    partitions: tuple[int, ...]
    assignment_epochs: tuple[int, ...] | None = ()


class ClassicProtocol(NamedTuple):
    """Subscription of a classic member for one assignor: its name, and the bytes of the consumer protocol."""

    name: str
    metadata: bytes


class ClassicMemberMetadata(NamedTuple):
    """Additional data of a member that uses the classic protocol: session timeout, and protocols by preference."""

    session_timeout_ms: int
    supported_protocols: tuple[ClassicProtocol, ...]


class PartitionMetadata(NamedTuple):
    """One partition in a :class:`TopicMetadata`, with the racks of its replicas."""

    partition: int
    racks: tuple[str, ...]


class TopicMetadata(NamedTuple):
    """One topic in a :class:`ConsumerGroupPartitionMetadataRecord`, with the partitions of known racks."""

    topic_id: UUID
    topic_name: str
    num_partitions: int
    partition_metadata: tuple[PartitionMetadata, ...]


@frozen
class ConsumerGroupMetadataRecord(GroupWideRecord):
    """Epoch of a group (record type 3), which every change of the assignment's inputs increases.

    ``metadata_hash`` is the hash of the subscribed topics (Kafka 4.1); 0 without any.
    """

    group_id: str
    epoch: int
    metadata_hash: int = 0
    raw_value: bytes | None = None

    RECORD_TYPE = 3


@frozen
class ConsumerGroupPartitionMetadataRecord(GroupWideRecord):
    """Subscribed topics of a group (record type 4), written by Kafka 3.7 to 4.0; since then a hash replaces it."""

    group_id: str
    topics: tuple[TopicMetadata, ...] = ()
    raw_value: bytes | None = None

    RECORD_TYPE = 4


@frozen
class ConsumerGroupMemberMetadataRecord(MemberRecord):
    """Metadata of a member (record type 5).

    ``classic_member_metadata`` is None for members of the consumer protocol, ``subscribed_topic_regex`` and
    ``server_assignor`` if the member never set them.
    """

    group_id: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic_member_metadata: ClassicMemberMetadata | None = None
    raw_value: bytes | None = None

    RECORD_TYPE = 5


@frozen
class ConsumerGroupTargetAssignmentMetadataRecord(GroupWideRecord):
    """Group epoch (record type 6) and time (Kafka 4.3; 0 if unknown) of the target assignment."""

    group_id: str
    assignment_epoch: int
    assignment_timestamp_ms: int = 0
    raw_value: bytes | None = None

    RECORD_TYPE = 6


@frozen
class ConsumerGroupTargetAssignmentMemberRecord(MemberRecord):
    """Target assignment of a member (record type 7)."""

    group_id: str
    member_id: str
    topic_partitions: tuple[TopicPartitions, ...] = ()
    raw_value: bytes | None = None

    RECORD_TYPE = 7


@frozen
class ConsumerGroupCurrentMemberAssignmentRecord(MemberRecord):
    """Current assignment of a member, and partitions to revoke (record type 8).

    ``state`` is 0 for STABLE, 1 for UNREVOKED_PARTITIONS, 2 for UNRELEASED_PARTITIONS; others are of newer brokers.
    """

    group_id: str
    member_id: str
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[AssignedTopicPartitions, ...] = ()
    partitions_pending_revocation: tuple[AssignedTopicPartitions, ...] = ()
    raw_value: bytes | None = None

    RECORD_TYPE = 8


@frozen
class ConsumerGroupRegularExpressionRecord:
    """Topics that match a regular expression (record type 16).

    ``version`` is that of the cluster's metadata, ``timestamp_ms`` the time of the match.
    """

    group_id: str
    regular_expression: str
    topics: tuple[str, ...]
    version: int
    timestamp_ms: int
    raw_value: bytes | None = None

    RECORD_TYPE = 16

    @property
    def key(self) -> RecordKey:
        return 16, self.regular_expression

    @staticmethod
    def key_of(regular_expression: str) -> RecordKey:
        return 16, regular_expression


ConsumerGroupRecord = (
    ConsumerGroupMetadataRecord
    | ConsumerGroupPartitionMetadataRecord
    | ConsumerGroupMemberMetadataRecord
    | ConsumerGroupTargetAssignmentMetadataRecord
    | ConsumerGroupTargetAssignmentMemberRecord
    | ConsumerGroupCurrentMemberAssignmentRecord
    | ConsumerGroupRegularExpressionRecord
)
