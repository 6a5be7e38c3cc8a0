"""Schemas of API versions as kio declares them, turned into structures of the schema engine.

kio has a dataclass per message and version, generated from Kafka's definitions, and imported on first use. Its native
decoder is not used: it allocates for any number of entries that an array claims (a frame of 20 bytes can end the
process), and fails on unknown tagged fields.

Values are messages, or dicts if no message class is given. A message's fields have kio's names unless others are given;
times are integers whose names end in ``_ms``. Fields that a message lacks are skipped, and written as their default. A
structure of a single field is that field where the message declares so: ``tuple[str, ...]`` for ``[{name}]``.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any

from attrs import has

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages.request import field_types
from groupcoord.schema.engine import (
    ALONE,
    INT16,
    INT32,
    INT64,
    PROTOCOL,
    PROTOCOL_DICTS,
    TYPES,
    Array,
    Field,
    FieldType,
    Structure,
    Values,
    reader_of,
    writer_of,
)
from groupcoord.schema.primitives import Reader, Writer

Names = Mapping[str, str]
"""Names of a message's fields by their names in kio, where they differ."""

SAME_NAMES: Names = MappingProxyType({})

_TYPES: Mapping[str, FieldType] = {
    **TYPES,
    "error_code": INT16,
    "timedelta_i32": INT32,
    "timedelta_i64": INT64,
    "datetime_i64": INT64,
}
_TIMES = ("timedelta_i32", "timedelta_i64", "datetime_i64")
_NOTHING = {"string": "", "bytes": b"", "records": b"", "bool": False, "uuid": ZERO_UUID}


def struct_reader(schema: type) -> Reader[Values]:
    """Return the reader of a structure as a dict, in which tagged fields are absent that are absent in the bytes."""
    return reader_of(structure_of(schema, None, SAME_NAMES), 0, is_flexible(schema), PROTOCOL_DICTS)


def struct_writer(schema: type, message: type | None = None, names: Names = SAME_NAMES) -> Writer:
    """Return the writer of a structure. A tagged field is omitted if it is absent or has its default.

    Args:
        schema: kio's dataclass.
        message: the class of values; None: a dict.
        names: names of the message's fields, at any depth, by their names in kio.
    """
    form = PROTOCOL_DICTS if message is None else PROTOCOL
    return writer_of(structure_of(schema, message, names), 0, is_flexible(schema), form)


def is_flexible(schema: type) -> bool:
    flexible: bool = schema.__flexible__  # type: ignore[attr-defined]
    return flexible


def structure_of(schema: type, message: type | None, names: Names) -> Structure:
    """Return the structure of a dataclass of kio, with the arguments of :func:`struct_writer`."""
    annotations = None if message is None else _types_of(message)
    made = typing.get_origin(message) or message
    return Structure(_fields_of(schema, annotations, names), made, by_name=message is not None)


def _fields_of(schema: type, annotations: Mapping[str, Any] | None, names: Names) -> tuple[Field, ...]:
    types = _types_of(schema)
    return tuple([_field_of(field, types[field.name], annotations, names) for field in dataclasses.fields(schema)])


_types_of = cache(field_types)


def _field_of(
    field: dataclasses.Field[Any], kio_type: Any, annotations: Mapping[str, Any] | None, names: Names
) -> Field:
    """Return the schema field of kio's type ``X``, ``X | None``, ``tuple[X, ...]`` or ``tuple[X, ...] | None``."""
    kafka_type: str | None = field.metadata.get("kafka_type")
    name = f"{field.name}_ms" if kafka_type in _TIMES else field.name
    name = names.get(name, name)
    bare, is_nullable = _without_none(kio_type)
    is_array = typing.get_origin(bare) is tuple
    default = field.default
    if default is dataclasses.MISSING:
        default = () if is_array else None if is_nullable or kafka_type is None else _NOTHING.get(kafka_type, 0)
    elif isinstance(default, timedelta):
        default = default // timedelta(milliseconds=1)
    annotation = None
    if annotations is not None:
        annotation = annotations.get(name)
        name = name if name in annotations else ""
    element: FieldType
    if kafka_type is not None:
        element = _TYPES[kafka_type]
    else:
        schema = typing.get_args(bare)[0] if is_array else bare
        element = _nested(schema, _entries_of(annotation) if is_array else annotation, names)
    tag: int | None = field.metadata.get("tag")
    return Field(name, Array(element) if is_array else element, nullable=is_nullable, tag=tag, default=default)


def _nested(schema: type, annotation: Any, names: Names) -> Structure:
    """Return the structure of a field; without an annotation its values are dicts, or it is not in the message."""
    bare, _ = _without_none(annotation)
    made = typing.get_origin(bare) or bare
    if made is None or (isinstance(made, type) and (has(made) or hasattr(made, "_fields"))):
        return structure_of(schema, bare, names)
    (only,) = dataclasses.fields(schema)
    field = _field_of(only, _types_of(schema)[only.name], {only.name: bare}, SAME_NAMES)
    return Structure((field,), ALONE)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) not in (UnionType, typing.Union):
        return annotation, False
    (bare,) = (argument for argument in typing.get_args(annotation) if argument is not type(None))
    return bare, True


def _entries_of(annotation: Any) -> Any:
    bare, _ = _without_none(annotation)
    is_sequence = typing.get_origin(bare) in (tuple, Sequence)
    return typing.get_args(bare)[0] if is_sequence else None
