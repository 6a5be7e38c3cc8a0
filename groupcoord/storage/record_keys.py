"""Records without a key, which a topic that is compacted doesn't take.

Source: ``LogValidator.validateKey`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

from groupcoord.errors import ErrorCode
from groupcoord.records.batches import Batch, read_varint
from groupcoord.storage.batch_records import DECOMPRESSED_BYTES_MAX, UNREADABLE, record_heads
from groupcoord.storage.errors import RefusedBatchError


def check_keys(batch: Batch) -> None:
    """Check that each record of a batch has a key, be it an empty one.

    Raises:
        RefusedBatchError: INVALID_RECORD with the numbers of those that have none; CORRUPT_MESSAGE, there are no
            records where they should be.
    """
    without_key = []
    try:
        payload = batch.payload(DECOMPRESSED_BYTES_MAX)
        for number, head in enumerate(record_heads(payload, batch.record_count)):
            key_size, _ = read_varint(payload, head.key_position)
            if key_size < 0:
                without_key.append(number)
    except UNREADABLE as error:
        raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, f"a batch can't be read: {error}") from None
    if without_key:
        reason = f"{len(without_key)} records have no key, and the topic is compacted"
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, reason, records=tuple(without_key))
