"""Keys and values of a consumer group's records (types 3 to 8 and 16), byte-exact in both directions.

All values have version 0, which is flexible (KIP-482). A tagged field is left out if it has its default value. For the
two that are nullable that is the empty value, not null, since Kafka's schemas give null as default without quotes: a
member that uses the consumer protocol has an explicit null in place of the metadata of a classic one.

:mod:`groupcoord.records.codec` is the way in. Sources: Kafka's ``ConsumerGroup…Key/Value`` schemas, KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any

from attrs import evolve

from groupcoord.core.records import (
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
    GroupTombstone,
    PartitionMetadata,
    RecordKey,
    TopicMetadata,
    TopicPartitions,
)
from groupcoord.records.primitives import (
    NO_TAGS,
    STRING_BYTES_MAX,
    MalformedError,
    Reader,
    Writer,
    int32s,
    one_tag,
)
from groupcoord.records.schemas import RecordType

WHOLE_GROUP_TYPES = frozenset(
    {
        RecordType.CONSUMER_GROUP_METADATA,
        RecordType.CONSUMER_GROUP_PARTITION_METADATA,
        RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
    }
)
"""Their keys name nothing but the group."""

NAMES_IN_KEYS: dict[int, str] = {
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: "member id",
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: "member id",
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: "member id",
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: "regular expression",
}
"""What the keys of the other types name besides."""

KEY_STARTS = frozenset(kind.to_bytes(2, "big") for kind in (*WHOLE_GROUP_TYPES, *NAMES_IN_KEYS))
"""The first two bytes of a key tell the type."""

VALUE_VERSION = 0
METADATA_HASH_TAG = ASSIGNMENT_TIMESTAMP_TAG = CLASSIC_MEMBER_METADATA_TAG = ASSIGNMENT_EPOCHS_TAG = 0

_KEYS_MAX = 1_024

_int16 = Struct(">h")
_int64 = Struct(">q")
_key_start = Struct(">hh")
_epochs_and_state = Struct(">iib")
_VERSION_BYTES = VALUE_VERSION.to_bytes(2, "big")
_NO_CLASSIC_MEMBER = ClassicMemberMetadata(0, ())
_NULL, _PRESENT = b"\x00", 1


def encode_consumer_group_record(record: ConsumerGroupRecord) -> tuple[bytes, bytes]:
    """Return key and value of a record that isn't a tombstone.

    Raises:
        MalformedError, struct.error, UnicodeEncodeError: a field does not fit.
    """
    raw_value = record.raw_value
    return consumer_group_key(record.group_id, record.key), _value_of(record) if raw_value is None else raw_value


def consumer_group_key(group_id: str, record_key: RecordKey) -> bytes:
    """Return the bytes of a key.

    Raises:
        MalformedError: no consumer group has such records, or a name is too long.
        UnicodeEncodeError: a name can't be written.
    """
    record_type, name = record_key
    if record_type in NAMES_IN_KEYS:
        group, named = group_id.encode(), name.encode()
        if len(group) <= STRING_BYTES_MAX and len(named) <= STRING_BYTES_MAX:
            return b"%b%b%b%b" % (_key_start.pack(record_type, len(group)), group, _int16.pack(len(named)), named)
    writer = Writer(flexible=False)
    writer.int16(record_type)
    writer.string(group_id, "group")
    name_of = NAMES_IN_KEYS.get(record_type)
    if name_of is not None:
        writer.string(name, name_of)
    elif record_type not in WHOLE_GROUP_TYPES or name:
        raise MalformedError(f"no record has the key {record_key}")
    return writer.to_bytes()


def decode_consumer_group_record(key: bytes, value: bytes | None) -> ConsumerGroupRecord | GroupTombstone:
    """Return the record that a key of one of these types and a value stand for.

    Raises:
        MalformedError, struct.error, UnicodeDecodeError: they stand for none.
    """
    group_id, record_type, name = _read_key(key)
    if value is None:
        return GroupTombstone(group_id, (record_type, name))
    if value[:2] != _VERSION_BYTES:
        raise MalformedError("a value of an unknown version")
    reader = Reader(value, 2, flexible=True)
    record = _READERS[record_type](reader, group_id, name)
    reader.end()
    return record if _value_of(record) == value else evolve(record, raw_value=value)


@lru_cache(_KEYS_MAX)
def _read_key(key: bytes) -> tuple[str, int, str]:
    """Return the group, the type of the record, and what the key names besides. A log has most keys several times."""
    record_type = int.from_bytes(key[:2], "big")
    if record_type not in _READERS:
        raise MalformedError(f"no consumer group has records of type {record_type}")
    reader = Reader(key, 2, flexible=False)
    group_id = reader.string()
    name = reader.string() if record_type in NAMES_IN_KEYS else ""
    reader.end()
    return group_id, record_type, name


def _value_of(record: ConsumerGroupRecord) -> bytes:
    writer = Writer(flexible=True)
    writer.raw(_VERSION_BYTES)
    _WRITERS[type(record)](writer, record)
    return writer.to_bytes()


def _end_with_int64(writer: Writer, tag: int, value: int) -> None:
    """Write the tagged fields that end a structure: one, if it isn't 0."""
    writer.raw(one_tag(tag, _int64.pack(value)) if value else NO_TAGS)


def _int64_at_end(reader: Reader, tag: int) -> int:
    content = reader.tags().get(tag)
    value: int = 0 if content is None else _int64.unpack(content)[0]
    return value


# ---------------------------------------------------------------- the group


def _write_group(writer: Writer, record: ConsumerGroupMetadataRecord) -> None:
    writer.int32(record.epoch)
    _end_with_int64(writer, METADATA_HASH_TAG, record.metadata_hash)


def _read_group(reader: Reader, group_id: str, _: str) -> ConsumerGroupMetadataRecord:
    return ConsumerGroupMetadataRecord(group_id, reader.int32(), _int64_at_end(reader, METADATA_HASH_TAG))


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


def _write_target(writer: Writer, record: ConsumerGroupTargetAssignmentMetadataRecord) -> None:
    writer.int32(record.assignment_epoch)
    _end_with_int64(writer, ASSIGNMENT_TIMESTAMP_TAG, record.assignment_timestamp_ms)


def _read_target(reader: Reader, group_id: str, _: str) -> ConsumerGroupTargetAssignmentMetadataRecord:
    return ConsumerGroupTargetAssignmentMetadataRecord(
        group_id, reader.int32(), _int64_at_end(reader, ASSIGNMENT_TIMESTAMP_TAG)
    )


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
        return _NULL
    writer = Writer(flexible=True)
    writer.int8(_PRESENT)
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
    if tag == _NULL:
        return None
    reader = Reader(tag, 0, flexible=True)
    if reader.unsigned_varint() != _PRESENT:
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


def _write_target_member(writer: Writer, record: ConsumerGroupTargetAssignmentMemberRecord) -> None:
    writer.array_length(len(record.topic_partitions))
    for topic_id, partitions in record.topic_partitions:
        writer.raw(b"%b%b%b" % (topic_id.bytes, int32s(partitions), NO_TAGS))
    writer.tags({})


def _read_target_member(reader: Reader, group_id: str, member_id: str) -> ConsumerGroupTargetAssignmentMemberRecord:
    topics = tuple([_read_topic_partitions(reader) for _ in range(reader.array_length())])
    reader.tags()
    return ConsumerGroupTargetAssignmentMemberRecord(group_id, member_id, topics)


def _read_topic_partitions(reader: Reader) -> TopicPartitions:
    topic = TopicPartitions(reader.uuid(), reader.int32s())
    reader.tags()
    return topic


def _write_current_assignment(writer: Writer, record: ConsumerGroupCurrentMemberAssignmentRecord) -> None:
    writer.raw(_epochs_and_state.pack(record.member_epoch, record.previous_member_epoch, record.state))
    _write_assigned(writer, record.assigned_partitions)
    _write_assigned(writer, record.partitions_pending_revocation)
    writer.tags({})


def _write_assigned(writer: Writer, topics: Sequence[AssignedTopicPartitions]) -> None:
    writer.array_length(len(topics))
    for topic_id, partitions, epochs in topics:
        tags = NO_TAGS
        if epochs != ():
            tags = one_tag(ASSIGNMENT_EPOCHS_TAG, _NULL if epochs is None else int32s(epochs))
        writer.raw(b"%b%b%b" % (topic_id.bytes, int32s(partitions), tags))


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
            AssignedTopicPartitions(
                reader.uuid(), reader.int32s(), _read_epochs(reader.tags().get(ASSIGNMENT_EPOCHS_TAG))
            )
            for _ in range(reader.array_length())
        ]
    )


def _read_epochs(tag: bytes | None) -> tuple[int, ...] | None:
    if tag is None:
        return ()
    if tag == _NULL:
        return None
    reader = Reader(tag, 0, flexible=True)
    epochs = reader.int32s()
    reader.end()
    return epochs


_WRITERS: dict[type, Callable[[Writer, Any], None]] = {
    ConsumerGroupMetadataRecord: _write_group,
    ConsumerGroupPartitionMetadataRecord: _write_topics,
    ConsumerGroupMemberMetadataRecord: _write_member,
    ConsumerGroupTargetAssignmentMetadataRecord: _write_target,
    ConsumerGroupTargetAssignmentMemberRecord: _write_target_member,
    ConsumerGroupCurrentMemberAssignmentRecord: _write_current_assignment,
    ConsumerGroupRegularExpressionRecord: _write_expression,
}
_READERS: dict[int, Callable[[Reader, str, str], ConsumerGroupRecord]] = {
    RecordType.CONSUMER_GROUP_METADATA: _read_group,
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: _read_topics,
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: _read_member,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: _read_target,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: _read_target_member,
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: _read_current_assignment,
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: _read_expression,
}
