"""The records in a batch, as bytes: what looks into batches has in common."""

from __future__ import annotations

from groupcoord.records.batches import BATCH_HEADER_BYTES, CODEC_MASK, Batch
from groupcoord.records.compression import decompress

DECOMPRESSED_BYTES_MAX = 33_554_432
"""A batch that decompresses to more is not looked into: that would take too long."""


def records_of(batch: Batch, data: memoryview) -> bytes:
    """Return the records of a batch, one after the other.

    Args:
        batch: its header.
        data: the whole of it.

    Raises:
        CorruptBatchError, DecompressionError: it can't be decompressed.
    """
    records = bytes(data[BATCH_HEADER_BYTES:])
    if batch.attributes & CODEC_MASK:
        return decompress(batch.compression, records, DECOMPRESSED_BYTES_MAX)
    return records


def read_varint(records: bytes, position: int) -> tuple[int, int]:
    """Return a zig-zag varint of at most ten bytes, and the position after it.

    Raises:
        IndexError: there is none.
    """
    value = 0
    for shift in range(0, 70, 7):
        byte = records[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise IndexError("a varint of more than ten bytes")
