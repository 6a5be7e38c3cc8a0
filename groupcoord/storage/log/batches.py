"""Batches of producers: validation, record heads, search by timestamp, and rewriting for their place in the log.

The checks and their order are those of ``ProduceRequest.validateRecords``, ``UnifiedLog.analyzeAndValidateRecords`` and
``LogValidator`` of Apache Kafka 4.4. Records are validated by their sizes if they are uncompressed, and completely for
compacted topics.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

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
    RECORD_SIZE_MIN,
    Batch,
    CorruptBatchError,
    check_record_count,
    read_sized,
    record_heads,
    skip_headers,
)
from groupcoord.records.compression import Compression, DecompressionError
from groupcoord.schema.primitives import MalformedError, read_varint
from groupcoord.storage.errors import RefusedBatchError
from groupcoord.storage.log.memory_segment import Pieces
from groupcoord.storage.log.settings import TopicLogSettings

DECOMPRESSED_BYTES_MAX = 33_554_432
"""Batches that decompress to more are not read."""
BATCH_RECORDS_MAX = 500_000
"""Batches with more records are not compacted, nor read for dead letters."""

UNREADABLE = (CorruptBatchError, DecompressionError, MalformedError, IndexError)
"""Errors raised for a batch with content that is not records."""

_INT32_BYTES_MAX = 5
_NOWHERE = -(2**40)
"""Leads to a position outside any data."""
_ONE_BYTE_STEPS = tuple(
    1 + (byte >> 1) if byte < 0x80 and not byte & 1 and byte >> 1 >= RECORD_SIZE_MIN else 0 for byte in range(256)
)
"""Length of a record by its first byte; 0 if its size has more bytes or is invalid."""
_FIRST_STEPS = tuple(2 + (byte & 0x7F) // 2 if byte >= 0x80 and not byte & 1 else _NOWHERE for byte in range(256))
_SECOND_STEPS = tuple(byte << 6 if byte < 0x80 else _NOWHERE for byte in range(256))
"""Length of a record by the two bytes of its size; far below 0 if the size has more bytes or is invalid."""


class LongSizeError(MalformedError):
    """The size of a record has more bytes than Kafka reads."""


def read_payload(batch: Batch) -> bytes:
    """Return the decompressed records of a batch, up to ``DECOMPRESSED_BYTES_MAX``."""
    return b"".join(batch.payload_parts(DECOMPRESSED_BYTES_MAX))


def check_sizes(data: bytes | memoryview, record_count: int) -> None:
    """Raise MalformedError unless the sizes of a batch's records match their number and the end of the batch."""
    size_bytes = len(data)
    check_record_count(record_count, size_bytes - BATCH_HEADER_BYTES)
    try:
        if _usual_end(data, BATCH_HEADER_BYTES, record_count) == size_bytes:
            return
    except IndexError:
        pass
    try:
        end = _any_end(data, BATCH_HEADER_BYTES, record_count)
    except IndexError:
        raise MalformedError(f"there are no {record_count} records in {size_bytes} bytes") from None
    if end != size_bytes:
        raise MalformedError(f"{record_count} records end at {end}, and the batch at {size_bytes}")


def _usual_end(data: bytes | memoryview, position: int, record_count: int) -> int:
    """Return the end of records with sizes of one or two bytes; IndexError for longer sizes and beyond the data."""
    steps, first_steps, second_steps = _ONE_BYTE_STEPS, _FIRST_STEPS, _SECOND_STEPS
    for _ in range(record_count):
        # Tables instead of a varint decoder: this is the hottest loop of a Produce.
        first = data[position]
        position += steps[first] or first_steps[first] + second_steps[data[position + 1]]
    return position


def _any_end(data: bytes | memoryview, position: int, record_count: int) -> int:
    """Return the end of records; IndexError beyond the data, MalformedError for an invalid size."""
    for _ in range(record_count):
        behind = position + 1
        # Kafka fails with another error code for more than five bytes.
        while data[behind - 1] > 0x7F:
            behind += 1
            if behind - position > _INT32_BYTES_MAX:
                raise LongSizeError(f"the size of a record has more than {_INT32_BYTES_MAX} bytes")
        size, _ = read_varint(data, position)
        if size < RECORD_SIZE_MIN:
            raise MalformedError(f"a record of {size} bytes")
        position = behind + size
    return position


def check_keys(batch: Batch) -> None:
    """Check that the records of a batch are well-formed and that each has a key, which may be empty.

    Raises:
        RefusedBatchError: INVALID_RECORD with the indexes of the records without a key, and without indexes if the
            batch does not hold records. UNKNOWN_SERVER_ERROR if they can't be decompressed, or if they are compressed
            and do not have the offsets 0, 1, 2, ….
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
            raise MalformedError(f"{len(payload) - end} bytes are left behind its {batch.record_count} records")
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
    """Return whether a record has a key; MalformedError or IndexError if it does not end at ``end``."""
    key, position = read_sized(payload, position)
    _, position = read_sized(payload, position)
    if (skip_headers(payload, position) if payload[position] else position + 1) != end:
        raise MalformedError("a record's length is not that of its fields")
    return key is not None


class FoundRecord(NamedTuple):
    """Result of a search by timestamp."""

    timestamp_ms: int
    offset: int


def first_since(data: bytes, timestamp_ms: int, offset: int) -> FoundRecord | None:
    """Return the first record of a batch with at least this timestamp and this offset, or None.

    The largest timestamp of the batch must reach the given one. The offset is the start of the log, which may lie
    inside of the batch. A batch that does not hold records raises RefusedBatchError with UNKNOWN_SERVER_ERROR.
    """
    batch = Batch(data, 0, 0)
    append_time_ms = batch.max_timestamp_ms if batch.attributes & LOG_APPEND_TIME else None
    # All records have the append time, so without gaps the offset is known.
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


SHORT_BYTES = 2_048
SEQUENCE_END = 2**31
"""Sequence numbers wrap to 0 here."""

COPIED_BYTES = 8_192
"""Smaller batches are copied, which is as fast as writing two pieces."""

_length_from = Struct(">iiB").unpack_from  # followed by the leader epoch and the magic byte
_PACK_PLACE = Struct(">qii").pack_into
_PACK_ATTRIBUTES = Struct(">h").pack_into
_PACK_TIMESTAMP = Struct(">q").pack_into
_PACK_CRC = Struct(">I").pack_into
_CRC_POSITION, _ATTRIBUTES_POSITION, _MAX_TIMESTAMP_POSITION = 17, 21, 35


class ProducedBatch(Batch):
    """A batch as received, usually with base offset 0."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | memoryview) -> None:
        super().__init__(data, 0, 0)
        self.data = data

    @property
    def has_producer(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
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
    """Return whether a batch is uncompressed and small enough to validate without yielding."""
    return len(data) <= SHORT_BYTES and not is_compressed(data)


def check_produced(batch: ProducedBatch, settings: TopicLogSettings, now_ms: int) -> None:
    """Validate a batch before it is appended.

    Raises:
        RefusedBatchError: INVALID_RECORD, MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, INVALID_TIMESTAMP, or
            UNKNOWN_SERVER_ERROR for an unknown codec.
    """
    if batch.base_offset:
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, f"the base offset is {batch.base_offset}, and must be 0")
    # In Kafka's order: the first error decides the response.
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
    except MalformedError as error:
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

    With ``append_time_ms`` all records get this timestamp, which the CRC covers; None keeps their own.
    """
    data, size_bytes = batch.data, len(batch.data)
    records: bytes | memoryview = b""
    if size_bytes >= COPIED_BYTES:
        view = memoryview(data)
        # The CRC does not cover base offset and leader epoch, so the records need no copy.
        data, records = view[:BATCH_HEADER_BYTES], view[BATCH_HEADER_BYTES:]
    header = bytearray(data)
    _PACK_PLACE(header, 0, base_offset, size_bytes - LOG_OVERHEAD_BYTES, leader_epoch)
    is_append_time = append_time_ms is not None
    # Cleared without append time, so that consumers don't misread the timestamps.
    if is_append_time or batch.attributes & LOG_APPEND_TIME:
        attributes = batch.attributes | LOG_APPEND_TIME if is_append_time else batch.attributes & ~LOG_APPEND_TIME
        _PACK_ATTRIBUTES(header, _ATTRIBUTES_POSITION, attributes)
        if append_time_ms is not None:
            _PACK_TIMESTAMP(header, _MAX_TIMESTAMP_POSITION, append_time_ms)
        crc = crc32c(records, crc32c(memoryview(header)[_ATTRIBUTES_POSITION:]))
        _PACK_CRC(header, _CRC_POSITION, crc)
    return (header, records) if records else (header,)
