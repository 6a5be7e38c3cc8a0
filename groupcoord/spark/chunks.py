"""From sound batches to rows: the records of a chunk's batches in lock-step, and of the odd ones one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from attrs import frozen

from groupcoord.records.batches import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    DECOMPRESSED_BYTES_MAX,
    LOG_APPEND_TIME,
    MAGIC_V2,
    Batch,
    BatchRecord,
    CorruptBatchError,
)
from groupcoord.records.compression import DecompressionError, decompress
from groupcoord.records.salvage import SoundBatch
from groupcoord.spark.columns import Placed, record_columns
from groupcoord.spark.fields import Slices
from groupcoord.spark.framing import COMPANY_MIN, PADDING_BYTES, Bools, Bytes, Frames, Int64s, frame_records
from groupcoord.spark.schemas import RECORDS

RECORD_BYTES_MIN = 7
"""A record of format v2 with neither key nor value: seven fields of a byte."""

PAYLOAD_BYTES_MAX = 67_108_864
"""How much decompressed data to hold at a time, besides one batch."""

ROWS_MAX = 65_536
"""How many rows an Arrow batch has at most."""


@frozen
class RowSettings:
    """What rows are to hold.

    Attributes:
        columns: of :data:`groupcoord.spark.schemas.RECORDS`, in the order wanted.
        raw_bytes: keep key and value of decoded offsets too.
        company_min: see :func:`groupcoord.spark.framing.frame_records`.
    """

    columns: tuple[str, ...] = tuple(RECORDS.fieldNames())
    raw_bytes: bool = False
    company_min: int = COMPANY_MIN


@frozen
class Origin:
    """Where batches come from: the file, and the log partition that it belongs to, if it is known."""

    file: str
    log_partition: int | None


def batch_rows(
    batches: Sequence[Batch], chunk: bytes, base_position: int, origin: Origin, settings: RowSettings
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches, in order of the log.

    Args:
        batches: whose CRC is right.
        chunk: the bytes that they lie in.
        base_position: of the chunk in its file.
        origin: of the file.
        settings: what to make.

    Raises:
        CorruptBatchError: the records of a batch don't fit it; the rows of those before were yielded.
    """
    for group, payloads in _groups(batches, chunk, base_position):
        error = None
        frames, counts, is_framed, buffer = _frame(payloads, group, settings)
        odd: dict[int, list[BatchRecord]] = {}
        for number in np.flatnonzero(~is_framed).tolist():
            try:
                odd[number] = list(group[number].records())
            except CorruptBatchError as caught:
                error = caught
                is_framed[number:] = False
                break
        kept = np.repeat(is_framed, counts)
        if not kept.all():
            frames = Frames(*(array[kept] for array in frames))
        index = np.repeat(np.arange(len(group)), np.where(is_framed, counts, 0))
        yield from _rows(frames, buffer, index, odd, group, origin, settings)
        if error is not None:
            raise error


def sound_rows(sound: Sequence[SoundBatch], origin: Origin, settings: RowSettings) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches whose records are at hand already, in their order."""
    if any(found.records for found in sound):
        index = np.repeat(np.arange(len(sound)), [len(found.records) for found in sound])
        records = list(chain.from_iterable(found.records for found in sound))
        yield from _pieces(_row_batch(_place_odd(records, index, [found.batch for found in sound], origin), settings))


class _Payload(NamedTuple):
    """A batch's records as they lie in some buffer; without a ``record_count`` only the scalar reader can take them."""

    data: bytes
    start: int
    end: int
    record_count: int | None


def _groups(batches: Sequence[Batch], chunk: bytes, base_position: int) -> Iterator[tuple[list[Batch], list[_Payload]]]:
    """Yield batches with their payloads, so many at a time that what they decompress to stays within bounds."""
    group: list[Batch] = []
    payloads: list[_Payload] = []
    decompressed_bytes = 0
    for batch in batches:
        start = batch.position - base_position + BATCH_HEADER_BYTES
        end = batch.position - base_position + batch.size_bytes
        data = chunk
        count: int | None = batch.record_count if batch.magic == MAGIC_V2 else None
        if count is not None and batch.attributes & CODEC_MASK:
            try:
                data = decompress(batch.compression, chunk[start:end], DECOMPRESSED_BYTES_MAX)
            except (DecompressionError, CorruptBatchError):
                count = None
            else:
                start, end = 0, len(data)
                decompressed_bytes += end
        if count is not None and count * RECORD_BYTES_MIN > end - start:
            count = None
        if count is None:
            data, start, end = chunk, 0, 0
        group.append(batch)
        payloads.append(_Payload(data, start, end, count))
        if decompressed_bytes > PAYLOAD_BYTES_MAX:
            yield group, payloads
            group, payloads, decompressed_bytes = [], [], 0
    if group:
        yield group, payloads


def _frame(payloads: list[_Payload], group: list[Batch], settings: RowSettings) -> tuple[Frames, Int64s, Bools, Bytes]:
    """Return the records found in lock-step, how many each batch has, which batches took part, and the buffer."""
    takes_part = np.array([payload.record_count is not None for payload in payloads])
    counts = np.array([payload.record_count or 0 for payload in payloads], np.int64)
    first = payloads[0].data
    if all(payload.data is first for payload in payloads):
        data = first
        starts = np.array([payload.start for payload in payloads], np.int64)
    else:
        data = b"".join([payload.data[payload.start : payload.end] for payload in payloads])
        sizes = np.array([payload.end - payload.start for payload in payloads], np.int64)
        starts = np.cumsum(sizes) - sizes
    ends = starts + np.array([payload.end - payload.start for payload in payloads], np.int64)
    buffer = np.frombuffer(data + bytes(PADDING_BYTES), np.uint8)
    frames, understood = frame_records(buffer, starts, ends, counts, company_min=settings.company_min)
    return frames, counts, takes_part & understood, buffer


def _rows(
    frames: Frames,
    buffer: Bytes,
    index: Int64s,
    odd: dict[int, list[BatchRecord]],
    group: list[Batch],
    origin: Origin,
    settings: RowSettings,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of records found in lock-step (``index``: of the batch in the group) and of the odd batches."""
    made: list[pa.RecordBatch] = []
    order = index
    if len(index):
        made.append(_row_batch(_place(frames, buffer, index, group, origin), settings))
    if any(odd.values()):
        odd_index = np.repeat(np.array(list(odd)), [len(records) for records in odd.values()])
        made.append(_row_batch(_place_odd(list(chain.from_iterable(odd.values())), odd_index, group, origin), settings))
        order = np.concatenate((index, odd_index))
    if len(made) > 1:
        in_order = pa.Table.from_batches(made).take(pa.array(np.argsort(order, kind="stable")))
        made = in_order.combine_chunks().to_batches()
    for rows in made:
        yield from _pieces(rows)


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows.num_rows, ROWS_MAX):
        yield rows.slice(start, ROWS_MAX)


def _row_batch(placed: Placed, settings: RowSettings) -> pa.RecordBatch:
    return record_columns(placed, settings.columns, raw_bytes=settings.raw_bytes)


def _place(frames: Frames, buffer: Bytes, index: Int64s, group: list[Batch], origin: Origin) -> Placed:
    base_offset = np.array([batch.base_offset for batch in group], np.int64)
    base_timestamp_ms = np.array([batch.base_timestamp_ms for batch in group], np.int64)
    append_time = np.array([bool(batch.attributes & LOG_APPEND_TIME) for batch in group])
    timestamp_ms = base_timestamp_ms[index] + frames.timestamp_delta
    if append_time.any():
        max_timestamp_ms = np.array([batch.max_timestamp_ms for batch in group], np.int64)
        timestamp_ms = np.where(append_time[index], max_timestamp_ms[index], timestamp_ms)
    return _of_batches(
        Slices(buffer, frames.key_start, frames.key_size),
        Slices(buffer, frames.value_start, frames.value_size),
        base_offset[index] + frames.offset_delta,
        timestamp_ms,
        index,
        group,
        origin,
    )


def _place_odd(records: list[BatchRecord], index: Int64s, group: list[Batch], origin: Origin) -> Placed:
    pieces = [piece for _, _, key, value in records for piece in (key, value)]
    sizes = np.array([-1 if piece is None else len(piece) for piece in pieces], np.int64)
    there = np.maximum(sizes, 0)
    starts = np.cumsum(there) - there
    data = b"".join([piece for piece in pieces if piece is not None])
    buffer = np.frombuffer(data + bytes(PADDING_BYTES), np.uint8)
    return _of_batches(
        Slices(buffer, starts[0::2], sizes[0::2]),
        Slices(buffer, starts[1::2], sizes[1::2]),
        _int64s([record[0] for record in records]),
        _int64s([record[1] for record in records]),
        index,
        group,
        origin,
    )


def _of_batches(
    keys: Slices,
    values: Slices,
    log_offset: Int64s,
    log_timestamp_ms: Int64s,
    index: Int64s,
    group: list[Batch],
    origin: Origin,
) -> Placed:
    """Put what the batches tell beside their records."""
    return Placed(
        keys,
        values,
        log_offset,
        log_timestamp_ms,
        origin.log_partition,
        origin.file,
        np.array([batch.position for batch in group], np.int64)[index],
        np.array([batch.producer_id for batch in group], np.int64)[index],
        np.array([batch.producer_epoch for batch in group], np.int64)[index],
        np.array([batch.is_transactional for batch in group])[index],
        np.array([batch.is_control for batch in group])[index],
    )


def _int64s(values: list[int]) -> Int64s:
    """Return numbers in 64 bits; larger ones, from deltas that no broker writes, wrap around as in Java."""
    return np.array([(value + 2**63) % 2**64 - 2**63 for value in values], np.int64)
