"""Kafka's primitive types, read and written one by one.

Every reader takes the frame and a position and gives the value and the position behind it. What a peer sent is never
trusted: a length is compared with the bytes that are left before anything is made of it. Where Kafka is lenient, so is
this: any negative length is null, a varint may be longer than needed, malformed UTF-8 becomes U+FFFD.

Readers raise ProtocolError; a fixed-size value beyond the frame's end raises ``struct.error`` or ``IndexError``, which
:func:`groupcoord.wire.protocol.decode_request` turns into one.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from groupcoord.core.fast_construct import uuid_of
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.wire.api import ProtocolError

T = TypeVar("T")
Content = TypeVar("Content", bytes, memoryview)
Reader = Callable[[bytes, int], tuple[T, int]]
Writer = Callable[[Any], bytes]

INT8 = struct.Struct(">b")
INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
UINT16 = struct.Struct(">H")
FLOAT64 = struct.Struct(">d")
INT16_FROM = INT16.unpack_from
INT32_FROM = INT32.unpack_from

MAX_STRING_BYTES = 0x7FFF
MAX_ARRAY_LENGTH = 1_000_000
"""Brokers of Kafka 4.4 close the connection on a longer one."""

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
    raise ProtocolError("a varint is longer than 5 bytes")


def read_compact_length(frame: bytes, position: int) -> tuple[int, int]:
    """Read the length of a compact string, byte string or array; negative: null."""
    value = frame[position]
    if value < 0x80:
        return value - 1, position + 1
    value, position = read_uvarint(frame, position)
    return (value if value < 0x8000_0000 else value - 0x1_0000_0000) - 1, position


def read_int32_length(frame: bytes, position: int) -> tuple[int, int]:
    """Read the length of a byte string or an array; negative: null."""
    return INT32_FROM(frame, position)[0], position + 4


def read_content(frame: Content, position: int, length: int) -> tuple[Content, int]:
    """Read ``length`` bytes, all of which must be there; of a view of the frame they are a view."""
    end = position + length
    if end > len(frame):
        raise ProtocolError(f"a length of {length} bytes is claimed where {len(frame) - position} are left")
    return frame[position:end], end


def read_string(frame: bytes, position: int) -> tuple[str, int]:
    """Read a string with an int16 length that may not be null."""
    start = position + 2
    end = start + INT16_FROM(frame, position)[0]
    if not start <= end <= len(frame):
        raise _bad_string(end - start, len(frame) - start)
    return str(frame[start:end], "utf-8", UTF8_AS_JAVA), end


def read_nullable_string(frame: bytes, position: int) -> tuple[str | None, int]:
    """Read a string with an int16 length; negative: null."""
    if frame[position] >= 0x80:
        if position + 2 > len(frame):
            raise IndexError("the length of a string is cut short")
        return None, position + 2
    return read_string(frame, position)


def read_compact_string(frame: bytes, position: int) -> tuple[str, int]:
    """Read a string with a varint length that may not be null."""
    size = frame[position]
    if 0 < size < 0x80 and position + size <= len(frame):  # nearly always; the rest is slower
        end = position + size
        return str(frame[position + 1 : end], "utf-8", UTF8_AS_JAVA), end
    length, start = read_compact_length(frame, position)
    end = start + length
    if not (start <= end <= len(frame) and length <= MAX_STRING_BYTES):
        raise _bad_string(length, len(frame) - start)
    return str(frame[start:end], "utf-8", UTF8_AS_JAVA), end


def read_compact_nullable_string(frame: bytes, position: int) -> tuple[str | None, int]:
    """Read a string with a varint length; 0: null."""
    if frame[position] == 0:
        return None, position + 1
    length, start = read_compact_length(frame, position)
    if length < 0:
        return None, start
    return read_compact_string(frame, position)


def _bad_string(length: int, bytes_left: int) -> ProtocolError:
    if length < 0:
        return ProtocolError("a string is null that may not be")
    if length > MAX_STRING_BYTES:
        return ProtocolError(f"a string claims {length} bytes; the longest has {MAX_STRING_BYTES}")
    return ProtocolError(f"a string claims {length} bytes where {bytes_left} are left")


_ZERO_UUID_BYTES = ZERO_UUID.bytes


def read_uuid(frame: bytes, position: int) -> tuple[UUID, int]:
    """Read 16 bytes."""
    content, position = read_content(frame, position, 16)
    return (ZERO_UUID if content == _ZERO_UUID_BYTES else uuid_of(content)), position


def check_array_length(frame: bytes, position: int, length: int) -> int:
    """Refuse null, and more entries than Kafka takes, or than bytes are left (each takes at least one)."""
    if length < 0:
        raise ProtocolError("an array is null that may not be")
    if length > MAX_ARRAY_LENGTH:
        raise ProtocolError(f"an array claims {length} entries; the longest has {MAX_ARRAY_LENGTH}")
    if length > len(frame) - position:
        raise ProtocolError(f"an array claims {length} entries where {len(frame) - position} bytes are left")
    return length


def read_array_length(frame: bytes, position: int) -> tuple[int, int]:
    """Read the number of entries of an array that may not be null."""
    (length,) = INT32_FROM(frame, position)
    position += 4
    if 0 <= length <= len(frame) - position and length <= MAX_ARRAY_LENGTH:  # nearly always
        return length, position
    return check_array_length(frame, position, length), position


def read_compact_array_length(frame: bytes, position: int) -> tuple[int, int]:
    """Read the number of entries of a compact array that may not be null."""
    length, position = read_compact_length(frame, position)
    return check_array_length(frame, position, length), position


def read_int32s(frame: bytes, position: int, count: int) -> tuple[tuple[int, ...], int]:
    """Read so many whole numbers; their number was compared with the bytes that are left, their size is here."""
    end = position + 4 * count
    if end > len(frame):
        raise ProtocolError(f"{count} numbers are claimed where {len(frame) - position} bytes are left")
    return struct.unpack_from(f">{count}i", frame, position), end


def skip_tagged_fields(frame: bytes, position: int) -> int:
    """Pass over tagged fields, none of which is known here."""
    if frame[position] == 0:
        return position + 1
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        position = skip_tagged_content(frame, position)
    return position


def skip_tagged_content(frame: bytes, position: int) -> int:
    """Pass over the size of a tagged field and that many bytes."""
    size, position = read_uvarint(frame, position)
    return read_content(frame, position, size)[1]


def write_uvarint(value: int) -> bytes:
    """Write a varint."""
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def write_compact_length(length: int) -> bytes:
    """Write the length of a compact byte string or array; -1 for null."""
    return bytes((length + 1,)) if length < 0x7F else write_uvarint(length + 1)


def encode_string(value: str) -> bytes:
    """Encode a string; one that was malformed may have grown beyond what an answer can carry."""
    content = value.encode()
    if len(content) > MAX_STRING_BYTES:
        raise _too_long(len(content))
    return content


def _too_long(length: int) -> ProtocolError:
    return ProtocolError(f"a string of {length} bytes is to be written; the longest has {MAX_STRING_BYTES}")


def write_string_length(length: int) -> bytes:
    """Write what stands before a string of so many bytes: an int16."""
    if length > MAX_STRING_BYTES:
        raise _too_long(length)
    return INT16.pack(length)


def write_compact_string_length(length: int) -> bytes:
    """Write what stands before a compact string of so many bytes: a varint."""
    if length > MAX_STRING_BYTES:
        raise _too_long(length)
    return write_uvarint(length + 1)


def write_string(value: str) -> bytes:
    """Write a string with an int16 length."""
    content = encode_string(value)
    return INT16.pack(len(content)) + content


def write_nullable_string(value: str | None) -> bytes:
    """Write a string with an int16 length, -1 for null."""
    return b"\xff\xff" if value is None else write_string(value)


def write_compact_string(value: str) -> bytes:
    """Write a string with a varint length."""
    content = encode_string(value)
    return write_uvarint(len(content) + 1) + content


def write_compact_nullable_string(value: str | None) -> bytes:
    """Write a string with a varint length, 0 for null."""
    return b"\x00" if value is None else write_compact_string(value)


def write_bytes(value: bytes) -> bytes:
    """Write a byte string with an int32 length."""
    return INT32.pack(len(value)) + value


def write_compact_bytes(value: bytes) -> bytes:
    """Write a byte string with a varint length."""
    return write_uvarint(len(value) + 1) + value


def write_compact_int32s(values: Sequence[int]) -> bytes:
    """Write a compact array of whole numbers."""
    return write_uvarint(len(values) + 1) + struct.pack(f">{len(values)}i", *values)


def _skip_nothing(frame: bytes, position: int) -> int:
    return position


class Dialect(NamedTuple):
    """How strings, lengths and tagged fields stand in flexible versions (KIP-482), or in those before."""

    read_string: Reader[str]
    read_nullable_string: Reader[str | None]
    read_length: Reader[int]
    read_array_length: Reader[int]
    skip_tagged_fields: Callable[[bytes, int], int]
    write_string: Writer
    write_nullable_string: Writer
    write_length: Callable[[int], bytes]
    nothing_tagged: bytes


PLAIN = Dialect(
    read_string,
    read_nullable_string,
    read_int32_length,
    read_array_length,
    _skip_nothing,
    write_string,
    write_nullable_string,
    INT32.pack,
    b"",
)
FLEXIBLE = Dialect(
    read_compact_string,
    read_compact_nullable_string,
    read_compact_length,
    read_compact_array_length,
    skip_tagged_fields,
    write_compact_string,
    write_compact_nullable_string,
    write_compact_length,
    b"\x00",
)
