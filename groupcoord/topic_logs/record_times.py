"""Finding a record in a batch by its time."""

from __future__ import annotations

from groupcoord.errors import ErrorCode
from groupcoord.records.batches import LOG_APPEND_TIME, Batch, CorruptBatchError
from groupcoord.records.compression import DecompressionError
from groupcoord.topic_logs.batch_records import read_varint, records_of
from groupcoord.topic_logs.errors import RefusedBatchError
from groupcoord.wire.pacing import paced


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
    try:
        payload = records_of(batch, data)
        position = 0
        for _ in paced(range(batch.record_count)):
            size, position = read_varint(payload, position)
            timestamp_delta, behind = read_varint(payload, position + 1)  # behind the record's attributes
            offset_delta, _ = read_varint(payload, behind)
            found_ms, found_offset = batch.base_timestamp_ms + timestamp_delta, batch.base_offset + offset_delta
            if found_ms >= timestamp_ms and found_offset >= offset:
                return found_ms, found_offset
            position += size
    except (CorruptBatchError, DecompressionError, IndexError) as error:
        raise RefusedBatchError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a batch can't be read: {error}") from None
    return None
