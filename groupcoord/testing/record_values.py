"""Hypothesis strategies for the fields of records, made from the schemas."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from hypothesis import strategies as st

from groupcoord.core.consumer_protocol import NEWEST_VERSION, write_assignment, write_subscription
from groupcoord.records.schemas import SCHEMAS, RecordType
from groupcoord.records.structures import (
    BYTES,
    STRING,
    UNKNOWN_TAGS,
    Array,
    Field,
    FieldType,
    Scalar,
    Structure,
    Values,
    uuid_text,
)
from groupcoord.records.typed import TypedRecord

FIRST_UNKNOWN_TAG = 100
ELEMENTS_MAX = 3
_PROTOCOL_FIELDS = ("subscription", "assignment", "metadata")
TAGS_MAX = 2
_TAG_DEFAULTS = (0, -1, uuid_text(bytes(16)))

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(st.sampled_from("abcäz019._-"), min_size=1, max_size=8)

_int32s = st.integers(-(2**31), 2**31 - 1)
_user_data = st.none() | st.binary(max_size=12)
_topic_partitions = st.lists(
    st.fixed_dictionaries({"topic": texts, "partitions": st.lists(_int32s, max_size=ELEMENTS_MAX)}),
    max_size=ELEMENTS_MAX,
)
_protocol_versions = st.integers(0, NEWEST_VERSION)


@st.composite
def typed_records(
    draw: st.DrawFn, types: st.SearchStrategy[RecordType], group_ids: st.SearchStrategy[str], *, unknown_tags: bool
) -> TypedRecord:
    """Return records of these types about these groups, tombstones among them, of every version of their values."""
    record_type = draw(types)
    schema = SCHEMAS[record_type]
    key = draw(_structures(schema.key, 0, False, False))
    key[schema.key.fields[0].name] = draw(group_ids)
    version = draw(st.integers(-1, schema.newest_version))
    if version < 0:
        return TypedRecord(record_type, key)
    value = draw(_structures(schema.value, version, version >= schema.first_flexible, unknown_tags))
    return TypedRecord(record_type, key, version, value)


def subscriptions() -> st.SearchStrategy[bytes]:
    """Return what members of groups of type ``consumer`` send for an assignor, in every version."""
    fields = st.fixed_dictionaries(
        {
            "topics": st.lists(texts, max_size=ELEMENTS_MAX),
            "userData": _user_data,
            "ownedPartitions": _topic_partitions,
            "generationId": _int32s,
            "rackId": st.none() | texts,
        }
    )
    return st.builds(write_subscription, fields, _protocol_versions)


def assignments() -> st.SearchStrategy[bytes]:
    """Return what members of groups of type ``consumer`` are given, in every version."""
    fields = st.fixed_dictionaries({"assignedPartitions": _topic_partitions, "userData": _user_data})
    return st.builds(write_assignment, fields, _protocol_versions)


def _structures(schema: Structure, version: int, flexible: bool, unknown_tags: bool) -> st.SearchStrategy[Values]:
    present = [field for field in schema.fields if field.since <= version <= field.until]
    plain = {field.name: _fields(field, version, flexible, unknown_tags) for field in present if field.tag is None}
    tagged = {
        # Nobody writes a tagged field that has its default value; see the schemas for what that is.
        field.name: _fields(field, version, flexible, unknown_tags).filter(_is_no_default(field))
        for field in present
        if field.tag is not None
    }
    if flexible and unknown_tags:
        tags = st.tuples(st.integers(FIRST_UNKNOWN_TAG, 2**30), st.binary(max_size=8))
        tagged[UNKNOWN_TAGS] = st.lists(tags, min_size=1, max_size=TAGS_MAX, unique_by=lambda tag: tag[0]).map(sorted)
    return st.fixed_dictionaries(plain, optional=tagged)


def _is_no_default(field: Field) -> Callable[[Any], bool]:
    if not field.nullable:
        return lambda value: value not in _TAG_DEFAULTS
    if isinstance(field.type, Structure):
        return lambda value: value is None or any(value.values())
    return lambda value: value is None or bool(value)


def _fields(field: Field, version: int, flexible: bool, unknown_tags: bool) -> st.SearchStrategy[Any]:
    content: st.SearchStrategy[Any] = _contents(field.type, version, flexible, unknown_tags)
    if field.type is BYTES and field.name in _PROTOCOL_FIELDS:
        content |= assignments() if field.name == "assignment" else subscriptions()
    elif field.name == "protocolType":
        content |= st.sampled_from(["consumer", "connect", ""])
    return st.none() | content if field.nullable else content


def _contents(kind: FieldType, version: int, flexible: bool, unknown_tags: bool) -> st.SearchStrategy[Any]:
    if isinstance(kind, Scalar):
        bits = Struct(">" + kind.code).size * 8
        is_signed = kind.code.islower()
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
        return st.integers(low, high)
    if isinstance(kind, Array):
        return st.lists(_contents(kind.element, version, flexible, unknown_tags), max_size=ELEMENTS_MAX)
    if isinstance(kind, Structure):
        return _structures(kind, version, flexible, unknown_tags)
    if kind is STRING:
        return texts
    if kind is BYTES:
        return st.binary(max_size=12)
    return st.binary(min_size=16, max_size=16).map(uuid_text)
