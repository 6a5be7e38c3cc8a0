"""Record batches of message format v2: written as Kafka 4.4's coordinator does, read as any broker may write them.

A batch is a header of 61 bytes and its records, which may be compressed together. A CRC-32C covers everything from the
attributes on. The header is big-endian; records are made of zig-zag varints (KIP-98; ``docs/records.md``).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from mmap import mmap
from struct import Struct

from crc32c import crc32c

from groupcoord.errors import GroupcoordError
from groupcoord.records.compression import Compression, DecompressionError, decompress

Buffer = bytes | bytearray | memoryview | mmap

BATCH_HEADER_BYTES = 61
BATCH_BYTES_MAX = 268_435_456
DECOMPRESSED_BYTES_MAX = 104_857_600
MAGIC_V2 = 2

LOG_OVERHEAD_BYTES = 12  # base offset and batch length, which the length does not count
_LENGTH_MIN = BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES
_LENGTH_MAX = BATCH_BYTES_MAX - LOG_OVERHEAD_BYTES
_MAGIC_POSITION = 16
_CRC_START = 21
_LEGACY_LENGTH_MIN = 14

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

_header = Struct(">qiibIhiqqqhii")
_pack_uncovered = Struct(">qiibI").pack
_pack_covered = Struct(">hiqqqhii").pack
_unpack_offset_length = Struct(">qi").unpack_from

#: Offset, timestamp in milliseconds, key, value of one record. Record headers are skipped: coordinators write none.
BatchRecord = tuple[int, int, bytes | None, bytes | None]


class InvalidBatchError(GroupcoordError, ValueError):
    """A batch can't be read.

    Attributes:
        position: where it starts, in bytes from the beginning of the buffer or file.
        reason: what is wrong with it.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"batch at position {position}: {reason}")
        self.position = position
        self.reason = reason


class CorruptBatchError(InvalidBatchError):
    """A batch's bytes contradict themselves: a wrong CRC, an impossible length, records that don't fit."""


class UnsupportedFormatError(CorruptBatchError):
    """The bytes are sound messages of format v0 or v1, which brokers before 0.11 wrote."""


class TruncatedBatchError(InvalidBatchError):
    """The bytes end in the middle of a batch. ``size_bytes`` is how long it would be, as far as it is known."""

    def __init__(self, position: int, size_bytes: int, available_bytes: int) -> None:
        super().__init__(position, f"it needs {size_bytes} bytes and only {available_bytes} are left")
        self.size_bytes = size_bytes


# ---------------------------------------------------------------- writing


def varint(value: int) -> bytes:
    """Return a signed number as a zig-zag varint (the same for Kafka's varint and varlong)."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_SMALL = 2_048
_VARINTS = tuple(varint(value) for value in range(_SMALL))
_NULL = varint(-1)
# Attributes, a timestamp delta of 0, the offset delta: how nearly every record starts.
_RECORD_STARTS = tuple(b"\x00\x00" + encoded for encoded in _VARINTS)


def encode_batch(
    base_offset: int,
    records: Sequence[tuple[bytes | None, bytes | None, int]],
    *,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    base_sequence: int | None = None,
) -> bytes:
    """Return one uncompressed batch.

    Args:
        base_offset: offset of the first record; the others follow without gaps.
        records: at least one, as ``(key, value, timestamp in milliseconds)``.
        leader_epoch: of the log partition's leader.
        producer_id: of a transactional batch or marker, else -1.
        producer_epoch: goes with ``producer_id``.
        is_transactional: the records belong to a transaction (markers too).
        is_control: the records are transaction markers.
        base_sequence: by default what Kafka's coordinator writes: 0, or -1 for markers.

    Raises:
        ValueError: there is no record.
        struct.error: a number does not fit its field.
    """
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp_ms = max_timestamp_ms = records[0][2]
    if base_sequence is None:
        base_sequence = -1 if is_control else 0
    attributes = (TRANSACTIONAL if is_transactional else 0) | (CONTROL if is_control else 0)
    parts = [b""]
    offset_delta = 0
    for key, value, timestamp_ms in records:
        if timestamp_ms == base_timestamp_ms and offset_delta < _SMALL:
            start = _RECORD_STARTS[offset_delta]
        else:
            start = b"\x00" + varint(timestamp_ms - base_timestamp_ms) + varint(offset_delta)
            if timestamp_ms > max_timestamp_ms:
                max_timestamp_ms = timestamp_ms
        key_size = len(key) if key is not None else -1
        value_size = len(value) if value is not None else -1
        body = b"%b%b%b%b%b\x00" % (
            start,
            _VARINTS[key_size] if 0 <= key_size < _SMALL else varint(key_size),
            key or b"",
            _VARINTS[value_size] if 0 <= value_size < _SMALL else varint(value_size),
            value or b"",
        )
        size = len(body)
        parts += (_VARINTS[size] if size < _SMALL else varint(size), body)
        offset_delta += 1
    parts[0] = _pack_covered(
        attributes,
        offset_delta - 1,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        offset_delta,
    )
    covered = b"".join(parts)
    length = len(covered) + _CRC_START - LOG_OVERHEAD_BYTES
    return _pack_uncovered(base_offset, length, leader_epoch, MAGIC_V2, crc32c(covered)) + covered


# ---------------------------------------------------------------- reading


class Batch:
    """One batch of a buffer; its records are decoded when asked for.

    Attributes:
        position: where it starts in the buffer or file; ``size_bytes`` is its whole length.
        base_offset: offset of its first slot; ``next_offset`` is the one after its last.
        base_timestamp_ms: what the timestamps of its records are relative to; the delete horizon if bit 6 is set.
        record_count: how many records it holds; compaction leaves fewer than slots, and none in an emptied batch.
    """

    __slots__ = (
        "_buffer",
        "_start",
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp_ms",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp_ms",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size_bytes",
    )

    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    def __init__(self, buffer: Buffer, start: int, position: int) -> None:
        (
            self.base_offset,
            length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = _header.unpack_from(buffer, start)
        self.size_bytes: int = length + LOG_OVERHEAD_BYTES
        self.position = position
        self._buffer = buffer
        self._start = start

    @property
    def next_offset(self) -> int:
        """The offset after the batch's last slot."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_transactional(self) -> bool:
        """True if the records belong to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """True if the records are control records (transaction markers)."""
        return bool(self.attributes & CONTROL)

    @property
    def compression(self) -> Compression:
        """The codec of the records.

        Raises:
            CorruptBatchError: the codec is unknown.
        """
        try:
            return Compression(self.attributes & CODEC_MASK)
        except ValueError:
            raise CorruptBatchError(self.position, f"unknown codec {self.attributes & CODEC_MASK}") from None

    def records(self, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[BatchRecord]:
        """Yield ``(offset, timestamp_ms, key, value)`` of each record.

        Raises:
            CorruptBatchError: the records don't fit the header or their own lengths, or decompress to too much.
        """
        start = self._start + BATCH_HEADER_BYTES
        payload = bytes(self._buffer[start : self._start + self.size_bytes])
        if self.attributes & CODEC_MASK:
            try:
                payload = decompress(self.compression, payload, decompressed_bytes_max)
            except DecompressionError as error:
                raise CorruptBatchError(self.position, str(error)) from None
        append_time_ms = self.max_timestamp_ms if self.attributes & LOG_APPEND_TIME else None
        try:
            yield from _decode_records(
                payload, self.record_count, self.base_offset, self.base_timestamp_ms, append_time_ms
            )
        except IndexError:
            raise CorruptBatchError(self.position, "its records end early") from None
        except _BadRecordError as error:
            raise CorruptBatchError(self.position, str(error)) from None

    def check_crc(self) -> None:
        """Make sure that the bytes are those that were written.

        Raises:
            CorruptBatchError: they are not.
        """
        with memoryview(self._buffer) as view:
            actual = crc32c(view[self._start + _CRC_START : self._start + self.size_bytes])
        if actual != self.crc:
            raise CorruptBatchError(self.position, f"its CRC is {actual:#010x}, the header says {self.crc:#010x}")

    def __repr__(self) -> str:
        return (
            f"Batch(base_offset={self.base_offset}, record_count={self.record_count}, position={self.position}, "
            f"size_bytes={self.size_bytes}, attributes={self.attributes:#x})"
        )


class _BadRecordError(ValueError):
    """A record inside a batch doesn't fit; becomes a CorruptBatchError."""


def iter_batches(buffer: Buffer, *, base_position: int = 0, check_crc: bool = True) -> Iterator[Batch]:
    """Yield the batches of ``buffer`` in order.

    Args:
        buffer: batches back to back, as in a segment file.
        base_position: of the buffer's first byte in its file; positions of batches and errors count from there.
        check_crc: compare every batch with its checksum.

    Raises:
        TruncatedBatchError: the buffer ends inside a batch; those before it were yielded.
        CorruptBatchError: a batch is broken.
        UnsupportedFormatError: it is a sound message of an older format.
    """
    start, end = 0, len(buffer)
    while start < end:
        position = base_position + start
        if end - start <= _MAGIC_POSITION:
            raise TruncatedBatchError(position, BATCH_HEADER_BYTES, end - start)
        _, length = _unpack_offset_length(buffer, start)
        size = length + LOG_OVERHEAD_BYTES
        if buffer[start + _MAGIC_POSITION] != MAGIC_V2 or not _LENGTH_MIN <= length <= _LENGTH_MAX:
            raise _not_a_batch(buffer, start, end, position, length)
        if size > end - start:
            raise TruncatedBatchError(position, size, end - start)
        batch = Batch(buffer, start, position)
        if check_crc:
            batch.check_crc()
        if batch.last_offset_delta < 0 or not 0 <= batch.record_count <= batch.last_offset_delta + 1:
            raise CorruptBatchError(
                position, f"{batch.record_count} records in {batch.last_offset_delta + 1} offset slots"
            )
        yield batch
        start += size


def _not_a_batch(buffer: Buffer, start: int, end: int, position: int, length: int) -> InvalidBatchError:
    """Say why the bytes at ``start`` are no batch of format v2. Older messages have a CRC-32 from the magic byte on."""
    magic = buffer[start + _MAGIC_POSITION]
    if magic in (0, 1) and _LEGACY_LENGTH_MIN <= length <= _LENGTH_MAX:
        size = length + LOG_OVERHEAD_BYTES
        if size > end - start:
            return TruncatedBatchError(position, size, end - start)
        stored_crc = int.from_bytes(buffer[start + 12 : start + 16], "big")
        if zlib.crc32(buffer[start + _MAGIC_POSITION : start + size]) == stored_crc:
            return UnsupportedFormatError(position, f"message format v{magic} can't be read")
    if magic != MAGIC_V2:
        return CorruptBatchError(position, f"unknown message format {magic}")
    return CorruptBatchError(position, f"a length of {length} bytes is impossible")


def _decode_records(
    payload: bytes, count: int, base_offset: int, base_timestamp_ms: int, append_time_ms: int | None
) -> Iterator[BatchRecord]:
    # The hottest loop of loading: varints of one and two bytes are read in place.
    position, end = 0, len(payload)
    key: bytes | None
    value: bytes | None
    for _ in range(count):
        size = payload[position]
        position += 1
        if size > 0x7F:
            following = payload[position]
            if following < 0x80:
                size = size & 0x7F | following << 7
                position += 1
            else:
                size, position = _unsigned(payload, position - 1)
        record_end = position + (size >> 1)
        if size & 1 or record_end > end:
            raise _BadRecordError(f"a record of {size >> 1} bytes, {end - position} left")
        timestamp_ms = base_timestamp_ms
        raw = payload[position + 1]  # behind the record's attributes, of which none is defined
        position += 2
        if raw:
            if raw > 0x7F:
                raw, position = _unsigned(payload, position - 1)
            timestamp_ms += (raw >> 1) ^ -(raw & 1)
        raw = payload[position]
        position += 1
        if raw > 0x7F:
            raw, position = _unsigned(payload, position - 1)
        offset = base_offset + ((raw >> 1) ^ -(raw & 1))
        raw = payload[position]
        if raw & 0x81:  # null, or 64 bytes and more
            key, position = _sized(payload, position)
        else:
            start = position + 1
            position = start + (raw >> 1)
            key = payload[start:position]
        raw = payload[position]
        if raw & 0x81:
            value, position = _sized(payload, position)
        else:
            start = position + 1
            position = start + (raw >> 1)
            value = payload[start:position]
        if payload[position]:
            position = _skip_headers(payload, position)
        else:
            position += 1
        if position != record_end:
            raise _BadRecordError("a record's length is not that of its fields")
        yield offset, timestamp_ms if append_time_ms is None else append_time_ms, key, value
    if position != end:
        raise _BadRecordError(f"{end - position} bytes are left behind its {count} records")


def _sized(payload: bytes, position: int) -> tuple[bytes | None, int]:
    """Return bytes behind their length, or None, and the position after them (which the caller checks)."""
    raw = payload[position]
    position += 1
    if raw > 0x7F:
        raw, position = _unsigned(payload, position - 1)
    if raw & 1:
        if raw != 1:
            raise _BadRecordError(f"a length of {-(raw >> 1) - 1}")
        return None, position
    end = position + (raw >> 1)
    return payload[position:end], end


def _unsigned(payload: bytes, position: int) -> tuple[int, int]:
    """Return a varint of at most ten bytes, before zig-zag decoding, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = payload[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise _BadRecordError("a varint of more than ten bytes")


def _skip_headers(payload: bytes, position: int) -> int:
    raw, position = _unsigned(payload, position)
    if raw & 1:
        raise _BadRecordError("a negative number of headers")
    for _ in range(raw >> 1):
        _, position = _sized(payload, position)
        _, position = _sized(payload, position)
    return position
