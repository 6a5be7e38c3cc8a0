"""Batches as compaction leaves them: fewer records than offset slots, a delete horizon where something may go later.

What stays of a record stays as it is, its headers too; a batch that was compressed is compressed again with its codec.
Sources: ``MemoryRecords.filterTo`` of Apache Kafka 4.4, and KIP-534 for the delete horizon.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from groupcoord.records.batches import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    MAGIC_V2,
    TRANSACTIONAL,
    BadRecordError,
    Batch,
    CorruptBatchError,
    pack_covered,
    read_varint,
    seal,
    sized,
    varint,
)
from groupcoord.records.compression import compress

_NO_HEADERS = b"\x00"
NO_TIMESTAMP = -1


class RawRecord(NamedTuple):
    """A record of a batch whose value and headers were not looked at.

    Attributes:
        offset_delta: its offset, from the batch's base offset on.
        timestamp_delta_ms: its time, from the batch's base timestamp on.
        key: None if it has none.
        has_value: False: it is a tombstone, if it has a key.
        body: what stands behind the offset: key, value and headers.
    """

    offset_delta: int
    timestamp_delta_ms: int
    key: bytes | None
    has_value: bool
    body: bytes


def raw_records(batch: Batch, payload: bytes) -> Iterator[RawRecord]:
    """Yield the records of a batch.

    Args:
        batch: the batch.
        payload: the bytes of its records, decompressed; one of message format v0 or v1 needs none.

    Raises:
        CorruptBatchError: they don't fit the header or their own lengths.
    """
    if batch.magic != MAGIC_V2:
        for offset, timestamp_ms, key, value in batch.records():
            body = sized(key) + sized(value) + _NO_HEADERS
            delta_ms = timestamp_ms - batch.base_timestamp_ms
            yield RawRecord(offset - batch.base_offset, delta_ms, key, value is not None, body)
        return
    try:
        yield from _read(payload, batch.record_count)
    except BadRecordError as error:
        raise CorruptBatchError(batch.position, str(error)) from None
    except IndexError:
        raise CorruptBatchError(batch.position, "its records end early") from None


def _read(payload: bytes, count: int) -> Iterator[RawRecord]:
    position, last_delta = 0, -1
    for _ in range(count):
        size, start = read_varint(payload, position)
        end = start + size
        delta_ms, behind = read_varint(payload, start + 1)  # behind the record's attributes, of which none is defined
        offset_delta, body_start = read_varint(payload, behind)
        key_size, key_start = read_varint(payload, body_start)
        key_end = key_start + max(key_size, 0)
        value_size, value_start = read_varint(payload, key_end)
        if not value_start + max(value_size, 0) < end <= len(payload):
            raise BadRecordError(f"a record of {size} bytes has not the length of its fields")
        if offset_delta <= last_delta:
            raise BadRecordError("the offsets of its records go back")
        key = None if key_size < 0 else payload[key_start:key_end]
        yield RawRecord(offset_delta, delta_ms, key, value_size >= 0, payload[body_start:end])
        position, last_delta = end, offset_delta
    if position != len(payload):
        raise BadRecordError(f"{len(payload) - position} bytes are left behind its {count} records")


def delete_horizon_ms(batch: Batch) -> int | None:
    """Return from when on a batch's tombstones and markers may go; None if compaction has not set that yet."""
    return batch.base_timestamp_ms if _attributes(batch) & DELETE_HORIZON else None


def rewritten(batch: Batch, kept: Sequence[RawRecord], new_horizon_ms: int | None = None) -> bytes:
    """Return ``batch`` with some of its records alone, at their offsets, in the same offset slots.

    Args:
        batch: whose offsets, leader epoch, producer, kind and codec are kept. One of message format v0 or v1 becomes
            one of v2, not compressed.
        kept: those of its records that stay, in order; at least one.
        new_horizon_ms: the delete horizon to set; by default the batch keeps the one that it has, if any.
    """
    attributes = _attributes(batch)
    times_ms = [batch.base_timestamp_ms + record.timestamp_delta_ms for record in kept]
    max_timestamp_ms = max(times_ms)
    if attributes & LOG_APPEND_TIME:
        max_timestamp_ms = batch.max_timestamp_ms
        times_ms = [max_timestamp_ms] * len(kept)
    horizon_ms = delete_horizon_ms(batch) if new_horizon_ms is None else new_horizon_ms
    base_timestamp_ms = times_ms[0]
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON
        base_timestamp_ms = horizon_ms
    parts: list[bytes] = []
    for time_ms, record in zip(times_ms, kept, strict=True):
        start = b"\x00" + varint(time_ms - base_timestamp_ms) + varint(record.offset_delta)
        parts += (varint(len(start) + len(record.body)), start, record.body)
    payload = b"".join(parts)
    if attributes & CODEC_MASK:
        payload = compress(batch.compression, payload)
    return _sealed(batch, attributes, base_timestamp_ms, max_timestamp_ms, len(kept), payload)


def emptied(batch: Batch) -> bytes:
    """Return ``batch`` without records: who wrote it, and how far the log reaches, can still be told from it."""
    attributes = _attributes(batch) & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return _sealed(batch, attributes, NO_TIMESTAMP, batch.max_timestamp_ms, 0, b"")


def _attributes(batch: Batch) -> int:
    """Return the attributes that a batch has as one of message format v2."""
    return batch.attributes if batch.magic == MAGIC_V2 else batch.attributes & LOG_APPEND_TIME


def _sealed(
    batch: Batch, attributes: int, base_timestamp_ms: int, max_timestamp_ms: int, count: int, payload: bytes
) -> bytes:
    producer = batch.producer_id, batch.producer_epoch, batch.base_sequence
    times_ms = base_timestamp_ms, max_timestamp_ms
    header = pack_covered(attributes, batch.last_offset_delta, *times_ms, *producer, count)
    return seal(batch.base_offset, batch.leader_epoch, header + payload)
