"""From sound batches to rows: the records of a chunk's batches in lock-step, and of the odd ones one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from attrs import frozen

from groupcoord.analysis.decode.batches import (
    COMPANY_MIN,
    PADDING_BYTES,
    Batches,
    Bools,
    Bytes,
    Frames,
    Int64s,
    frame_records,
    given_batches,
)
from groupcoord.analysis.decode.fields import Slices
from groupcoord.analysis.decode.records import OfBatches, Placed, record_columns
from groupcoord.analysis.decode.schema import RECORDS
from groupcoord.records.batches import (
    BATCH_HEADER_BYTES,
    DECOMPRESSED_BYTES_MAX,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    Batch,
    BatchRecord,
    CorruptBatchError,
)
from groupcoord.records.compression import DecompressionError, decompress
from groupcoord.records.salvage import SoundBatch

PAYLOAD_BYTES_MAX = 67_108_864
"""How much decompressed data to hold at a time, besides one batch."""

ROWS_MAX = 8_192
"""How many rows an Arrow batch has at most: few enough for the JVM to find them in a processor's cache, row by row."""


@frozen
class RowSettings:
    """What rows are to hold.

    Attributes:
        columns: of :data:`groupcoord.analysis.decode.schema.RECORDS`, in the order wanted.
        raw_bytes: keep key and value of decoded offsets too.
        company_min: see :func:`groupcoord.analysis.decode.batches.frame_records`.
    """

    columns: tuple[str, ...] = tuple(RECORDS.names)
    raw_bytes: bool = False
    company_min: int = COMPANY_MIN


@frozen
class Origin:
    """Where batches come from: the file, and the log partition that it belongs to, if it is known."""

    file: str
    log_partition: int | None


def batch_rows(batches: Batches, origin: Origin, settings: RowSettings) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches, in order of the log.

    Args:
        batches: whose CRC is right.
        origin: of the file.
        settings: what to make.

    Raises:
        CorruptBatchError: the records of a batch don't fit it; the rows of those before were yielded.
    """
    for portion, decompressed in _portions(batches):
        yield from _portion_rows(portion, decompressed, origin, settings)


def sound_rows(sound: Sequence[SoundBatch], origin: Origin, settings: RowSettings) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches whose records are at hand already, in their order."""
    if any(found.records for found in sound):
        index = np.repeat(np.arange(len(sound)), [len(found.records) for found in sound])
        records = list(chain.from_iterable(found.records for found in sound))
        of_batches = OfBatches(given_batches([found.batch for found in sound]), index)
        yield from _pieces(_row_batch(_place_odd(records, of_batches, origin), settings))


def _portions(batches: Batches) -> Iterator[tuple[Batches, dict[int, bytes | None]]]:
    """Yield batches, so many at a time that what they decompress to stays within bounds.

    With them come the payloads of the compressed ones by number; None: it can't be decompressed.
    """
    first, held_bytes = 0, 0
    decompressed: dict[int, bytes | None] = {}
    for number in np.flatnonzero(batches.is_compressed & (batches.magic == MAGIC_V2)).tolist():
        payload = _decompress(batches.at(number))
        decompressed[number - first] = payload
        held_bytes += len(payload or b"")
        if held_bytes > PAYLOAD_BYTES_MAX:
            yield batches.part(first, number + 1), decompressed
            first, held_bytes, decompressed = number + 1, 0, {}
    if first < len(batches):
        yield batches.part(first, len(batches)), decompressed


def _decompress(batch: Batch) -> bytes | None:
    try:
        return decompress(batch.compression, batch.to_bytes()[BATCH_HEADER_BYTES:], DECOMPRESSED_BYTES_MAX)
    except (DecompressionError, CorruptBatchError):
        return None


def _portion_rows(
    batches: Batches, decompressed: Mapping[int, bytes | None], origin: Origin, settings: RowSettings
) -> Iterator[pa.RecordBatch]:
    payloads = _place_payloads(batches, decompressed)
    frames, is_framed = frame_records(*payloads[:4], company_min=settings.company_min)
    is_framed &= payloads.takes_part
    error = None
    odd: dict[int, list[BatchRecord]] = {}
    for number in np.flatnonzero(~is_framed).tolist():
        try:
            odd[number] = list(batches.at(number).records())
        except CorruptBatchError as caught:
            error = caught
            kept = int(payloads.counts[:number][is_framed[:number]].sum())
            frames = Frames(*(array[:kept] for array in frames))
            is_framed[number:] = False
            break
    index = np.repeat(np.arange(len(batches)), np.where(is_framed, payloads.counts, 0))
    yield from _rows(frames, payloads.buffer, OfBatches(batches, index), odd, origin, settings)
    if error is not None:
        raise error


class _Payloads(NamedTuple):
    """Where the records of batches lie in a buffer; nothing of those that only the scalar reader can take."""

    buffer: Bytes
    starts: Int64s
    ends: Int64s
    counts: Int64s
    takes_part: Bools


def _place_payloads(batches: Batches, decompressed: Mapping[int, bytes | None]) -> _Payloads:
    starts = batches.start + BATCH_HEADER_BYTES
    ends = batches.start + batches.size_bytes
    takes_part = batches.magic == MAGIC_V2
    parts = [batches.chunk]
    place = len(batches.chunk)
    for number, payload in decompressed.items():
        if payload is None:
            takes_part[number] = False
            continue
        parts.append(payload)
        starts[number], ends[number] = place, place + len(payload)
        place += len(payload)
    # Memory for so many records is taken, so a lie must not be absurd.
    takes_part &= batches.record_count * RECORD_BYTES_MIN <= ends - starts
    buffer = np.frombuffer(b"".join([*parts, bytes(PADDING_BYTES)]), np.uint8)
    return _Payloads(
        buffer, starts, np.where(takes_part, ends, starts), np.where(takes_part, batches.record_count, 0), takes_part
    )


def _rows(
    frames: Frames,
    buffer: Bytes,
    of_batches: OfBatches,
    odd: Mapping[int, list[BatchRecord]],
    origin: Origin,
    settings: RowSettings,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of records found in lock-step, and of the odd batches, by number, in order."""
    made: list[pa.RecordBatch] = []
    batches, order = of_batches
    if len(order):
        made.append(_row_batch(_place(frames, buffer, of_batches, origin), settings))
    if any(odd.values()):
        numbers = np.repeat(np.array(list(odd)), [len(records) for records in odd.values()])
        records = list(chain.from_iterable(odd.values()))
        made.append(_row_batch(_place_odd(records, OfBatches(batches, numbers), origin), settings))
        order = np.concatenate((order, numbers))
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


def _place(frames: Frames, buffer: Bytes, of_batches: OfBatches, origin: Origin) -> Placed:
    batches, index = of_batches
    timestamp_ms = batches.base_timestamp_ms[index] + frames.timestamp_delta
    if batches.has_append_time.any():
        timestamp_ms = np.where(batches.has_append_time[index], batches.max_timestamp_ms[index], timestamp_ms)
    return Placed(
        Slices(buffer, frames.key_start, frames.key_size),
        Slices(buffer, frames.value_start, frames.value_size),
        batches.base_offset[index] + frames.offset_delta,
        timestamp_ms,
        origin.log_partition,
        origin.file,
        of_batches,
    )


def _place_odd(records: list[BatchRecord], of_batches: OfBatches, origin: Origin) -> Placed:
    pieces = [piece for _, _, key, value in records for piece in (key, value)]
    sizes = np.array([-1 if piece is None else len(piece) for piece in pieces], np.int64)
    there = np.maximum(sizes, 0)
    starts = np.cumsum(there) - there
    data = b"".join([piece for piece in pieces if piece is not None])
    buffer = np.frombuffer(data + bytes(PADDING_BYTES), np.uint8)
    return Placed(
        Slices(buffer, starts[0::2], sizes[0::2]),
        Slices(buffer, starts[1::2], sizes[1::2]),
        _int64s([record[0] for record in records]),
        _int64s([record[1] for record in records]),
        origin.log_partition,
        origin.file,
        of_batches,
    )


def _int64s(values: list[int]) -> Int64s:
    """Return numbers in 64 bits; larger ones, from deltas that no broker writes, wrap around as in Java."""
    return np.array([(value + 2**63) % 2**64 - 2**63 for value in values], np.int64)
