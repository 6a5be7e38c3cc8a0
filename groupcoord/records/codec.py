"""Keys and values of ``__consumer_offsets`` records, byte-exact in both directions.

A key starts with an int16, the record type; a value starts with an int16, its version. Kafka 4.4 writes version 4 of a
committed offset (version 1 if it has an expiry) and version 3 of a classic group.

:func:`decode_record` never raises: unknown and malformed records become :class:`OpaqueRecord`. Sources: Kafka's schemas
of group coordinator records, KIP-98, KIP-211, KIP-915.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from struct import (
    Struct,
    error as StructError,  # noqa: N812
)
from typing import Any, NamedTuple, get_args

from attrs import fields as attributes_of

from groupcoord.core.log.records import (
    CLASSIC_GROUP_KEY,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ZERO_UUID,
    ConsumerGroupRecord,
    GroupMetadataRecord,
    GroupRecord,
    GroupTombstone,
    OffsetCommitRecord,
    OffsetTombstone,
    OpaqueRecord,
    Record,
    RecordKey,
    ShareGroupRecord,
    StreamsGroupRecord,
    TransactionMarker,
)
from groupcoord.core.share_state.records import ShareStateRecord
from groupcoord.errors import GroupcoordError
from groupcoord.records.schemas import GROUP_AND_TOPIC, SCHEMAS, RecordType
from groupcoord.records.share_state import encode_share_state
from groupcoord.schema.engine import MADE, PROTOCOL, Structure, read_whole, reader_of, writer_of
from groupcoord.schema.primitives import MalformedError, Reader, Writer, topic_id_of

LEGACY_OFFSET_COMMIT_KEY = 0
OFFSET_COMMIT_KEY = 1

LEGACY_OFFSET_COMMIT_VALUE_VERSION = 0
OFFSET_COMMIT_VALUE_VERSION = 4
EXPIRING_OFFSET_COMMIT_VALUE_VERSION = 1
GROUP_METADATA_VALUE_VERSION = 3

ABORT_MARKER = 0
COMMIT_MARKER = 1

_CACHED_NAMES_MAX = 8_192
_CACHED_NAME_LENGTH_MAX = 256

_OFFSET_KEY_START, _GROUP_KEY_START = (
    record_type.to_bytes(2, "big") for record_type in (RecordType.OFFSET_COMMIT, RecordType.GROUP_METADATA)
)
_pack_int32 = Struct(">i").pack
_unpack_int32_from = Struct(">i").unpack_from
# A value of version 4: version, offset, leader epoch and length byte before the metadata; behind them the commit
# timestamp, and a tag with the topic id.
_offset_value_head = Struct(">hqiB")
_offset_value_tail = Struct(">q3s16s")
_SHORT_METADATA_BYTES_MAX = 126  # so that the length takes one byte
_TAIL_BYTES = 27
_ONE_TAG_WITH_TOPIC_ID = b"\x01\x00\x10"
_marker_key = Struct(">hh")
_marker_value = Struct(">hi")


class RecordEncodingError(GroupcoordError, ValueError):
    """A record does not fit its schema: a string is too long, a number too large, a version unknown."""


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """Return the key and the value that Kafka 4.4 writes for a record; the value is None for a tombstone.

    As in Kafka, fields that the version lacks are dropped: a value with an expiry (version 1) has neither leader epoch
    nor topic id.

    Args:
        record: the record. Its ``raw_value``, if set, is the value; its ``value_version``, if set, the version to
            write.

    Raises:
        RecordEncodingError: a string is longer than 32,767 bytes, a number does not fit its field, or ``value_version``
            is unknown.
        TypeError: ``record`` is not of a record class.
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
    """Return the record of a key and a value; an :class:`OpaqueRecord` if they are unknown or malformed.

    ``encode_record`` returns the same bytes: ``value_version`` is set if it is not the default one, ``raw_value`` if
    the fields do not determine the bytes.

    Args:
        key: the bytes of the key.
        value: the bytes of the value; None for a tombstone.
        producer_id, producer_epoch: those of a transactional batch; -1 otherwise.
    """
    try:
        if key[:2] == b"\x00\x01":
            return _decode_offset_commit(key, value, producer_id, producer_epoch)
        if key[:2] == b"\x00\x02":
            return _decode_group_metadata(key, value)
        if key[:2] == b"\x00\x00":
            return _decode_legacy_offset_commit(key, value, producer_id, producer_epoch)
        return decode_group_record(key, value)
    except (StructError, MalformedError, IndexError, UnicodeDecodeError):
        pass
    return OpaqueRecord(key, value, producer_id, producer_epoch)


def decode_control(key: bytes, value: bytes | None, producer_id: int, producer_epoch: int) -> Record:
    """Return the marker of a control record; an :class:`OpaqueRecord` for control records of other types.

    As in Kafka, newer versions are read as version 0 (KIP-98), the only one that is written; so bytes may differ.
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
    metadata = record.metadata.encode()
    # Fast path, without the schema engine.
    if not topic_id or len(metadata) > _SHORT_METADATA_BYTES_MAX:
        return key, _encode_offset_value(record)
    head = _offset_value_head.pack(OFFSET_COMMIT_VALUE_VERSION, record.offset, record.leader_epoch, len(metadata) + 1)
    tail = _offset_value_tail.pack(record.commit_timestamp_ms, _ONE_TAG_WITH_TOPIC_ID, topic_id.to_bytes(16, "big"))
    return key, head + metadata + tail


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
    """Return an offset's key up to the partition number.

    Raises:
        MalformedError: a name is longer than 32,767 bytes.
        UnicodeEncodeError: a name can't be encoded.
    """
    if len(group_id) > _CACHED_NAME_LENGTH_MAX or len(topic) > _CACHED_NAME_LENGTH_MAX:
        return _offset_key_names(group_id, topic)
    return _cached_offset_key_names(group_id, topic)


def _offset_key_names(group_id: str, topic: str) -> bytes:
    return _OFFSET_KEY_START + _key_form(RecordType.OFFSET_COMMIT).write((group_id, topic))


# Clients can't make the cache large.
_cached_offset_key_names = lru_cache(_CACHED_NAMES_MAX)(_offset_key_names)


def _encode_offset_value(record: OffsetCommitRecord) -> bytes:
    version = record.value_version
    if record.key_version == LEGACY_OFFSET_COMMIT_KEY:
        version = LEGACY_OFFSET_COMMIT_VALUE_VERSION
    elif version is None:
        expires = record.expire_timestamp_ms != NO_TIMESTAMP
        version = EXPIRING_OFFSET_COMMIT_VALUE_VERSION if expires else OFFSET_COMMIT_VALUE_VERSION
    return value_writer(RecordType.OFFSET_COMMIT, version)(record)


def _decode_offset_commit(key: bytes, value: bytes | None, producer_id: int, producer_epoch: int) -> Record:
    names = key[:-4]
    group_id, topic = offset_key_strings(names)
    (partition,) = _unpack_int32_from(key, len(names))
    if value is None:
        return OffsetTombstone(group_id, topic, partition)
    size = len(value)
    # Fast path, without the schema engine: version 4 with a topic id and short metadata.
    # The other fields take 42 bytes, and byte 14 is the length of the metadata plus 1.
    if 42 <= size < 42 + _SHORT_METADATA_BYTES_MAX and value[14] == size - 41 and value[:2] == b"\x00\x04":
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
    return _read_offset_commit((group_id, topic, partition), value, producer_id, producer_epoch)


def _decode_legacy_offset_commit(key: bytes, value: bytes | None, producer_id: int, producer_epoch: int) -> Record:
    """Decode a record with the key of brokers before 0.9 and a value of version 0."""
    group_id, topic = offset_key_strings(key[:-4])
    (partition,) = _unpack_int32_from(key, len(key) - 4)
    if value is None:
        return OffsetTombstone(group_id, topic, partition, LEGACY_OFFSET_COMMIT_KEY)
    if value[:2] != b"\x00\x00":
        raise MalformedError("a legacy offset has a value of version 0")
    record = _read_offset_commit((group_id, topic, partition), value, producer_id, producer_epoch)
    record.key_version, record.value_version = LEGACY_OFFSET_COMMIT_KEY, None
    return record


def _read_offset_commit(
    key: tuple[str, str, int], value: bytes, producer_id: int, producer_epoch: int
) -> OffsetCommitRecord:
    version, fields, raw_value = read_value(RecordType.OFFSET_COMMIT, value)
    record = OffsetCommitRecord(*(*key, *fields, producer_id, producer_epoch))
    record.raw_value = raw_value
    expires = version == EXPIRING_OFFSET_COMMIT_VALUE_VERSION and record.expire_timestamp_ms != NO_TIMESTAMP
    chosen_version = EXPIRING_OFFSET_COMMIT_VALUE_VERSION if expires else OFFSET_COMMIT_VALUE_VERSION
    record.value_version = None if version == chosen_version else version
    return record


def offset_key_strings(names: bytes) -> tuple[str, str]:
    """Return group and topic of an offset key without its last four bytes, the inverse of :func:`offset_key_names`."""
    return _cached_names(names) if len(names) <= 2 * _CACHED_NAME_LENGTH_MAX else _names(names)


def _names(names: bytes) -> tuple[str, str]:
    group_id, topic = read_whole(_key_form(RecordType.OFFSET_COMMIT).read, names, 2)
    return group_id, topic


_cached_names = lru_cache(_CACHED_NAMES_MAX)(_names)


# ---------------------------------------------------------------- groups


def _encode_group_metadata(record: GroupMetadataRecord) -> tuple[bytes, bytes | None]:
    if record.raw_value is not None:
        return _group_key(record.group_id), record.raw_value
    version = GROUP_METADATA_VALUE_VERSION if record.value_version is None else record.value_version
    return _group_key(record.group_id), value_writer(RecordType.GROUP_METADATA, version)(record)


def _encode_group_tombstone(record: GroupTombstone) -> tuple[bytes, None]:
    if record.key == CLASSIC_GROUP_KEY:
        return _group_key(record.group_id), None
    return group_record_key(record.group_id, record.key), None


def _group_key(group_id: str) -> bytes:
    return _GROUP_KEY_START + _key_form(RecordType.GROUP_METADATA).write((group_id,))


def _decode_group_metadata(key: bytes, value: bytes | None) -> Record:
    (group_id,) = read_whole(_key_form(RecordType.GROUP_METADATA).read, key, 2)
    if value is None:
        return GroupTombstone(group_id)
    version, fields, raw_value = read_value(RecordType.GROUP_METADATA, value)
    value_version = None if version == GROUP_METADATA_VALUE_VERSION else version
    return GroupMetadataRecord(*(group_id, *fields, value_version, raw_value))


# ---------------------------------------------------------------- the rest


def _encode_marker(record: TransactionMarker) -> tuple[bytes, bytes | None]:
    marker_type = COMMIT_MARKER if record.committed else ABORT_MARKER
    return _marker_key.pack(0, marker_type), _marker_value.pack(0, record.coordinator_epoch)


RECORD_CLASSES: dict[RecordType, type[Any]] = {
    RecordType.OFFSET_COMMIT: OffsetCommitRecord,
    RecordType.GROUP_METADATA: GroupMetadataRecord,
    **{
        RecordType(kind.RECORD_TYPE): kind
        for kind in get_args(ConsumerGroupRecord | ShareGroupRecord | StreamsGroupRecord)
    },
}


class ReadValue(NamedTuple):
    """Version and fields of a value; ``raw_value``: its bytes, if the fields do not determine them."""

    version: int
    fields: tuple[Any, ...]
    raw_value: bytes | None


def read_value(record_type: RecordType, value: bytes) -> ReadValue:
    """Return version and fields of a value; fields that the version lacks have their defaults.

    Raises:
        MalformedError, IndexError, struct.error, UnicodeDecodeError: no broker would read it.
    """
    version = int.from_bytes(value[:2], "big", signed=True) if len(value) >= 2 else -1
    read_strictly, read_leniently = _value_readers(record_type, version)
    raw_value = None
    try:
        fields, end = read_strictly(value, 2)
    except MalformedError:
        fields, end = read_leniently(value, 2)
        raw_value = value  # Kafka reads it, but writes other bytes
    if end != len(value):
        raise MalformedError(f"{len(value) - end} bytes are left over")
    return ReadValue(version, fields, raw_value)


@cache
def value_writer(record_type: RecordType, version: int) -> Writer:
    """Return the writer of values of a record type in a version.

    Raises:
        MalformedError: the version is unknown.
    """
    is_flexible = _is_flexible(record_type, version)
    key, value = SCHEMAS[record_type][:2]
    record_class = RECORD_CLASSES[record_type]
    attributes = [attribute.name for attribute in attributes_of(record_class)][len(key.fields) :]
    fields = [field._replace(name=name) for field, name in zip(value.fields, attributes, strict=False)]
    write = writer_of(Structure(tuple(fields), record_class, by_name=True), version, is_flexible, MADE)
    start = version.to_bytes(2, "big")
    return lambda record: start + write(record)


@cache
def _value_readers(record_type: RecordType, version: int) -> tuple[Reader[Any], Reader[Any]]:
    is_flexible, value = _is_flexible(record_type, version), SCHEMAS[record_type].value
    return reader_of(value, version, is_flexible, MADE), reader_of(value, version, is_flexible, PROTOCOL)


def _is_flexible(record_type: RecordType, version: int) -> bool:
    schema = SCHEMAS[record_type]
    if not 0 <= version <= schema.newest_version:
        raise MalformedError(f"value version {version} is unknown")
    return version >= schema.first_flexible


TYPES = tuple(record_type for record_type in RECORD_CLASSES if record_type > RecordType.GROUP_METADATA)
"""Record types except offsets and classic groups."""

KEY_STARTS = frozenset(record_type.to_bytes(2, "big") for record_type in TYPES)
VALUE_VERSION = 0

_KEYS_MAX = 1_024
_CACHED_KEYS_MAX = 8_192
_CACHED_NAMES_LENGTH_MAX = 512


class _KeyForm(NamedTuple):
    """Reader and writer of the keys of a record type: a group id, and a name if ``has_name``."""

    has_name: bool
    write: Writer
    read: Reader[Any]


@cache
def _key_form(record_type: int) -> _KeyForm:
    if record_type not in RECORD_CLASSES:
        raise MalformedError(f"no group has records of type {record_type}")
    # For offsets only the part before the partition number, which the records of a topic share.
    key = GROUP_AND_TOPIC if record_type == RecordType.OFFSET_COMMIT else SCHEMAS[RecordType(record_type)].key
    return _KeyForm(len(key.fields) > 1, writer_of(key, 0, False, MADE), reader_of(key, 0, False, MADE))


def encode_group_record(record: GroupRecord) -> tuple[bytes, bytes]:
    key, value = record.key, record.raw_value
    if value is None:
        value = value_writer(RecordType(key[0]), VALUE_VERSION)(record)
    return group_record_key(record.group_id, key), value


def group_record_key(group_id: str, record_key: RecordKey) -> bytes:
    """Return the bytes of a key.

    Raises:
        MalformedError: the record type is unknown, or a name is too long.
        UnicodeEncodeError: a name can't be encoded.
    """
    if len(group_id) + len(record_key[1]) > _CACHED_NAMES_LENGTH_MAX:
        return _group_record_key(group_id, record_key)
    return _cached_group_record_key(group_id, record_key)


def _group_record_key(group_id: str, record_key: RecordKey) -> bytes:
    record_type, name = record_key
    form = _key_form(record_type)
    if record_type not in TYPES or (name and not form.has_name):
        raise MalformedError(f"no record has the key {record_key}")
    return record_type.to_bytes(2, "big") + form.write((group_id, name))


_cached_group_record_key = lru_cache(_CACHED_KEYS_MAX)(_group_record_key)


def decode_group_record(key: bytes, value: bytes | None) -> GroupRecord | GroupTombstone:
    """Return the record of a key and a value of one of :data:`TYPES`; raise as :func:`read_value` does."""
    record_type, names = _read_key(key)
    if value is None:
        return GroupTombstone(names[0], (record_type, "".join(names[1:])))
    _, fields, raw_value = read_value(record_type, value)
    record: GroupRecord = RECORD_CLASSES[record_type](*names, *fields, raw_value)
    return record


@lru_cache(_KEYS_MAX)
def _read_key(key: bytes) -> tuple[RecordType, tuple[str, ...]]:
    """Return the record type and the names in a key, the group first. Cached, because most keys of a log repeat."""
    number = int.from_bytes(key[:2], "big")
    form = _key_form(number)
    return RecordType(number), read_whole(form.read, key, 2)


_ENCODERS: dict[type, Callable[[Any], tuple[bytes, bytes | None]]] = {
    OffsetCommitRecord: _encode_offset_commit,
    OffsetTombstone: _encode_offset_tombstone,
    GroupMetadataRecord: _encode_group_metadata,
    GroupTombstone: _encode_group_tombstone,
    TransactionMarker: _encode_marker,
    OpaqueRecord: lambda record: (record.key, record.value),
    **dict.fromkeys((RECORD_CLASSES[record_type] for record_type in TYPES), encode_group_record),
    **dict.fromkeys(get_args(ShareStateRecord), encode_share_state),
}
