"""Record batches: written as Kafka 4.4's coordinator writes them, read as any broker may write them.

A batch of message format v2 has a header of 61 bytes and records, which may be compressed together. A CRC-32C covers
everything from the attributes on. The header is big-endian; records consist of zig-zag varints (KIP-98;
``docs/records.md``). Messages of formats v0 and v1 are read as batches (:mod:`.legacy`).

Compaction leaves batches with fewer records than offset slots, and sets a delete horizon where records will be removed
later (KIP-534). Remaining records keep their bytes. Source: ``MemoryRecords.filterTo`` of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from mmap import mmap
from struct import (
    Struct,
    error as StructError,  # noqa: N812
)
from typing import NamedTuple

from attrs import define
from crc32c import crc32c

from groupcoord.core.log.records import NO_TIMESTAMP
from groupcoord.errors import GroupcoordError
from groupcoord.records.compression import Compression, DecompressionError, compress, decompressed_parts
from groupcoord.records.legacy import MESSAGE_BYTES_MIN, Message, message_crcs, read_wrapped
from groupcoord.schema.primitives import MalformedError, read_uvarlong, read_varint, write_varint

Buffer = bytes | bytearray | memoryview | mmap

BATCH_HEADER_BYTES = 61
BATCH_BYTES_MAX = 268_435_456
DECOMPRESSED_BYTES_MAX = 104_857_600
"""Default limit of the decompressed records of a batch."""
MAGIC_V2 = 2

RECORD_BYTES_MIN = 7
"""Size of a record of format v2 without key, value and headers: seven fields of one byte."""
RECORD_SIZE_MIN = RECORD_BYTES_MIN - 1
"""The same without the first field, which holds the size."""

LOG_OVERHEAD_BYTES = 12  # base offset and batch length
_LENGTH_MIN = BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES
_LENGTH_MAX = BATCH_BYTES_MAX - LOG_OVERHEAD_BYTES
MAGIC_POSITION = 16
LAST_OFFSET_DELTA_POSITION = 23
_CRC_START = 21

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

BatchRecord = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp in milliseconds, key and value of a record, without its headers: coordinators write none."""

# The header, and its two parts: only the second is covered by the CRC.
_header = Struct(">qiibIhiqqqhii")
_pack_uncovered = Struct(">qiibI").pack
pack_covered = Struct(">hiqqqhii").pack
_unpack_offset_length = Struct(">qi").unpack_from


class InvalidBatchError(GroupcoordError, ValueError):
    """A batch can't be read.

    Attributes:
        position: its position, in bytes from the beginning of the buffer or file.
        reason: the problem.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"batch at position {position}: {reason}")
        self.position = position
        self.reason = reason


class CorruptBatchError(InvalidBatchError):
    """A batch has a wrong CRC, an impossible length, or records that do not fit."""


class TruncatedBatchError(InvalidBatchError):
    """The bytes end in the middle of a batch. ``size_bytes``: its size, or the least size that is known."""

    def __init__(self, position: int, size_bytes: int, available_bytes: int) -> None:
        super().__init__(position, f"it needs {size_bytes} bytes and only {available_bytes} are left")
        self.size_bytes = size_bytes


# ---------------------------------------------------------------- writing


VARINTS = tuple(write_varint(value) for value in range(8_192))
_SMALL = len(VARINTS)
_NULL = write_varint(-1)


def sized(content: bytes | None) -> bytes:
    """Return bytes with their length in front, as in a record; None is null."""
    return _NULL if content is None else write_varint(len(content)) + content


RECORD_STARTS = tuple(b"\x00\x00" + encoded for encoded in VARINTS)
"""The usual first bytes of a record after its length: attributes, timestamp delta 0, offset delta."""


def record_starts(first: int, count: int) -> Sequence[bytes]:
    if first + count <= _SMALL:
        return RECORD_STARTS[first : first + count]
    return [b"\x00\x00" + write_varint(place) for place in range(first, first + count)]


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
        leader_epoch: epoch of the log partition's leader.
        producer_id, producer_epoch: those of a transactional batch or marker, or -1.
        is_transactional: whether the records belong to a transaction (markers do).
        is_control: whether the records are transaction markers.
        base_sequence: sequence number of the first record; None: 0, or -1 for markers, as Kafka's coordinator.

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
    parts: list[bytes] = []
    offset_delta = 0
    for key, value, timestamp_ms in records:
        if timestamp_ms == base_timestamp_ms and offset_delta < _SMALL:
            start = RECORD_STARTS[offset_delta]
        else:
            start = b"\x00" + write_varint(timestamp_ms - base_timestamp_ms) + write_varint(offset_delta)
            if timestamp_ms > max_timestamp_ms:
                max_timestamp_ms = timestamp_ms
        key_size = len(key) if key is not None else -1
        value_size = len(value) if value is not None else -1
        body = b"%b%b%b%b%b\x00" % (
            start,
            VARINTS[key_size] if 0 <= key_size < _SMALL else write_varint(key_size),
            key or b"",
            VARINTS[value_size] if 0 <= value_size < _SMALL else write_varint(value_size),
            value or b"",
        )
        size = len(body)
        parts += (VARINTS[size] if size < _SMALL else write_varint(size), body)
        offset_delta += 1
    header = pack_covered(
        attributes,
        offset_delta - 1,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        offset_delta,
    )
    return seal(base_offset, leader_epoch, header + b"".join(parts))


def frame_records(
    base_offset: int,
    parts: Iterable[bytes],
    record_count: int,
    timestamp_ms: int,
    leader_epoch: int,
    producer_id: int,
    producer_epoch: int,
    max_timestamp_ms: int | None = None,
    base_sequence: int = 0,
) -> bytes:
    """Return the batch of encoded records; arguments are as for :func:`encode_batch`.

    Args:
        parts: the records, each after its length, in any pieces.
        timestamp_ms: the base timestamp.
        max_timestamp_ms: the largest timestamp; None: all are ``timestamp_ms``.
        base_sequence: sequence number of the first record; Kafka's coordinator writes 0.
    """
    attributes = TRANSACTIONAL if producer_id >= 0 else 0
    latest_ms = timestamp_ms if max_timestamp_ms is None else max_timestamp_ms
    header = pack_covered(
        attributes, record_count - 1, timestamp_ms, latest_ms, producer_id, producer_epoch, base_sequence, record_count
    )
    return seal(base_offset, leader_epoch, header + b"".join(parts))


def seal(base_offset: int, leader_epoch: int, covered: bytes) -> bytes:
    """Return a batch of the bytes that the CRC covers, after base offset, length, leader epoch, magic and CRC."""
    length = len(covered) + _CRC_START - LOG_OVERHEAD_BYTES
    return _pack_uncovered(base_offset, length, leader_epoch, MAGIC_V2, crc32c(covered)) + covered


# ---------------------------------------------------------------- reading


@define(eq=False, repr=False, init=False, weakref_slot=False)
class Batch:
    """One batch of a buffer; its records are decoded on demand.

    Attributes:
        position: its position in the buffer or file.
        size_bytes: its size, header included.
        base_offset: offset of its first slot.
        next_offset: the offset after its last slot.
        base_timestamp_ms: base of the timestamps of its records; the delete horizon if bit 6 of the attributes is set.
        record_count: the number of records; after compaction fewer than the slots, 0 in an emptied batch.
        is_transactional: whether the records belong to a transaction.
        is_control: whether the records are control records (transaction markers).
    """

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
    size_bytes: int
    position: int
    _buffer: Buffer
    _start: int

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
        self.size_bytes = length + LOG_OVERHEAD_BYTES
        self.position = position
        self._buffer = buffer
        self._start = start

    @property
    def buffered(self) -> memoryview:
        """The buffer from the beginning of the batch on; it may lack the end of the batch, or contain more."""
        return memoryview(self._buffer)[self._start :]

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
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

    def payload(self, decompressed_bytes_max: int) -> bytes:
        """Return the bytes of the records, decompressed.

        Raises:
            CorruptBatchError: the codec is unknown.
            DecompressionError: they can't be decompressed, or exceed the limit.
        """
        return b"".join(self.payload_parts(decompressed_bytes_max))

    def payload_parts(self, decompressed_bytes_max: int) -> Iterator[bytes]:
        """Yield the bytes of the records, decompressed in parts; raises as :meth:`payload` does."""
        start = self._start + BATCH_HEADER_BYTES
        payload = bytes(self._buffer[start : self._start + self.size_bytes])
        if self.attributes & CODEC_MASK:
            return decompressed_parts(self.compression, payload, decompressed_bytes_max)
        return iter((payload,))

    def records(self, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[BatchRecord]:
        """Return ``(offset, timestamp_ms, key, value)`` of each record, in order.

        Raises:
            CorruptBatchError: the records do not fit the header or their lengths, or exceed the limit when
                decompressed.
        """
        try:
            payload = self.payload(decompressed_bytes_max)
        except DecompressionError as error:
            raise CorruptBatchError(self.position, str(error)) from None
        append_time_ms = self.max_timestamp_ms if self.attributes & LOG_APPEND_TIME else None
        try:
            return iter(
                _decode_records(payload, self.record_count, self.base_offset, self.base_timestamp_ms, append_time_ms)
            )
        except IndexError:
            raise CorruptBatchError(self.position, "its records end early") from None
        except MalformedError as error:
            raise CorruptBatchError(self.position, str(error)) from None

    def to_bytes(self) -> bytes:
        return bytes(self._buffer[self._start : self._start + self.size_bytes])

    def check_crc(self) -> None:
        """Compare the CRC.

        Raises:
            CorruptBatchError: the CRC is wrong.
        """
        # A copy is faster than a view for usual sizes.
        actual = crc32c(self._buffer[self._start + _CRC_START : self._start + self.size_bytes])
        if actual != self.crc:
            raise CorruptBatchError(self.position, f"its CRC is {actual:#010x}, its header has {self.crc:#010x}")

    def __repr__(self) -> str:
        return (
            f"Batch(base_offset={self.base_offset}, record_count={self.record_count}, position={self.position}, "
            f"size_bytes={self.size_bytes}, attributes={self.attributes:#x})"
        )


class LegacyBatch(Batch):
    """A message of format v0 or v1 as a batch; a compressed one holds several records.

    Producer and leader epoch are -1, and no message is transactional. Wrapped messages are decompressed at once, since
    the first offset is inside.
    """

    __slots__ = ("_actual_crc", "_records")

    def __init__(self, buffer: Buffer, start: int, position: int, size_bytes: int, *, check_crc: bool) -> None:
        self.position = position
        self.size_bytes = size_bytes
        self._buffer = buffer
        self._start = start
        entry = bytes(buffer[start : start + size_bytes])
        self.crc, self._actual_crc = message_crcs(entry)
        if check_crc:
            self.check_crc()
        try:
            message = Message(entry)
            self.magic, self.attributes = message.magic, message.attributes
            if message.attributes & CODEC_MASK:
                self._records = read_wrapped(message, DECOMPRESSED_BYTES_MAX)
            else:
                self._records = [(message.offset, message.timestamp_ms, message.key, message.value)]
        except (MalformedError, DecompressionError, StructError) as error:
            raise CorruptBatchError(position, str(error)) from None
        timestamps = [record[1] for record in self._records]
        self.base_offset = self._records[0][0]
        self.last_offset_delta = self._records[-1][0] - self.base_offset
        self.base_timestamp_ms, self.max_timestamp_ms = timestamps[0], max(timestamps)
        self.record_count = len(self._records)
        self.leader_epoch = self.producer_id = self.producer_epoch = self.base_sequence = -1

    def records(self, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[BatchRecord]:
        """Return ``(offset, timestamp_ms, key, value)`` of each record; the timestamp is -1 in format v0."""
        return iter(self._records)

    def check_crc(self) -> None:
        if self._actual_crc != self.crc:
            raise CorruptBatchError(
                self.position, f"its CRC is {self._actual_crc:#010x}, its header has {self.crc:#010x}"
            )


def iter_batches(buffer: Buffer, *, base_position: int = 0, check_crc: bool = True) -> Iterator[Batch]:
    """Yield the batches of a buffer in order.

    Args:
        buffer: adjacent batches, as in a segment file.
        base_position: position of the buffer in its file; positions of batches and errors are relative to the file.
        check_crc: whether to compare the CRC of every batch.

    Raises:
        TruncatedBatchError: the buffer ends inside a batch; the batches before it were yielded.
        CorruptBatchError: a batch is corrupt.
    """
    start, end = 0, len(buffer)
    while start < end:
        position = base_position + start
        if end - start <= MAGIC_POSITION:
            raise TruncatedBatchError(position, LOG_OVERHEAD_BYTES + MESSAGE_BYTES_MIN, end - start)
        _, length = _unpack_offset_length(buffer, start)
        size = length + LOG_OVERHEAD_BYTES
        magic = buffer[start + MAGIC_POSITION]
        length_min = _LENGTH_MIN if magic == MAGIC_V2 else MESSAGE_BYTES_MIN
        if magic > MAGIC_V2:
            raise CorruptBatchError(position, f"unknown message format {magic}")
        if not length_min <= length <= _LENGTH_MAX:
            raise CorruptBatchError(position, f"a length of {length} bytes is impossible")
        if size > end - start:
            raise TruncatedBatchError(position, size, end - start)
        if magic != MAGIC_V2:
            yield LegacyBatch(buffer, start, position, size, check_crc=check_crc)
            start += size
            continue
        batch = Batch(buffer, start, position)
        if check_crc:
            batch.check_crc()
        if batch.last_offset_delta < 0 or not 0 <= batch.record_count <= batch.last_offset_delta + 1:
            raise CorruptBatchError(
                position, f"{batch.record_count} records in {batch.last_offset_delta + 1} offset slots"
            )
        yield batch
        start += size


def _decode_records(
    payload: bytes, count: int, base_offset: int, base_timestamp_ms: int, append_time_ms: int | None
) -> list[BatchRecord]:
    # The hottest loop of loading: varints of one and two bytes are read inline.
    position, end = 0, len(payload)
    records: list[BatchRecord] = []
    append = records.append
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
                size, position = read_uvarlong(payload, position - 1)
        record_end = position + (size >> 1)
        if size & 1 or record_end > end:
            raise MalformedError(f"a record of {size >> 1} bytes, {end - position} left")
        timestamp_ms = base_timestamp_ms
        raw = payload[position + 1]  # after the attributes of the record, none of which is defined
        position += 2
        if raw:
            if raw > 0x7F:
                raw, position = read_uvarlong(payload, position - 1)
            timestamp_ms += (raw >> 1) ^ -(raw & 1)
        raw = payload[position]
        position += 1
        if raw > 0x7F:
            raw, position = read_uvarlong(payload, position - 1)
        offset = base_offset + ((raw >> 1) ^ -(raw & 1))
        raw = payload[position]
        if raw & 0x81:  # null, or at least 64 bytes
            key, position = read_sized(payload, position)
        else:
            start = position + 1
            position = start + (raw >> 1)
            key = payload[start:position]
        raw = payload[position]
        if raw & 0x81:
            value, position = read_sized(payload, position)
        else:
            start = position + 1
            position = start + (raw >> 1)
            value = payload[start:position]
        if payload[position]:
            position = skip_headers(payload, position)
        else:
            position += 1
        if position != record_end:
            raise MalformedError("a record's length is not that of its fields")
        append((offset, timestamp_ms if append_time_ms is None else append_time_ms, key, value))
    if position != end:
        raise MalformedError(f"{end - position} bytes are left behind its {count} records")
    return records


def read_sized(payload: bytes, position: int) -> tuple[bytes | None, int]:
    """Read a key, a value, or the name or value of a header, behind its length."""
    raw = payload[position]
    position += 1
    if raw > 0x7F:
        raw, position = read_uvarlong(payload, position - 1)
    if raw & 1:
        if raw != 1:
            raise MalformedError(f"a length of {-(raw >> 1) - 1}")
        return None, position
    end = position + (raw >> 1)
    return payload[position:end], end


def skip_headers(payload: bytes, position: int) -> int:
    """Return the position after the headers of a record."""
    raw, position = read_uvarlong(payload, position)
    if raw & 1:
        raise MalformedError("a negative number of headers")
    for _ in range(raw >> 1):
        name, position = read_sized(payload, position)
        _, position = read_sized(payload, position)
        if name is None:
            raise MalformedError("a header without a name")
    return position


class RecordHead(NamedTuple):
    """Beginning of a record.

    Attributes:
        timestamp_delta_ms, offset_delta: relative to the base timestamp and the base offset of the batch.
        key_position: the position of the length of its key.
    """

    timestamp_delta_ms: int
    offset_delta: int
    key_position: int
    end: int


def record_heads(payload: bytes, record_count: int) -> Iterator[RecordHead]:
    """Yield the beginning of each record; MalformedError or IndexError if there are fewer."""
    position, size_bytes = 0, len(payload)
    # Compared with the available bytes, since a producer claims it.
    check_record_count(record_count, size_bytes)
    for _ in range(record_count):
        size, start = read_varint(payload, position)
        position = start + size
        if size < RECORD_SIZE_MIN or position > size_bytes:
            raise MalformedError(f"a record of {size} bytes, {size_bytes - start} left")
        timestamp_delta_ms, behind = read_varint(payload, start + 1)  # after the attributes of the record
        offset_delta, behind = read_varint(payload, behind)
        yield RecordHead(timestamp_delta_ms, offset_delta, behind, position)


def check_record_count(record_count: int, size_bytes: int) -> None:
    """Raise MalformedError if the bytes are too few for the number of records."""
    if record_count * RECORD_BYTES_MIN > size_bytes:
        raise MalformedError(f"there are no {record_count} records in {size_bytes} bytes")


_NO_HEADERS = b"\x00"


class RawRecord(NamedTuple):
    """A record of a batch; value and headers are not parsed.

    Attributes:
        offset_delta: its offset relative to the batch's base offset.
        timestamp_delta_ms: its timestamp relative to the batch's base timestamp.
        has_value: False for a tombstone.
        body: key, value and headers.
    """

    offset_delta: int
    timestamp_delta_ms: int
    key: bytes | None
    has_value: bool
    body: bytes


def raw_records(batch: Batch, payload: bytes) -> Iterator[RawRecord]:
    """Yield the records of a batch; ``payload``: their decompressed bytes, unused for message formats v0 and v1.

    Raises:
        CorruptBatchError: the records do not fit the header or their lengths.
    """
    if batch.magic != MAGIC_V2:
        for offset, timestamp_ms, key, value in batch.records():
            body = sized(key) + sized(value) + _NO_HEADERS
            delta_ms = timestamp_ms - batch.base_timestamp_ms
            yield RawRecord(offset - batch.base_offset, delta_ms, key, value is not None, body)
        return
    try:
        yield from _read(payload, batch.record_count)
    except MalformedError as error:
        raise CorruptBatchError(batch.position, str(error)) from None
    except IndexError:
        raise CorruptBatchError(batch.position, "its records end early") from None


def _read(payload: bytes, count: int) -> Iterator[RawRecord]:
    last_delta, end = -1, 0
    for delta_ms, offset_delta, key_position, end in record_heads(payload, count):
        key, position = read_sized(payload, key_position)
        value_size, value_start = read_varint(payload, position)
        if value_start + max(value_size, 0) >= end:  # the number of headers takes a byte
            raise MalformedError("a record's length is not that of its fields")
        if offset_delta <= last_delta:
            raise MalformedError("the offsets of its records go back")
        yield RawRecord(offset_delta, delta_ms, key, value_size >= 0, payload[key_position:end])
        last_delta = offset_delta
    if end != len(payload):
        raise MalformedError(f"{len(payload) - end} bytes are left behind its {count} records")


def delete_horizon_ms(batch: Batch) -> int | None:
    """Return the time from which tombstones and markers of a batch may be removed; None if
    compaction has not set it.
    """
    return batch.base_timestamp_ms if _attributes(batch) & DELETE_HORIZON else None


def rewritten(batch: Batch, kept: Sequence[RawRecord], new_horizon_ms: int | None = None) -> bytes:
    """Return a batch with some of its records, at their offsets, in the same offset slots.

    Offsets, leader epoch, producer, type and codec are kept; message formats v0 and v1 become an uncompressed batch of
    v2.

    Args:
        batch: the batch.
        kept: the remaining records, in order; at least one.
        new_horizon_ms: the delete horizon to set; None keeps the current one.
    """
    attributes = _attributes(batch)
    times_ms = [batch.base_timestamp_ms + record.timestamp_delta_ms for record in kept]
    max_timestamp_ms = max(times_ms)
    if attributes & LOG_APPEND_TIME:
        max_timestamp_ms = batch.max_timestamp_ms
        times_ms = [max_timestamp_ms] * len(kept)
    horizon_ms = delete_horizon_ms(batch) if new_horizon_ms is None else new_horizon_ms
    base_timestamp_ms = times_ms[0]
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON
        base_timestamp_ms = horizon_ms
    parts: list[bytes] = []
    for time_ms, record in zip(times_ms, kept, strict=True):
        start = b"\x00" + write_varint(time_ms - base_timestamp_ms) + write_varint(record.offset_delta)
        parts += (write_varint(len(start) + len(record.body)), start, record.body)
    payload = b"".join(parts)
    if attributes & CODEC_MASK:
        payload = compress(batch.compression, payload)
    return _sealed(batch, attributes, base_timestamp_ms, max_timestamp_ms, len(kept), payload)


def emptied(batch: Batch) -> bytes:
    """Return a batch without records in the same offset slots, which preserves the producer and the log's end."""
    attributes = _attributes(batch) & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return _sealed(batch, attributes, NO_TIMESTAMP, batch.max_timestamp_ms, 0, b"")


def _attributes(batch: Batch) -> int:
    return batch.attributes if batch.magic == MAGIC_V2 else batch.attributes & LOG_APPEND_TIME


def _sealed(
    batch: Batch, attributes: int, base_timestamp_ms: int, max_timestamp_ms: int, count: int, payload: bytes
) -> bytes:
    producer = batch.producer_id, batch.producer_epoch, batch.base_sequence
    times_ms = base_timestamp_ms, max_timestamp_ms
    header = pack_covered(attributes, batch.last_offset_delta, *times_ms, *producer, count)
    return seal(batch.base_offset, batch.leader_epoch, header + payload)
