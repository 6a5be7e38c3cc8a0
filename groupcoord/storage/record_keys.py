"""Check that all records of a batch have a key, as compacted topics require.

Source: ``LogValidator.validateKey`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

from groupcoord.errors import ErrorCode
from groupcoord.records.batches import CODEC_MASK, BadRecordError, Batch, read_varint
from groupcoord.records.compression import DecompressionError
from groupcoord.storage.batch_records import UNREADABLE, read_payload, record_heads
from groupcoord.storage.errors import RefusedBatchError

_HEADER_BYTES_MIN = 2


def check_keys(batch: Batch) -> None:
    """Check that the records of a batch are well-formed and that each has a key, which may be empty.

    Raises:
        RefusedBatchError: INVALID_RECORD with the indexes of the records without a key, and without indexes if the
            batch does not hold records. UNKNOWN_SERVER_ERROR if they can't be decompressed or do not have the offsets
            0, 1, 2, ….
    """
    without_key, is_in_order = [], True
    try:
        payload = read_payload(batch)
        end = 0
        for number, (_, offset_delta, key_position, end) in enumerate(record_heads(payload, batch.record_count)):
            if not _has_key(payload, key_position, end):
                without_key.append(number)
            is_in_order = is_in_order and offset_delta == number
        if end != len(payload):
            raise BadRecordError(f"{len(payload) - end} bytes are left behind its {batch.record_count} records")
    except UNREADABLE as error:
        is_packed_badly = isinstance(error, DecompressionError)
        error_code = ErrorCode.UNKNOWN_SERVER_ERROR if is_packed_badly else ErrorCode.INVALID_RECORD
        raise RefusedBatchError(error_code, f"a batch can't be read: {error}") from None
    if without_key:
        reason = f"{len(without_key)} records have no key, and the topic is compacted"
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, reason, records=tuple(without_key))
    if batch.attributes & CODEC_MASK and not is_in_order:
        raise RefusedBatchError(ErrorCode.UNKNOWN_SERVER_ERROR, "the offsets in a compressed batch have gaps")


def _has_key(payload: bytes, position: int, end: int) -> bool:
    """Return whether a record has a key.

    Args:
        payload: the decompressed records.
        position: the position of the length of the key.
        end: the end of the record.

    Raises:
        BadRecordError, IndexError: key, value and headers do not end there.
    """
    key_size = payload[position]
    if key_size & 0x81:
        key_size, position = read_varint(payload, position)
    else:
        key_size >>= 1
        position += 1
    if key_size > 0:
        position += key_size
    value_size, position = read_varint(payload, position)
    if value_size > 0:
        position += value_size
    position = _behind_headers(payload, position) if payload[position] else position + 1
    if key_size < -1 or value_size < -1 or position != end:
        raise BadRecordError("a record's length is not that of its fields")
    return key_size >= 0


def _behind_headers(payload: bytes, position: int) -> int:
    """Return the position after the headers of a record: each has a name and an optional value.

    Raises:
        BadRecordError, IndexError: the headers are malformed.
    """
    count, position = read_varint(payload, position)
    if not 0 <= count <= (len(payload) - position) // _HEADER_BYTES_MIN:
        raise BadRecordError(f"{count} headers in {len(payload) - position} bytes")
    for _ in range(count):
        name_size, position = read_varint(payload, position)
        value_size, position = read_varint(payload, position + max(name_size, 0))
        position += max(value_size, 0)
        if name_size < 0 or value_size < -1:
            raise BadRecordError(f"a header with a name of {name_size} bytes and a value of {value_size}")
    return position
