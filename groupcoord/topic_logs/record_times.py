"""Finding a record in a batch by its time: the only thing here that looks at records."""

from __future__ import annotations

from groupcoord.errors import ErrorCode
from groupcoord.records.batches import BATCH_HEADER_BYTES, CODEC_MASK, LOG_APPEND_TIME, Batch, CorruptBatchError
from groupcoord.records.compression import DecompressionError, decompress
from groupcoord.topic_logs.errors import RefusedBatchError
from groupcoord.wire.pacing import paced

DECOMPRESSED_BYTES_MAX = 33_554_432
"""A batch that decompresses to more is not looked into: that would take too long."""


def first_since(data: memoryview, timestamp_ms: int, offset: int) -> tuple[int, int] | None:
    """Return the time and the offset of the first record of a batch with at least this time and this offset.

    Args:
        data: the batch as it stands in the log.
        timestamp_ms: the time looked for.
        offset: where the log starts, perhaps inside of the batch.

    Raises:
        RefusedBatchError: UNKNOWN_SERVER_ERROR, what the producer put into the batch are no records.
    """
    batch = Batch(data, 0, 0)
    if batch.attributes & LOG_APPEND_TIME:
        return batch.max_timestamp_ms, max(batch.base_offset, offset)
    payload = bytes(data[BATCH_HEADER_BYTES:])
    try:
        if batch.attributes & CODEC_MASK:
            payload = decompress(batch.compression, payload, DECOMPRESSED_BYTES_MAX)
        position = 0
        for _ in paced(range(batch.record_count)):
            size, position = _varint(payload, position)
            timestamp_delta, behind = _varint(payload, position + 1)  # behind the record's attributes
            offset_delta, _ = _varint(payload, behind)
            found_ms, found_offset = batch.base_timestamp_ms + timestamp_delta, batch.base_offset + offset_delta
            if found_ms >= timestamp_ms and found_offset >= offset:
                return found_ms, found_offset
            position += size
    except (CorruptBatchError, DecompressionError, IndexError) as error:
        raise RefusedBatchError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a batch can't be read: {error}") from None
    return None


def _varint(payload: bytes, position: int) -> tuple[int, int]:
    """Return a zig-zag varint of at most ten bytes, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = payload[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise IndexError("a varint of more than ten bytes")
