"""What is in a streams group's records (types 17 and 19 to 23).

A standby or warm-up task has an explicit null in place of its assignment epoch, since absent means empty
(:mod:`groupcoord.records.record_format`). Sources: Kafka's ``StreamsGroup…Key/Value`` schemas, KIP-1071.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from groupcoord.core.records import (
    AssignedTaskIds,
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupCurrentMemberAssignmentRecord,
    StreamsGroupMemberMetadataRecord,
    StreamsGroupMetadataRecord,
    StreamsGroupTargetAssignmentMemberRecord,
    StreamsGroupTargetAssignmentMetadataRecord,
    StreamsGroupTopologyRecord,
    Subtopology,
    TaskIds,
    TopicInfo,
)
from groupcoord.records.primitives import NO_TAGS, MalformedError, Reader, Writer, int32s
from groupcoord.records.record_format import (
    MEMBER_ID,
    NULL,
    PRESENT,
    RecordFormat,
    epochs_at_end,
    partitions_with_epochs,
    target_assignment_format,
)
from groupcoord.records.schemas import RecordType

VALIDATED_TOPOLOGY_TAG = 0
LAST_ASSIGNMENT_CONFIGS_TAG = 1
STORED_DESCRIPTION_TAG = 2
FAILED_DESCRIPTION_TAG = 3
NO_TOPOLOGY_EPOCH = -1

_NO_STRUCTURE = -1
_int32 = Struct(">i")
_epochs_and_state = Struct(">iib")


# ---------------------------------------------------------------- the group


def _write_group(writer: Writer, record: StreamsGroupMetadataRecord) -> None:
    writer.int32(record.epoch)
    writer.int64(record.metadata_hash)
    tags = {
        tag: _int32.pack(epoch)
        for tag, epoch in (
            (VALIDATED_TOPOLOGY_TAG, record.validated_topology_epoch),
            (STORED_DESCRIPTION_TAG, record.stored_description_topology_epoch),
            (FAILED_DESCRIPTION_TAG, record.failed_description_topology_epoch),
        )
        if epoch != NO_TOPOLOGY_EPOCH
    }
    if record.last_assignment_configs != ():
        tags[LAST_ASSIGNMENT_CONFIGS_TAG] = _configs_bytes(record.last_assignment_configs)
    writer.tags(tags)


def _read_group(reader: Reader, group_id: str, _: str) -> StreamsGroupMetadataRecord:
    epoch, metadata_hash, tags = reader.int32(), reader.int64(), reader.tags()
    return StreamsGroupMetadataRecord(
        group_id,
        epoch,
        metadata_hash,
        _topology_epoch(tags.get(VALIDATED_TOPOLOGY_TAG)),
        _configs(tags.get(LAST_ASSIGNMENT_CONFIGS_TAG)),
        _topology_epoch(tags.get(STORED_DESCRIPTION_TAG)),
        _topology_epoch(tags.get(FAILED_DESCRIPTION_TAG)),
    )


def _topology_epoch(tag: bytes | None) -> int:
    epoch: int = NO_TOPOLOGY_EPOCH if tag is None else _int32.unpack(tag)[0]
    return epoch


def _configs_bytes(configs: Sequence[KeyValue] | None) -> bytes:
    if configs is None:
        return NULL
    writer = Writer(flexible=True)
    _write_key_values(writer, configs)
    return writer.to_bytes()


def _configs(tag: bytes | None) -> tuple[KeyValue, ...] | None:
    if tag is None:
        return ()
    if tag == NULL:
        return None
    reader = Reader(tag, 0, flexible=True)
    configs = _read_key_values(reader)
    reader.end()
    return configs


def _write_key_values(writer: Writer, pairs: Sequence[KeyValue]) -> None:
    writer.array_length(len(pairs))
    for key, value in pairs:
        writer.string(key, "key")
        writer.string(value, "value")
        writer.tags({})


def _read_key_values(reader: Reader) -> tuple[KeyValue, ...]:
    return tuple([_read_key_value(reader) for _ in range(reader.array_length())])


def _read_key_value(reader: Reader) -> KeyValue:
    pair = KeyValue(reader.string(), reader.string())
    reader.tags()
    return pair


# ---------------------------------------------------------------- the topology


def _write_topology(writer: Writer, record: StreamsGroupTopologyRecord) -> None:
    writer.int32(record.epoch)
    writer.array_length(len(record.subtopologies))
    for subtopology in record.subtopologies:
        writer.string(subtopology.subtopology_id, "subtopology")
        writer.strings(subtopology.source_topics, "topic name")
        writer.strings(subtopology.source_topic_regex, "regular expression")
        _write_topic_infos(writer, subtopology.state_changelog_topics)
        writer.strings(subtopology.repartition_sink_topics, "topic name")
        _write_topic_infos(writer, subtopology.repartition_source_topics)
        writer.array_length(len(subtopology.copartition_groups))
        for group in subtopology.copartition_groups:
            for places in group:
                writer.int16s(places)
            writer.tags({})
        writer.tags({})
    writer.tags({})


def _read_topology(reader: Reader, group_id: str, _: str) -> StreamsGroupTopologyRecord:
    epoch = reader.int32()
    subtopologies = tuple([_read_subtopology(reader) for _ in range(reader.array_length())])
    reader.tags()
    return StreamsGroupTopologyRecord(group_id, epoch, subtopologies)


def _read_subtopology(reader: Reader) -> Subtopology:
    subtopology = Subtopology(
        subtopology_id=reader.string(),
        source_topics=reader.strings(),
        source_topic_regex=reader.strings(),
        state_changelog_topics=_read_topic_infos(reader),
        repartition_sink_topics=reader.strings(),
        repartition_source_topics=_read_topic_infos(reader),
        copartition_groups=tuple([_read_copartition_group(reader) for _ in range(reader.array_length())]),
    )
    reader.tags()
    return subtopology


def _read_copartition_group(reader: Reader) -> CopartitionGroup:
    group = CopartitionGroup(reader.int16s(), reader.int16s(), reader.int16s())
    reader.tags()
    return group


def _write_topic_infos(writer: Writer, topics: Sequence[TopicInfo]) -> None:
    writer.array_length(len(topics))
    for topic in topics:
        writer.string(topic.name, "topic name")
        writer.int32(topic.partitions)
        writer.int16(topic.replication_factor)
        _write_key_values(writer, topic.topic_configs)
        writer.tags({})


def _read_topic_infos(reader: Reader) -> tuple[TopicInfo, ...]:
    return tuple([_read_topic_info(reader) for _ in range(reader.array_length())])


def _read_topic_info(reader: Reader) -> TopicInfo:
    topic = TopicInfo(reader.string(), reader.int32(), reader.int16(), _read_key_values(reader))
    reader.tags()
    return topic


# ---------------------------------------------------------------- a member


def _write_member(writer: Writer, record: StreamsGroupMemberMetadataRecord) -> None:
    writer.nullable_string(record.instance_id, "group instance id")
    writer.nullable_string(record.rack_id, "rack")
    writer.string(record.client_id, "client id")
    writer.string(record.client_host, "client host")
    writer.int32(record.rebalance_timeout_ms)
    writer.int32(record.topology_epoch)
    writer.string(record.process_id, "process id")
    endpoint = record.user_endpoint
    if endpoint is None:
        writer.int8(_NO_STRUCTURE)
    else:
        writer.int8(PRESENT)
        writer.string(endpoint.host, "host")
        writer.uint16(endpoint.port)
        writer.tags({})
    _write_key_values(writer, record.client_tags)
    writer.tags({})


def _read_member(reader: Reader, group_id: str, member_id: str) -> StreamsGroupMemberMetadataRecord:
    record = StreamsGroupMemberMetadataRecord(
        group_id,
        member_id,
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        rebalance_timeout_ms=reader.int32(),
        topology_epoch=reader.int32(),
        process_id=reader.string(),
        user_endpoint=_read_endpoint(reader),
        client_tags=_read_key_values(reader),
    )
    reader.tags()
    return record


def _read_endpoint(reader: Reader) -> Endpoint | None:
    presence = reader.int8()
    if presence == _NO_STRUCTURE:
        return None
    if presence != PRESENT:
        raise MalformedError("an endpoint is neither there nor null")
    endpoint = Endpoint(reader.string(), reader.uint16())
    reader.tags()
    return endpoint


def _write_target_member(writer: Writer, record: StreamsGroupTargetAssignmentMemberRecord) -> None:
    for tasks in (record.active_tasks, record.standby_tasks, record.warmup_tasks):
        writer.array_length(len(tasks))
        for subtopology_id, partitions in tasks:
            writer.string(subtopology_id, "subtopology")
            writer.raw(int32s(partitions) + NO_TAGS)
    writer.tags({})


def _read_target_member(reader: Reader, group_id: str, member_id: str) -> StreamsGroupTargetAssignmentMemberRecord:
    active, standby, warmup = [tuple([_read_task_ids(reader) for _ in range(reader.array_length())]) for _ in range(3)]
    reader.tags()
    return StreamsGroupTargetAssignmentMemberRecord(group_id, member_id, active, standby, warmup)


def _read_task_ids(reader: Reader) -> TaskIds:
    tasks = TaskIds(reader.string(), reader.int32s())
    reader.tags()
    return tasks


def _write_current_assignment(writer: Writer, record: StreamsGroupCurrentMemberAssignmentRecord) -> None:
    writer.raw(_epochs_and_state.pack(record.member_epoch, record.previous_member_epoch, record.state))
    for tasks in (
        record.active_tasks,
        record.standby_tasks,
        record.warmup_tasks,
        record.active_tasks_pending_revocation,
        record.standby_tasks_pending_revocation,
        record.warmup_tasks_pending_revocation,
    ):
        writer.array_length(len(tasks))
        for subtopology_id, partitions, epochs in tasks:
            writer.string(subtopology_id, "subtopology")
            writer.raw(partitions_with_epochs(partitions, epochs))
    writer.tags({})


def _read_current_assignment(
    reader: Reader, group_id: str, member_id: str
) -> StreamsGroupCurrentMemberAssignmentRecord:
    record = StreamsGroupCurrentMemberAssignmentRecord(
        group_id,
        member_id,
        member_epoch=reader.int32(),
        previous_member_epoch=reader.int32(),
        state=reader.int8(),
        active_tasks=_read_assigned(reader),
        standby_tasks=_read_assigned(reader),
        warmup_tasks=_read_assigned(reader),
        active_tasks_pending_revocation=_read_assigned(reader),
        standby_tasks_pending_revocation=_read_assigned(reader),
        warmup_tasks_pending_revocation=_read_assigned(reader),
    )
    reader.tags()
    return record


def _read_assigned(reader: Reader) -> tuple[AssignedTaskIds, ...]:
    return tuple(
        [AssignedTaskIds(reader.string(), reader.int32s(), epochs_at_end(reader)) for _ in range(reader.array_length())]
    )


FORMATS = (
    RecordFormat(RecordType.STREAMS_GROUP_METADATA, StreamsGroupMetadataRecord, _write_group, _read_group),
    RecordFormat(
        RecordType.STREAMS_GROUP_MEMBER_METADATA,
        StreamsGroupMemberMetadataRecord,
        _write_member,
        _read_member,
        MEMBER_ID,
    ),
    target_assignment_format(
        RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, StreamsGroupTargetAssignmentMetadataRecord
    ),
    RecordFormat(
        RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
        StreamsGroupTargetAssignmentMemberRecord,
        _write_target_member,
        _read_target_member,
        MEMBER_ID,
    ),
    RecordFormat(
        RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        StreamsGroupCurrentMemberAssignmentRecord,
        _write_current_assignment,
        _read_current_assignment,
        MEMBER_ID,
    ),
    RecordFormat(RecordType.STREAMS_GROUP_TOPOLOGY, StreamsGroupTopologyRecord, _write_topology, _read_topology),
)
