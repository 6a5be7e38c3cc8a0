"""Where the keys and values of many batches lie: their records are found in lock-step, and read all at once.

The records of a batch can only be walked from the first to the last, since each starts where the one before ends; but
batches are independent of each other, and a chunk of a log holds thousands. So each step finds record *j* of every
batch with a few numpy operations, by its length alone; the fields of all records are read together afterwards. A batch
that doesn't fit this (a malformed one, one with record headers, or so large that few keep it company) is left to
:meth:`groupcoord.records.batches.Batch.records`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

PADDING_BYTES = 64
"""What a buffer has behind its last byte, so that a field may be read before it is known to fit."""

COMPANY_MIN = 32
"""Below so many batches at a time, reading one record after the other is quicker."""

LENGTH_BYTES_MAX = 5
_LONG_BYTES_MAX = 9


class Frames(NamedTuple):
    """Where records lie in a buffer. Arrays of one item for each record, in order of the log.

    Attributes:
        key_start: where the key starts in the buffer; ``key_size`` is -1 without a key.
        value_start: where the value starts; ``value_size`` is -1 in a tombstone.
        offset_delta: to the batch's base offset.
        timestamp_delta: to the batch's base timestamp, in milliseconds.
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
    """Find the records of batches.

    Args:
        buffer: the bytes, and :data:`PADDING_BYTES` behind them.
        starts: where each batch's records start, behind its header.
        ends: where they end.
        counts: how many they are, from the headers. They may lie, but the caller has to make sure that they are not
            absurd: memory for so many records is taken.
        company_min: leave batches aside that have a record where fewer than so many others have one.

    Returns:
        The records of the batches that were understood, one after the other, and which batches these are.
    """
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
    """Return where records start (behind their length) and end, and which batches consist of as many as they say."""
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
            # A cursor never leaves its batch, so a bad one reads nonsense and does no harm.
            sound[:company] &= fits
            begin, stop = np.where(fits, begin, limit), np.where(fits, stop, limit)
        begins[rows], stops[rows] = begin, stop
        cursors[:company] = stop
    sound &= cursors == limits
    understood = np.zeros(len(order), np.bool_)
    understood[order] = sound
    return bounds, understood


def _read_fields(buffer: Bytes, position: Int64s, end: Int64s) -> tuple[Frames, Bools]:
    """Read records from behind their length on, and tell which have the layout that coordinators write."""
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
    """Return start and size (-1: null) of what stands behind its length, the position after it, and if it fits."""
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
    """Return varints before zig-zag decoding, and where they end; -1 for those of more than ``bytes_max`` bytes."""
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
