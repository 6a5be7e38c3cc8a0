"""Bytes of logs as brokers of any age wrote them: batches of message format v2 with all its features, and v0 and v1.

For tests of decoders: what groupcoord itself writes is :func:`groupcoord.records.batches.encode_batch`.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from struct import pack

from crc32c import crc32c

from groupcoord.records.batches import BatchRecord, sized, varint
from groupcoord.records.compression import Compression, compress, lz4_frame

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
MAGIC_V0, MAGIC_V1 = 0, 1


def encode_any_batch(
    records: Sequence[BatchRecord],
    *,
    base_offset: int,
    last_offset: int,
    codec: Compression = Compression.NONE,
    append_time_ms: int | None = None,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> bytes:
    """Return one batch of format v2.

    Args:
        records: ``(offset, timestamp_ms, key, value)``, in order of their offsets; compaction leaves gaps, and none.
        base_offset: of the first slot, whether or not there is a record in it.
        last_offset: of the last slot.
        codec: of the records.
        append_time_ms: what all records' timestamps are said to be, if those of the append count.
        leader_epoch: of the log partition's leader.
        producer_id: of the producer, or -1.
        producer_epoch: goes with it.
        base_sequence: goes with it.
        is_transactional: the records belong to a transaction.
        is_control: they are markers.
        headers: of each record.
    """
    base_timestamp_ms = records[0][1] if records else 0
    max_timestamp_ms = max((record[1] for record in records), default=0)
    if append_time_ms is not None:
        max_timestamp_ms = append_time_ms
    header_bytes = varint(len(headers)) + b"".join(sized(part) for header in headers for part in header)
    parts: list[bytes] = []
    for offset, timestamp_ms, key, value in records:
        body = b"\x00" + varint(timestamp_ms - base_timestamp_ms) + varint(offset - base_offset)
        body += sized(key) + sized(value) + header_bytes
        parts += (varint(len(body)), body)
    attributes = codec | (0 if append_time_ms is None else LOG_APPEND_TIME)
    attributes |= (TRANSACTIONAL if is_transactional else 0) | (CONTROL if is_control else 0)
    covered = pack(
        ">hiqqqhii",
        attributes,
        last_offset - base_offset,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    ) + compress(codec, b"".join(parts))
    return pack(">qiibI", base_offset, len(covered) + 9, leader_epoch, 2, crc32c(covered)) + covered


def encode_messages(
    magic: int,
    records: Sequence[BatchRecord],
    *,
    codec: Compression = Compression.NONE,
    append_time_ms: int | None = None,
) -> bytes:
    """Return messages of format v0 or v1, back to back, or compressed inside one.

    Args:
        magic: 0 or 1.
        records: ``(offset, timestamp_ms, key, value)``, at least one; format v0 has no timestamps.
        codec: any but zstd.
        append_time_ms: as for :func:`encode_any_batch`; format v1 alone.
    """
    time_bit = 0 if append_time_ms is None else LOG_APPEND_TIME
    if codec is Compression.NONE:
        return b"".join(
            _message(magic, time_bit, offset, timestamp_ms if append_time_ms is None else append_time_ms, key, value)
            for offset, timestamp_ms, key, value in records
        )
    first_offset = records[0][0] if magic == MAGIC_V1 else 0
    inner = b"".join(
        _message(magic, time_bit, offset - first_offset, timestamp_ms, key, value)
        for offset, timestamp_ms, key, value in records
    )
    compressed = compress(codec, inner)
    if magic == MAGIC_V0 and codec is Compression.LZ4:
        compressed = lz4_frame(inner, checksum_from=0)
    timestamp_ms = max(record[1] for record in records) if append_time_ms is None else append_time_ms
    return _message(magic, codec | time_bit, records[-1][0], timestamp_ms, None, compressed)


def _message(
    magic: int, attributes: int, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None
) -> bytes:
    covered = pack(">bb", magic, attributes) + (pack(">q", timestamp_ms) if magic == MAGIC_V1 else b"")
    covered += _int32_sized(key) + _int32_sized(value)
    return pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered


def _int32_sized(data: bytes | None) -> bytes:
    return pack(">i", -1) if data is None else pack(">i", len(data)) + data
