"""Records of a share group (KIP-932) as values: types 10 to 15.

Fields have the names of Kafka's schemas ``ShareGroup…Key/Value``; ``raw_value`` is as in
:mod:`groupcoord.core.groups.consumer.records`.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple
from uuid import UUID

from groupcoord.core.fast_construct import frozen
from groupcoord.core.log.record_keys import GroupWideRecord, MemberRecord, TopicPartitions

NEVER_CHANGES = True  # all of its classes: see forking/copies.py


class NamedTopicPartitions(NamedTuple):
    """Partitions of one topic, with its name, in a :class:`ShareGroupStatePartitionMetadataRecord`."""

    topic_id: UUID
    topic_name: str
    partitions: tuple[int, ...]


class NamedTopic(NamedTuple):
    """One topic in a :class:`ShareGroupStatePartitionMetadataRecord`."""

    topic_id: UUID
    topic_name: str


@frozen
class ShareGroupMemberMetadataRecord(MemberRecord):
    """Metadata of a member (record type 10)."""

    group_id: str
    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...] = ()
    raw_value: bytes | None = None

    instance_id: ClassVar[None] = None
    subscribed_topic_regex: ClassVar[None] = None
    """Members of share groups have neither."""

    RECORD_TYPE = 10


@frozen
class ShareGroupMetadataRecord(GroupWideRecord):
    """Epoch of a group, and the hash of its subscribed topics (record type 11)."""

    group_id: str
    epoch: int
    metadata_hash: int = 0
    raw_value: bytes | None = None

    RECORD_TYPE = 11


@frozen
class ShareGroupTargetAssignmentMetadataRecord(GroupWideRecord):
    """Group epoch and time of the target assignment; 0: unknown (record type 12)."""

    group_id: str
    assignment_epoch: int
    assignment_timestamp_ms: int = 0
    raw_value: bytes | None = None

    RECORD_TYPE = 12


@frozen
class ShareGroupTargetAssignmentMemberRecord(MemberRecord):
    """Target assignment of a member (record type 13)."""

    group_id: str
    member_id: str
    topic_partitions: tuple[TopicPartitions, ...] = ()
    raw_value: bytes | None = None

    RECORD_TYPE = 13


@frozen
class ShareGroupCurrentMemberAssignmentRecord(MemberRecord):
    """Current assignment of a member (record type 14). ``state`` is always 0 for STABLE."""

    group_id: str
    member_id: str
    member_epoch: int
    previous_member_epoch: int
    state: int = 0
    assigned_partitions: tuple[TopicPartitions, ...] = ()
    raw_value: bytes | None = None

    RECORD_TYPE = 14


@frozen
class ShareGroupStatePartitionMetadataRecord(GroupWideRecord):
    """Partitions with states at the share coordinator: initializing, initialized or being deleted (type 15)."""

    group_id: str
    initializing_topics: tuple[NamedTopicPartitions, ...] = ()
    initialized_topics: tuple[NamedTopicPartitions, ...] = ()
    deleting_topics: tuple[NamedTopic, ...] = ()
    raw_value: bytes | None = None

    RECORD_TYPE = 15


ShareGroupRecord = (
    ShareGroupMemberMetadataRecord
    | ShareGroupMetadataRecord
    | ShareGroupTargetAssignmentMetadataRecord
    | ShareGroupTargetAssignmentMemberRecord
    | ShareGroupCurrentMemberAssignmentRecord
    | ShareGroupStatePartitionMetadataRecord
)
