"""Records inside batches: their sizes, and what stands before the key of each.

The counts that a producer claims are compared with the available bytes before anything is counted or looped over.
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
"""Batches that decompress to more are not read, because that would take too long."""
BATCH_RECORDS_MAX = 500_000
"""Batches with more records are not read where each record must be examined and none is searched by time."""

UNREADABLE = (CorruptBatchError, DecompressionError, BadRecordError, IndexError)
"""Errors raised for a batch whose content is not records."""

_SIZE_MIN = RECORD_BYTES_MIN - 1
_INT32_BYTES_MAX = 5
_NOWHERE = -(2**40)
"""Added to a position, gives a position outside any data."""
_ONE_BYTE_STEPS = tuple(
    1 + (byte >> 1) if byte < 0x80 and not byte & 1 and byte >> 1 >= _SIZE_MIN else 0 for byte in range(256)
)
"""Length of a record by its first byte; 0 if its size has more bytes or is invalid."""
_FIRST_STEPS = tuple(2 + (byte & 0x7F) // 2 if byte >= 0x80 and not byte & 1 else _NOWHERE for byte in range(256))
_SECOND_STEPS = tuple(byte << 6 if byte < 0x80 else _NOWHERE for byte in range(256))
"""What the two bytes of a size add to the length of a record; far below 0 if the size has more bytes or is invalid."""


class LongSizeError(BadRecordError):
    """The size of a record has more bytes than Kafka reads; Kafka answers it with an error code of its own."""


class RecordHead(NamedTuple):
    """Beginning of a record.

    Attributes:
        timestamp_delta_ms: its timestamp relative to the base timestamp of the batch.
        offset_delta: its offset relative to the base offset of the batch.
        key_position: the position of the length of its key.
        end: the position after the record.
    """

    timestamp_delta_ms: int
    offset_delta: int
    key_position: int
    end: int


def read_payload(batch: Batch) -> bytes:
    """Return the decompressed records of a batch.

    Raises:
        CorruptBatchError, DecompressionError: it can't be decompressed, or exceeds ``DECOMPRESSED_BYTES_MAX``.
    """
    return b"".join(batch.payload_parts(DECOMPRESSED_BYTES_MAX))


def record_heads(payload: bytes, record_count: int) -> Iterator[RecordHead]:
    """Yield the beginning of each record.

    Args:
        payload: the decompressed records of a batch.
        record_count: the number of records by the header of the batch.

    Raises:
        BadRecordError, IndexError: the payload does not hold that many records.
    """
    position, size_bytes = 0, len(payload)
    _check_count(record_count, size_bytes)
    for _ in range(record_count):
        size, start = read_varint(payload, position)
        position = start + size
        if size < _SIZE_MIN or position > size_bytes:
            raise BadRecordError(f"a record of {size} bytes, {size_bytes - start} left")
        timestamp_delta_ms, behind = read_varint(payload, start + 1)  # after the attributes of the record
        offset_delta, behind = read_varint(payload, behind)
        yield RecordHead(timestamp_delta_ms, offset_delta, behind, position)


def check_sizes(data: bytes | memoryview, record_count: int) -> None:
    """Check that the sizes of the records in a batch match their number and the end of the batch.

    The contents of the records are not checked.

    Args:
        data: a whole, uncompressed batch.
        record_count: the number of records by its header.

    Raises:
        BadRecordError: they don't match.
    """
    size_bytes = len(data)
    _check_count(record_count, size_bytes - BATCH_HEADER_BYTES)
    try:
        if _usual_end(data, BATCH_HEADER_BYTES, record_count) == size_bytes:
            return
    except IndexError:
        pass  # or a size has more than two bytes
    try:
        end = _any_end(data, BATCH_HEADER_BYTES, record_count)
    except IndexError:
        raise BadRecordError(f"there are no {record_count} records in {size_bytes} bytes") from None
    if end != size_bytes:
        raise BadRecordError(f"{record_count} records end at {end}, and the batch at {size_bytes}")


def _usual_end(data: bytes | memoryview, position: int, record_count: int) -> int:
    """Return the end of records whose sizes have one or two bytes: the hottest loop of a Produce.

    Raises:
        IndexError: they end beyond the data or have longer sizes.
    """
    steps, first_steps, second_steps = _ONE_BYTE_STEPS, _FIRST_STEPS, _SECOND_STEPS
    for _ in range(record_count):
        first = data[position]
        position += steps[first] or first_steps[first] + second_steps[data[position + 1]]
    return position


def _any_end(data: bytes | memoryview, position: int, record_count: int) -> int:
    """Return the end of records.

    Raises:
        IndexError: they end beyond the data.
        BadRecordError: a size is invalid.
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
