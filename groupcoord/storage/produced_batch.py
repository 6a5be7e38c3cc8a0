"""Batch of a Produce request for one partition: validation of its header, and rewriting for its place in the log.

The checks and their order are those of ``ProduceRequest.validateRecords``, ``UnifiedLog.analyzeAndValidateRecords`` and
``LogValidator`` of Apache Kafka 4.4, as recorded, for the header and the sizes of uncompressed records. For compacted
topics whole batches are validated, because of the keys.
"""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

from groupcoord.core.log.records import NO_PRODUCER_ID, NO_TIMESTAMP
from groupcoord.errors import ErrorCode
from groupcoord.records.batches import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    BadRecordError,
    Batch,
)
from groupcoord.records.compression import Compression
from groupcoord.storage.batch_records import LongSizeError, check_sizes
from groupcoord.storage.errors import RefusedBatchError
from groupcoord.storage.log_settings import TopicLogSettings
from groupcoord.storage.record_keys import check_keys
from groupcoord.storage.segment import Pieces

SHORT_BYTES = 2_048
"""Batches up to this size are validated without yielding."""

SEQUENCE_END = 2**31
"""Sequence numbers wrap to 0 here."""

COPIED_BYTES = 8_192
"""Smaller batches are copied, which takes no longer than writing two pieces."""

_length_from = Struct(">iiB").unpack_from  # followed by the leader epoch and the magic byte
_PACK_PLACE = Struct(">qii").pack_into
_PACK_ATTRIBUTES = Struct(">h").pack_into
_PACK_TIMESTAMP = Struct(">q").pack_into
_PACK_CRC = Struct(">I").pack_into
_CRC_POSITION, _ATTRIBUTES_POSITION, _MAX_TIMESTAMP_POSITION = 17, 21, 35


class ProducedBatch(Batch):
    """A batch as received; its base offset is what the producer wrote, usually 0.

    Attributes:
        data: all of its bytes.
    """

    __slots__ = ("data",)

    def __init__(self, data: bytes | memoryview) -> None:
        super().__init__(data, 0, 0)
        self.data = data

    @property
    def has_producer(self) -> bool:
        """True if the batch has a producer id."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record."""
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_END

    @property
    def uses_zstd(self) -> bool:
        """True if it is compressed with zstd, which Produce requests before version 7 must not use."""
        return self.attributes & CODEC_MASK == Compression.ZSTD


def read_produced(data: bytes | memoryview | None) -> ProducedBatch:
    """Parse the header of the single batch for a partition.

    Raises:
        RefusedBatchError: INVALID_RECORD if there is not exactly one batch of message format v2, CORRUPT_MESSAGE if the
            bytes can't be a batch.
    """
    if not data or len(data) <= MAGIC_POSITION:
        raise _malformed(ErrorCode.INVALID_RECORD, "there is no record batch for this partition")
    length, _, magic = _length_from(data, 8)
    size = length + LOG_OVERHEAD_BYTES
    if magic > MAGIC_V2 or size < BATCH_HEADER_BYTES:
        raise _malformed(ErrorCode.CORRUPT_MESSAGE, f"no batch has magic {magic} and {size} bytes")
    if magic < MAGIC_V2:
        raise _malformed(ErrorCode.INVALID_RECORD, f"message format v{magic} is not taken any more")
    if size != len(data):
        raise _malformed(ErrorCode.INVALID_RECORD, "there must be exactly one record batch for a partition")
    return ProducedBatch(data)


def _malformed(error_code: ErrorCode, reason: str) -> RefusedBatchError:
    return RefusedBatchError(error_code, reason, tells_start=False)


def is_compressed(data: bytes | memoryview) -> bool:
    """Return whether the attributes in the header of a batch name a compression codec."""
    return len(data) > _ATTRIBUTES_POSITION + 1 and data[_ATTRIBUTES_POSITION + 1] & CODEC_MASK != 0


def is_short(data: bytes | memoryview) -> bool:
    """Return whether a batch is uncompressed and small enough to validate each record without yielding."""
    return len(data) <= SHORT_BYTES and not is_compressed(data)


def check_produced(batch: ProducedBatch, settings: TopicLogSettings, now_ms: int) -> None:
    """Validate a batch before it is appended.

    Raises:
        RefusedBatchError: INVALID_RECORD, MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, INVALID_TIMESTAMP, or
            UNKNOWN_SERVER_ERROR for an unknown codec.
    """
    if batch.base_offset:
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, f"the base offset is {batch.base_offset}, and must be 0")
    if len(batch.data) > settings.max_message_bytes:
        reason = f"a batch of {len(batch.data)} bytes is larger than max.message.bytes ({settings.max_message_bytes})"
        raise RefusedBatchError(ErrorCode.MESSAGE_TOO_LARGE, reason, tells_start=False)
    if crc32c(memoryview(batch.data)[_ATTRIBUTES_POSITION:]) != batch.crc:
        raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, "the CRC of the batch is wrong", tells_start=False)
    if batch.attributes & CODEC_MASK > Compression.ZSTD:
        raise RefusedBatchError(ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no codec {batch.attributes & CODEC_MASK}")
    contradiction = _contradiction(batch)
    if contradiction is not None:
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, contradiction)
    if not batch.attributes & CODEC_MASK:
        _check_sizes(batch)
    if settings.is_compacted:
        check_keys(batch)
    if not settings.uses_append_time:
        _check_timestamps(batch, settings, now_ms)


def _contradiction(batch: ProducedBatch) -> str | None:
    """Return which numbers of the header contradict each other, or None."""
    if batch.last_offset_delta < 0 or batch.record_count <= 0 or batch.record_count != batch.last_offset_delta + 1:
        return f"{batch.record_count} records in {batch.last_offset_delta + 1} offsets"
    if batch.attributes & CONTROL:
        return "clients may not write control records"
    if batch.has_producer and batch.base_sequence < 0:
        return f"the sequence is {batch.base_sequence} in a batch with a producer id"
    return None


def _check_sizes(batch: ProducedBatch) -> None:
    try:
        check_sizes(batch.data, batch.record_count)
    except BadRecordError as error:
        is_long = isinstance(error, LongSizeError)
        error_code = ErrorCode.UNKNOWN_SERVER_ERROR if is_long else ErrorCode.INVALID_RECORD
        raise RefusedBatchError(error_code, str(error)) from None


def _check_timestamps(batch: ProducedBatch, settings: TopicLogSettings, now_ms: int) -> None:
    earliest_ms, latest_ms = batch.base_timestamp_ms, batch.max_timestamp_ms
    is_early = earliest_ms != NO_TIMESTAMP and now_ms - earliest_ms > settings.timestamp_before_max_ms
    if is_early or latest_ms - now_ms > settings.timestamp_after_max_ms:
        reason = f"the timestamps {earliest_ms} to {latest_ms} are not around {now_ms}, as the topic's settings want"
        raise RefusedBatchError(ErrorCode.INVALID_TIMESTAMP, reason)


def placed(batch: ProducedBatch, base_offset: int, leader_epoch: int, append_time_ms: int | None) -> Pieces:
    """Return the bytes of a batch for the log: a new header and the records as they came.

    Args:
        batch: the batch.
        base_offset: the offset of its first record.
        leader_epoch: the leader epoch of the log.
        append_time_ms: the timestamp of all records, which the CRC covers, or None to keep their own.
    """
    data, size_bytes = batch.data, len(batch.data)
    records: bytes | memoryview = b""
    if size_bytes >= COPIED_BYTES:
        view = memoryview(data)
        data, records = view[:BATCH_HEADER_BYTES], view[BATCH_HEADER_BYTES:]
    header = bytearray(data)
    _PACK_PLACE(header, 0, base_offset, size_bytes - LOG_OVERHEAD_BYTES, leader_epoch)
    is_append_time = append_time_ms is not None
    if is_append_time or batch.attributes & LOG_APPEND_TIME:
        attributes = batch.attributes | LOG_APPEND_TIME if is_append_time else batch.attributes & ~LOG_APPEND_TIME
        _PACK_ATTRIBUTES(header, _ATTRIBUTES_POSITION, attributes)
        if append_time_ms is not None:
            _PACK_TIMESTAMP(header, _MAX_TIMESTAMP_POSITION, append_time_ms)
        crc = crc32c(records, crc32c(memoryview(header)[_ATTRIBUTES_POSITION:]))
        _PACK_CRC(header, _CRC_POSITION, crc)
    return (header, records) if records else (header,)
