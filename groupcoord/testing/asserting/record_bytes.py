"""Records with headers, to bytes and back: what a producer puts into a batch, and a consumer finds there.

The coordinator's own records have no headers (:mod:`groupcoord.records.batches`); those of applications may.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from groupcoord.records.batches import LOG_APPEND_TIME, Batch, frame_records, read_varint, sized, varint
from groupcoord.storage.batch_records import DECOMPRESSED_BYTES_MAX, record_heads

Header = tuple[str, bytes | None]


class RecordFields(NamedTuple):
    """What an application gives a record, and the time that it has."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def encode_records(records: Sequence[RecordFields]) -> bytes:
    """Return a batch, uncompressed, as a producer sends it that isn't idempotent.

    Args:
        records: at least one.
    """
    base_ms = records[0].timestamp_ms
    parts = []
    for number, (timestamp_ms, key, value, headers) in enumerate(records):
        body = b"".join(
            (
                b"\x00",
                varint(timestamp_ms - base_ms),
                varint(number),
                sized(key),
                sized(value),
                varint(len(headers)),
                *(sized(name.encode()) + sized(content) for name, content in headers),
            )
        )
        parts.append(varint(len(body)) + body)
    return frame_records(
        0,
        parts,
        len(records),
        base_ms,
        leader_epoch=-1,
        producer_id=-1,
        producer_epoch=-1,
        max_timestamp_ms=max(record.timestamp_ms for record in records),
        base_sequence=-1,
    )


def decode_records(batch: Batch) -> Iterator[tuple[int, RecordFields]]:
    """Yield the offset of each record of a batch, and its fields.

    Raises:
        BadRecordError, CorruptBatchError, DecompressionError, IndexError: a producer has put something else there.
    """
    payload = batch.payload(DECOMPRESSED_BYTES_MAX)
    append_time_ms = batch.max_timestamp_ms if batch.attributes & LOG_APPEND_TIME else None
    for head in record_heads(payload, batch.record_count):
        key, position = _read_sized(payload, head.key_position)
        value, position = _read_sized(payload, position)
        count, position = read_varint(payload, position)
        headers: list[Header] = []
        for _ in range(count):
            name, position = _read_sized(payload, position)
            content, position = _read_sized(payload, position)
            headers.append(((name or b"").decode("utf-8", "replace"), content))
        own_ms = batch.base_timestamp_ms + head.timestamp_delta_ms
        timestamp_ms = own_ms if append_time_ms is None else append_time_ms
        yield batch.base_offset + head.offset_delta, RecordFields(timestamp_ms, key, value, tuple(headers))


def _read_sized(payload: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(payload, position)
    return (None, position) if size < 0 else (payload[position : position + size], position + size)
