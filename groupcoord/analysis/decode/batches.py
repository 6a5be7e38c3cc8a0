"""Headers and record boundaries of record batches, for many batches at a time with numpy.

A loop checks the length and CRC of each batch; then all headers are read at once. Each step finds record *j* of every
batch. Malformed batches, batches with record headers, and those with more records than most are left to
:meth:`groupcoord.records.batches.Batch.records`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np
from attrs import field, frozen
from crc32c import crc32c
from numpy.typing import NDArray

from groupcoord.records.batches import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    TRANSACTIONAL,
    Batch,
)

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

PADDING_BYTES = 64
"""Padding of a buffer, so that a field may be read before it is known to fit."""

COMPANY_MIN = 32
"""Number of batches below which reading one record after the other is faster."""

LENGTH_BYTES_MAX = 5
_LONG_BYTES_MAX = 9


class Frames(NamedTuple):
    """Positions of records in a buffer, one item for each record, in log order.

    Attributes:
        key_size: -1 without a key.
        value_size: -1 in a tombstone.
    """

    key_start: Int64s
    key_size: Int64s
    value_start: Int64s
    value_size: Int64s
    offset_delta: Int64s
    timestamp_delta: Int64s


def frame_records(
    buffer: Bytes, starts: Int64s, ends: Int64s, counts: Int64s, *, company_min: int = COMPANY_MIN
) -> tuple[Frames, Bools]:
    """Return the records of the batches that can be read here, and which batches those are."""
    bounds, understood = _find_bounds(buffer, starts, ends, counts, company_min)
    index = np.repeat(np.arange(len(counts)), counts)
    if not understood.all():
        kept = understood[index]
        bounds, index = bounds[:, kept], index[kept]
    frames, fits = _read_fields(buffer, *bounds)
    if not fits.all():
        understood[index[~fits]] = False
        kept = understood[index]
        frames = Frames(*(array[kept] for array in frames))
    return frames, understood


def _find_bounds(buffer: Bytes, starts: Int64s, ends: Int64s, counts: Int64s, company_min: int) -> tuple[Int64s, Bools]:
    """Return start and end of each record, and which batches end after the claimed number of records."""
    bounds = np.zeros((2, int(counts.sum())), np.int64)
    begins, stops = bounds
    order = np.argsort(-counts, kind="stable")
    sorted_counts = -counts[order]
    firsts = (np.cumsum(counts) - counts)[order]
    cursors, limits = starts[order], ends[order]
    sound = np.ones(len(order), np.bool_)
    for number in range(int(counts.max(initial=0))):
        company = int(np.searchsorted(sorted_counts, -number, side="left"))
        if company < company_min:
            sound[:company] = False
            break
        limit, rows = limits[:company], firsts[:company] + number
        size, begin = read_varints(buffer, cursors[:company])
        stop = begin + (size >> 1)
        fits = (size & 1 == 0) & (stop <= limit)
        if not fits.all():
            # A cursor never leaves its batch, so a malformed one does no harm.
            sound[:company] &= fits
            begin, stop = np.where(fits, begin, limit), np.where(fits, stop, limit)
        begins[rows], stops[rows] = begin, stop
        cursors[:company] = stop
    sound &= cursors == limits
    understood = np.zeros(len(order), np.bool_)
    understood[order] = sound
    return bounds, understood


def _read_fields(buffer: Bytes, position: Int64s, end: Int64s) -> tuple[Frames, Bools]:
    """Read records after their length, and return which have the layout that coordinators write."""
    raw, position = read_varints(buffer, position + 1, _LONG_BYTES_MAX)  # attributes, of which none is defined
    fits = raw >= 0
    timestamp_delta = raw >> 1 ^ -(raw & 1)
    raw, position = read_varints(buffer, np.minimum(position, end))
    fits &= raw >= 0
    offset_delta = raw >> 1 ^ -(raw & 1)
    key_start, key_size, position, sound = _read_sized(buffer, np.minimum(position, end), end)
    fits &= sound
    value_start, value_size, position, sound = _read_sized(buffer, position, end)
    # No headers: coordinators write none.
    fits &= sound & (buffer.take(position) == 0) & (position + 1 == end)
    return Frames(key_start, key_size, value_start, value_size, offset_delta, timestamp_delta), fits


def _read_sized(buffer: Bytes, position: Int64s, end: Int64s) -> tuple[Int64s, Int64s, Int64s, Bools]:
    """Return start and size (-1: null) of length-prefixed bytes, the position after them, and whether they fit."""
    raw, start = read_varints(buffer, position)
    after = start + (raw >> 1)
    size = raw >> 1
    sound = (raw & 1 == 0) & (after <= end)
    if not sound.all():
        is_null = raw == 1
        sound |= is_null & (start <= end)
        size, after = np.where(is_null, -1, size), np.where(sound, after, end)
    return start, size, after, sound


def read_varints(buffer: Bytes, position: Int64s, bytes_max: int = LENGTH_BYTES_MAX) -> tuple[Int64s, Int64s]:
    """Return varints before zig-zag decoding and their ends; -1 for those of more than ``bytes_max`` bytes."""
    value = buffer.take(position).astype(np.int64)
    more = np.flatnonzero(value > 0x7F)
    position = position + 1
    if not len(more):
        return value, position
    value[more] &= 0x7F
    for index in range(1, bytes_max):
        byte = buffer.take(position[more]).astype(np.int64)
        value[more] |= (byte & 0x7F) << 7 * index
        position[more] += 1
        more = more[byte > 0x7F]
        if not len(more):
            break
    else:
        value[more] = -1
    return value, position


_FIELDS = (
    *(("base_offset", ">i8"), ("length", ">i4"), ("leader_epoch", ">i4"), ("magic", "i1"), ("crc", ">u4")),
    *(("attributes", ">i2"), ("last_offset_delta", ">i4"), ("base_timestamp_ms", ">i8")),
    *(("max_timestamp_ms", ">i8"), ("producer_id", ">i8"), ("producer_epoch", ">i2")),
    *(("base_sequence", ">i4"), ("record_count", ">i4")),
)
_HEADER = np.dtype(list(_FIELDS))
_ANY_HEADER = np.dtype(f"V{BATCH_HEADER_BYTES}")
assert _HEADER.itemsize == BATCH_HEADER_BYTES
_CRC_START = 21
_length_magic_crc = Struct(">8xi4xBI").unpack_from


@frozen(eq=False)
class Batches:
    """Valid batches of a chunk, in order: their headers as arrays with one item for each.

    Attributes:
        base_position: position of the chunk in the file.
        start: position of each batch in the chunk.
        leader_epoch: -1 before format v2, like the producer's id and epoch.
        max_timestamp_ms: the largest timestamp, or the append time.
        objects: the batches as objects, if they exist.
    """

    chunk: bytes
    base_position: int
    start: Int64s
    size_bytes: Int64s
    base_offset: Int64s
    leader_epoch: Int64s
    magic: Int64s
    attributes: Int64s
    last_offset_delta: Int64s
    base_timestamp_ms: Int64s
    max_timestamp_ms: Int64s
    producer_id: Int64s
    producer_epoch: Int64s
    record_count: Int64s
    objects: Sequence[Batch] | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return len(self.start)

    def at(self, number: int) -> Batch:
        if self.objects is not None:
            return self.objects[number]
        start = int(self.start[number])
        return Batch(self.chunk, start, self.base_position + start)

    def part(self, start: int, stop: int) -> Batches:
        arrays = (getattr(self, name)[start:stop] for name in _ARRAYS)
        objects = None if self.objects is None else self.objects[start:stop]
        return Batches(self.chunk, self.base_position, *arrays, objects=objects)

    @property
    def position(self) -> Int64s:
        return self.start + self.base_position

    @property
    def end(self) -> int:
        return int(self.position[-1] + self.size_bytes[-1])

    @property
    def next_offset(self) -> Int64s:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_compressed(self) -> Bools:
        return self._has(CODEC_MASK)

    @property
    def has_append_time(self) -> Bools:
        return self._has(LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> Bools:
        return self._has(TRANSACTIONAL)

    @property
    def is_control(self) -> Bools:
        return self._has(CONTROL)

    def _has(self, flags: int) -> Bools:
        found: Bools = (self.attributes & flags) != 0
        return found


_ARRAYS = ("start", "size_bytes", *[name for name in Batches.__annotations__ if name in dict(_FIELDS)])


def plain_batches(chunk: bytes, base_position: int, end: int) -> Batches:
    """Return the batches at the start of a chunk, up to the first that is invalid, incomplete or not of format v2.

    :func:`groupcoord.records.batches.iter_batches` reads that one; both accept the same batches.
    """
    starts: list[int] = []
    start, size = 0, len(chunk)
    last = min(size - BATCH_HEADER_BYTES, end - base_position - 1)
    with memoryview(chunk) as view:
        while start <= last:
            length, magic, crc = _length_magic_crc(chunk, start)
            after = start + length + LOG_OVERHEAD_BYTES
            if magic != MAGIC_V2 or length < BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES or after > size:
                break
            if crc32c(view[start + _CRC_START : after]) != crc:
                break
            starts.append(start)
            start = after
    found = _read_headers(chunk, base_position, np.array(starts, np.int64))
    slots = found.last_offset_delta + 1
    wrong = (slots < 1) | (found.record_count < 0) | (found.record_count > slots)
    return found.part(0, int(wrong.argmax())) if wrong.any() else found


def _read_headers(chunk: bytes, base_position: int, start: Int64s) -> Batches:
    if not len(start):
        return given_batches([], chunk, base_position)
    everywhere = np.ndarray((len(chunk) - BATCH_HEADER_BYTES + 1,), _ANY_HEADER, chunk, strides=(1,))
    headers = everywhere[start].view(_HEADER)
    size_bytes = headers["length"].astype(np.int64) + LOG_OVERHEAD_BYTES
    return Batches(chunk, base_position, start, size_bytes, *[headers[name].astype(np.int64) for name in _ARRAYS[2:]])


def given_batches(batches: Sequence[Batch], chunk: bytes = b"", base_position: int = 0) -> Batches:
    """Return batches that were found one by one; ``chunk`` may be left out if their records are known."""
    start = np.array([batch.position for batch in batches], np.int64) - base_position
    columns = (np.array([getattr(batch, name) for batch in batches], np.int64) for name in _ARRAYS[1:])
    return Batches(chunk, base_position, start, *columns, objects=batches)
