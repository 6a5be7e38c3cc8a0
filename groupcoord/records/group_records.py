"""Keys and values of the records of groups of every kind but the classic one, byte-exact in both directions.

:mod:`groupcoord.records.codec` is the way in.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from groupcoord.core.log.records import GroupRecord, GroupTombstone, RecordKey
from groupcoord.records.primitives import MalformedError
from groupcoord.records.record_classes import RECORD_CLASSES, read_value, value_writer
from groupcoord.records.schemas import SCHEMAS, RecordType
from groupcoord.records.structures import MADE, Reader, Writer, read_whole, reader_of, writer_of

TYPES = tuple(record_type for record_type in RECORD_CLASSES if record_type > RecordType.GROUP_METADATA)

KEY_STARTS = frozenset(record_type.to_bytes(2, "big") for record_type in TYPES)
"""The first two bytes of a key tell the type."""

VALUE_VERSION = 0

_KEYS_MAX = 1_024
_CACHED_KEYS_MAX = 8_192
_CACHED_NAMES_LENGTH_MAX = 512


class _Form(NamedTuple):
    """How the records of a type are written, and their keys read; these name the group, or the group and more."""

    record_type: RecordType
    names_more: bool
    write_key: Writer
    read_key: Reader
    write_value: Writer


def _form_of(record_type: RecordType) -> _Form:
    key = SCHEMAS[record_type].key
    return _Form(
        record_type,
        len(key.fields) > 1,
        writer_of(key, 0, False, MADE),
        reader_of(key, 0, False, MADE),
        value_writer(record_type, VALUE_VERSION),
    )


_FORMS: dict[int, _Form] = {record_type.value: _form_of(record_type) for record_type in TYPES}


def encode_group_record(record: GroupRecord) -> tuple[bytes, bytes]:
    """Return key and value of a record that isn't a tombstone.

    Raises:
        MalformedError, struct.error, UnicodeEncodeError: a field does not fit.
    """
    key, value = record.key, record.raw_value
    if value is None:
        value = _FORMS[key[0]].write_value(record)
    return group_record_key(record.group_id, key), value


def group_record_key(group_id: str, record_key: RecordKey) -> bytes:
    """Return the bytes of a key.

    Raises:
        MalformedError: no group has such records, or a name is too long.
        UnicodeEncodeError: a name can't be written.
    """
    if len(group_id) + len(record_key[1]) > _CACHED_NAMES_LENGTH_MAX:
        return _group_record_key(group_id, record_key)
    return _cached_group_record_key(group_id, record_key)


def _group_record_key(group_id: str, record_key: RecordKey) -> bytes:
    record_type, name = record_key
    form = _FORMS.get(record_type)
    if form is None or (name and not form.names_more):
        raise MalformedError(f"no record has the key {record_key}")
    return record_type.to_bytes(2, "big") + form.write_key((group_id, name))


# Long names stay out of the cache, so that its memory is bounded whatever clients send.
_cached_group_record_key = lru_cache(_CACHED_KEYS_MAX)(_group_record_key)


def decode_group_record(key: bytes, value: bytes | None) -> GroupRecord | GroupTombstone:
    """Return the record that a key of one of these types and a value stand for.

    Raises:
        MalformedError, IndexError, struct.error, UnicodeDecodeError: they stand for none.
    """
    record_type, names = _read_key(key)
    if value is None:
        return GroupTombstone(names[0], (record_type, "".join(names[1:])))
    _, fields, raw_value = read_value(record_type, value)
    record: GroupRecord = RECORD_CLASSES[record_type](*names, *fields, raw_value)
    return record


@lru_cache(_KEYS_MAX)
def _read_key(key: bytes) -> tuple[RecordType, tuple[str, ...]]:
    """Return the type of the record and what the key names, the group first. A log has most keys several times."""
    number = int.from_bytes(key[:2], "big")
    form = _FORMS.get(number)
    if form is None:
        raise MalformedError(f"no group has records of type {number}")
    return form.record_type, read_whole(form.read_key, key, 2)
