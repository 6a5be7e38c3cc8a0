"""Batches as compaction leaves them: fewer records than offset slots, a delete horizon where something may go later.

Sources: Kafka's ``MemoryRecords.filterTo`` and KIP-534 for the delete horizon.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from crc32c import crc32c

from groupcoord.records.batches import (
    CODEC_MASK,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    Batch,
    BatchRecord,
    varint,
)

_CRC_END = 21
_pack_uncovered = Struct(">qiibI").pack
_pack_covered = Struct(">hiqqqhii").pack
_NULL = varint(-1)


def delete_horizon_ms(batch: Batch) -> int | None:
    """Return from when on a batch's tombstones and markers may go; None if compaction has not set that yet."""
    return batch.base_timestamp_ms if batch.attributes & DELETE_HORIZON else None


def rewrite_batch(batch: Batch, records: Sequence[BatchRecord], new_horizon_ms: int | None = None) -> bytes:
    """Return ``batch`` with ``records`` alone, at their offsets, in the same offset slots, not compressed.

    Args:
        batch: whose offsets, leader epoch, producer and kind are kept.
        records: those of its records that stay, in order.
        new_horizon_ms: the delete horizon to set; by default the batch keeps the one that it has, if any.
    """
    attributes = batch.attributes & ~CODEC_MASK
    base_timestamp_ms = batch.base_timestamp_ms
    if new_horizon_ms is not None:
        attributes |= DELETE_HORIZON
        base_timestamp_ms = new_horizon_ms
    max_timestamp_ms = batch.max_timestamp_ms
    if records and not attributes & LOG_APPEND_TIME:
        max_timestamp_ms = max(timestamp_ms for _, timestamp_ms, _, _ in records)
    parts = [b""]
    for offset, timestamp_ms, key, value in records:
        body = b"\x00%b%b%b%b\x00" % (
            varint(timestamp_ms - base_timestamp_ms),
            varint(offset - batch.base_offset),
            _sized(key),
            _sized(value),
        )
        parts += (varint(len(body)), body)
    parts[0] = _pack_covered(
        attributes,
        batch.last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        len(records),
    )
    return _whole(batch.base_offset, batch.leader_epoch, b"".join(parts))


def placeholder(batch: Batch) -> bytes:
    """Return an empty batch in the offset slots of ``batch``, so that a file ends where its records ended."""
    covered = _pack_covered(0, batch.last_offset_delta, -1, batch.max_timestamp_ms, -1, -1, -1, 0)
    return _whole(batch.base_offset, batch.leader_epoch, covered)


def _whole(base_offset: int, leader_epoch: int, covered: bytes) -> bytes:
    length = len(covered) + _CRC_END - LOG_OVERHEAD_BYTES
    return _pack_uncovered(base_offset, length, leader_epoch, MAGIC_V2, crc32c(covered)) + covered


def _sized(raw: bytes | None) -> bytes:
    return _NULL if raw is None else varint(len(raw)) + raw
