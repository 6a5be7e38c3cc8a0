"""Records of every known type as values: the fields of Kafka's schemas, byte-exact in both directions.

For tools; the coordinator's records have classes (:mod:`groupcoord.core.log.records`).
"""

from __future__ import annotations

from functools import cache
from struct import error as StructError  # noqa: N812
from typing import Any

from attrs import frozen

from groupcoord.records.codec import RecordEncodingError
from groupcoord.records.schemas import SCHEMAS, RecordType
from groupcoord.schema.engine import Values, read_whole, reader_of, writer_of
from groupcoord.schema.primitives import MalformedError, Reader

_UNREADABLE = (MalformedError, StructError, IndexError, UnicodeDecodeError)
_UNWRITABLE = (MalformedError, StructError, KeyError, TypeError, AttributeError, UnicodeEncodeError)


@frozen
class TypedRecord:
    """One record of a known type.

    Attributes:
        type: the record type.
        key: the fields of the key, by name (:data:`groupcoord.schema.engine.TOOLS`).
        version: the version of the value; None for a tombstone.
        value: the fields of the value; None for a tombstone.
        group_id: the group id in the key.
    """

    type: RecordType
    key: Values
    version: int | None = None
    value: Values | None = None

    @property
    def group_id(self) -> str:
        return group_id_of(self.key)


def group_id_of(key: Values) -> str:
    """Return the group id of a key; offsets and classic groups call it ``group``."""
    group_id: str = key["group"] if "group" in key else key["groupId"]
    return group_id


def parse_record(key: bytes, value: bytes | None) -> TypedRecord | None:
    """Return the record of a key and a value; None if type or version are unknown or the bytes malformed.

    ``build_record`` returns the same bytes. Bytes that brokers read but do not write, such as varints that are longer
    than necessary, are malformed.
    """
    parsed = parse_key(key)
    if parsed is None:
        return None
    record_type, fields = parsed
    if value is None:
        return TypedRecord(record_type, fields)
    values = parse_value(record_type, value)
    if values is None:
        return None
    return TypedRecord(record_type, fields, int.from_bytes(value[:2], "big"), values)


def parse_key(key: bytes) -> tuple[RecordType, Values] | None:
    known = _key_reader(key[:2])
    if known is None:
        return None
    record_type, read = known
    fields = _read_whole(read, key)
    return None if fields is None else (record_type, fields)


def parse_value(record_type: RecordType, value: bytes) -> Values | None:
    read = _value_reader(record_type, value[:2])
    return None if read is None else _read_whole(read, value)


def _read_whole(read: Reader[Any], data: bytes) -> Values | None:
    try:
        values: Values = read_whole(read, data, 2)
    except _UNREADABLE:
        return None
    return values


def build_record(record: TypedRecord) -> tuple[bytes, bytes | None]:
    """Return the bytes of key and value; the value of a tombstone is None.

    Raises:
        RecordEncodingError: the version is unknown, a field is missing or does not fit.
    """
    schema = SCHEMAS[record.type]
    try:
        key = record.type.to_bytes(2, "big") + writer_of(schema.key, 0, False)(record.key)  # never flexible
        if record.value is None:
            return key, None
        version = record.version
        if version is None or not 0 <= version <= schema.newest_version:
            raise MalformedError(f"value version {version} is unknown")
        write = writer_of(schema.value, version, version >= schema.first_flexible)
        return key, version.to_bytes(2, "big") + write(record.value)
    except _UNWRITABLE as error:
        raise RecordEncodingError(f"{record.type.name} can't be encoded: {error!r}") from error


@cache
def _key_reader(key_start: bytes) -> tuple[RecordType, Reader[Any]] | None:
    number = int.from_bytes(key_start, "big")
    if len(key_start) < 2 or number not in _TYPES:
        return None
    record_type = RecordType(number)
    return record_type, reader_of(SCHEMAS[record_type].key, 0, False)


@cache
def _value_reader(record_type: RecordType, version: bytes) -> Reader[Any] | None:
    number = int.from_bytes(version, "big")
    schema = SCHEMAS[record_type]
    if len(version) < 2 or number > schema.newest_version:
        return None
    return reader_of(schema.value, number, number >= schema.first_flexible)


_TYPES = frozenset(SCHEMAS)
