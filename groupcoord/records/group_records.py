"""Keys and values of the records of groups of every kind but the classic one, byte-exact in both directions.

What is in a value is in the module of the kind (:mod:`groupcoord.records.consumer_groups` and those beside it), as a
table of formats. :mod:`groupcoord.records.codec` is the way in.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

from attrs import evolve

from groupcoord.core.records import GroupRecord, GroupTombstone, RecordKey
from groupcoord.records import consumer_groups, share_groups, streams_groups
from groupcoord.records.primitives import STRING_BYTES_MAX, MalformedError, Reader, Writer

FORMATS = (*consumer_groups.FORMATS, *share_groups.FORMATS, *streams_groups.FORMATS)

_FORMAT_OF_TYPE = {record_format.record_type.value: record_format for record_format in FORMATS}
_FORMAT_OF_CLASS = {record_format.record_class: record_format for record_format in FORMATS}

KEY_STARTS = frozenset(record_type.to_bytes(2, "big") for record_type in _FORMAT_OF_TYPE)
"""The first two bytes of a key tell the type."""

VALUE_VERSION = 0

_KEYS_MAX = 1_024

_int16 = Struct(">h")
_key_start = Struct(">hh")
_VERSION_BYTES = VALUE_VERSION.to_bytes(2, "big")


def encode_group_record(record: GroupRecord) -> tuple[bytes, bytes]:
    """Return key and value of a record that isn't a tombstone.

    Raises:
        MalformedError, struct.error, UnicodeEncodeError: a field does not fit.
    """
    raw_value = record.raw_value
    return group_record_key(record.group_id, record.key), _value_of(record) if raw_value is None else raw_value


def group_record_key(group_id: str, record_key: RecordKey) -> bytes:
    """Return the bytes of a key.

    Raises:
        MalformedError: no group has such records, or a name is too long.
        UnicodeEncodeError: a name can't be written.
    """
    record_type, name = record_key
    record_format = _FORMAT_OF_TYPE.get(record_type)
    if record_format is None or (name and record_format.name_in_key is None):
        raise MalformedError(f"no record has the key {record_key}")
    group, named = group_id.encode(), name.encode()
    if len(group) <= STRING_BYTES_MAX and len(named) <= STRING_BYTES_MAX:
        start = _key_start.pack(record_type, len(group))
        if record_format.name_in_key is None:
            return start + group
        return b"%b%b%b%b" % (start, group, _int16.pack(len(named)), named)
    raise MalformedError(f"a group or {record_format.name_in_key} of more than {STRING_BYTES_MAX} bytes")


def decode_group_record(key: bytes, value: bytes | None) -> GroupRecord | GroupTombstone:
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
    record = _FORMAT_OF_TYPE[record_type].read(reader, group_id, name)
    reader.end()
    return record if _value_of(record) == value else evolve(record, raw_value=value)


@lru_cache(_KEYS_MAX)
def _read_key(key: bytes) -> tuple[str, int, str]:
    """Return the group, the type of the record, and what the key names besides. A log has most keys several times."""
    record_type = int.from_bytes(key[:2], "big")
    record_format = _FORMAT_OF_TYPE.get(record_type)
    if record_format is None:
        raise MalformedError(f"no group has records of type {record_type}")
    reader = Reader(key, 2, flexible=False)
    group_id = reader.string()
    name = "" if record_format.name_in_key is None else reader.string()
    reader.end()
    return group_id, record_type, name


def _value_of(record: GroupRecord) -> bytes:
    writer = Writer(flexible=True)
    writer.raw(_VERSION_BYTES)
    _FORMAT_OF_CLASS[type(record)].write(writer, record)
    return writer.to_bytes()
