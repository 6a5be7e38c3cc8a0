"""Values for the fields of every API, drawn by Hypothesis from the annotations of kio's dataclasses.

A value is a dict with kio's names. It has the fields of all versions of an API; :func:`in_version` returns what one
version has of it. Times are integers in milliseconds, error codes integers, and a UUID of zeros is None, as in kio.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from tests.wire.kio_client import plain

Values = dict[str, Any]

_INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "timedelta_i32": 32, "int64": 64}
_MS_MAX = 2**42
"""Until the year 2109: kio reads times as floating-point seconds, which are exact to a millisecond until then."""
_EMPTY = {"string": "", "bytes": b"", "records": b"", "bool": False, "uuid": None}


class Field(typing.NamedTuple):
    """A field as kio declares it; ``struct`` is None unless it holds structures."""

    kafka_type: str | None
    struct: Struct | None
    is_array: bool
    is_nullable: bool
    is_tagged: bool
    default: Any

    def empty(self) -> Any:
        """Return what stands for null where a version has none."""
        if self.is_array:
            return []
        return _EMPTY.get(self.kafka_type or "", 0)


Struct = dict[str, Field]


@functools.cache
def struct_of(schema: type) -> Struct:
    """Return the fields that a dataclass declares."""
    types = typing.get_type_hints(schema)
    return {field.name: _field(field, types[field.name]) for field in dataclasses.fields(schema)}


def _field(field: dataclasses.Field[Any], annotation: Any) -> Field:
    is_nullable = typing.get_origin(annotation) in (UnionType, typing.Union)
    if is_nullable:
        (annotation,) = (argument for argument in typing.get_args(annotation) if argument is not type(None))
    is_array = typing.get_origin(annotation) is tuple
    element = typing.get_args(annotation)[0] if is_array else annotation
    struct = struct_of(typing.cast(type, element)) if dataclasses.is_dataclass(element) else None
    read = Field(field.metadata.get("kafka_type"), struct, is_array, is_nullable, "tag" in field.metadata, None)
    if field.default is not dataclasses.MISSING:
        return read._replace(default=plain(field.default))
    return read._replace(default=None if is_nullable else read.empty())


def all_versions(schemas: Iterable[type]) -> Struct:
    """Return the fields of all versions of a message, each as the newest that has it declares it.

    Args:
        schemas: kio's dataclasses, the newest first.
    """
    return _united([struct_of(schema) for schema in schemas])


def _united(structs: Iterable[Struct]) -> Struct:
    united: dict[str, list[Field]] = {}
    for struct in structs:
        for name, field in struct.items():
            united.setdefault(name, []).append(field)
    return {name: _united_field(fields) for name, fields in united.items()}


def _united_field(fields: list[Field]) -> Field:
    structs = [field.struct for field in fields if field.struct is not None]
    is_nullable = any(field.is_nullable for field in fields)
    return fields[0]._replace(struct=_united(structs) if structs else None, is_nullable=is_nullable)


def in_version(struct: Struct, values: Mapping[str, Any], every: Struct | None = None) -> Values:
    """Return the values that a version has, with an empty one for a null that it can't hold.

    Args:
        struct: the fields of the version.
        values: those of all versions.
        every: the fields of all versions, to be added with their defaults where the version lacks them.
    """
    found = {name: _in_version(field, values[name], every[name] if every else None) for name, field in struct.items()}
    return {name: field.default for name, field in (every or {}).items()} | found


def _in_version(field: Field, value: Any, every: Field | None) -> Any:
    if value is None:
        return None if field.is_nullable else field.empty()
    if field.struct is None:
        return value
    inner = every.struct if every else None
    if field.is_array:
        return [in_version(field.struct, entry, inner) for entry in value]
    return in_version(field.struct, value, inner)


def with_error(struct: Struct, values: Values, error_code: int) -> Values:
    result = {}
    for name, field in struct.items():
        value = error_code if field.kafka_type == "error_code" else values[name]
        if field.struct is not None and isinstance(value, list):
            value = [with_error(field.struct, entry, error_code) for entry in value]
        result[name] = value
    return result


def untagged(struct: Struct, values: Values) -> Values:
    """Return values without the tagged fields that have their defaults."""
    result = {}
    for name, field in struct.items():
        value = values[name]
        if field.is_tagged and value == field.default:
            continue
        if field.struct is not None and isinstance(value, list):
            value = [untagged(field.struct, entry) for entry in value]
        elif field.struct is not None and value is not None:
            value = untagged(field.struct, value)
        result[name] = value
    return result


# ---------------------------------------------------------------- drawn


def values_of(struct: Struct, entries_min: int = 0) -> st.SearchStrategy[Values]:
    """Return a strategy for the values of a structure, with a minimum number of entries in its arrays."""
    drawn = st.fixed_dictionaries({name: _values_of_field(field, entries_min) for name, field in struct.items()})
    return drawn.map(lambda values: {name: values[name] for name in struct})  # in the order of the fields


def _values_of_field(field: Field, entries_min: int) -> st.SearchStrategy[Any]:
    element = _SCALARS[field.kafka_type] if field.struct is None else values_of(field.struct, entries_min)
    values = st.lists(element, min_size=entries_min, max_size=3) if field.is_array else element
    if field.kafka_type == "uuid":
        return values
    if field.is_tagged:
        values = values | st.just(field.default)
    return st.one_of(values, values, values, st.none()) if field.is_nullable else values


def _integers(bits: int) -> st.SearchStrategy[int]:
    lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.integers(lowest, highest) | st.sampled_from((-1, 0, 1, lowest, highest))


_ERROR_CODES = [code.value for code in ErrorCode]
ERROR_CODES_OF_VERSIONS = [ErrorCode[name.lower()].value for name in (
    "none", "coordinator_load_in_progress", "coordinator_not_available", "invalid_request", "group_id_not_found",
    "cluster_authorization_failed", "producer_fenced", "stale_member_epoch", "transaction_abortable",
)]  # fmt: skip
"""Those that some version writes in another way."""

_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.text("a1.-", min_size=1, max_size=6),
    st.just("größe" * 30),
)
_BYTES = st.binary(max_size=6) | st.just(bytes(range(200)))
_SCALARS: dict[str | None, st.SearchStrategy[Any]] = {
    **{kafka_type: _integers(bits) for kafka_type, bits in _INTEGER_BITS.items()},
    "uint16": st.integers(0, 2**16 - 1),
    "timedelta_i64": st.integers(-_MS_MAX, _MS_MAX),
    "datetime_i64": st.integers(0, _MS_MAX),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "error_code": st.just(0) | st.sampled_from(_ERROR_CODES) | st.sampled_from(ERROR_CODES_OF_VERSIONS),
    "string": _TEXT,
    "bytes": _BYTES,
    "records": _BYTES,
    "uuid": st.none() | st.uuids(),
}


# ---------------------------------------------------------------- one sample


class Sampler:
    """Values that are all different, for one sample of each API."""

    def __init__(self) -> None:
        self._count = 0

    def struct(self, struct: Struct) -> Values:
        """Return the values of a structure: one entry in each array, and no null."""
        return {name: self._value(field) for name, field in struct.items()}

    def _value(self, field: Field) -> Any:
        self._count += 1
        value = self.struct(field.struct) if field.struct is not None else self._scalar(field.kafka_type)
        return [value] if field.is_array else value

    def _scalar(self, kafka_type: str | None) -> Any:
        if kafka_type == "string":
            return f"s{self._count}"
        if kafka_type in ("bytes", "records"):
            return b"%d" % self._count
        return {"bool": True, "uuid": UUID(int=self._count), "float64": self._count / 2}.get(
            kafka_type or "", self._count % 100
        )
