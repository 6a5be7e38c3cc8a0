"""Keys and values of ``__consumer_offsets`` records, byte-exact in both directions.

A key starts with an int16 that says what the record is; a value starts with an int16 that says its version. Kafka 4.4
writes version 4 of a committed offset (version 1 when it carries its own expiry) and version 3 of a classic group. The
records of the other kinds of groups are in :mod:`groupcoord.records.group_records`.

Decoding never raises: what this module does not know or cannot parse becomes an :class:`OpaqueRecord`. Sources: Kafka's
``OffsetCommitKey/Value``, ``LegacyOffsetCommitKey/Value`` and ``GroupMetadataKey/Value`` schemas, KIP-98, KIP-211,
KIP-915.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Any, get_args

from groupcoord.core.records import (
    CLASSIC_GROUP_KEY,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ZERO_UUID,
    GroupMetadataRecord,
    GroupTombstone,
    MemberRecord,
    OffsetCommitRecord,
    OffsetTombstone,
    OpaqueRecord,
    Record,
    TransactionMarker,
)
from groupcoord.core.share_state.records import ShareStateRecord
from groupcoord.errors import GroupcoordError
from groupcoord.records.group_records import FORMATS, decode_group_record, encode_group_record, group_record_key
from groupcoord.records.primitives import MalformedError, Reader, Writer, topic_id_of
from groupcoord.records.share_state import encode_share_state

LEGACY_OFFSET_COMMIT_KEY = 0
OFFSET_COMMIT_KEY = 1
GROUP_METADATA_KEY = 2

LEGACY_OFFSET_COMMIT_VALUE_VERSION = 0
OFFSET_COMMIT_VALUE_VERSION = 4
EXPIRING_OFFSET_COMMIT_VALUE_VERSION = 1
GROUP_METADATA_VALUE_VERSION = 3
NEWEST_VALUE_VERSION = 4
FIRST_FLEXIBLE_VALUE_VERSION = 4
TOPIC_ID_TAG = 0

ABORT_MARKER = 0
COMMIT_MARKER = 1

_CACHED_NAMES_MAX = 8_192
_CACHED_NAME_LENGTH_MAX = 256

_pack_int32 = Struct(">i").pack
_unpack_int16_from = Struct(">h").unpack_from
_unpack_int32_from = Struct(">i").unpack_from
# version, offset, leader epoch, length byte of empty metadata, commit timestamp, tags: none, or one with the topic id
_offset_value_without_topic_id = Struct(">hqiBqB")
_offset_value_with_topic_id = Struct(">hqiBq3s16s")
# The same value around metadata of less than 127 bytes.
_offset_value_head = Struct(">hqiB")
_offset_value_tail = Struct(">q3s16s")
_TAIL_BYTES = 27
_ONE_TAG_WITH_TOPIC_ID = b"\x01\x00\x10"
_marker_key = Struct(">hh")
_marker_value = Struct(">hi")


class RecordEncodingError(GroupcoordError, ValueError):
    """A record can't be put into bytes: a string is longer than 32,767 bytes, a number too large, a version unknown."""


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """Return the key and the value that Kafka 4.4 writes for ``record``; the value is None for a tombstone.

    A record's ``value_version``, if set, is the version to write, and its ``raw_value``, if set, is what is written.
    Fields that a version lacks are dropped, as Kafka does: a value with an expiry (version 1) has neither leader epoch
    nor topic id.

    Raises:
        RecordEncodingError: a string is longer than 32,767 bytes (a group id, say), a number does not fit its field, or
            ``value_version`` is unknown.
        TypeError: ``record`` is none of the record classes.
    """
    encode = _ENCODERS.get(type(record))
    if encode is None:
        raise TypeError(f"not a record: {record!r}")
    try:
        return encode(record)
    except (StructError, OverflowError, MalformedError, UnicodeEncodeError) as error:
        raise RecordEncodingError(f"{type(record).__name__} can't be encoded: {error}") from error


def decode_record(
    key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = -1
) -> Record:
    """Return the record that a key and a value stand for; an :class:`OpaqueRecord` if they are unknown or malformed.

    Args:
        key: the key's bytes.
        value: the value's bytes; None for a tombstone.
        producer_id: of the batch, if it is transactional; -1 otherwise.
        producer_epoch: goes with ``producer_id``.

    The result's ``value_version`` is set only where the version is not the one that a writer would choose, and
    ``raw_value`` only where the fields don't tell all: ``encode_record`` always gives back what was decoded.
    """
    try:
        if key[:2] == b"\x00\x01":
            return _decode_offset_commit(key, value, producer_id, producer_epoch)
        if key[:2] == b"\x00\x02":
            return _decode_group_metadata(key, value)
        if key[:2] == b"\x00\x00":
            return _decode_legacy_offset_commit(key, value, producer_id, producer_epoch)
        return decode_group_record(key, value)
    except (StructError, MalformedError, UnicodeDecodeError):
        pass
    return OpaqueRecord(key, value, producer_id, producer_epoch)


def decode_control(key: bytes, value: bytes | None, producer_id: int, producer_epoch: int) -> Record:
    """Return the marker that a control record stands for; an :class:`OpaqueRecord` for control records of other types.

    A newer version of key or value is read like version 0, which is what Kafka does (KIP-98). Markers are the one kind
    of record whose encoding may differ from what was decoded: it is of version 0.
    """
    if len(key) >= 4 and value is not None and len(value) >= 6:
        key_version, marker_type = _marker_key.unpack_from(key)
        value_version, coordinator_epoch = _marker_value.unpack_from(value)
        if key_version >= 0 and value_version >= 0 and marker_type in (ABORT_MARKER, COMMIT_MARKER):
            return TransactionMarker(producer_id, producer_epoch, marker_type == COMMIT_MARKER, coordinator_epoch)
    return OpaqueRecord(key, value, producer_id, producer_epoch, is_control=True)


# ---------------------------------------------------------------- offsets


def _encode_offset_commit(record: OffsetCommitRecord) -> tuple[bytes, bytes | None]:
    key = _offset_key(record.group_id, record.topic, record.partition)
    topic_id = record.topic_id.int
    if record.raw_value is not None:
        return key, record.raw_value
    if record.value_version is not None or record.expire_timestamp_ms != NO_TIMESTAMP or record.key_version != 1:
        return _with_key_version(key, record.key_version), _encode_offset_value(record)
    if record.metadata:
        metadata = record.metadata.encode()
        if not topic_id or len(metadata) > 126:
            return key, _encode_offset_value(record)
        head = _offset_value_head.pack(
            OFFSET_COMMIT_VALUE_VERSION, record.offset, record.leader_epoch, len(metadata) + 1
        )
        tail = _offset_value_tail.pack(record.commit_timestamp_ms, _ONE_TAG_WITH_TOPIC_ID, topic_id.to_bytes(16, "big"))
        return key, head + metadata + tail
    if topic_id:
        return key, _offset_value_with_topic_id.pack(
            OFFSET_COMMIT_VALUE_VERSION,
            record.offset,
            record.leader_epoch,
            1,
            record.commit_timestamp_ms,
            _ONE_TAG_WITH_TOPIC_ID,
            topic_id.to_bytes(16, "big"),
        )
    return key, _offset_value_without_topic_id.pack(
        OFFSET_COMMIT_VALUE_VERSION, record.offset, record.leader_epoch, 1, record.commit_timestamp_ms, 0
    )


def _encode_offset_tombstone(record: OffsetTombstone) -> tuple[bytes, None]:
    return _with_key_version(_offset_key(record.group_id, record.topic, record.partition), record.key_version), None


def _with_key_version(key: bytes, version: int) -> bytes:
    if version == OFFSET_COMMIT_KEY:
        return key
    if version != LEGACY_OFFSET_COMMIT_KEY:
        raise MalformedError(f"key version {version} is unknown")
    return b"\x00\x00" + key[2:]


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return offset_key_names(group_id, topic) + _pack_int32(partition)


def offset_key_names(group_id: str, topic: str) -> bytes:
    """Return an offset's key up to the number of the partition.

    Raises:
        RecordEncodingError: a name is longer than 32,767 bytes.
    """
    if len(group_id) > _CACHED_NAME_LENGTH_MAX or len(topic) > _CACHED_NAME_LENGTH_MAX:
        return _offset_key_names(group_id, topic)
    return _cached_offset_key_names(group_id, topic)


def _offset_key_names(group_id: str, topic: str) -> bytes:
    writer = Writer(flexible=False)
    writer.int16(OFFSET_COMMIT_KEY)
    writer.string(group_id, "group")
    writer.string(topic, "topic")
    return writer.to_bytes()


# Long names stay out of the cache, so that its memory is bounded whatever clients send.
_cached_offset_key_names = lru_cache(_CACHED_NAMES_MAX)(_offset_key_names)


def _encode_offset_value(record: OffsetCommitRecord) -> bytes:
    version = record.value_version
    if record.key_version == LEGACY_OFFSET_COMMIT_KEY:
        version = LEGACY_OFFSET_COMMIT_VALUE_VERSION
    elif version is None:
        expires = record.expire_timestamp_ms != NO_TIMESTAMP
        version = EXPIRING_OFFSET_COMMIT_VALUE_VERSION if expires else OFFSET_COMMIT_VALUE_VERSION
    writer = _value_writer(version)
    writer.int64(record.offset)
    if version >= 3:
        writer.int32(record.leader_epoch)
    writer.string(record.metadata, "metadata")
    writer.int64(record.commit_timestamp_ms)
    if version == EXPIRING_OFFSET_COMMIT_VALUE_VERSION:
        writer.int64(record.expire_timestamp_ms)
    if version >= 4:
        topic_id = record.topic_id
        writer.tags({} if topic_id == ZERO_UUID else {TOPIC_ID_TAG: topic_id.bytes})
    return writer.to_bytes()


def _decode_offset_commit(key: bytes, value: bytes | None, producer_id: int, producer_epoch: int) -> Record:
    names = key[:-4]
    group_id, topic = offset_key_strings(names)
    (partition,) = _unpack_int32_from(key, len(names))
    if value is None:
        return OffsetTombstone(group_id, topic, partition)
    size = len(value)
    # The common shapes without a Reader: version 4 with a topic id and metadata of less than 127 bytes, mostly none.
    if 42 <= size < 168 and value[14] == size - 41 and value[:2] == b"\x00\x04":
        if size == 42:
            _, offset, leader_epoch, _, timestamp_ms, tags, topic_id = _offset_value_with_topic_id.unpack(value)
            metadata = ""
        else:
            _, offset, leader_epoch, _ = _offset_value_head.unpack_from(value)
            timestamp_ms, tags, topic_id = _offset_value_tail.unpack_from(value, size - _TAIL_BYTES)
            metadata = value[15 : size - _TAIL_BYTES].decode()
        topic_uuid = topic_id_of(topic_id)
        if tags == _ONE_TAG_WITH_TOPIC_ID and topic_uuid is not ZERO_UUID:
            return OffsetCommitRecord(
                group_id,
                topic,
                partition,
                offset,
                leader_epoch,
                metadata,
                timestamp_ms,
                NO_TIMESTAMP,
                topic_uuid,
                producer_id,
                producer_epoch,
            )
    record = OffsetCommitRecord(group_id, topic, partition, -1, producer_id=producer_id, producer_epoch=producer_epoch)
    _read_offset_value(record, value)
    return record


def _decode_legacy_offset_commit(key: bytes, value: bytes | None, producer_id: int, producer_epoch: int) -> Record:
    """The key of brokers before 0.9, whose values are of version 0 only."""
    group_id, topic = offset_key_strings(key[:-4])
    (partition,) = _unpack_int32_from(key, len(key) - 4)
    if value is None:
        return OffsetTombstone(group_id, topic, partition, LEGACY_OFFSET_COMMIT_KEY)
    if value[:2] != b"\x00\x00":
        raise MalformedError("a legacy offset has a value of version 0")
    record = OffsetCommitRecord(group_id, topic, partition, -1, producer_id=producer_id, producer_epoch=producer_epoch)
    record.key_version = LEGACY_OFFSET_COMMIT_KEY
    _read_offset_value(record, value)
    record.value_version = None
    return record


def _read_offset_value(record: OffsetCommitRecord, value: bytes) -> None:
    reader, version = _value_reader(value)
    record.offset = reader.int64()
    if version >= 3:
        record.leader_epoch = reader.int32()
    record.metadata = reader.string()
    record.commit_timestamp_ms = reader.int64()
    chosen_version = OFFSET_COMMIT_VALUE_VERSION
    if version == EXPIRING_OFFSET_COMMIT_VALUE_VERSION:
        record.expire_timestamp_ms = reader.int64()
        if record.expire_timestamp_ms != NO_TIMESTAMP:
            chosen_version = EXPIRING_OFFSET_COMMIT_VALUE_VERSION
    topic_id = reader.tags().get(TOPIC_ID_TAG)
    if topic_id is not None:
        if len(topic_id) != 16:
            raise MalformedError(f"a topic id has 16 bytes, not {len(topic_id)}")
        record.topic_id = topic_id_of(topic_id)
    reader.end()
    record.value_version = None if version == chosen_version else version
    if version >= FIRST_FLEXIBLE_VALUE_VERSION and _encode_offset_value(record) != value:
        record.raw_value = value


def offset_key_strings(names: bytes) -> tuple[str, str]:
    """Return group and topic of an offset key without its last four bytes: the inverse of :func:`offset_key_names`.

    Raises:
        MalformedError: a name is missing, or they are longer or shorter than the bytes.
        struct.error: the bytes end early.
        UnicodeDecodeError: a name is not in UTF-8.
    """
    return _cached_names(names) if len(names) <= 2 * _CACHED_NAME_LENGTH_MAX else _names(names)


def _names(names: bytes) -> tuple[str, str]:
    (group_length,) = _unpack_int16_from(names, 2)
    middle = 4 + group_length
    if group_length < 0:
        raise MalformedError("null in place of a group")
    (topic_length,) = _unpack_int16_from(names, middle)
    if topic_length < 0 or middle + 2 + topic_length != len(names):
        raise MalformedError(f"a topic of {topic_length} bytes, {len(names) - middle - 2} left")
    return names[4:middle].decode(), names[middle + 2 :].decode()


_cached_names = lru_cache(_CACHED_NAMES_MAX)(_names)


# ---------------------------------------------------------------- groups


def _encode_group_metadata(record: GroupMetadataRecord) -> tuple[bytes, bytes | None]:
    value = _encode_group_value(record) if record.raw_value is None else record.raw_value
    return _group_key(record.group_id), value


def _encode_group_value(record: GroupMetadataRecord) -> bytes:
    version = GROUP_METADATA_VALUE_VERSION if record.value_version is None else record.value_version
    writer = _value_writer(version)
    writer.string(record.protocol_type, "protocol type")
    writer.int32(record.generation_id)
    writer.nullable_string(record.protocol_name, "protocol name")
    writer.nullable_string(record.leader, "leader")
    if version >= 2:
        writer.int64(record.state_timestamp_ms)
    writer.array_length(len(record.members))
    for member in record.members:
        _write_member(writer, member, version)
    writer.tags({})
    return writer.to_bytes()


def _write_member(writer: Writer, member: MemberRecord, version: int) -> None:
    writer.string(member.member_id, "member id")
    if version >= 3:
        writer.nullable_string(member.group_instance_id, "group instance id")
    writer.string(member.client_id, "client id")
    writer.string(member.client_host, "client host")
    if version >= 1:
        writer.int32(member.rebalance_timeout_ms)
    writer.int32(member.session_timeout_ms)
    writer.sized_bytes(member.subscription)
    writer.sized_bytes(member.assignment)
    writer.tags({})


def _encode_group_tombstone(record: GroupTombstone) -> tuple[bytes, None]:
    if record.key == CLASSIC_GROUP_KEY:
        return _group_key(record.group_id), None
    return group_record_key(record.group_id, record.key), None


def _group_key(group_id: str) -> bytes:
    writer = Writer(flexible=False)
    writer.int16(GROUP_METADATA_KEY)
    writer.string(group_id, "group")
    return writer.to_bytes()


def _decode_group_metadata(key: bytes, value: bytes | None) -> Record:
    key_reader = Reader(key, 2, flexible=False)
    group_id = key_reader.string()
    key_reader.end()
    if value is None:
        return GroupTombstone(group_id)
    reader, version = _value_reader(value)
    record = GroupMetadataRecord(
        group_id=group_id,
        protocol_type=reader.string(),
        generation_id=reader.int32(),
        protocol_name=reader.nullable_string(),
        leader=reader.nullable_string(),
        state_timestamp_ms=reader.int64() if version >= 2 else NO_TIMESTAMP,
        members=tuple([_read_member(reader, version) for _ in range(reader.array_length())]),
        value_version=None if version == GROUP_METADATA_VALUE_VERSION else version,
    )
    reader.tags()
    reader.end()
    if version >= FIRST_FLEXIBLE_VALUE_VERSION and _encode_group_value(record) != value:
        record.raw_value = value
    return record


def _read_member(reader: Reader, version: int) -> MemberRecord:
    """Version 0 has no rebalance timeout: it is -1 then, and the session timeout stands for it."""
    member = MemberRecord(
        member_id=reader.string(),
        group_instance_id=reader.nullable_string() if version >= 3 else None,
        client_id=reader.string(),
        client_host=reader.string(),
        rebalance_timeout_ms=reader.int32() if version >= 1 else -1,
        session_timeout_ms=reader.int32(),
        subscription=reader.sized_bytes(),
        assignment=reader.sized_bytes(),
    )
    reader.tags()
    return member


# ---------------------------------------------------------------- the rest


def _encode_marker(record: TransactionMarker) -> tuple[bytes, bytes | None]:
    marker_type = COMMIT_MARKER if record.committed else ABORT_MARKER
    return _marker_key.pack(0, marker_type), _marker_value.pack(0, record.coordinator_epoch)


def _encode_opaque(record: OpaqueRecord) -> tuple[bytes, bytes | None]:
    return record.key, record.value


def _value_writer(version: int) -> Writer:
    if not 0 <= version <= NEWEST_VALUE_VERSION:
        raise MalformedError(f"value version {version} is unknown")
    writer = Writer(flexible=version >= FIRST_FLEXIBLE_VALUE_VERSION)
    writer.int16(version)
    return writer


def _value_reader(value: bytes) -> tuple[Reader, int]:
    version = int.from_bytes(value[:2], "big", signed=True) if len(value) >= 2 else -1
    if not 0 <= version <= NEWEST_VALUE_VERSION:
        raise MalformedError(f"value version {version} is unknown")
    return Reader(value, 2, flexible=version >= FIRST_FLEXIBLE_VALUE_VERSION), version


_ENCODERS: dict[type, Callable[[Any], tuple[bytes, bytes | None]]] = {
    OffsetCommitRecord: _encode_offset_commit,
    OffsetTombstone: _encode_offset_tombstone,
    GroupMetadataRecord: _encode_group_metadata,
    GroupTombstone: _encode_group_tombstone,
    TransactionMarker: _encode_marker,
    OpaqueRecord: _encode_opaque,
    **dict.fromkeys((record_format.record_class for record_format in FORMATS), encode_group_record),
    **dict.fromkeys(get_args(ShareStateRecord), encode_share_state),
}
