"""Requests whose structure is known: where each field lies in the bytes, what it is, and which bytes repeat.

What is mutated are bytes, since a million of them must be made in minutes. A :class:`Layout` is made once for each API
and version, from kio's schema, and says where to cut.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from kio.index import load_request_schema

from tests.wire.kio_client import VERSIONS, entity, versions_of
from tests.wire.sample_frames import FRAMES
from tests.wire.sample_requests import BODIES

NUMBERS = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "uint16": ">H", "float64": ">d", "bool": ">?"}
TIMES = {"timedelta_i32": "int32", "timedelta_i64": "int64"}
BYTES = ("bytes", "records")
CORRELATION_ID = struct.Struct(">i")
CORRELATION_ID_POSITION = 4
CLIENT_ID = "attacker"


class Piece(NamedTuple):
    """One field, with its length if it has one.

    Attributes:
        kind: ``int8`` … ``int64``, ``bool``, ``uuid``, ``string``, ``bytes``, ``count`` (of an array), the same with
            ``compact_`` before it, or ``tags``: how many tagged fields there are, and themselves.
        start: its first byte in the frame.
        end: the byte behind it.
    """

    kind: str
    start: int
    end: int


class Repetition(NamedTuple):
    """An array: the piece that counts, and where each element lies."""

    counter: Piece
    elements: tuple[tuple[int, int], ...]


class Layout(NamedTuple):
    """A request without the length in front; ``body`` is the first byte behind the header."""

    api_key: int
    version: int
    data: bytes
    body: int
    pieces: tuple[Piece, ...]
    arrays: tuple[Repetition, ...]


def unsigned_varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def framed(kind: str, content: bytes | None) -> bytes:
    """Return text or bytes behind the length that this kind of piece has; None is null."""
    if kind.startswith("compact_"):
        return b"\x00" if content is None else unsigned_varint(len(content) + 1) + content
    form = ">h" if kind == "string" else ">i"
    return struct.pack(form, -1) if content is None else struct.pack(form, len(content)) + content


def counted(kind: str, count: int) -> bytes:
    """Return how many elements an array has; -1 is null."""
    return unsigned_varint(count + 1) if kind == "compact_count" else struct.pack(">i", count)


def layout(api_key: int, version: int, values: dict[str, Any]) -> Layout:
    schema: Any = load_request_schema(api_key, version)
    writer = _Writer()
    writer.number("int16", api_key)
    writer.number("int16", version)
    writer.number("int32", 0)
    writer.text("string", CLIENT_ID.encode())
    if schema.__header_schema__.__flexible__:
        writer.piece("tags", b"\x00")
    body = len(writer.data)
    writer.structure(entity(schema, values))
    return Layout(api_key, version, bytes(writer.data), body, tuple(writer.pieces), tuple(writer.arrays))


def _raw_layout(api_key: int, version: int) -> Layout:
    data = FRAMES[api_key, version]
    body = 10 + int.from_bytes(data[8:10], "big")
    header = (Piece("int16", 0, 2), Piece("int16", 2, 4), Piece("int32", 4, 8), Piece("string", 8, body))
    return Layout(api_key, version, data, body, header, ())


def every_layout() -> list[Layout]:
    """Return a request of each API in each version that is served."""
    known = [
        layout(api_key, version, BODIES[api_key]) for api_key in sorted(VERSIONS) for version in versions_of(api_key)
    ]
    have = {(each.api_key, each.version) for each in known}
    return known + [_raw_layout(*key) for key in sorted(FRAMES) if key not in have]


def repeated(request: Layout, times: int) -> bytes:
    """Return a request in which the first array holds its first element so many times."""
    found = request.arrays[0]
    start, end = found.elements[0]
    data = request.data
    return b"".join(
        (
            data[: found.counter.start],
            counted(found.counter.kind, times),
            data[start:end] * times,
            data[found.elements[-1][1] :],
        )
    )


class _Writer:
    """Writes structures field by field."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.pieces: list[Piece] = []
        self.arrays: list[Repetition] = []

    def piece(self, kind: str, data: bytes) -> Piece:
        start = len(self.data)
        self.data += data
        piece = Piece(kind, start, len(self.data))
        self.pieces.append(piece)
        return piece

    def number(self, kind: str, value: int) -> None:
        self.piece(kind, struct.pack(NUMBERS[kind], value))

    def text(self, kind: str, content: bytes | None) -> None:
        self.piece(kind, framed(kind, content))

    def structure(self, value: Any) -> None:
        types = typing.get_type_hints(type(value))
        is_flexible = type(value).__flexible__
        tagged = []
        for field in dataclasses.fields(value):
            inner = getattr(value, field.name)
            if "tag" not in field.metadata:
                self._field(types[field.name], field.metadata.get("kafka_type"), inner, is_flexible)
            elif inner != field.default:
                tagged.append((field.metadata["tag"], types[field.name], field.metadata.get("kafka_type"), inner))
        if is_flexible:
            self.piece("tags", unsigned_varint(len(tagged)) + b"".join(_tagged(*each) for each in sorted(tagged)))

    def _field(self, annotation: Any, kafka_type: str | None, value: Any, is_flexible: bool) -> None:
        prefix = "compact_" if is_flexible else ""
        if "tuple" in str(annotation):
            self._array(f"{prefix}count", kafka_type, value, is_flexible)
        elif kafka_type is None:
            if annotation is not None and "None" in str(annotation):
                self.number("int8", -1 if value is None else 1)
            if value is not None:
                self.structure(value)
        elif kafka_type == "uuid":
            self.piece("uuid", (value or UUID(int=0)).bytes)
        elif kafka_type == "string" or kafka_type in BYTES:
            content = value.encode() if isinstance(value, str) else value
            self.text(prefix + ("string" if kafka_type == "string" else "bytes"), content)
        else:
            number = value // timedelta(milliseconds=1) if isinstance(value, timedelta) else value
            self.number(TIMES.get(kafka_type, kafka_type), number)

    def _array(self, kind: str, kafka_type: str | None, values: tuple[Any, ...] | None, is_flexible: bool) -> None:
        count = self.piece(kind, counted(kind, -1 if values is None else len(values)))
        place = len(self.arrays)
        elements = []
        for value in values or ():
            start = len(self.data)
            self._field(None, kafka_type, value, is_flexible)
            elements.append((start, len(self.data)))
        if elements:
            self.arrays.insert(place, Repetition(count, tuple(elements)))


def _tagged(tag: int, annotation: Any, kafka_type: str | None, value: Any) -> bytes:
    writer = _Writer()
    write: Callable[..., None] = writer._field
    write(annotation, kafka_type, value, True)
    return unsigned_varint(tag) + unsigned_varint(len(writer.data)) + bytes(writer.data)
