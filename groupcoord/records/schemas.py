"""Schemas of every record type of ``__consumer_offsets``, for Kafka 0.9 to 4.4.

Sources: Kafka's schemas of group coordinator records (KIP-848, KIP-932, KIP-1071). Types 9 and 18 were never released.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from groupcoord.core.log.records import (
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
from groupcoord.schema.engine import Structure, parse_structures


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


_STRUCTURES = parse_structures(
    """
    LegacyOffsetCommitKey: group string, topic string, partition int32
    LegacyOffsetCommitValue: offset int64, metadata string, commitTimestamp int64
    OffsetCommitKey: group string, topic string, partition int32
    OffsetCommitValue: offset int64, leaderEpoch int32 3+ = -1, metadata string, commitTimestamp int64,
        expireTimestamp int64 1-1 = -1, topicId uuid 4+ tag 0 = 0

    MemberRecord: memberId string, groupInstanceId string? 3+, clientId string, clientHost string,
        rebalanceTimeout int32 1+ = -1, sessionTimeout int32, subscription bytes, assignment bytes
    GroupMetadataKey: group string
    GroupMetadataValue: protocolType string, generation int32, protocol string?, leader string?,
        currentStateTimestamp int64 2+ = -1, members MemberRecord[]

    PartitionMetadata: partition int32, racks string[]
    TopicMetadata: topicId uuid, topicName string, numPartitions int32, partitionMetadata PartitionMetadata[]
    ClassicProtocol: name string, metadata bytes
    ClassicMemberMetadata: sessionTimeoutMs int32, supportedProtocols ClassicProtocol[]
    TopicPartitions: topicId uuid, partitions int32[]
    AssignedTopicPartitions: topicId uuid, partitions int32[], assignmentEpochs int32[]? tag 0 = ()
    ConsumerGroupMetadataKey: groupId string
    ConsumerGroupMetadataValue: epoch int32, metadataHash int64 tag 0 = 0
    ConsumerGroupPartitionMetadataKey: groupId string
    ConsumerGroupPartitionMetadataValue: topics TopicMetadata[]
    ConsumerGroupMemberMetadataKey: groupId string, memberId string
    ConsumerGroupMemberMetadataValue: instanceId string?, rackId string?, clientId string, clientHost string,
        subscribedTopicNames string[], subscribedTopicRegex string?, rebalanceTimeoutMs int32, serverAssignor string?,
        classicMemberMetadata ClassicMemberMetadata? tag 0 = (0,())
    ConsumerGroupTargetAssignmentMetadataKey: groupId string
    ConsumerGroupTargetAssignmentMetadataValue: assignmentEpoch int32, assignmentTimestamp int64 tag 0 = 0
    ConsumerGroupTargetAssignmentMemberKey: groupId string, memberId string
    ConsumerGroupTargetAssignmentMemberValue: topicPartitions TopicPartitions[]
    ConsumerGroupCurrentMemberAssignmentKey: groupId string, memberId string
    ConsumerGroupCurrentMemberAssignmentValue: memberEpoch int32, previousMemberEpoch int32, state int8,
        assignedPartitions AssignedTopicPartitions[], partitionsPendingRevocation AssignedTopicPartitions[]
    ConsumerGroupRegularExpressionKey: groupId string, regularExpression string
    ConsumerGroupRegularExpressionValue: topics string[], version int64, timestamp int64

    ShareGroupMemberMetadataKey: groupId string, memberId string
    ShareGroupMemberMetadataValue: rackId string?, clientId string, clientHost string, subscribedTopicNames string[]
    ShareGroupMetadataKey: groupId string
    ShareGroupMetadataValue: epoch int32, metadataHash int64
    ShareGroupTargetAssignmentMetadataKey: groupId string
    ShareGroupTargetAssignmentMetadataValue: assignmentEpoch int32, assignmentTimestamp int64 tag 0 = 0
    ShareGroupTargetAssignmentMemberKey: groupId string, memberId string
    ShareGroupTargetAssignmentMemberValue: topicPartitions TopicPartitions[]
    ShareGroupCurrentMemberAssignmentKey: groupId string, memberId string
    ShareGroupCurrentMemberAssignmentValue: memberEpoch int32, previousMemberEpoch int32, state int8,
        assignedPartitions TopicPartitions[]
    NamedTopic: topicId uuid, topicName string
    NamedTopicPartitions: topicId uuid, topicName string, partitions int32[]
    ShareGroupStatePartitionMetadataKey: groupId string
    ShareGroupStatePartitionMetadataValue: initializingTopics NamedTopicPartitions[],
        initializedTopics NamedTopicPartitions[], deletingTopics NamedTopic[]

    KeyValue: key string, value string
    Endpoint: host string, port uint16
    TaskIds: subtopologyId string, partitions int32[]
    AssignedTaskIds: subtopologyId string, partitions int32[], assignmentEpochs int32[]? tag 0 = ()
    TopicInfo: name string, partitions int32, replicationFactor int16, topicConfigs KeyValue[]
    CopartitionGroup: sourceTopics int16[], sourceTopicRegex int16[], repartitionSourceTopics int16[]
    Subtopology: subtopologyId string, sourceTopics string[], sourceTopicRegex string[],
        stateChangelogTopics TopicInfo[], repartitionSinkTopics string[], repartitionSourceTopics TopicInfo[],
        copartitionGroups CopartitionGroup[]
    StreamsGroupMetadataKey: groupId string
    StreamsGroupMetadataValue: epoch int32, metadataHash int64, validatedTopologyEpoch int32 tag 0 = -1,
        lastAssignmentConfigs KeyValue[]? tag 1 = (), storedDescriptionTopologyEpoch int32 tag 2 = -1,
        failedDescriptionTopologyEpoch int32 tag 3 = -1
    StreamsGroupMemberMetadataKey: groupId string, memberId string
    StreamsGroupMemberMetadataValue: instanceId string?, rackId string?, clientId string, clientHost string,
        rebalanceTimeoutMs int32, topologyEpoch int32, processId string, userEndpoint Endpoint?, clientTags KeyValue[]
    StreamsGroupTargetAssignmentMetadataKey: groupId string
    StreamsGroupTargetAssignmentMetadataValue: assignmentEpoch int32, assignmentTimestamp int64 tag 0 = 0
    StreamsGroupTargetAssignmentMemberKey: groupId string, memberId string
    StreamsGroupTargetAssignmentMemberValue: activeTasks TaskIds[], standbyTasks TaskIds[], warmupTasks TaskIds[]
    StreamsGroupCurrentMemberAssignmentKey: groupId string, memberId string
    StreamsGroupCurrentMemberAssignmentValue: memberEpoch int32, previousMemberEpoch int32, state int8,
        activeTasks AssignedTaskIds[], standbyTasks AssignedTaskIds[], warmupTasks AssignedTaskIds[],
        activeTasksPendingRevocation AssignedTaskIds[], standbyTasksPendingRevocation AssignedTaskIds[],
        warmupTasksPendingRevocation AssignedTaskIds[]
    StreamsGroupTopologyKey: groupId string
    StreamsGroupTopologyValue: epoch int32, subtopologies Subtopology[]
    """,
    made={
        kind.__name__: kind
        for kind in (
            *(AssignedTaskIds, AssignedTopicPartitions, ClassicMemberMetadata, ClassicProtocol, CopartitionGroup),
            *(Endpoint, KeyValue, MemberRecord, NamedTopic, NamedTopicPartitions, PartitionMetadata, Subtopology),
            *(TaskIds, TopicInfo, TopicMetadata, TopicPartitions),
        )
    },
)
# Nullable tagged fields are empty if absent: Kafka's schemas have null without quotes as default.

GROUP_AND_TOPIC = Structure(_STRUCTURES["OffsetCommitKey"].fields[:2])
"""An offset's key up to the partition number."""

_VERSIONS = {
    RecordType.LEGACY_OFFSET_COMMIT: (0, 1),
    RecordType.OFFSET_COMMIT: (4, 4),
    RecordType.GROUP_METADATA: (4, 4),
}
"""The newest and the first flexible version of values that have not only version 0, which is flexible."""


def _schema_of(record_type: RecordType) -> RecordSchema:
    name = record_type.name.title().replace("_", "")
    return RecordSchema(_STRUCTURES[f"{name}Key"], _STRUCTURES[f"{name}Value"], *_VERSIONS.get(record_type, (0, 0)))


SCHEMAS = {record_type: _schema_of(record_type) for record_type in RecordType}
"""Every record type that brokers of released versions write."""
