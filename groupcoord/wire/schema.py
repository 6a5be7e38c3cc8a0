"""Schemas of one API version, as kio declares them, turned into a reader and a writer.

kio brings every message of the protocol as a dataclass per version, generated from Kafka's own definitions. Only these
declarations are used here. kio's native decoder is not: it reserves memory for whatever number of entries an array
claims (a frame of 20 bytes can end the process), and refuses tagged fields it does not know, which the protocol says to
ignore.

What is read and written are messages, or dicts where a function turns these into messages. A message's fields have
kio's names; times are integers, their names end in ``_ms``. Fields that a message lacks are passed over, and written as
nothing at all; what a version lacks is the field's default. A structure of a single field is that field, where the
message says so: ``tuple[str, ...]`` for ``[{name}]``. A schema is loaded when its version is first used.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from operator import attrgetter, itemgetter
from types import MappingProxyType, UnionType
from typing import Any

from attrs import has

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.wire import primitives
from groupcoord.wire.api import ProtocolError
from groupcoord.wire.primitives import FLOAT64, INT8, INT16, INT32, INT64, UINT16, Reader, Writer

Values = dict[str, Any]
Names = Mapping[str, str]
"""What a message calls fields that have another name in kio, by that."""

SAME_NAMES: Names = MappingProxyType({})

_FIXED_SIZE = {
    "int8": INT8,
    "int16": INT16,
    "uint16": UINT16,
    "error_code": INT16,
    "int32": INT32,
    "timedelta_i32": INT32,
    "int64": INT64,
    "timedelta_i64": INT64,
    "datetime_i64": INT64,
    "float64": FLOAT64,
}
_TIMES = ("timedelta_i32", "timedelta_i64", "datetime_i64")
_NOTHING = {"string": "", "bytes": b"", "records": b"", "bool": False, "uuid": ZERO_UUID}


class _Field(typing.NamedTuple):
    """A field: ``element`` is a kio type name or the dataclass of a nested structure; ``tag`` None: it has none."""

    name: str
    element: str | type
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any


class _Message:
    """What a message has: the annotations of its fields, and how one is made and looked into. None: it is a dict."""

    def __init__(self, message: type | None, names: Names) -> None:
        self._names = names
        self.make: Callable[..., Any] | None = message
        self.annotations = None if message is None else typing.get_type_hints(message)

    def name_of(self, field: _Field) -> str:
        return self._names.get(field.name, field.name)

    def has(self, field: _Field) -> bool:
        return self.annotations is None or self.name_of(field) in self.annotations

    def annotation(self, field: _Field) -> Any:
        return None if self.annotations is None else self.annotations.get(self.name_of(field))

    def getter(self, field: _Field) -> Callable[[Any], Any]:
        return (itemgetter if self.annotations is None else attrgetter)(self.name_of(field))


def struct_reader(schema: type, message: type | None = None, names: Names = SAME_NAMES) -> Reader[Any]:
    """Make the reader of a structure and all in it.

    Args:
        schema: kio's dataclass.
        message: what is made of it; None: a dict, in which tagged fields are absent that are absent.
        names: what the message and those in it call fields that have another name in kio.
    """
    flexible: bool = schema.__flexible__  # type: ignore[attr-defined]
    made = _Message(message, names)
    entries = [
        (made.name_of(field) if made.has(field) else "", _field_reader(field, made.annotation(field), flexible, names))
        for field in _fields_of(schema)
    ]
    tags = [field.tag for field in _fields_of(schema)]
    readers = [entry for entry, tag in zip(entries, tags, strict=True) if tag is None]
    readers_by_tag = {tag: entry for entry, tag in zip(entries, tags, strict=True) if tag is not None}

    def read(frame: bytes, position: int) -> tuple[Values, int]:
        values: Values = {}
        for name, read_field in readers:
            values[name], position = read_field(frame, position)
        if flexible:
            position = _read_tagged_fields(frame, position, readers_by_tag, values)
        return values, position

    make = made.make
    if make is None:
        return read

    def read_message(frame: bytes, position: int) -> tuple[Any, int]:
        values, position = read(frame, position)
        values.pop("", None)
        return make(**values), position

    return read_message


def struct_writer(schema: type, message: type | None = None, names: Names = SAME_NAMES) -> Writer:
    """Make the writer of a structure and all in it; arguments are as in :func:`struct_reader`.

    A tagged field is left out that is absent from the dict, or has its default in the message.
    """
    fields = struct_writers(schema, message, names)
    writers = [(field.get, field.write) for field in fields.plain]
    if not fields.is_flexible:
        return lambda value: b"".join([write_field(get(value)) for get, write_field in writers])
    write_tagged = fields.write_tagged

    def write(value: Any) -> bytes:
        parts = [write_field(get(value)) for get, write_field in writers]
        parts += write_tagged(value)
        return b"".join(parts)

    return write


class FieldWriter(typing.NamedTuple):
    """How a field is found and written; ``write_entry``: an entry of an array, of which it is one."""

    name: str
    get: Callable[[Any], Any]
    write: Writer
    write_entry: Writer


class _TaggedWriter(typing.NamedTuple):
    tag: int
    name: str
    get: Callable[[Any], Any]
    write: Writer
    default: Any


class StructWriters(typing.NamedTuple):
    """How the fields of a structure are written, one by one."""

    is_flexible: bool
    plain: list[FieldWriter]
    tagged: list[_TaggedWriter]
    is_dict: bool

    def write_tagged(self, value: Any) -> list[bytes]:
        """Return the tagged fields behind the others, in parts."""
        if not self.is_flexible:
            return []
        if not self.tagged:
            return [b"\x00"]
        is_dict = self.is_dict
        said = [
            (field.tag, field.write(field.get(value)))
            for field in self.tagged
            if (field.name in value if is_dict else field.get(value) != field.default)
        ]
        parts = [primitives.write_uvarint(len(said))]
        for tag, content in said:
            parts += (primitives.write_uvarint(tag), primitives.write_uvarint(len(content)), content)
        return parts


def struct_writers(schema: type, message: type | None, names: Names) -> StructWriters:
    """Make the writers of the fields of a structure; arguments are as in :func:`struct_reader`."""
    flexible: bool = schema.__flexible__  # type: ignore[attr-defined]
    given = _Message(message, names)
    writers = StructWriters(flexible, [], [], message is None)
    for field in _fields_of(schema):
        name, annotation = given.name_of(field), given.annotation(field)
        write_entry = _element_writer(field, annotation, flexible, names)
        write = _array_writer(write_entry, flexible) if field.is_array else write_entry
        if not given.has(field):
            if field.tag is None:
                constant = write(field.default)
                writers.plain.append(FieldWriter(name, _itself, partial(_constantly, constant), write_entry))
        elif field.tag is None:
            writers.plain.append(FieldWriter(name, given.getter(field), write, write_entry))
        else:
            writers.tagged.append(_TaggedWriter(field.tag, name, given.getter(field), write, field.default))
    writers.tagged.sort(key=lambda field: field.tag)
    return writers


def _constantly(constant: bytes, value: Any) -> bytes:
    return constant


def _itself(value: Any) -> Any:
    return value


def _fields_of(schema: type) -> list[_Field]:
    """Return the fields of a dataclass of kio's, in order."""
    types = typing.get_type_hints(schema)
    return [_field_of(field, types[field.name]) for field in dataclasses.fields(schema)]


def _field_of(field: dataclasses.Field[Any], annotation: Any) -> _Field:
    """Read a field's annotation: ``X``, ``X | None``, ``tuple[X, ...]`` or ``tuple[X, ...] | None``."""
    kafka_type: str | None = field.metadata.get("kafka_type")
    name = f"{field.name}_ms" if kafka_type in _TIMES else field.name
    bare, is_nullable = _without_none(annotation)
    is_array = typing.get_origin(bare) is tuple
    element = kafka_type or (typing.get_args(bare)[0] if is_array else bare)
    default = field.default
    if default is dataclasses.MISSING:
        default = () if is_array else None if is_nullable or kafka_type is None else _NOTHING.get(kafka_type, 0)
    elif isinstance(default, timedelta):
        default = default // timedelta(milliseconds=1)
    return _Field(name, element, is_array, is_nullable, field.metadata.get("tag"), default)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) not in (UnionType, typing.Union):
        return annotation, False
    (bare,) = (argument for argument in typing.get_args(annotation) if argument is not type(None))
    return bare, True


def _entries_of(annotation: Any) -> Any:
    """Return what is said of a sequence's entries; None if it is none."""
    bare, _ = _without_none(annotation)
    is_sequence = typing.get_origin(bare) in (tuple, Sequence)
    return typing.get_args(bare)[0] if is_sequence else None


def _message_of(annotation: Any) -> type | None:
    bare, _ = _without_none(annotation)
    return bare if isinstance(bare, type) and (has(bare) or hasattr(bare, "_fields")) else None


def _only_field(schema: type) -> _Field:
    (field,) = _fields_of(schema)
    return field


def _field_reader(field: _Field, annotation: Any, flexible: bool, names: Names) -> Reader[Any]:
    read_element = _element_reader(field, annotation, flexible, names)
    return _array_reader(read_element, field.is_nullable, flexible) if field.is_array else read_element


def _array_reader(read_element: Reader[Any], is_nullable: bool, flexible: bool) -> Reader[Any]:
    read_length = primitives.read_compact_length if flexible else primitives.read_int32_length

    def read(frame: bytes, position: int) -> tuple[tuple[Any, ...] | None, int]:
        length, position = read_length(frame, position)
        if length < 0 and is_nullable:
            return None, position
        elements = []
        for _ in range(primitives.check_array_length(frame, position, length)):
            element, position = read_element(frame, position)
            elements.append(element)
        return tuple(elements), position

    return read


def _element_reader(field: _Field, annotation: Any, flexible: bool, names: Names) -> Reader[Any]:
    """Return what reads a field, or an entry of it if it is an array."""
    element, is_nullable = field.element, field.is_nullable and not field.is_array
    if field.is_array and annotation is not None:
        annotation = _entries_of(annotation)
    if isinstance(element, type):
        message = _message_of(annotation)
        if annotation is not None and message is None:
            read_struct = _only_field_reader(_only_field(element), _without_none(annotation)[0], flexible, names)
        else:
            read_struct = struct_reader(element, message, names)
        return _nullable_struct_reader(read_struct) if is_nullable else read_struct
    if element in _FIXED_SIZE:
        return _fixed_size_reader(element)
    if element == "string" and is_nullable:
        return primitives.read_compact_nullable_string if flexible else primitives.read_nullable_string
    if element == "string":
        return primitives.read_compact_string if flexible else primitives.read_string
    if element == "bytes":
        return _bytes_reader(is_nullable, flexible)
    if element == "records":
        return _records_reader(_bytes_reader(is_nullable, flexible))
    return {"bool": _read_bool, "uuid": primitives.read_uuid}[element]


def _only_field_reader(field: _Field, annotation: Any, flexible: bool, names: Names) -> Reader[Any]:
    """Return what reads a structure of a single field as that field."""
    read_field = _field_reader(field, annotation, flexible, names)
    if not flexible:
        return read_field

    def read(frame: bytes, position: int) -> tuple[Any, int]:
        value, position = read_field(frame, position)
        return value, primitives.skip_tagged_fields(frame, position)

    return read


def _nullable_struct_reader(read_struct: Reader[Any]) -> Reader[Any]:
    def read(frame: bytes, position: int) -> tuple[Any, int]:
        (sign,) = INT8.unpack_from(frame, position)
        return read_struct(frame, position + 1) if sign >= 0 else (None, position + 1)

    return read


def _fixed_size_reader(element: str) -> Reader[int]:
    structure = _FIXED_SIZE[element]
    unpack_from, size = structure.unpack_from, structure.size

    def read(frame: bytes, position: int) -> tuple[int, int]:
        return unpack_from(frame, position)[0], position + size

    return read


def _records_reader(read_bytes: Reader[bytes | None]) -> Reader[bytes | memoryview | None]:
    """Return what reads batches of records as a view of the frame: they may be large, and go on as they are."""

    def read(frame: bytes, position: int) -> tuple[bytes | memoryview | None, int]:
        return read_bytes(memoryview(frame), position)  # type: ignore[arg-type]

    return read


def _bytes_reader(is_nullable: bool, flexible: bool) -> Reader[bytes | None]:
    read_length = primitives.read_compact_length if flexible else primitives.read_int32_length

    def read(frame: bytes, position: int) -> tuple[bytes | None, int]:
        length, position = read_length(frame, position)
        if length >= 0:
            return primitives.read_content(frame, position, length)
        if not is_nullable:
            raise ProtocolError("a byte string is null that may not be")
        return None, position

    return read


def _read_bool(frame: bytes, position: int) -> tuple[bool, int]:
    return frame[position] != 0, position + 1


def _read_tagged_fields(
    frame: bytes, position: int, readers_by_tag: Mapping[int, tuple[str, Reader[Any]]], values: Values
) -> int:
    """Read the tagged fields behind a structure. As in Kafka, the size that a known field claims does not matter."""
    count, position = primitives.read_uvarint(frame, position)
    for _ in range(count):
        tag, position = primitives.read_uvarint(frame, position)
        if tag in readers_by_tag:
            _, position = primitives.read_uvarint(frame, position)
            name, read_field = readers_by_tag[tag]
            values[name], position = read_field(frame, position)
        else:
            position = primitives.skip_tagged_content(frame, position)
    return position


def _array_writer(write_element: Writer, flexible: bool) -> Writer:
    null, empty = (b"\x00", b"\x01") if flexible else (b"\xff\xff\xff\xff", b"\x00\x00\x00\x00")

    def write(elements: Sequence[Any] | None) -> bytes:
        if not elements:
            return null if elements is None else empty
        length = primitives.write_uvarint(len(elements) + 1) if flexible else INT32.pack(len(elements))
        return length + b"".join([write_element(element) for element in elements])

    return write


def _element_writer(field: _Field, annotation: Any, flexible: bool, names: Names) -> Writer:
    """Return what writes a field, or an entry of it if it is an array."""
    element, is_nullable = field.element, field.is_nullable and not field.is_array
    if field.is_array and annotation is not None:
        annotation = _entries_of(annotation)
    if isinstance(element, type):
        message = _message_of(annotation)
        if annotation is not None and message is None:
            write_struct = _only_field_writer(_only_field(element), _without_none(annotation)[0], flexible, names)
        else:
            write_struct = struct_writer(element, message, names)
        return _nullable_struct_writer(write_struct) if is_nullable else write_struct
    if element in _FIXED_SIZE:
        return _FIXED_SIZE[element].pack
    if element == "string" and is_nullable:
        return primitives.write_compact_nullable_string if flexible else primitives.write_nullable_string
    if element == "string":
        write_string = primitives.write_compact_string if flexible else primitives.write_string
        return lambda text: write_string(text or "")  # where a version has no null, there is nothing
    if element in ("bytes", "records"):
        return _write_compact_nullable_bytes if flexible else _write_nullable_bytes
    return {"bool": _write_bool, "uuid": _write_uuid}[element]


def _only_field_writer(field: _Field, annotation: Any, flexible: bool, names: Names) -> Writer:
    """Return what writes a field as a structure that has no other."""
    write = _element_writer(field, annotation, flexible, names)
    if field.is_array:
        write = _array_writer(write, flexible)
    return (lambda value: write(value) + b"\x00") if flexible else write


def _nullable_struct_writer(write_struct: Writer) -> Writer:
    def write(value: Any) -> bytes:
        return b"\xff" if value is None else b"\x01" + write_struct(value)

    return write


def _write_nullable_bytes(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else primitives.write_bytes(value)


def _write_compact_nullable_bytes(value: bytes | None) -> bytes:
    return b"\x00" if value is None else primitives.write_compact_bytes(value)


def _write_bool(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def _write_uuid(value: Any) -> bytes:
    content: bytes = (value or ZERO_UUID).bytes
    return content
