"""What is in a share group's records (types 10 to 15).

Sources: Kafka's ``ShareGroup…Key/Value`` schemas, KIP-932.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from groupcoord.core.records import (
    NamedTopic,
    NamedTopicPartitions,
    ShareGroupCurrentMemberAssignmentRecord,
    ShareGroupMemberMetadataRecord,
    ShareGroupMetadataRecord,
    ShareGroupStatePartitionMetadataRecord,
    ShareGroupTargetAssignmentMemberRecord,
    ShareGroupTargetAssignmentMetadataRecord,
)
from groupcoord.records.primitives import NO_TAGS, Reader, Writer, int32s
from groupcoord.records.record_format import (
    MEMBER_ID,
    RecordFormat,
    read_topic_partitions,
    target_assignment_format,
    target_member_format,
    write_topic_partitions,
)
from groupcoord.records.schemas import RecordType

_epochs_and_state = Struct(">iib")


# ---------------------------------------------------------------- the group


def _write_group(writer: Writer, record: ShareGroupMetadataRecord) -> None:
    writer.int32(record.epoch)
    writer.int64(record.metadata_hash)
    writer.tags({})


def _read_group(reader: Reader, group_id: str, _: str) -> ShareGroupMetadataRecord:
    record = ShareGroupMetadataRecord(group_id, reader.int32(), reader.int64())
    reader.tags()
    return record


def _write_state_partitions(writer: Writer, record: ShareGroupStatePartitionMetadataRecord) -> None:
    _write_named_partitions(writer, record.initializing_topics)
    _write_named_partitions(writer, record.initialized_topics)
    writer.array_length(len(record.deleting_topics))
    for topic_id, name in record.deleting_topics:
        writer.uuid(topic_id)
        writer.string(name, "topic name")
        writer.tags({})
    writer.tags({})


def _write_named_partitions(writer: Writer, topics: Sequence[NamedTopicPartitions]) -> None:
    writer.array_length(len(topics))
    for topic_id, name, partitions in topics:
        writer.uuid(topic_id)
        writer.string(name, "topic name")
        writer.raw(int32s(partitions) + NO_TAGS)


def _read_state_partitions(reader: Reader, group_id: str, _: str) -> ShareGroupStatePartitionMetadataRecord:
    record = ShareGroupStatePartitionMetadataRecord(
        group_id,
        initializing_topics=tuple([_read_named_partitions(reader) for _ in range(reader.array_length())]),
        initialized_topics=tuple([_read_named_partitions(reader) for _ in range(reader.array_length())]),
        deleting_topics=tuple([_read_named_topic(reader) for _ in range(reader.array_length())]),
    )
    reader.tags()
    return record


def _read_named_partitions(reader: Reader) -> NamedTopicPartitions:
    topic = NamedTopicPartitions(reader.uuid(), reader.string(), reader.int32s())
    reader.tags()
    return topic


def _read_named_topic(reader: Reader) -> NamedTopic:
    topic = NamedTopic(reader.uuid(), reader.string())
    reader.tags()
    return topic


# ---------------------------------------------------------------- a member


def _write_member(writer: Writer, record: ShareGroupMemberMetadataRecord) -> None:
    writer.nullable_string(record.rack_id, "rack")
    writer.string(record.client_id, "client id")
    writer.string(record.client_host, "client host")
    writer.strings(record.subscribed_topic_names, "topic name")
    writer.tags({})


def _read_member(reader: Reader, group_id: str, member_id: str) -> ShareGroupMemberMetadataRecord:
    record = ShareGroupMemberMetadataRecord(
        group_id,
        member_id,
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        subscribed_topic_names=reader.strings(),
    )
    reader.tags()
    return record


def _write_current_assignment(writer: Writer, record: ShareGroupCurrentMemberAssignmentRecord) -> None:
    writer.raw(_epochs_and_state.pack(record.member_epoch, record.previous_member_epoch, record.state))
    write_topic_partitions(writer, record.assigned_partitions)
    writer.tags({})


def _read_current_assignment(reader: Reader, group_id: str, member_id: str) -> ShareGroupCurrentMemberAssignmentRecord:
    record = ShareGroupCurrentMemberAssignmentRecord(
        group_id,
        member_id,
        member_epoch=reader.int32(),
        previous_member_epoch=reader.int32(),
        state=reader.int8(),
        assigned_partitions=read_topic_partitions(reader),
    )
    reader.tags()
    return record


FORMATS = (
    RecordFormat(
        RecordType.SHARE_GROUP_MEMBER_METADATA, ShareGroupMemberMetadataRecord, _write_member, _read_member, MEMBER_ID
    ),
    RecordFormat(RecordType.SHARE_GROUP_METADATA, ShareGroupMetadataRecord, _write_group, _read_group),
    target_assignment_format(
        RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, ShareGroupTargetAssignmentMetadataRecord
    ),
    target_member_format(RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER, ShareGroupTargetAssignmentMemberRecord),
    RecordFormat(
        RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        ShareGroupCurrentMemberAssignmentRecord,
        _write_current_assignment,
        _read_current_assignment,
        MEMBER_ID,
    ),
    RecordFormat(
        RecordType.SHARE_GROUP_STATE_PARTITION_METADATA,
        ShareGroupStatePartitionMetadataRecord,
        _write_state_partitions,
        _read_state_partitions,
    ),
)
