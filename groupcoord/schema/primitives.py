"""Kafka's primitive types: integers, varints, strings, byte strings, UUIDs and tagged fields.

A reader takes the bytes and a position, and returns the value and the position after it. Lengths are compared with the
bytes that are left before anything is allocated. Readers raise MalformedError, at the end of the data also
``struct.error`` or ``IndexError``, and strict ones UnicodeDecodeError.

Readers are as lenient as Kafka: any negative length is null, a varint may be longer than necessary, malformed UTF-8
becomes U+FFFD. Those of the strict dialects accept only what a broker writes.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar
from uuid import UUID


class MalformedError(ValueError):
    """Bytes or values that do not fit a schema."""


T = TypeVar("T")
Content = TypeVar("Content", bytes, memoryview)
Reader = Callable[[bytes, int], tuple[T, int]]
Writer = Callable[[Any], bytes]

ZERO_UUID = UUID(int=0)
"""Id of no topic."""

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
INT16_FROM, INT16_PACK = INT16.unpack_from, INT16.pack
INT32_FROM = INT32.unpack_from

STRING_BYTES_MAX = 0x7FFF
MAX_ARRAY_LENGTH = 1_000_000
"""Brokers of Kafka 4.4 close the connection on a longer array."""

UTF8_AS_JAVA = "groupcoord-utf8-as-java"


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """Replace malformed UTF-8 as Java does: like Python, but an encoded surrogate is one character, not three."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, start = error.object, error.start
    if data[start] == 0xED and start + 1 < len(data) and 0xA0 <= data[start + 1] <= 0xBF:
        has_third_byte = start + 2 < len(data) and data[start + 2] & 0xC0 == 0x80
        return "\ufffd", start + 2 + has_third_byte
    return "\ufffd", error.end


codecs.register_error(UTF8_AS_JAVA, _replace_as_java)


def read_uvarint(frame: bytes, position: int) -> tuple[int, int]:
    """Read a varint of at most five bytes; bits beyond 32 are lost, as in Kafka."""
    value = frame[position]
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF, position
    raise MalformedError("a varint is longer than 5 bytes")


def read_uvarlong(data: bytes | memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedError("a varint of more than ten bytes")


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Read a zig-zag varint of at most ten bytes."""
    raw = data[position]
    if raw < 0x80:  # nearly always
        return (raw >> 1) ^ -(raw & 1), position + 1
    raw, position = read_uvarlong(data, position)
    return (raw >> 1) ^ -(raw & 1), position


def read_compact_length(frame: bytes, position: int) -> tuple[int, int]:
    """Read the length of a compact string, byte string or array; negative: null."""
    value = frame[position]
    if value < 0x80:
        return value - 1, position + 1
    value, position = read_uvarint(frame, position)
    return (value if value < 0x8000_0000 else value - 0x1_0000_0000) - 1, position


def read_int32_length(frame: bytes, position: int) -> tuple[int, int]:
    return INT32_FROM(frame, position)[0], position + 4


def read_content(frame: Content, position: int, length: int) -> tuple[Content, int]:
    """Read ``length`` bytes. The result for a view is a view."""
    end = position + length
    if end > len(frame):
        raise MalformedError(f"a length of {length} bytes is claimed where {len(frame) - position} are left")
    return frame[position:end], end


def read_string(frame: bytes, position: int) -> tuple[str, int]:
    start = position + 2
    end = start + INT16_FROM(frame, position)[0]
    if not start <= end <= len(frame):
        raise _bad_string(end - start, len(frame) - start)
    return str(frame[start:end], "utf-8", UTF8_AS_JAVA), end


def read_nullable_string(frame: bytes, position: int) -> tuple[str | None, int]:
    if frame[position] >= 0x80:
        if position + 2 > len(frame):
            raise IndexError("the length of a string is cut short")
        return None, position + 2
    return read_string(frame, position)


def read_compact_string(frame: bytes, position: int) -> tuple[str, int]:
    size = frame[position]
    if 0 < size < 0x80 and position + size <= len(frame):  # nearly always; the rest is slower
        end = position + size
        return str(frame[position + 1 : end], "utf-8", UTF8_AS_JAVA), end
    length, start = read_compact_length(frame, position)
    end = start + length
    if not (start <= end <= len(frame) and length <= STRING_BYTES_MAX):
        raise _bad_string(length, len(frame) - start)
    return str(frame[start:end], "utf-8", UTF8_AS_JAVA), end


def read_compact_nullable_string(frame: bytes, position: int) -> tuple[str | None, int]:
    if frame[position] == 0:
        return None, position + 1
    length, start = read_compact_length(frame, position)
    if length < 0:
        return None, start
    return read_compact_string(frame, position)


def _bad_string(length: int, bytes_left: int) -> MalformedError:
    if length < 0:
        return MalformedError("a string is null that may not be")
    if length > STRING_BYTES_MAX:
        return MalformedError(f"a string claims {length} bytes; the longest has {STRING_BYTES_MAX}")
    return MalformedError(f"a string claims {length} bytes where {bytes_left} are left")


@lru_cache(maxsize=1_024)
def topic_id_of(content: bytes) -> UUID:
    """Return the UUID of 16 bytes; the zero UUID is always ``ZERO_UUID`` itself. Cached, because UUIDs are slow."""
    made = UUID(bytes=content)
    return ZERO_UUID if made == ZERO_UUID else made


def read_uuid(frame: bytes, position: int) -> tuple[UUID, int]:
    end = position + 16
    if end > len(frame):
        raise MalformedError(f"a UUID where {len(frame) - position} bytes are left")
    return topic_id_of(bytes(frame[position:end])), end  # the cache must not hold a view of a frame


def check_array_length(frame: bytes, position: int, length: int) -> int:
    """Return a length that is neither null nor larger than Kafka's limit or the number of bytes left."""
    if length < 0:
        raise MalformedError("an array is null that may not be")
    if length > MAX_ARRAY_LENGTH:
        raise MalformedError(f"an array claims {length} entries; the longest has {MAX_ARRAY_LENGTH}")
    if length > len(frame) - position:
        raise MalformedError(f"an array claims {length} entries where {len(frame) - position} bytes are left")
    return length


def read_array_length(frame: bytes, position: int) -> tuple[int, int]:
    (length,) = INT32_FROM(frame, position)
    position += 4
    if 0 <= length <= len(frame) - position and length <= MAX_ARRAY_LENGTH:  # nearly always
        return length, position
    return check_array_length(frame, position, length), position


def read_compact_array_length(frame: bytes, position: int) -> tuple[int, int]:
    size = frame[position]
    if 0 < size < 0x80 and size <= len(frame) - position:  # nearly always; the rest is slower
        return size - 1, position + 1
    length, position = read_compact_length(frame, position)
    return check_array_length(frame, position, length), position


def read_nullable_array_length(frame: bytes, position: int) -> tuple[int, int]:
    length, position = read_int32_length(frame, position)
    return (length if length < 0 else check_array_length(frame, position, length)), position


def read_compact_nullable_array_length(frame: bytes, position: int) -> tuple[int, int]:
    if frame[position] == 0:
        return -1, position + 1
    length, position = read_compact_length(frame, position)
    return (length if length < 0 else check_array_length(frame, position, length)), position


def skip_tagged_fields(frame: bytes, position: int) -> int:
    if frame[position] == 0:
        return position + 1
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        _, position = read_content(frame, position, size)
    return position


def write_uvarint(value: int) -> bytes:
    if 0 <= value < 0x80:  # nearly always
        return _SHORT_UVARINTS[value]
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_SHORT_UVARINTS = tuple(bytes((value,)) for value in range(0x80))


def write_varint(value: int) -> bytes:
    """Encode a signed number as a zig-zag varint (the same for Kafka's varint and varlong)."""
    return write_uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def write_compact_length(length: int) -> bytes:
    return _SHORT_UVARINTS[length + 1] if length < 0x7F else write_uvarint(length + 1)


def _too_long(length: int) -> MalformedError:
    return MalformedError(f"a string of {length} bytes is to be written; the longest has {STRING_BYTES_MAX}")


def write_string_length(length: int) -> bytes:
    if length > STRING_BYTES_MAX:
        raise _too_long(length)
    return INT16.pack(length)


def write_compact_string_length(length: int) -> bytes:
    if length > STRING_BYTES_MAX:
        raise _too_long(length)
    return write_uvarint(length + 1)


def write_string(value: str) -> bytes:
    content = value.encode()
    size = len(content)
    if size > STRING_BYTES_MAX:
        raise _too_long(size)
    return INT16_PACK(size) + content


def write_nullable_string(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else write_string(value)


def write_compact_string(value: str) -> bytes:
    content = value.encode()
    size = len(content) + 1
    return (_SHORT_UVARINTS[size] if size < 0x80 else write_compact_string_length(size - 1)) + content


def write_compact_nullable_string(value: str | None) -> bytes:
    return b"\x00" if value is None else write_compact_string(value)


def _skip_nothing(frame: bytes, position: int) -> int:
    return position


def bytes_reader(read_length: Reader[int], *, nullable: bool = False) -> Reader[Any]:
    """Return a reader of byte strings; negative lengths are null."""

    def read(frame: bytes, position: int) -> tuple[bytes | None, int]:
        length, position = read_length(frame, position)
        if length >= 0:
            return read_content(frame, position, length)
        if not nullable:
            raise MalformedError("a byte string is null that may not be")
        return None, position

    return read


def bytes_writer(write_length: Callable[[int], bytes], *, nullable: bool = False) -> Writer:
    """Return a writer of byte strings; None is null."""

    def write(value: bytes | None) -> bytes:
        if value is not None:
            return write_length(len(value)) + value
        if not nullable:
            raise MalformedError("null where it is not allowed")
        return write_length(-1)

    return write


class Dialect(NamedTuple):
    """Encoding of strings, lengths and tagged fields: of flexible versions (KIP-482), or of earlier ones."""

    read_string: Reader[str]
    read_nullable_string: Reader[str | None]
    read_bytes: Reader[bytes]
    read_nullable_bytes: Reader[bytes | None]
    read_length: Reader[int]
    read_array_length: Reader[int]
    read_nullable_array_length: Reader[int]
    skip_tagged_fields: Callable[[bytes, int], int]
    write_string: Writer
    write_nullable_string: Writer
    write_bytes: Writer
    write_nullable_bytes: Writer
    write_length: Callable[[int], bytes]
    nothing_tagged: bytes


PLAIN = Dialect(
    read_string,
    read_nullable_string,
    bytes_reader(read_int32_length),
    bytes_reader(read_int32_length, nullable=True),
    read_int32_length,
    read_array_length,
    read_nullable_array_length,
    _skip_nothing,
    write_string,
    write_nullable_string,
    bytes_writer(INT32.pack),
    bytes_writer(INT32.pack, nullable=True),
    INT32.pack,
    b"",
)
FLEXIBLE = Dialect(
    read_compact_string,
    read_compact_nullable_string,
    bytes_reader(read_compact_length),
    bytes_reader(read_compact_length, nullable=True),
    read_compact_length,
    read_compact_array_length,
    read_compact_nullable_array_length,
    skip_tagged_fields,
    write_compact_string,
    write_compact_nullable_string,
    bytes_writer(write_compact_length),
    bytes_writer(write_compact_length, nullable=True),
    write_compact_length,
    b"\x00",
)


# ---------------------------------------------------------------- strict reading


def read_minimal_uvarint(data: bytes, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits that is no longer than necessary."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value, end = read_uvarint(data, position)
    if data[end - 1] == 0 or value >> 7 * (end - position - 1) != data[end - 1]:
        raise MalformedError("a varint is longer than necessary")
    return value, end


def _exact_length_reader(read_number: Reader[int], *, least: int) -> Reader[int]:
    """Return a reader of lengths not below ``least``, nor above the bytes left: an entry takes a byte."""

    def read(data: bytes, position: int) -> tuple[int, int]:
        length, position = read_number(data, position)
        if not least <= length <= len(data) - position:
            raise MalformedError(f"a length of {length} where {len(data) - position} bytes are left")
        return length, position

    return read


def _utf8_reader(read_length: Reader[int]) -> Reader[Any]:
    def read(data: bytes, position: int) -> tuple[str | None, int]:
        length, position = read_length(data, position)
        if length < 0:
            return None, position
        end = position + length
        return data[position:end].decode(), end

    return read


def _int16_length(data: bytes, position: int) -> tuple[int, int]:
    return INT16_FROM(data, position)[0], position + 2


def _strict(dialect: Dialect, string_length: Reader[int], length: Reader[int]) -> Dialect:
    string = _exact_length_reader(string_length, least=0), _exact_length_reader(string_length, least=-1)
    other = _exact_length_reader(length, least=0), _exact_length_reader(length, least=-1)
    return dialect._replace(
        read_string=_utf8_reader(string[0]),
        read_nullable_string=_utf8_reader(string[1]),
        read_bytes=bytes_reader(other[0]),
        read_nullable_bytes=bytes_reader(other[1], nullable=True),
        read_array_length=other[0],
        read_nullable_array_length=other[1],
    )


def _minimal_length(data: bytes, position: int) -> tuple[int, int]:
    length = data[position]
    if length < 0x80:
        return length - 1, position + 1
    length, position = read_minimal_uvarint(data, position)
    return length - 1, position


STRICT_PLAIN = _strict(PLAIN, _int16_length, read_int32_length)
STRICT_FLEXIBLE = _strict(FLEXIBLE, _minimal_length, _minimal_length)
