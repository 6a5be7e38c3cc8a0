"""Messages of formats v0 and v1, which brokers before 0.11 wrote. They are only read.

A message is ``int64 offset | int32 size | uint32 CRC-32 of the rest | int8 magic | int8 attributes | int64 timestamp
(v1) | int32 key length | key | int32 value length | value``. The value of a compressed message is a set of messages; in
v1 their offsets are relative, and the wrapper has the offset of the last one (KIP-31). LZ4 in v0 has a frame header
with a wrong checksum (KAFKA-3160).
"""

from __future__ import annotations

import zlib
from struct import Struct

from groupcoord.core.log.records import NO_TIMESTAMP
from groupcoord.records.compression import Compression, decompress, repair_lz4_header
from groupcoord.schema.primitives import MalformedError

MESSAGE_BYTES_MIN = 14
ENTRY_OVERHEAD_BYTES = 12
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
MAGIC_V0, MAGIC_V1 = 0, 1

_CRC_BYTES = 4
_entry = Struct(">qiIbb")
_timestamp = Struct(">q")
_length = Struct(">i")


class Message:
    """One message, wrapper or not.

    Attributes:
        offset: the written offset, relative or not.
        attributes: codec in bits 0 to 2, log append time in bit 3; other bits are dropped.
    """

    __slots__ = ("attributes", "key", "magic", "offset", "timestamp_ms", "value")

    def __init__(self, entry: bytes) -> None:
        self.offset, _, _, self.magic, attributes = _entry.unpack_from(entry)
        self.attributes = attributes & (CODEC_MASK | LOG_APPEND_TIME)
        position = _entry.size
        self.timestamp_ms = NO_TIMESTAMP
        if self.magic == MAGIC_V1:
            (self.timestamp_ms,) = _timestamp.unpack_from(entry, position)
            position += _timestamp.size
        self.key, position = _sized(entry, position)
        self.value, position = _sized(entry, position)
        if position != len(entry):
            raise MalformedError(f"{len(entry) - position} bytes are left behind a message's value")


def message_crcs(entry: bytes) -> tuple[int, int]:
    start = ENTRY_OVERHEAD_BYTES + _CRC_BYTES
    return int.from_bytes(entry[ENTRY_OVERHEAD_BYTES:start], "big"), zlib.crc32(memoryview(entry)[start:])


def read_wrapped(wrapper: Message, bytes_max: int) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Return ``(absolute offset, timestamp_ms, key, value)`` of the records in a compressed message; at least one.

    Raises:
        MalformedError: the value is not a set of sound messages of the wrapper's format.
        DecompressionError: the value can't be decompressed, or exceeds ``bytes_max``.
        struct.error: a message ends early.
    """
    codec = wrapper.attributes & CODEC_MASK
    if codec > Compression.LZ4:
        raise MalformedError(f"unknown codec {codec}")
    data = wrapper.value
    if data is None:
        raise MalformedError("a compressed message without a value")
    if codec == Compression.LZ4 and wrapper.magic == MAGIC_V0:
        data = repair_lz4_header(data)
    messages = _read_set(decompress(Compression(codec), data, bytes_max), wrapper.magic)
    if not messages:
        raise MalformedError("a compressed message that holds none")
    # 0 if the offsets of v1 are absolute.
    base = wrapper.offset - messages[-1].offset if wrapper.magic == MAGIC_V1 else 0
    append_time_ms = wrapper.timestamp_ms if wrapper.attributes & LOG_APPEND_TIME else None
    return [
        (base + inner.offset, inner.timestamp_ms if append_time_ms is None else append_time_ms, inner.key, inner.value)
        for inner in messages
    ]


def _read_set(data: bytes, magic: int) -> list[Message]:
    messages: list[Message] = []
    position = 0
    last_offset = -1
    while position < len(data):
        (size,) = _length.unpack_from(data, position + 8)
        end = position + ENTRY_OVERHEAD_BYTES + size
        if size < MESSAGE_BYTES_MIN or end > len(data):
            raise MalformedError(f"a message of {size} bytes inside another, {len(data) - position} left")
        entry = data[position:end]
        stored_crc, actual_crc = message_crcs(entry)
        if stored_crc != actual_crc:
            raise MalformedError("a message inside another has a wrong CRC")
        message = Message(entry)
        if message.magic != magic or message.attributes & CODEC_MASK:
            raise MalformedError("a message inside another is of another format, or compressed again")
        if message.offset <= last_offset:
            raise MalformedError("the offsets inside a message go back")
        last_offset = message.offset
        messages.append(message)
        position = end
    return messages


def _sized(entry: bytes, position: int) -> tuple[bytes | None, int]:
    (length,) = _length.unpack_from(entry, position)
    position += _length.size
    if length == -1:
        return None, position
    if length < 0 or length > len(entry) - position:
        raise MalformedError(f"{length} bytes, {len(entry) - position} left")
    return entry[position : position + length], position + length
