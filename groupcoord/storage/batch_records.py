"""Looking into batches: what stands before the key of each record, and whether records are there at all.

What a producer claims is held against the bytes that there are before anything is counted or looped over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from groupcoord.records.batches import (
    BATCH_HEADER_BYTES,
    RECORD_BYTES_MIN,
    BadRecordError,
    Batch,
    CorruptBatchError,
    read_varint,
)
from groupcoord.records.compression import DecompressionError

DECOMPRESSED_BYTES_MAX = 33_554_432
"""A batch that decompresses to more is not looked into: that would take too long."""
BATCH_RECORDS_MAX = 500_000
"""Nor is one of more records where each is looked at and none is looked for by its time."""

UNREADABLE = (CorruptBatchError, DecompressionError, BadRecordError, IndexError)
"""What is raised where a producer has put into a batch what are no records."""

_SIZE_MIN = RECORD_BYTES_MIN - 1
_INT32_BYTES_MAX = 5
_NOWHERE = -(2**40)
"""Added to a position, it gives one that no data have."""
_ONE_BYTE_STEPS = tuple(
    1 + (byte >> 1) if byte < 0x80 and not byte & 1 and byte >> 1 >= _SIZE_MIN else 0 for byte in range(256)
)
"""By the first byte of a record, how long the record is; 0 if its size has more bytes, or can't be."""
_FIRST_STEPS = tuple(2 + (byte & 0x7F) // 2 if byte >= 0x80 and not byte & 1 else _NOWHERE for byte in range(256))
_SECOND_STEPS = tuple(byte << 6 if byte < 0x80 else _NOWHERE for byte in range(256))
"""What the two bytes of a size add to the length of the record; far below 0 if it has more, or can't be."""


class LongSizeError(BadRecordError):
    """The size of a record has more bytes than Kafka reads, which answers that with another error than all others."""


class RecordHead(NamedTuple):
    """The beginning of a record.

    Attributes:
        timestamp_delta_ms: its time, from the batch's base timestamp on.
        offset_delta: its offset, from the batch's base offset on.
        key_position: where the length of its key stands.
        end: where it ends.
    """

    timestamp_delta_ms: int
    offset_delta: int
    key_position: int
    end: int


def read_payload(batch: Batch) -> bytes:
    """Return the bytes of the records of a batch.

    Raises:
        CorruptBatchError, DecompressionError: it can't be decompressed, or to more than ``DECOMPRESSED_BYTES_MAX``.
    """
    return b"".join(batch.payload_parts(DECOMPRESSED_BYTES_MAX))


def record_heads(payload: bytes, record_count: int) -> Iterator[RecordHead]:
    """Yield how records begin.

    Args:
        payload: of a batch.
        record_count: how many records its header says there are.

    Raises:
        BadRecordError, IndexError: there are no records where they should be.
    """
    position, size_bytes = 0, len(payload)
    _check_count(record_count, size_bytes)
    for _ in range(record_count):
        size, start = read_varint(payload, position)
        position = start + size
        if size < _SIZE_MIN or position > size_bytes:
            raise BadRecordError(f"a record of {size} bytes, {size_bytes - start} left")
        timestamp_delta_ms, behind = read_varint(payload, start + 1)  # behind the record's attributes
        offset_delta, behind = read_varint(payload, behind)
        yield RecordHead(timestamp_delta_ms, offset_delta, behind, position)


def check_sizes(data: bytes | memoryview, record_count: int) -> None:
    """Check that the records of a batch, by their sizes, are as many as it says and end where it ends.

    That they are what their sizes say isn't looked at.

    Args:
        data: a whole batch, not compressed.
        record_count: how many records its header says there are.

    Raises:
        BadRecordError: they don't.
    """
    size_bytes = len(data)
    _check_count(record_count, size_bytes - BATCH_HEADER_BYTES)
    try:
        if _usual_end(data, BATCH_HEADER_BYTES, record_count) == size_bytes:
            return
    except IndexError:
        pass  # so does a size that is no usual one end
    try:
        end = _any_end(data, BATCH_HEADER_BYTES, record_count)
    except IndexError:
        raise BadRecordError(f"there are no {record_count} records in {size_bytes} bytes") from None
    if end != size_bytes:
        raise BadRecordError(f"{record_count} records end at {end}, and the batch at {size_bytes}")


def _usual_end(data: bytes | memoryview, position: int, record_count: int) -> int:
    """Return where records end whose sizes have one or two bytes: the hottest loop of a Produce.

    Raises:
        IndexError: they end behind the data, or have other sizes.
    """
    steps, first_steps, second_steps = _ONE_BYTE_STEPS, _FIRST_STEPS, _SECOND_STEPS
    for _ in range(record_count):
        first = data[position]
        position += steps[first] or first_steps[first] + second_steps[data[position + 1]]
    return position


def _any_end(data: bytes | memoryview, position: int, record_count: int) -> int:
    """Return where records end.

    Raises:
        IndexError: they end behind the data.
        BadRecordError: their sizes can't be.
    """
    for _ in range(record_count):
        behind = position + 1
        while data[behind - 1] > 0x7F:
            behind += 1
            if behind - position > _INT32_BYTES_MAX:
                raise LongSizeError(f"the size of a record has more than {_INT32_BYTES_MAX} bytes")
        size, _ = read_varint(data, position)
        if size < _SIZE_MIN:
            raise BadRecordError(f"a record of {size} bytes")
        position = behind + size
    return position


def _check_count(record_count: int, size_bytes: int) -> None:
    if record_count * RECORD_BYTES_MIN > size_bytes:
        raise BadRecordError(f"there are no {record_count} records in {size_bytes} bytes")
