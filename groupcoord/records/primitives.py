"""The few types that Kafka's schemas are made of: a writer and a reader, for flexible versions and the others.

Strings and arrays of a flexible version (KIP-482) have an unsigned varint ``n + 1`` for a length, 0 for null, and every
structure ends with tagged fields. In the others a string has an int16 length, bytes and arrays an int32, -1 for null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from struct import Struct, pack, unpack_from
from uuid import UUID

from groupcoord.core.records import ZERO_UUID

STRING_BYTES_MAX = 32_767

_int8 = Struct(">b")
_int16 = Struct(">h")
_uint16 = Struct(">H")
_int32 = Struct(">i")
_int64 = Struct(">q")
_NULL_STRING = b"\xff\xff"


class MalformedError(ValueError):
    """Bytes or values that no schema allows."""


def unsigned_varint(value: int) -> bytes:
    """Return ``value`` in base 128, lowest seven bits first, the top bit set on all bytes but the last."""
    if 0 <= value <= 0x7F:  # nearly always
        return _SHORT_VARINTS[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_SHORT_VARINTS = tuple(bytes((value,)) for value in range(0x80))
_ONE_INT32 = Struct(">Bi").pack


def int32s(values: Sequence[int]) -> bytes:
    """Return an array of int32 of a flexible version."""
    count = len(values)
    if count == 1:  # nearly always, where a group has as many members as partitions
        return _ONE_INT32(2, values[0])
    return unsigned_varint(count + 1) + pack(f">{count}i", *values)


NO_TAGS = b"\x00"
"""The end of a structure of a flexible version without tagged fields."""


def one_tag(tag: int, content: bytes) -> bytes:
    """Return the end of a structure of a flexible version with one tagged field."""
    return b"\x01%b%b%b" % (unsigned_varint(tag), unsigned_varint(len(content)), content)


@lru_cache(1_024)
def topic_id_of(topic_id: bytes) -> UUID:
    """Return a topic's id from its bytes; always the same object for the one that stands for none."""
    made = UUID(bytes=topic_id)
    return ZERO_UUID if made == ZERO_UUID else made


class Writer:
    """Collects the bytes of one key or value."""

    def __init__(self, *, flexible: bool) -> None:
        self._flexible = flexible
        self._parts: list[bytes] = []

    def to_bytes(self) -> bytes:
        """Return all that was written."""
        return b"".join(self._parts)

    def raw(self, content: bytes) -> None:
        """Write what is in bytes already."""
        self._parts.append(content)

    def int8(self, value: int) -> None:
        """Write an int8."""
        self._parts.append(_int8.pack(value))

    def int16(self, value: int) -> None:
        """Write an int16."""
        self._parts.append(_int16.pack(value))

    def uint16(self, value: int) -> None:
        """Write a uint16."""
        self._parts.append(_uint16.pack(value))

    def int32(self, value: int) -> None:
        """Write an int32."""
        self._parts.append(_int32.pack(value))

    def int64(self, value: int) -> None:
        """Write an int64."""
        self._parts.append(_int64.pack(value))

    def uuid(self, value: UUID) -> None:
        """Write the 16 bytes of a uuid."""
        self._parts.append(value.bytes)

    def string(self, value: str, name: str) -> None:
        """Write a string; ``name`` is what an error calls it.

        Raises:
            MalformedError: it is longer than 32,767 bytes, which Kafka refuses in flexible versions as well.
        """
        encoded = value.encode()
        length = len(encoded)
        if length > STRING_BYTES_MAX:
            raise MalformedError(f"the {name} has {length} bytes; at most {STRING_BYTES_MAX} fit a string")
        self._parts.append(unsigned_varint(length + 1) if self._flexible else _int16.pack(length))
        self._parts.append(encoded)

    def nullable_string(self, value: str | None, name: str) -> None:
        """Write a string or null."""
        if value is None:
            self._parts.append(b"\x00" if self._flexible else _NULL_STRING)
        else:
            self.string(value, name)

    def sized_bytes(self, value: bytes) -> None:
        """Write bytes behind their length."""
        self.array_length(len(value))
        self._parts.append(value)

    def array_length(self, length: int) -> None:
        """Write the length of an array; its elements follow."""
        self._parts.append(unsigned_varint(length + 1) if self._flexible else _int32.pack(length))

    def int16s(self, values: Sequence[int]) -> None:
        """Write an array of int16."""
        self.array_length(len(values))
        self._parts.append(pack(f">{len(values)}h", *values))

    def strings(self, values: Sequence[str], name: str) -> None:
        """Write an array of strings; ``name`` is what an error calls one."""
        self.array_length(len(values))
        for value in values:
            self.string(value, name)

    def tags(self, tags: Mapping[int, bytes]) -> None:
        """End a structure with its tagged fields, in order of their numbers. Nothing in inflexible versions."""
        if self._flexible and not tags:  # nearly always
            self._parts.append(NO_TAGS)
        elif self._flexible:
            self._parts.append(unsigned_varint(len(tags)))
            for tag, value in sorted(tags.items()) if len(tags) > 1 else tags.items():
                self._parts += (unsigned_varint(tag), unsigned_varint(len(value)), value)


class Reader:
    """Takes one key or value apart. Every method raises ``MalformedError`` or ``struct.error`` if the bytes don't fit.

    Nothing is allocated for a length before the bytes are known to be there.
    """

    def __init__(self, data: bytes, position: int, *, flexible: bool) -> None:
        self._data = data
        self._position = position
        self._flexible = flexible

    def end(self) -> None:
        """Make sure that nothing is left."""
        if self._position != len(self._data):
            raise MalformedError(f"{len(self._data) - self._position} bytes are left over")

    def int8(self) -> int:
        """Read an int8."""
        value: int = _int8.unpack_from(self._data, self._position)[0]
        self._position += 1
        return value

    def int16(self) -> int:
        """Read an int16."""
        value: int = _int16.unpack_from(self._data, self._position)[0]
        self._position += 2
        return value

    def uint16(self) -> int:
        """Read a uint16."""
        return self.int16() & 0xFFFF

    def int32(self) -> int:
        """Read an int32."""
        value: int = _int32.unpack_from(self._data, self._position)[0]
        self._position += 4
        return value

    def int64(self) -> int:
        """Read an int64."""
        value: int = _int64.unpack_from(self._data, self._position)[0]
        self._position += 8
        return value

    def uuid(self) -> UUID:
        """Read a uuid."""
        return topic_id_of(self._take(16))

    def string(self) -> str:
        """Read a string that can't be null."""
        value = self.nullable_string()
        if value is None:
            raise MalformedError("null in place of a string")
        return value

    def nullable_string(self) -> str | None:
        """Read a string or null."""
        length = self.unsigned_varint() - 1 if self._flexible else self.int16()
        return None if length == -1 else self._take(length).decode()

    def sized_bytes(self) -> bytes:
        """Read bytes behind their length."""
        return self._take(self.array_length())

    def array_length(self) -> int:
        """Read the length of an array that can't be null."""
        length = self.unsigned_varint() - 1 if self._flexible else self.int32()
        if length < 0:
            raise MalformedError(f"a length of {length}")
        return length

    def int32s(self) -> tuple[int, ...]:
        """Read an array of int32 that can't be null."""
        length = self.array_length()
        return unpack_from(f">{length}i", self._take(4 * length))

    def int16s(self) -> tuple[int, ...]:
        """Read an array of int16 that can't be null."""
        length = self.array_length()
        return unpack_from(f">{length}h", self._take(2 * length))

    def strings(self) -> tuple[str, ...]:
        """Read an array of strings, neither it nor one of them null."""
        return tuple([self.string() for _ in range(self.array_length())])

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields that end a structure; empty in versions that are not flexible."""
        found: dict[int, bytes] = {}
        if self._flexible:
            if self._data[self._position : self._position + 1] == b"\x00":  # nearly always
                self._position += 1
                return found
            for _ in range(self.unsigned_varint()):
                tag = self.unsigned_varint()
                found[tag] = self._take(self.unsigned_varint())
        return found

    def unsigned_varint(self) -> int:
        """Read an unsigned varint of at most five bytes."""
        position = self._position
        if position < len(self._data) and self._data[position] < 0x80:  # nearly always
            self._position += 1
            return self._data[position]
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedError("a varint of more than five bytes")

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise MalformedError(f"{length} bytes wanted, {len(self._data) - self._position} left")
        taken = self._data[self._position : end]
        self._position = end
        return taken
