"""What stands before the key of each record in a batch: what looks into batches goes by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from groupcoord.records.batches import BadRecordError, CorruptBatchError, read_varint
from groupcoord.records.compression import DecompressionError
from groupcoord.wire.pacing import paced

DECOMPRESSED_BYTES_MAX = 33_554_432
"""A batch that decompresses to more is not looked into: that would take too long."""

UNREADABLE = (CorruptBatchError, DecompressionError, BadRecordError, IndexError)
"""What is raised where a producer has put into a batch what are no records."""


class RecordHead(NamedTuple):
    """The beginning of a record.

    Attributes:
        timestamp_delta_ms: its time, from the batch's base timestamp on.
        offset_delta: its offset, from the batch's base offset on.
        key_position: where the length of its key stands.
    """

    timestamp_delta_ms: int
    offset_delta: int
    key_position: int


def record_heads(payload: bytes, record_count: int) -> Iterator[RecordHead]:
    """Yield how records begin.

    Args:
        payload: of a batch.
        record_count: how many records its header says there are.

    Raises:
        BadRecordError, IndexError: there are no records where they should be.
    """
    position = 0
    for _ in paced(range(record_count)):
        size, position = read_varint(payload, position)
        timestamp_delta_ms, behind = read_varint(payload, position + 1)  # behind the record's attributes
        offset_delta, behind = read_varint(payload, behind)
        yield RecordHead(timestamp_delta_ms, offset_delta, behind)
        position += size
