"""Structures of Kafka's schemas as data: readers and writers are made from a :class:`Structure`, a tuple of fields.

What they read and write has one of two forms. For tools, which want all that is in the bytes, a structure's value is a
dict from the field's name to its value, in the order of the schema: text is ``str``, bytes are ``bytes``, a uuid is
Kafka's text form (URL-safe base 64), an array is a list. A tagged field is in the dict if it is in the bytes: an absent
one has the schema's default. Tags that the schema does not know are kept under :data:`UNKNOWN_TAGS`, as a list of
``(tag, bytes)``. For the coordinator a structure is what it is ``made`` of, with defaults for all that is absent; an
array is a tuple, a uuid a ``UUID``.

Strings and arrays of a flexible version (KIP-482) have an unsigned varint ``n + 1`` for a length, 0 for null, and every
structure ends with tagged fields. In the others a string has an int16 length, bytes and arrays an int32, -1 for null.
Reading is strict: it takes only what writing would give back byte for byte, unless it is asked to be lenient.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from struct import Struct, pack, unpack_from
from typing import Any, NamedTuple

from attrs import fields as attributes_of

from groupcoord.records.primitives import STRING_BYTES_MAX, MalformedError, topic_id_of, unsigned_varint

Values = dict[str, Any]
Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[Any], bytes]

UNKNOWN_TAGS = "unknownTaggedFields"
NEWEST = 32_767

NO_TAGS = b"\x00"
"""The end of a structure of a flexible version without tagged fields."""

_VARINT_BYTES_MAX = 5
_INT16, _INT32 = Struct(">h"), Struct(">i")


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
        default: what it is where it is absent, from a version or as a tagged field.
    """

    name: str
    type: FieldType
    since: int = 0
    until: int = NEWEST
    nullable: bool = False
    tag: int | None = None
    default: Any = None


class Structure(NamedTuple):
    """Fields in their order.

    Attributes:
        made: what the coordinator calls it: a class with these fields in this order; None: a plain tuple of them.
    """

    fields: tuple[Field, ...]
    made: type[Any] | None = None


FieldType = Scalar | Text | Array | Structure

INT8, INT16, UINT16, INT32, INT64 = (Scalar(code) for code in "bhHiq")
STRING, BYTES, UUID = (Text(kind) for kind in ("string", "bytes", "uuid"))


def structure(*fields: Field, made: type[Any] | None = None) -> Structure:
    """Return the structure of these fields."""
    return Structure(fields, made)


class Form(NamedTuple):
    """What is read and written.

    Attributes:
        is_dict: structures are dicts, and what is in them is as tools want it.
        is_strict: what a broker would not have written is malformed, even if it would read it.
    """

    is_dict: bool
    is_strict: bool = True


DICTS, MADE, LENIENT = Form(is_dict=True), Form(is_dict=False), Form(is_dict=False, is_strict=False)
"""For tools; for the coordinator; and for the coordinator, that reads whatever a broker reads, and drops tags that the
schema doesn't know."""


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


def read_varint(data: bytes, position: int, is_strict: bool = True) -> tuple[int, int]:
    """Return an unsigned varint of at most five bytes, no longer than it need be, and the position after it."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = 0
    for count in range(_VARINT_BYTES_MAX):
        byte = data[position + count]
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            if byte == 0 and is_strict:
                break
            return value, position + count + 1
    raise MalformedError("a varint that is longer than it may be")


# ---------------------------------------------------------------- reading


def read_whole(read: Reader, data: bytes, position: int) -> Any:
    """Return what is read from a position to the end.

    Raises:
        MalformedError: bytes are left over; or what the reader raises.
    """
    values, end = read(data, position)
    if end != len(data):
        raise MalformedError(f"{len(data) - end} bytes are left over")
    return values


@lru_cache(256)
def reader_of(fields: Structure, version: int, flexible: bool, form: Form = DICTS) -> Reader:
    """Return the function that reads one version of a structure: ``(data, position)`` to ``(values, position)``.

    It raises ``MalformedError``, ``IndexError``, ``struct.error`` or ``UnicodeDecodeError`` if the bytes don't fit, and
    allocates nothing for a length before the bytes are known to be there.
    """
    plain: list[tuple[Any, Reader]] = []
    tagged: dict[int, tuple[Any, Reader, Any]] = {}
    for place, field in enumerate(fields.fields):
        if field.since <= version <= field.until:
            key, read_field = field.name if form.is_dict else place, _field_reader(field, version, flexible, form)
            if field.tag is None:
                plain.append((key, read_field))
            else:
                tagged[field.tag] = key, read_field, field.default
    defaults = [field.default for field in fields.fields]
    begin: Callable[[], Any] = dict if form.is_dict else defaults.copy
    make = None if form.is_dict else _maker(fields.made)

    def read(data: bytes, position: int) -> tuple[Any, int]:
        values = begin()
        for key, read_field in plain:
            values[key], position = read_field(data, position)
        if flexible:
            if data[position]:
                position = _read_tags(data, position, tagged, values, form)
            else:
                position += 1
        return values if make is None else make(values), position

    return read


def _maker(made: type[Any] | None) -> Callable[[Sequence[Any]], Any]:
    if made is None:
        return tuple
    if issubclass(made, tuple):
        return partial(tuple.__new__, made)
    make: Callable[..., Any] = made
    return lambda values: make(*values)


def _read_tags(
    data: bytes, position: int, tagged: Mapping[int, tuple[Any, Reader, Any]], values: Any, form: Form
) -> int:
    is_strict = form.is_strict
    unknown: list[tuple[int, bytes]] = []
    last_tag = -1
    count, position = read_varint(data, position, is_strict)
    for _ in range(count):
        tag, position = read_varint(data, position, is_strict)
        size, position = read_varint(data, position, is_strict)
        end = position + size
        if (tag <= last_tag and is_strict) or end > len(data):
            raise MalformedError(f"tag {tag} is out of order or cut short")
        if tag in tagged:
            key, read_field, default = tagged[tag]
            values[key], position = read_field(data, position)
            if position != end:
                raise MalformedError(f"tag {tag} is not as long as it says")
            if form is MADE and values[key] == default:
                raise MalformedError(f"tag {tag} has its default value, which is not written")
        else:
            unknown.append((tag, data[position:end]))
            position = end
        last_tag = tag
    if unknown and form.is_dict:
        values[UNKNOWN_TAGS] = unknown
    elif unknown and is_strict:
        raise MalformedError(f"tag {unknown[0][0]} is unknown")
    return position


def _field_reader(field: Field, version: int, flexible: bool, form: Form) -> Reader:
    kind = field.type
    if isinstance(kind, Scalar):
        return _scalar_reader(kind)
    if isinstance(kind, Structure):
        read = reader_of(kind, version, flexible, form)
        if not field.nullable:
            return read
        # A tagged structure has a varint for its presence, any other an int8; -1 is null there.
        return _nullable_structure_reader(read, 0x00 if field.tag is not None else 0xFF)
    if kind is UUID:
        return partial(_read_uuid, uuid_text if form.is_dict else topic_id_of)
    read_length = _length_reader(kind, field.nullable, flexible, form.is_strict)
    if isinstance(kind, Array):
        return _array_reader(read_length, kind.element, version, flexible, form)
    return _string_reader(read_length) if kind is STRING else _bytes_reader(read_length)


def _scalar_reader(kind: Scalar) -> Reader:
    number = Struct(">" + kind.code)
    unpack, size = number.unpack_from, number.size

    def read(data: bytes, position: int) -> tuple[int, int]:
        return unpack(data, position)[0], position + size

    return read


def _read_uuid(make: Callable[[bytes], Any], data: bytes, position: int) -> tuple[Any, int]:
    end = position + 16
    if end > len(data):
        raise MalformedError("a uuid is cut short")
    return make(data[position:end]), end


def _length_reader(
    kind: FieldType, nullable: bool, flexible: bool, is_strict: bool
) -> Callable[[bytes, int], tuple[int, int]]:
    """Lengths are checked against the bytes that are left: an element has one byte at least. -1 is null."""
    fixed = _INT16 if kind is STRING else _INT32

    def read(data: bytes, position: int) -> tuple[int, int]:
        if flexible:
            length, position = read_varint(data, position, is_strict)
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
    read_length: Callable[[bytes, int], tuple[int, int]], element: FieldType, version: int, flexible: bool, form: Form
) -> Reader:
    sequence: Callable[[Any], Sequence[Any]] = list if form.is_dict else tuple
    if isinstance(element, Scalar):
        code, size = element.code, Struct(">" + element.code).size

        def read_numbers(data: bytes, position: int) -> tuple[Sequence[int] | None, int]:
            length, position = read_length(data, position)
            if length < 0:
                return None, position
            return sequence(unpack_from(f">{length}{code}", data, position)), position + length * size

        return read_numbers
    read_element = _field_reader(Field("", element), version, flexible, form)

    def read(data: bytes, position: int) -> tuple[Sequence[Any] | None, int]:
        length, position = read_length(data, position)
        if length < 0:
            return None, position
        elements = []
        for _ in range(length):
            value, position = read_element(data, position)
            elements.append(value)
        return sequence(elements), position

    return read


def _nullable_structure_reader(read_structure: Reader, null: int) -> Reader:
    def read(data: bytes, position: int) -> tuple[Any, int]:
        presence = data[position]
        if presence == null:
            return None, position + 1
        if presence != 1:
            raise MalformedError(f"a structure's presence is {presence}")
        return read_structure(data, position + 1)

    return read


# ---------------------------------------------------------------- writing


@lru_cache(256)
def writer_of(fields: Structure, version: int, flexible: bool, form: Form = DICTS) -> Writer:
    """Return the function that puts the values of one version of a structure into bytes, the inverse of a reader.

    It raises ``MalformedError``, ``KeyError``, ``struct.error``, ``UnicodeEncodeError``, ``AttributeError`` or
    ``TypeError`` if a field is missing or does not fit; :func:`groupcoord.records.typed.build_record` makes them one.
    """
    is_dict = form.is_dict
    plain: list[tuple[Any, Writer]] = []
    tagged: list[tuple[int, Any, Writer, Any]] = []
    for place, field in enumerate(fields.fields):
        if field.since <= version <= field.until:
            key, write_field = field.name if is_dict else place, _field_writer(field, version, flexible, form)
            if field.tag is None:
                plain.append((key, write_field))
            else:
                tagged.append((field.tag, key, write_field, field.default))

    def write(values: Any) -> bytes:
        parts = [write_field(values[key]) for key, write_field in plain]
        if flexible:
            contents = [
                (tag, write_field(values[key]))
                for tag, key, write_field, default in tagged
                if (key in values if is_dict else values[key] != default)
            ]
            if is_dict:
                contents += values.get(UNKNOWN_TAGS, ())
            parts.append(unsigned_varint(len(contents)))
            for tag, content in sorted(contents) if len(contents) > 1 else contents:
                parts += (unsigned_varint(tag), unsigned_varint(len(content)), content)
        return b"".join(parts)

    def write_untagged(values: Any) -> bytes:
        parts = [write_field(values[key]) for key, write_field in plain]
        if flexible:
            parts.append(NO_TAGS)
        return b"".join(parts)

    if not is_dict and not tagged:
        write = write_untagged
    if is_dict or fields.made is None or issubclass(fields.made, tuple):
        return write
    take = attrgetter(*[attribute.name for attribute in attributes_of(fields.made)])
    return lambda made: write(take(made))


def _field_writer(field: Field, version: int, flexible: bool, form: Form) -> Writer:
    kind = field.type
    if isinstance(kind, Scalar):
        return Struct(">" + kind.code).pack
    if kind is UUID:
        return uuid_bytes if form.is_dict else attrgetter("bytes")
    if isinstance(kind, Structure):
        write_content, null = writer_of(kind, version, flexible, form), b"\x00" if field.tag is not None else b"\xff"
        if not field.nullable:
            return write_content

        def write_structure(values: Any) -> bytes:
            return null if values is None else b"\x01" + write_content(values)

        return write_structure
    return _sized_writer(field, kind, version, flexible, form)


def _sized_writer(field: Field, kind: Text | Array, version: int, flexible: bool, form: Form) -> Writer:
    if kind is STRING:
        return _string_writer(field, flexible)
    null, empty = (b"\x00", b"\x01") if flexible else (_INT32.pack(-1), _INT32.pack(0))
    write_elements = _elements_writer(field, kind, version, flexible, form) if isinstance(kind, Array) else None

    def write(value: Any) -> bytes:
        if value:
            length = len(value)
            content = value if write_elements is None else write_elements(value)
            return (unsigned_varint(length + 1) if flexible else _INT32.pack(length)) + content
        if value is None and not field.nullable:
            raise _null()
        return null if value is None else empty

    return write


def _elements_writer(field: Field, kind: Array, version: int, flexible: bool, form: Form) -> Writer:
    """Return what writes elements behind their number."""
    write_element = _field_writer(Field(field.name, kind.element), version, flexible, form)
    code = kind.element.code if isinstance(kind.element, Scalar) else None

    def write(value: Sequence[Any]) -> bytes:
        if len(value) == 1:  # nearly always, where a group has as many members as partitions
            return write_element(value[0])
        if code is not None:
            return pack(f">{len(value)}{code}", *value)
        return b"".join([write_element(element) for element in value])

    return write


def _string_writer(field: Field, flexible: bool) -> Writer:
    null, name = b"\x00" if flexible else _INT16.pack(-1), field.name

    def write(value: str | None) -> bytes:
        if value is None:
            if not field.nullable:
                raise _null()
            return null
        content = value.encode()
        length = len(content)
        if length > STRING_BYTES_MAX:
            raise MalformedError(f"the {name} has {length} bytes; at most {STRING_BYTES_MAX} fit a string")
        return (unsigned_varint(length + 1) if flexible else _INT16.pack(length)) + content

    return write


def _null() -> MalformedError:
    return MalformedError("null where it is not allowed")
