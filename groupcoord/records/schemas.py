"""Schemas of every record type of ``__consumer_offsets``, for Kafka 0.9 to 4.4.

Sources: Kafka's schemas of group coordinator records (KIP-848, KIP-932, KIP-1071). Types 9 and 18 were never released.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from groupcoord.core.log.records import (
    NO_TIMESTAMP,
    ZERO_UUID,
    AssignedTaskIds,
    AssignedTopicPartitions,
    ClassicMemberMetadata,
    ClassicProtocol,
    CopartitionGroup,
    Endpoint,
    KeyValue,
    MemberRecord,
    NamedTopic,
    NamedTopicPartitions,
    PartitionMetadata,
    Subtopology,
    TaskIds,
    TopicInfo,
    TopicMetadata,
    TopicPartitions,
)
from groupcoord.schema.engine import (
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Array,
    Field,
    Structure,
    structure,
)


class RecordType(IntEnum):
    """Record types, the first two bytes of a key, by Kafka's names."""

    LEGACY_OFFSET_COMMIT = 0
    OFFSET_COMMIT = 1
    GROUP_METADATA = 2
    CONSUMER_GROUP_METADATA = 3
    CONSUMER_GROUP_PARTITION_METADATA = 4
    CONSUMER_GROUP_MEMBER_METADATA = 5
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = 6
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = 8
    SHARE_GROUP_MEMBER_METADATA = 10
    SHARE_GROUP_METADATA = 11
    SHARE_GROUP_TARGET_ASSIGNMENT_METADATA = 12
    SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER = 13
    SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT = 14
    SHARE_GROUP_STATE_PARTITION_METADATA = 15
    CONSUMER_GROUP_REGULAR_EXPRESSION = 16
    STREAMS_GROUP_METADATA = 17
    STREAMS_GROUP_MEMBER_METADATA = 19
    STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA = 20
    STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER = 21
    STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT = 22
    STREAMS_GROUP_TOPOLOGY = 23


class RecordSchema(NamedTuple):
    """Schemas of key and value of a record type.

    Attributes:
        key: the fields after the type; keys are never flexible.
        value: the fields after the version, for all versions from 0 to ``newest_version``.
        first_flexible: the first version with compact lengths and tags.
    """

    key: Structure
    value: Structure
    newest_version: int = 0
    first_flexible: int = 0


_STRINGS, _NUMBERS, _INDEXES = Array(STRING), Array(INT32), Array(INT16)

_group_key = structure(Field("groupId", STRING))
_member_key = structure(Field("groupId", STRING), Field("memberId", STRING))
_offset_key = structure(Field("group", STRING), Field("topic", STRING), Field("partition", INT32))
GROUP_AND_TOPIC = structure(*_offset_key.fields[:2])
"""An offset's key up to the partition number."""

_topic_partitions = structure(Field("topicId", UUID), Field("partitions", _NUMBERS), made=TopicPartitions)
_key_value = structure(Field("key", STRING), Field("value", STRING), made=KeyValue)

# Nullable, but empty if absent: Kafka's schemas have null without quotes as default.
_assignment_epochs = Field("assignmentEpochs", _NUMBERS, nullable=True, tag=0, default=())

_target_assignment_metadata = RecordSchema(
    _group_key, structure(Field("assignmentEpoch", INT32), Field("assignmentTimestamp", INT64, tag=0, default=0))
)
_target_assignment_member = RecordSchema(_member_key, structure(Field("topicPartitions", Array(_topic_partitions))))

_legacy_offset_value = structure(Field("offset", INT64), Field("metadata", STRING), Field("commitTimestamp", INT64))
_offset_value = structure(
    Field("offset", INT64),
    Field("leaderEpoch", INT32, since=3, default=-1),
    Field("metadata", STRING),
    Field("commitTimestamp", INT64),
    Field("expireTimestamp", INT64, since=1, until=1, default=NO_TIMESTAMP),
    Field("topicId", UUID, since=4, tag=0, default=ZERO_UUID),
)

_classic_member = structure(
    Field("memberId", STRING),
    Field("groupInstanceId", STRING, since=3, nullable=True),
    Field("clientId", STRING),
    Field("clientHost", STRING),
    Field("rebalanceTimeout", INT32, since=1, default=-1),
    Field("sessionTimeout", INT32),
    Field("subscription", BYTES),
    Field("assignment", BYTES),
    made=MemberRecord,
)
_classic_group = structure(
    Field("protocolType", STRING),
    Field("generation", INT32),
    Field("protocol", STRING, nullable=True),
    Field("leader", STRING, nullable=True),
    Field("currentStateTimestamp", INT64, since=2, default=NO_TIMESTAMP),
    Field("members", Array(_classic_member)),
)

_partition_racks = structure(Field("partition", INT32), Field("racks", _STRINGS), made=PartitionMetadata)
_topic_metadata = structure(
    Field("topicId", UUID),
    Field("topicName", STRING),
    Field("numPartitions", INT32),
    Field("partitionMetadata", Array(_partition_racks)),
    made=TopicMetadata,
)
_classic_protocol = structure(Field("name", STRING), Field("metadata", BYTES), made=ClassicProtocol)
_classic_member_metadata = structure(
    Field("sessionTimeoutMs", INT32),
    Field("supportedProtocols", Array(_classic_protocol)),
    made=ClassicMemberMetadata,
)
_consumer_member = structure(
    Field("instanceId", STRING, nullable=True),
    Field("rackId", STRING, nullable=True),
    Field("clientId", STRING),
    Field("clientHost", STRING),
    Field("subscribedTopicNames", _STRINGS),
    Field("subscribedTopicRegex", STRING, nullable=True),
    Field("rebalanceTimeoutMs", INT32),
    Field("serverAssignor", STRING, nullable=True),
    # An empty structure if absent, as above: null is written for members that use the consumer protocol.
    Field(
        *("classicMemberMetadata", _classic_member_metadata), nullable=True, tag=0, default=ClassicMemberMetadata(0, ())
    ),
)
_assigned = structure(*_topic_partitions.fields, _assignment_epochs, made=AssignedTopicPartitions)
_consumer_assignment = structure(
    Field("memberEpoch", INT32),
    Field("previousMemberEpoch", INT32),
    Field("state", INT8),
    Field("assignedPartitions", Array(_assigned)),
    Field("partitionsPendingRevocation", Array(_assigned)),
)

_share_member = structure(
    Field("rackId", STRING, nullable=True),
    Field("clientId", STRING),
    Field("clientHost", STRING),
    Field("subscribedTopicNames", _STRINGS),
)
_share_assignment = structure(
    Field("memberEpoch", INT32),
    Field("previousMemberEpoch", INT32),
    Field("state", INT8),
    Field("assignedPartitions", Array(_topic_partitions)),
)
_topic_info = structure(Field("topicId", UUID), Field("topicName", STRING), made=NamedTopic)
_topic_partitions_info = structure(*_topic_info.fields, Field("partitions", _NUMBERS), made=NamedTopicPartitions)
_share_state = structure(
    Field("initializingTopics", Array(_topic_partitions_info)),
    Field("initializedTopics", Array(_topic_partitions_info)),
    Field("deletingTopics", Array(_topic_info)),
)

_streams_group = structure(
    Field("epoch", INT32),
    Field("metadataHash", INT64),
    Field("validatedTopologyEpoch", INT32, tag=0, default=-1),
    Field("lastAssignmentConfigs", Array(_key_value), nullable=True, tag=1, default=()),
    Field("storedDescriptionTopologyEpoch", INT32, tag=2, default=-1),
    Field("failedDescriptionTopologyEpoch", INT32, tag=3, default=-1),
)
_endpoint = structure(Field("host", STRING), Field("port", UINT16), made=Endpoint)
_streams_member = structure(
    Field("instanceId", STRING, nullable=True),
    Field("rackId", STRING, nullable=True),
    Field("clientId", STRING),
    Field("clientHost", STRING),
    Field("rebalanceTimeoutMs", INT32),
    Field("topologyEpoch", INT32),
    Field("processId", STRING),
    Field("userEndpoint", _endpoint, nullable=True),
    Field("clientTags", Array(_key_value)),
)
_task_ids = structure(Field("subtopologyId", STRING), Field("partitions", _NUMBERS), made=TaskIds)
_epoch_task_ids = structure(*_task_ids.fields, _assignment_epochs, made=AssignedTaskIds)
_streams_target = structure(
    Field("activeTasks", Array(_task_ids)),
    Field("standbyTasks", Array(_task_ids)),
    Field("warmupTasks", Array(_task_ids)),
)
_streams_assignment = structure(
    Field("memberEpoch", INT32),
    Field("previousMemberEpoch", INT32),
    Field("state", INT8),
    Field("activeTasks", Array(_epoch_task_ids)),
    Field("standbyTasks", Array(_epoch_task_ids)),
    Field("warmupTasks", Array(_epoch_task_ids)),
    Field("activeTasksPendingRevocation", Array(_epoch_task_ids)),
    Field("standbyTasksPendingRevocation", Array(_epoch_task_ids)),
    Field("warmupTasksPendingRevocation", Array(_epoch_task_ids)),
)
_internal_topic = structure(
    Field("name", STRING),
    Field("partitions", INT32),
    Field("replicationFactor", INT16),
    Field("topicConfigs", Array(_key_value)),
    made=TopicInfo,
)
_copartition_group = structure(
    Field("sourceTopics", _INDEXES),
    Field("sourceTopicRegex", _INDEXES),
    Field("repartitionSourceTopics", _INDEXES),
    made=CopartitionGroup,
)
_subtopology = structure(
    Field("subtopologyId", STRING),
    Field("sourceTopics", _STRINGS),
    Field("sourceTopicRegex", _STRINGS),
    Field("stateChangelogTopics", Array(_internal_topic)),
    Field("repartitionSinkTopics", _STRINGS),
    Field("repartitionSourceTopics", Array(_internal_topic)),
    Field("copartitionGroups", Array(_copartition_group)),
    made=Subtopology,
)

SCHEMAS: dict[RecordType, RecordSchema] = {
    RecordType.LEGACY_OFFSET_COMMIT: RecordSchema(_offset_key, _legacy_offset_value, first_flexible=1),
    RecordType.OFFSET_COMMIT: RecordSchema(_offset_key, _offset_value, newest_version=4, first_flexible=4),
    RecordType.GROUP_METADATA: RecordSchema(
        structure(Field("group", STRING)), _classic_group, newest_version=4, first_flexible=4
    ),
    RecordType.CONSUMER_GROUP_METADATA: RecordSchema(
        _group_key, structure(Field("epoch", INT32), Field("metadataHash", INT64, tag=0, default=0))
    ),
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: RecordSchema(
        _group_key, structure(Field("topics", Array(_topic_metadata)))
    ),
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: RecordSchema(_member_key, _consumer_member),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: _target_assignment_metadata,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: _target_assignment_member,
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: RecordSchema(_member_key, _consumer_assignment),
    RecordType.SHARE_GROUP_MEMBER_METADATA: RecordSchema(_member_key, _share_member),
    RecordType.SHARE_GROUP_METADATA: RecordSchema(
        _group_key, structure(Field("epoch", INT32), Field("metadataHash", INT64))
    ),
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA: _target_assignment_metadata,
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER: _target_assignment_member,
    RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT: RecordSchema(_member_key, _share_assignment),
    RecordType.SHARE_GROUP_STATE_PARTITION_METADATA: RecordSchema(_group_key, _share_state),
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: RecordSchema(
        structure(Field("groupId", STRING), Field("regularExpression", STRING)),
        structure(Field("topics", _STRINGS), Field("version", INT64), Field("timestamp", INT64)),
    ),
    RecordType.STREAMS_GROUP_METADATA: RecordSchema(_group_key, _streams_group),
    RecordType.STREAMS_GROUP_MEMBER_METADATA: RecordSchema(_member_key, _streams_member),
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA: _target_assignment_metadata,
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER: RecordSchema(_member_key, _streams_target),
    RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT: RecordSchema(_member_key, _streams_assignment),
    RecordType.STREAMS_GROUP_TOPOLOGY: RecordSchema(
        _group_key, structure(Field("epoch", INT32), Field("subtopologies", Array(_subtopology)))
    ),
}
"""Every record type that brokers of released versions write."""
