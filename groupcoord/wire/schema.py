"""Schemas of one API version, as kio declares them, turned into a reader and a writer.

kio brings every message of the protocol as a dataclass per version, generated from Kafka's own definitions. Only these
declarations are used here. kio's native decoder is not: it reserves memory for whatever number of entries an array
claims (a frame of 20 bytes can end the process), and refuses tagged fields it does not know, which the protocol says
to ignore.

Bodies are read into and written from dicts, keyed by kio's field names; times are integers, their names end in ``_ms``.
A schema is loaded when its version is first used.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from functools import partial
from types import UnionType
from typing import Any

from groupcoord.core.records import ZERO_UUID
from groupcoord.wire import primitives
from groupcoord.wire.errors import ProtocolError
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced
from groupcoord.wire.parts import write_each
from groupcoord.wire.primitives import FLOAT64, INT8, INT16, INT32, INT64, UINT16, Reader, Writer

Values = dict[str, Any]

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


class _FieldType(typing.NamedTuple):
    """What one field holds: ``element`` is a kio type name or the dataclass of a nested structure."""

    element: str | type
    is_array: bool
    is_nullable: bool


def request_decoder(
    api_key: int, version: int, to_request: Callable[[Values, RequestHeader, str], Any]
) -> Callable[[bytes, int, RequestHeader, str], Any]:
    """Give the decoder of a request version: the schema's reader, then ``to_request(values, header, client_host)``."""
    from kio.index import load_request_schema

    return decoder_of(load_request_schema(api_key, version), to_request)


def decoder_of(
    schema: type, to_request: Callable[[Values, RequestHeader, str], Any]
) -> Callable[[bytes, int, RequestHeader, str], Any]:
    """Like :func:`request_decoder`, for a schema at hand."""
    read = struct_reader(schema)

    def decode(frame: bytes, position: int, header: RequestHeader, client_host: str) -> Any:
        values, _ = read(frame, position)
        return to_request(values, header, client_host)

    return decode


def response_encoder(
    api_key: int, version: int, to_values: Callable[[Any, RequestHeader], Values]
) -> Callable[[Any, RequestHeader], bytes]:
    """Give the encoder of one response version. ``to_values`` may name more fields than the version has."""
    from kio.index import load_response_schema

    return encoder_of(load_response_schema(api_key, version), to_values)


def encoder_of(
    schema: type, to_values: Callable[[Any, RequestHeader], Values]
) -> Callable[[Any, RequestHeader], bytes]:
    """Like :func:`response_encoder`, for a schema at hand."""
    write = struct_writer(schema)

    def encode(response: Any, header: RequestHeader) -> bytes:
        return write(to_values(response, header))

    return encode


def response_parts_encoder(
    api_key: int,
    version: int,
    array: str,
    to_values: Callable[[Any, RequestHeader], Values],
    element_values: Callable[[Any, RequestHeader], Values],
) -> Callable[[Any, RequestHeader], list[bytes]]:
    """Like :func:`response_encoder`, in parts: one for each element of the answer's main array.

    Args:
        api_key, version: which response.
        array: the main array's name. What ``to_values`` gives for it are the elements as they are.
        to_values: as in :func:`response_encoder`.
        element_values: gives the fields of one element.
    """
    from kio.index import load_response_schema

    schema = load_response_schema(api_key, version)
    flexible: bool = schema.__flexible__
    plain, _ = _fields_of(schema)
    writers = [
        (name, _element_writer(field.element, False, flexible) if name == array else _field_writer(field, flexible))
        for name, field in plain
    ]

    def write_element(write: Writer, header: RequestHeader, element: Any) -> bytes:
        return write(element_values(element, header))

    def encode(response: Any, header: RequestHeader) -> list[bytes]:
        values = to_values(response, header)
        parts: list[bytes] = []
        for name, write in writers:
            if name == array:
                elements = values[name]
                parts.append(primitives.write_uvarint(len(elements) + 1) if flexible else INT32.pack(len(elements)))
                parts += write_each(elements, partial(write_element, write, header))
            else:
                parts.append(write(values[name]))
        return [*parts, b"\x00"] if flexible else parts

    return encode


def struct_reader(schema: type) -> Reader[Values]:
    """Make the reader of a structure and all in it. Tagged fields that are absent are absent from the dict."""
    flexible: bool = schema.__flexible__  # type: ignore[attr-defined]
    plain, tagged = _fields_of(schema)
    readers = [(name, _field_reader(name, field, flexible)) for name, field in plain]
    readers_by_tag = {tag: (name, _field_reader(name, field, flexible)) for tag, name, field in tagged}

    def read(frame: bytes, position: int) -> tuple[Values, int]:
        values: Values = {}
        for name, read_field in readers:
            values[name], position = read_field(frame, position)
        if flexible:
            position = _read_tagged_fields(frame, position, readers_by_tag, values)
        return values, position

    return read


def struct_writer(schema: type) -> Writer:
    """Make the writer of a structure and all in it. A tagged field that is absent from the dict is left out."""
    flexible: bool = schema.__flexible__  # type: ignore[attr-defined]
    plain, tagged = _fields_of(schema)
    writers = [(name, _field_writer(field, flexible)) for name, field in plain]
    tagged_writers = [(tag, name, _field_writer(field, flexible)) for tag, name, field in sorted(tagged)]

    def write(values: Mapping[str, Any]) -> bytes:
        parts = [write_field(values[name]) for name, write_field in writers]
        if flexible:
            present = [(tag, write_field(values[name])) for tag, name, write_field in tagged_writers if name in values]
            parts.append(primitives.write_uvarint(len(present)))
            for tag, content in present:
                parts += (primitives.write_uvarint(tag), primitives.write_uvarint(len(content)), content)
        return b"".join(parts)

    return write


def _fields_of(schema: type) -> tuple[list[tuple[str, _FieldType]], list[tuple[int, str, _FieldType]]]:
    """Split a dataclass into its plain fields, in order, and its tagged ones."""
    types = typing.get_type_hints(schema)
    plain: list[tuple[str, _FieldType]] = []
    tagged: list[tuple[int, str, _FieldType]] = []
    for field in dataclasses.fields(schema):
        kafka_type = field.metadata.get("kafka_type")
        name = field.name
        if kafka_type in _TIMES:
            name += "_ms"
        field_type = _classify(types[field.name], kafka_type)
        if "tag" in field.metadata:
            tagged.append((field.metadata["tag"], name, field_type))
        else:
            plain.append((name, field_type))
    return plain, tagged


def _classify(annotation: Any, kafka_type: str | None) -> _FieldType:
    """Read a field's annotation: ``X``, ``X | None``, ``tuple[X, ...]`` or ``tuple[X, ...] | None``."""
    is_nullable = typing.get_origin(annotation) in (UnionType, typing.Union)
    if is_nullable:
        (annotation,) = (argument for argument in typing.get_args(annotation) if argument is not type(None))
    is_array = typing.get_origin(annotation) is tuple
    if is_array:
        annotation = typing.get_args(annotation)[0]
    return _FieldType(kafka_type or annotation, is_array, is_nullable)


def _field_reader(name: str, field: _FieldType, flexible: bool) -> Reader[Any]:
    if not field.is_array:
        return _element_reader(field.element, field.is_nullable, flexible)
    return _array_reader(name, _element_reader(field.element, False, flexible), field.is_nullable, flexible)


def _array_reader(name: str, read_element: Reader[Any], is_nullable: bool, flexible: bool) -> Reader[Any]:
    read_length = primitives.read_compact_length if flexible else primitives.read_int32_length

    def read(frame: bytes, position: int) -> tuple[tuple[Any, ...] | None, int]:
        length, position = read_length(frame, position)
        if length < 0 and is_nullable:
            return None, position
        elements = []
        for _ in paced(range(primitives.check_array_length(frame, position, length))):
            element, position = read_element(frame, position)
            elements.append(element)
        return tuple(elements), position

    return read


def _element_reader(element: str | type, is_nullable: bool, flexible: bool) -> Reader[Any]:
    if isinstance(element, type):
        return _nullable_struct_reader(struct_reader(element)) if is_nullable else struct_reader(element)
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


def _nullable_struct_reader(read_struct: Reader[Values]) -> Reader[Values | None]:
    def read(frame: bytes, position: int) -> tuple[Values | None, int]:
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


def _field_writer(field: _FieldType, flexible: bool) -> Writer:
    if not field.is_array:
        return _element_writer(field.element, field.is_nullable, flexible)
    write_element = _element_writer(field.element, False, flexible)

    def write(elements: tuple[Any, ...] | None) -> bytes:
        if elements is None:
            return b"\x00" if flexible else b"\xff\xff\xff\xff"
        length = primitives.write_uvarint(len(elements) + 1) if flexible else INT32.pack(len(elements))
        return length + b"".join([write_element(element) for element in paced(elements)])

    return write


def _element_writer(element: str | type, is_nullable: bool, flexible: bool) -> Writer:
    if isinstance(element, type):
        return _nullable_struct_writer(struct_writer(element)) if is_nullable else struct_writer(element)
    if element in _FIXED_SIZE:
        return _FIXED_SIZE[element].pack
    if element == "string" and is_nullable:
        return primitives.write_compact_nullable_string if flexible else primitives.write_nullable_string
    if element == "string":
        return primitives.write_compact_string if flexible else primitives.write_string
    if element in ("bytes", "records"):
        return _write_compact_nullable_bytes if flexible else _write_nullable_bytes
    return {"bool": _write_bool, "uuid": _write_uuid}[element]


def _nullable_struct_writer(write_struct: Writer) -> Writer:
    def write(values: Mapping[str, Any] | None) -> bytes:
        return b"\xff" if values is None else b"\x01" + write_struct(values)

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
