"""What is in a consumer group's records (types 3 to 8 and 16).

A member that uses the consumer protocol has an explicit null in place of the metadata of a classic one, since absent
means empty (:mod:`groupcoord.records.record_format`). Sources: Kafka's ``ConsumerGroup…Key/Value`` schemas, KIP-848.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from groupcoord.core.records import (
    AssignedTopicPartitions,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    PartitionMetadata,
    TopicMetadata,
)
from groupcoord.records.primitives import MalformedError, Reader, Writer
from groupcoord.records.record_format import (
    MEMBER_ID,
    NULL,
    PRESENT,
    RecordFormat,
    end_with_int64,
    epochs_at_end,
    int64_at_end,
    partitions_with_epochs,
    target_assignment_format,
    target_member_format,
)
from groupcoord.records.schemas import RecordType

METADATA_HASH_TAG = CLASSIC_MEMBER_METADATA_TAG = 0

_epochs_and_state = Struct(">iib")
_NO_CLASSIC_MEMBER = ClassicMemberMetadata(0, ())


# ---------------------------------------------------------------- the group


def _write_group(writer: Writer, record: ConsumerGroupMetadataRecord) -> None:
    writer.int32(record.epoch)
    end_with_int64(writer, METADATA_HASH_TAG, record.metadata_hash)


def _read_group(reader: Reader, group_id: str, _: str) -> ConsumerGroupMetadataRecord:
    return ConsumerGroupMetadataRecord(group_id, reader.int32(), int64_at_end(reader, METADATA_HASH_TAG))


def _write_topics(writer: Writer, record: ConsumerGroupPartitionMetadataRecord) -> None:
    writer.array_length(len(record.topics))
    for topic in record.topics:
        writer.uuid(topic.topic_id)
        writer.string(topic.topic_name, "topic name")
        writer.int32(topic.num_partitions)
        writer.array_length(len(topic.partition_metadata))
        for partition in topic.partition_metadata:
            writer.int32(partition.partition)
            writer.strings(partition.racks, "rack")
            writer.tags({})
        writer.tags({})
    writer.tags({})


def _read_topics(reader: Reader, group_id: str, _: str) -> ConsumerGroupPartitionMetadataRecord:
    topics = tuple([_read_topic(reader) for _ in range(reader.array_length())])
    reader.tags()
    return ConsumerGroupPartitionMetadataRecord(group_id, topics)


def _read_topic(reader: Reader) -> TopicMetadata:
    topic = TopicMetadata(
        topic_id=reader.uuid(),
        topic_name=reader.string(),
        num_partitions=reader.int32(),
        partition_metadata=tuple([_read_partition(reader) for _ in range(reader.array_length())]),
    )
    reader.tags()
    return topic


def _read_partition(reader: Reader) -> PartitionMetadata:
    partition = PartitionMetadata(reader.int32(), reader.strings())
    reader.tags()
    return partition


def _write_expression(writer: Writer, record: ConsumerGroupRegularExpressionRecord) -> None:
    writer.strings(record.topics, "topic name")
    writer.int64(record.version)
    writer.int64(record.timestamp_ms)
    writer.tags({})


def _read_expression(reader: Reader, group_id: str, expression: str) -> ConsumerGroupRegularExpressionRecord:
    record = ConsumerGroupRegularExpressionRecord(
        group_id, expression, reader.strings(), reader.int64(), reader.int64()
    )
    reader.tags()
    return record


# ---------------------------------------------------------------- a member


def _write_member(writer: Writer, record: ConsumerGroupMemberMetadataRecord) -> None:
    writer.nullable_string(record.instance_id, "group instance id")
    writer.nullable_string(record.rack_id, "rack")
    writer.string(record.client_id, "client id")
    writer.string(record.client_host, "client host")
    writer.strings(record.subscribed_topic_names, "topic name")
    writer.nullable_string(record.subscribed_topic_regex, "regular expression")
    writer.int32(record.rebalance_timeout_ms)
    writer.nullable_string(record.server_assignor, "assignor")
    classic = record.classic_member_metadata
    is_default = classic == _NO_CLASSIC_MEMBER
    writer.tags({} if is_default else {CLASSIC_MEMBER_METADATA_TAG: _classic_member_bytes(classic)})


def _classic_member_bytes(classic: ClassicMemberMetadata | None) -> bytes:
    if classic is None:
        return NULL
    writer = Writer(flexible=True)
    writer.int8(PRESENT)
    writer.int32(classic.session_timeout_ms)
    writer.array_length(len(classic.supported_protocols))
    for protocol in classic.supported_protocols:
        writer.string(protocol.name, "assignor")
        writer.sized_bytes(protocol.metadata)
        writer.tags({})
    writer.tags({})
    return writer.to_bytes()


def _read_member(reader: Reader, group_id: str, member_id: str) -> ConsumerGroupMemberMetadataRecord:
    return ConsumerGroupMemberMetadataRecord(
        group_id,
        member_id,
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        subscribed_topic_names=reader.strings(),
        subscribed_topic_regex=reader.nullable_string(),
        rebalance_timeout_ms=reader.int32(),
        server_assignor=reader.nullable_string(),
        classic_member_metadata=_read_classic_member(reader.tags().get(CLASSIC_MEMBER_METADATA_TAG)),
    )


def _read_classic_member(tag: bytes | None) -> ClassicMemberMetadata | None:
    if tag is None:
        return _NO_CLASSIC_MEMBER
    if tag == NULL:
        return None
    reader = Reader(tag, 0, flexible=True)
    if reader.unsigned_varint() != PRESENT:
        raise MalformedError("the metadata of a classic member is neither there nor null")
    classic = ClassicMemberMetadata(
        reader.int32(), tuple([_read_protocol(reader) for _ in range(reader.array_length())])
    )
    reader.tags()
    reader.end()
    return classic


def _read_protocol(reader: Reader) -> ClassicProtocol:
    protocol = ClassicProtocol(reader.string(), reader.sized_bytes())
    reader.tags()
    return protocol


def _write_current_assignment(writer: Writer, record: ConsumerGroupCurrentMemberAssignmentRecord) -> None:
    writer.raw(_epochs_and_state.pack(record.member_epoch, record.previous_member_epoch, record.state))
    _write_assigned(writer, record.assigned_partitions)
    _write_assigned(writer, record.partitions_pending_revocation)
    writer.tags({})


def _write_assigned(writer: Writer, topics: Sequence[AssignedTopicPartitions]) -> None:
    writer.array_length(len(topics))
    for topic_id, partitions, epochs in topics:
        writer.raw(topic_id.bytes + partitions_with_epochs(partitions, epochs))


def _read_current_assignment(
    reader: Reader, group_id: str, member_id: str
) -> ConsumerGroupCurrentMemberAssignmentRecord:
    record = ConsumerGroupCurrentMemberAssignmentRecord(
        group_id,
        member_id,
        member_epoch=reader.int32(),
        previous_member_epoch=reader.int32(),
        state=reader.int8(),
        assigned_partitions=_read_assigned(reader),
        partitions_pending_revocation=_read_assigned(reader),
    )
    reader.tags()
    return record


def _read_assigned(reader: Reader) -> tuple[AssignedTopicPartitions, ...]:
    return tuple(
        [
            AssignedTopicPartitions(reader.uuid(), reader.int32s(), epochs_at_end(reader))
            for _ in range(reader.array_length())
        ]
    )


FORMATS = (
    RecordFormat(RecordType.CONSUMER_GROUP_METADATA, ConsumerGroupMetadataRecord, _write_group, _read_group),
    RecordFormat(
        RecordType.CONSUMER_GROUP_PARTITION_METADATA, ConsumerGroupPartitionMetadataRecord, _write_topics, _read_topics
    ),
    RecordFormat(
        RecordType.CONSUMER_GROUP_MEMBER_METADATA,
        ConsumerGroupMemberMetadataRecord,
        _write_member,
        _read_member,
        MEMBER_ID,
    ),
    target_assignment_format(
        RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, ConsumerGroupTargetAssignmentMetadataRecord
    ),
    target_member_format(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, ConsumerGroupTargetAssignmentMemberRecord),
    RecordFormat(
        RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        ConsumerGroupCurrentMemberAssignmentRecord,
        _write_current_assignment,
        _read_current_assignment,
        MEMBER_ID,
    ),
    RecordFormat(
        RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
        ConsumerGroupRegularExpressionRecord,
        _write_expression,
        _read_expression,
        "regular expression",
    ),
)
