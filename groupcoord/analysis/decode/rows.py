"""Rows of a byte range of a segment file: its sound batches decoded, and an account of every byte.

A range owns the batches that start in it, and damage up to the next sound batch. So ranges can be cut at any byte and
read by different machines without an index: each finds its first batch by CRCs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from attrs import define, field, frozen

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
    plain_batches,
)
from groupcoord.analysis.decode.records import OfBatches, Placed, Slices, record_columns
from groupcoord.analysis.decode.schema import KIND_CORRUPT, KIND_READ, RECORDS
from groupcoord.records.batches import (
    BATCH_HEADER_BYTES,
    DECOMPRESSED_BYTES_MAX,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    Batch,
    BatchRecord,
    CorruptBatchError,
    InvalidBatchError,
    TruncatedBatchError,
    iter_batches,
)
from groupcoord.records.compression import DecompressionError, decompress
from groupcoord.records.salvage import Damage, ReadAt, SoundBatch, salvage_batches

PAYLOAD_BYTES_MAX = 67_108_864
"""Limit of decompressed bytes held at a time; one batch may exceed it."""

ROWS_MAX = 8_192
"""Rows per Arrow batch: few enough to stay in the CPU cache while the JVM reads them."""


@frozen
class RowSettings:
    """Columns and content of rows.

    Attributes:
        raw_bytes: also keep key and value of decoded offsets.
        company_min: fewer batches are decoded record by record.
    """

    columns: tuple[str, ...] = tuple(RECORDS.names)
    raw_bytes: bool = False
    company_min: int = COMPANY_MIN


@frozen
class Origin:
    """The file of batches, and its log partition if known."""

    file: str
    log_partition: int | None


def batch_rows(batches: Batches, origin: Origin, settings: RowSettings) -> Iterator[pa.RecordBatch]:
    for portion, decompressed in _portions(batches):
        yield from _portion_rows(portion, decompressed, origin, settings)


def sound_rows(sound: Sequence[SoundBatch], origin: Origin, settings: RowSettings) -> Iterator[pa.RecordBatch]:
    if any(found.records for found in sound):
        index = np.repeat(np.arange(len(sound)), [len(found.records) for found in sound])
        records = list(chain.from_iterable(found.records for found in sound))
        of_batches = OfBatches(given_batches([found.batch for found in sound]), index)
        yield from _pieces(_row_batch(_place_odd(records, of_batches, origin), settings))


def _portions(batches: Batches) -> Iterator[tuple[Batches, dict[int, bytes | None]]]:
    """Yield batches in portions of bounded decompressed size, with the payloads of compressed ones by index; None if
    corrupt.
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
    """Positions of the records of batches in a buffer; empty for batches that only the scalar reader can decode."""

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
    # Memory is allocated by the record count, so it must be plausible.
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
    return np.array([(value + 2**63) % 2**64 - 2**63 for value in values], np.int64)


CHUNK_BYTES = 4_194_304
LOOK_BACK_BYTES = 1_048_576
"""Distance before a range where the search for its first batch starts: about Kafka's default ``message.max.bytes``."""

SEARCH_BYTES = 16_384
"""Bytes read at a time when only the next sound batch is needed."""

SALVAGED_BATCHES_MAX = 4_096


@frozen
class ByteRange:
    """Bytes of a file.

    Attributes:
        file_bytes: size of the file when it was found.
        is_boundary: a batch ends at ``start``, so damage there belongs to this range.
        end_offset: batches from this log offset on belong to others, as does a batch that the broker cut short; None
            for a file, which is read to its last byte.
    """

    start: int
    end: int
    file_bytes: int
    is_boundary: bool = False
    end_offset: int | None = None


@define
class RangeReader:
    """Reader of one range: records in log order, corrupt bytes, and the account at the end."""

    _read_at: ReadAt
    _range: ByteRange
    _origin: Origin
    _settings: RowSettings
    _chunk_bytes: int = field(default=CHUNK_BYTES, kw_only=True)
    _file_bytes: int = field(init=False)
    _end: int = 0
    _batch_count: int = 0
    _first_offset: int | None = None
    _complete_from: int = 0
    next_offset: int | None = None

    def __attrs_post_init__(self) -> None:
        self._file_bytes = self._range.file_bytes

    def rows(self) -> Iterator[pa.RecordBatch]:
        start = position = self._range.start
        if start and not self._range.is_boundary:
            start = position = self._first_sound(start)
        if position >= self._range.end:
            yield from self._end_of_range(start)  # these bytes belong to the previous range
            return
        wanted = self._chunk_bytes
        is_over = False
        error: InvalidBatchError | None = None
        while error is None and position < min(self._range.end, self._file_bytes):
            chunk = self._read(position, wanted)
            wanted = self._chunk_bytes
            batches, error = self._walk(chunk, position)
            if self._range.end_offset is not None:
                mine = batches.part(0, int(np.searchsorted(batches.base_offset, self._range.end_offset)))
                is_over = len(mine) < len(batches) or self._is_cut_short(error)
                batches, error = mine, None if is_over else error
            try:
                yield from batch_rows(batches, self._origin, self._settings)
            except CorruptBatchError as caught:
                error, is_over = caught, False
                batches = batches.part(0, int(np.searchsorted(batches.position, caught.position)))
            yield from self._account_for(batches)
            end = batches.end if len(batches) else position
            if isinstance(error, TruncatedBatchError) and position + len(chunk) < self._file_bytes:
                # Only the chunk has ended, not the file: read on, and more at a time if one batch is larger.
                if end > position:
                    error = None
                elif error.size_bytes <= self._file_bytes - position:
                    wanted, error = error.size_bytes, None
            position = end
            if is_over:
                break
        self._end = position
        if not is_over:
            # Damage at the start of the next range belongs to this one.
            yield from self._salvage(position, SEARCH_BYTES if error is None else self._chunk_bytes)
        yield from self._end_of_range(start)

    def _end_of_range(self, start: int) -> Iterator[pa.RecordBatch]:
        lost = max(self._file_bytes, self._range.start)
        if lost < self._range.end:
            reason = "the file is shorter than it was when it was found"
            yield self._corrupt(lost, self._range.end - lost, reason, None)
        if self._end > start or not self._range.file_bytes:
            yield self._read_row(start, self._end)

    # ------------------------------------------------------------ finding batches

    def _is_cut_short(self, error: InvalidBatchError | None) -> bool:
        return isinstance(error, TruncatedBatchError) and error.position > self._range.start

    def _is_of_others(self, found: SoundBatch | Damage) -> bool:
        if isinstance(found, SoundBatch):
            last = self._range.end_offset
            return found.batch.position >= self._range.end or (last is not None and found.batch.base_offset >= last)
        return self._range.end_offset is not None and found.end_offset is None and self._batch_count > 0

    def _read(self, position: int, size: int) -> bytes:
        size = min(size, self._file_bytes - position)
        chunk = self._read_at(position, size)
        if len(chunk) < size:
            self._file_bytes = position + len(chunk)  # the file was truncated meanwhile
        return chunk

    def _found_from(self, position: int, chunk_bytes: int) -> Iterator[SoundBatch | Damage]:
        size = self._file_bytes - position
        return salvage_batches(
            lambda start, count: self._read_at(position + start, count), size, chunk_bytes=chunk_bytes
        )

    def _first_sound(self, position: int) -> int:
        """Return the start of the first sound batch from ``position`` on, or the end of the file.

        Bytes inside a batch may look like a batch, so the search begins earlier and goes from batch to batch.
        """
        start = max(position - LOOK_BACK_BYTES, 0)
        for found in self._found_from(start, LOOK_BACK_BYTES + SEARCH_BYTES):
            if isinstance(found, SoundBatch) and start + found.batch.position >= position:
                return start + found.batch.position
        return self._file_bytes

    def _salvage(self, start: int, chunk_bytes: int) -> Iterator[pa.RecordBatch]:
        waiting: list[SoundBatch] = []
        for found in self._found_from(start, chunk_bytes):
            if isinstance(found, SoundBatch):
                found.batch.position += start
            if self._is_of_others(found):
                break
            if isinstance(found, SoundBatch):
                waiting.append(found)
                self._end = found.batch.position + found.batch.size_bytes
                if len(waiting) < SALVAGED_BATCHES_MAX:
                    continue
            yield from self._salvaged_rows(waiting)
            waiting = []
            if isinstance(found, Damage):
                self._end = start + found.position + found.size_bytes
                yield self._corrupt(start + found.position, found.size_bytes, found.reason, found.end_offset)
        yield from self._salvaged_rows(waiting)

    def _salvaged_rows(self, sound: list[SoundBatch]) -> Iterator[pa.RecordBatch]:
        yield from sound_rows(sound, self._origin, self._settings)
        yield from self._account_for(given_batches([found.batch for found in sound]))

    def _walk(self, chunk: bytes, position: int) -> tuple[Batches, InvalidBatchError | None]:
        """Return the batches at the start of a chunk that this range owns, and the error after them; one of both at
        least.
        """
        plain = plain_batches(chunk, position, self._range.end)
        if len(plain):
            return plain, None
        found: list[Batch] = []
        try:
            for batch in iter_batches(chunk, base_position=position):
                if batch.position >= self._range.end:
                    break
                found.append(batch)
        except InvalidBatchError as error:
            if error.position < self._range.end:
                return given_batches(found, chunk, position), error
        return given_batches(found, chunk, position), None

    # ------------------------------------------------------------ rows other than records

    def _account_for(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        if not len(batches):
            return
        if self.next_offset is None:
            self._first_offset = self.next_offset = int(batches.base_offset[0])
            self._complete_from = self._first_offset
        base_offset = batches.base_offset
        expected = np.concatenate(([self.next_offset], batches.next_offset[:-1]))
        for number in np.flatnonzero(base_offset < expected).tolist():
            self.next_offset = int(expected[number])
            reason = f"offsets go back: {base_offset[number]} after {expected[number] - 1}"
            yield self._corrupt(int(batches.position[number]), 0, reason, int(base_offset[number]))
        self._note_gaps(batches, base_offset > expected)
        self.next_offset = int(batches.next_offset[-1])
        self._batch_count += len(batches)

    def _note_gaps(self, batches: Batches, is_behind_gap: Bools) -> None:
        """Note the offset from which on none is missing, neither between batches nor in a compacted one."""
        has_gap = batches.record_count != batches.last_offset_delta + 1
        for offsets, is_gap in ((batches.base_offset, is_behind_gap), (batches.next_offset, has_gap)):
            if is_gap.any():
                self._complete_from = max(self._complete_from, int(offsets[is_gap].max()))

    def _corrupt(self, position: int, size_bytes: int, reason: str, end_offset: int | None) -> pa.RecordBatch:
        return corrupt_row(self._origin, self._settings, position, size_bytes, reason, self.next_offset, end_offset)

    def _read_row(self, start: int, end: int) -> pa.RecordBatch:
        return _one_row(
            self._origin,
            self._settings,
            kind=KIND_READ,
            log_offset=self._first_offset,
            position=start,
            size_bytes=end - start,
            end_offset=self.next_offset,
            batch_count=self._batch_count,
            complete_from=None if self._first_offset is None else self._complete_from,
        )


def corrupt_row(
    origin: Origin,
    settings: RowSettings,
    position: int,
    size_bytes: int,
    problem: str,
    log_offset: int | None = None,
    end_offset: int | None = None,
) -> pa.RecordBatch:
    """Return the row of a byte range, or of offsets, that could not be read."""
    place = {"position": position, "size_bytes": size_bytes, "log_offset": log_offset, "end_offset": end_offset}
    return _one_row(origin, settings, kind=KIND_CORRUPT, problem=problem, **place)


def _one_row(origin: Origin, settings: RowSettings, **values: str | int | None) -> pa.RecordBatch:
    values |= {"file": origin.file, "log_partition": origin.log_partition}
    schema = pa.schema([RECORDS.field(name) for name in settings.columns])
    return pa.RecordBatch.from_arrays(
        [pa.array([values.get(field.name)], field.type) for field in schema], schema=schema
    )
