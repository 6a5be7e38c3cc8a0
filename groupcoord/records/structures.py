"""Structures of Kafka's schemas as data: readers and writers are made from a :class:`Structure`, a tuple of fields.

A structure's value is a dict from the field's name to its value, in the order of the schema. Text is ``str``, bytes are
``bytes``, a uuid is Kafka's text form (URL-safe base 64), an array is a list. A tagged field is in the dict if it is in
the bytes: an absent one has the schema's default. Tags that the schema does not know are kept under
:data:`UNKNOWN_TAGS`, as a list of ``(tag, bytes)``.

Reading is strict: it takes only what writing would give back byte for byte. Source of the encodings: KIP-482.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct, unpack_from
from typing import Any, NamedTuple

from groupcoord.records.primitives import STRING_BYTES_MAX, MalformedError, unsigned_varint

Values = dict[str, Any]
Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[Any], bytes]

UNKNOWN_TAGS = "unknownTaggedFields"
NEWEST = 32_767

_VARINT_BYTES_MAX = 5


class Scalar(NamedTuple):
    """A number; ``code`` is its letter in :mod:`struct`."""

    code: str


class Text(NamedTuple):
    """A string, a byte string or a uuid: ``kind`` says which."""

    kind: str


class Array(NamedTuple):
    """Any number of elements of one type."""

    element: FieldType


class Field(NamedTuple):
    """One field of a structure.

    Attributes:
        name: in Kafka's JSON spelling.
        type: what it holds.
        since: the first version that has it; ``until`` the last one.
        nullable: null is allowed.
        tag: its number if it is a tagged field.
    """

    name: str
    type: FieldType
    since: int = 0
    until: int = NEWEST
    nullable: bool = False
    tag: int | None = None


class Structure(NamedTuple):
    """Fields in their order."""

    fields: tuple[Field, ...]


FieldType = Scalar | Text | Array | Structure

INT8, INT16, UINT16, INT32, INT64 = (Scalar(code) for code in "bhHiq")
STRING, BYTES, UUID = (Text(kind) for kind in ("string", "bytes", "uuid"))


def structure(*fields: Field) -> Structure:
    """Return the structure of these fields."""
    return Structure(fields)


@lru_cache(1_024)
def uuid_text(raw: bytes) -> str:
    """Return the text form of a uuid's 16 bytes: URL-safe base 64 without padding."""
    return urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of a uuid in Kafka's text form.

    Raises:
        MalformedError: it is none.
    """
    try:
        raw = urlsafe_b64decode(text + "==")
    except ValueError:
        raw = b""
    if len(raw) != 16:
        raise MalformedError(f"{text!r} is no uuid")
    return raw


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return an unsigned varint of at most five bytes, no longer than it need be, and the position after it."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = 0
    for count in range(_VARINT_BYTES_MAX):
        byte = data[position + count]
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            if byte == 0:
                break
            return value, position + count + 1
    raise MalformedError("a varint that is longer than it may be")


# ---------------------------------------------------------------- reading


@lru_cache(256)
def reader_of(fields: Structure, version: int, flexible: bool) -> Reader:
    """Return the function that reads one version of a structure: ``(data, position)`` to ``(values, position)``.

    It raises ``MalformedError``, ``IndexError``, ``struct.error`` or ``UnicodeDecodeError`` if the bytes don't fit, and
    allocates nothing for a length before the bytes are known to be there.
    """
    present = [field for field in fields.fields if field.since <= version <= field.until]
    plain = [(field.name, _field_reader(field, version, flexible)) for field in present if field.tag is None]
    tagged = {
        field.tag: (field.name, _field_reader(field, version, flexible)) for field in present if field.tag is not None
    }

    def read(data: bytes, position: int) -> tuple[Values, int]:
        values: Values = {}
        for name, read_field in plain:
            values[name], position = read_field(data, position)
        if flexible:
            if data[position]:
                position = _read_tags(data, position, tagged, values)
            else:
                position += 1
        return values, position

    return read


def _read_tags(data: bytes, position: int, tagged: Mapping[int, tuple[str, Reader]], values: Values) -> int:
    unknown: list[tuple[int, bytes]] = []
    last_tag = -1
    count, position = read_varint(data, position)
    for _ in range(count):
        tag, position = read_varint(data, position)
        size, position = read_varint(data, position)
        end = position + size
        if tag <= last_tag or end > len(data):
            raise MalformedError(f"tag {tag} is out of order or cut short")
        if tag in tagged:
            name, read_field = tagged[tag]
            values[name], position = read_field(data, position)
            if position != end:
                raise MalformedError(f"{name} is not as long as its tag says")
        else:
            unknown.append((tag, data[position:end]))
            position = end
        last_tag = tag
    if unknown:
        values[UNKNOWN_TAGS] = unknown
    return position


def _field_reader(field: Field, version: int, flexible: bool) -> Reader:
    kind = field.type
    if isinstance(kind, Scalar):
        return _scalar_reader(kind)
    if isinstance(kind, Structure):
        read = reader_of(kind, version, flexible)
        if not field.nullable:
            return read
        # A tagged structure has a varint for its presence, any other an int8; -1 is null there.
        return _nullable_structure_reader(read, 0x00 if field.tag is not None else 0xFF)
    if kind is UUID:
        return _read_uuid
    read_length = _length_reader(kind, field.nullable, flexible)
    if isinstance(kind, Array):
        return _array_reader(read_length, kind.element, version, flexible)
    return _string_reader(read_length) if kind is STRING else _bytes_reader(read_length)


def _scalar_reader(kind: Scalar) -> Reader:
    number = Struct(">" + kind.code)
    unpack, size = number.unpack_from, number.size

    def read(data: bytes, position: int) -> tuple[int, int]:
        return unpack(data, position)[0], position + size

    return read


def _read_uuid(data: bytes, position: int) -> tuple[str, int]:
    end = position + 16
    if end > len(data):
        raise MalformedError("a uuid is cut short")
    return uuid_text(data[position:end]), end


def _length_reader(kind: FieldType, nullable: bool, flexible: bool) -> Callable[[bytes, int], tuple[int, int]]:
    """Lengths are checked against the bytes that are left: an element has one byte at least. -1 is null."""
    fixed = Struct(">h" if kind is STRING else ">i")

    def read(data: bytes, position: int) -> tuple[int, int]:
        if flexible:
            length, position = read_varint(data, position)
            length -= 1
        else:
            length = fixed.unpack_from(data, position)[0]
            position += fixed.size
        if length > len(data) - position:
            raise MalformedError(f"{length} bytes or elements, {len(data) - position} bytes left")
        if length < 0 and not (nullable and length == -1):
            raise MalformedError(f"a length of {length}")
        return length, position

    return read


def _string_reader(read_length: Callable[[bytes, int], tuple[int, int]]) -> Reader:
    def read(data: bytes, position: int) -> tuple[str | None, int]:
        length, position = read_length(data, position)
        if length < 0:
            return None, position
        end = position + length
        return data[position:end].decode(), end

    return read


def _bytes_reader(read_length: Callable[[bytes, int], tuple[int, int]]) -> Reader:
    def read(data: bytes, position: int) -> tuple[bytes | None, int]:
        length, position = read_length(data, position)
        if length < 0:
            return None, position
        end = position + length
        return data[position:end], end

    return read


def _array_reader(
    read_length: Callable[[bytes, int], tuple[int, int]], element: FieldType, version: int, flexible: bool
) -> Reader:
    if isinstance(element, Scalar):
        code, size = element.code, Struct(">" + element.code).size

        def read_numbers(data: bytes, position: int) -> tuple[list[int] | None, int]:
            length, position = read_length(data, position)
            if length < 0:
                return None, position
            return list(unpack_from(f">{length}{code}", data, position)), position + length * size

        return read_numbers
    read_element = _field_reader(Field("", element), version, flexible)

    def read(data: bytes, position: int) -> tuple[list[Any] | None, int]:
        length, position = read_length(data, position)
        if length < 0:
            return None, position
        elements = []
        for _ in range(length):
            value, position = read_element(data, position)
            elements.append(value)
        return elements, position

    return read


def _nullable_structure_reader(read_structure: Reader, null: int) -> Reader:
    def read(data: bytes, position: int) -> tuple[Values | None, int]:
        presence = data[position]
        if presence == null:
            return None, position + 1
        if presence != 1:
            raise MalformedError(f"a structure's presence is {presence}")
        values: tuple[Values, int] = read_structure(data, position + 1)
        return values

    return read


# ---------------------------------------------------------------- writing


@lru_cache(256)
def writer_of(fields: Structure, version: int, flexible: bool) -> Writer:
    """Return the function that puts the values of one version of a structure into bytes, the inverse of a reader.

    It raises ``MalformedError``, ``KeyError``, ``struct.error``, ``UnicodeEncodeError``, ``AttributeError`` or
    ``TypeError`` if a field is missing or does not fit; :func:`groupcoord.records.typed.build_record` makes them one.
    """
    present = [field for field in fields.fields if field.since <= version <= field.until]
    plain = [(field.name, _field_writer(field, version, flexible)) for field in present if field.tag is None]
    tagged = [
        (field.tag, field.name, _field_writer(field, version, flexible)) for field in present if field.tag is not None
    ]

    def write(values: Mapping[str, Any]) -> bytes:
        parts = [write_field(values[name]) for name, write_field in plain]
        if flexible:
            contents = [(tag, write_field(values[name])) for tag, name, write_field in tagged if name in values]
            contents += values.get(UNKNOWN_TAGS, ())
            parts.append(unsigned_varint(len(contents)))
            for tag, content in sorted(contents):
                parts += (unsigned_varint(tag), unsigned_varint(len(content)), content)
        return b"".join(parts)

    return write


def _field_writer(field: Field, version: int, flexible: bool) -> Writer:
    kind = field.type
    if isinstance(kind, Scalar):
        return Struct(">" + kind.code).pack
    if kind is UUID:
        return uuid_bytes
    if isinstance(kind, Structure):
        write_content, null = writer_of(kind, version, flexible), b"\x00" if field.tag is not None else b"\xff"
        if not field.nullable:
            return write_content

        def write_structure(values: Values | None) -> bytes:
            return null if values is None else b"\x01" + write_content(values)

        return write_structure
    return _sized_writer(kind, field.nullable, version, flexible)


def _sized_writer(kind: Text | Array, nullable: bool, version: int, flexible: bool) -> Writer:
    fixed = Struct(">h" if kind is STRING else ">i")
    write_element = _field_writer(Field("", kind.element), version, flexible) if isinstance(kind, Array) else None

    def write(value: Any) -> bytes:
        if value is None:
            if not nullable:
                raise MalformedError("null where it is not allowed")
            return b"\x00" if flexible else fixed.pack(-1)
        length = len(value)
        if write_element is not None:
            content = b"".join([write_element(element) for element in value])
        elif kind is STRING:
            content = value.encode()
            length = len(content)
            if length > STRING_BYTES_MAX:
                raise MalformedError(f"a string of {length} bytes; at most {STRING_BYTES_MAX} fit")
        else:
            content = value
        return (unsigned_varint(length + 1) if flexible else fixed.pack(length)) + content

    return write
