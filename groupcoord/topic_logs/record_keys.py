"""Records without a key, which a topic that is compacted doesn't take.

Source: ``LogValidator.validateKey`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

from groupcoord.errors import ErrorCode
from groupcoord.records.batches import Batch, CorruptBatchError
from groupcoord.records.compression import DecompressionError
from groupcoord.topic_logs.batch_records import read_varint, records_of
from groupcoord.topic_logs.errors import RefusedBatchError
from groupcoord.wire.pacing import paced


def check_keys(data: bytes) -> None:
    """Check that each record of a batch has a key, be it an empty one.

    Raises:
        RefusedBatchError: INVALID_RECORD with the numbers of those that have none; CORRUPT_MESSAGE, there are no
            records where they should be.
    """
    view = memoryview(data)
    batch = Batch(view, 0, 0)
    without_key = []
    try:
        records = records_of(batch, view)
        position = 0
        for number in paced(range(batch.record_count)):
            size, position = read_varint(records, position)
            _, behind = read_varint(records, position + 1)  # the time, behind the record's attributes
            _, behind = read_varint(records, behind)  # the offset
            key_size, _ = read_varint(records, behind)
            if key_size < 0:
                without_key.append(number)
            position += size
    except (CorruptBatchError, DecompressionError, IndexError) as error:
        raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, f"a batch can't be read: {error}") from None
    if without_key:
        reason = f"{len(without_key)} records have no key, and the topic is compacted"
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, reason, records=tuple(without_key))
