"""Search for a record of a batch by timestamp."""

from __future__ import annotations

from typing import NamedTuple

from groupcoord.errors import ErrorCode
from groupcoord.records.batches import LOG_APPEND_TIME, Batch
from groupcoord.storage.batch_records import UNREADABLE, read_payload, record_heads
from groupcoord.storage.errors import RefusedBatchError


class FoundRecord(NamedTuple):
    """Result of a search by timestamp."""

    timestamp_ms: int
    offset: int


def first_since(data: bytes, timestamp_ms: int, offset: int) -> FoundRecord | None:
    """Return the first record of a batch with at least this timestamp and this offset, or None.

    Args:
        data: the batch as stored in the log.
        timestamp_ms: the timestamp.
        offset: the start of the log, which may lie inside of the batch.

    Raises:
        RefusedBatchError: UNKNOWN_SERVER_ERROR, the batch does not hold records.
    """
    batch = Batch(data, 0, 0)
    append_time_ms = batch.max_timestamp_ms if batch.attributes & LOG_APPEND_TIME else None
    if append_time_ms is not None and batch.record_count > batch.last_offset_delta:
        return FoundRecord(append_time_ms, max(batch.base_offset, offset))
    try:
        for head in record_heads(read_payload(batch), batch.record_count):
            found_ms = batch.base_timestamp_ms + head.timestamp_delta_ms if append_time_ms is None else append_time_ms
            found_offset = batch.base_offset + head.offset_delta
            if found_ms >= timestamp_ms and found_offset >= offset:
                return FoundRecord(found_ms, found_offset)
    except UNREADABLE as error:
        raise RefusedBatchError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a batch can't be read: {error}") from None
    return None
