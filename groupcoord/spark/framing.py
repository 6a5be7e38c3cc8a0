"""Where the keys and values of many batches lie, found in lock-step: record *j* of every batch at the same time.

The records of a batch can only be walked from the first to the last, since each starts where the one before ends; but
batches are independent of each other, and a chunk of a log holds thousands. So each step reads one field of one record
of every batch with a few numpy operations. A batch that doesn't fit this (a malformed one, one with record headers, or
so large that few keep it company) is left to :meth:`groupcoord.records.batches.Batch.records`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

PADDING_BYTES = 32
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
        The records of all batches one after the other, ``counts`` of each, and which batches were understood; what
        stands at the records of the others means nothing.
    """
    total = int(counts.sum())
    frames = Frames(*(np.zeros(total, np.int64) for _ in Frames._fields))
    understood = np.ones(len(starts), np.bool_)
    order = np.argsort(-counts, kind="stable")
    sorted_counts = -counts[order]
    firsts = (np.cumsum(counts) - counts)[order]
    cursors, limits = starts[order].copy(), ends[order]
    sound = np.ones(len(order), np.bool_)
    for number in range(int(counts.max(initial=0))):
        company = int(np.searchsorted(sorted_counts, -number, side="left"))
        if company < company_min:
            sound[:company] = False
            break
        cursor, limit = cursors[:company], limits[:company]
        fits, after = _frame_one(buffer, cursor, limit, frames, firsts[:company] + number)
        sound[:company] &= fits
        cursors[:company] = after
    sound &= cursors == limits
    understood[order] = sound
    return frames, understood


def _frame_one(buffer: Bytes, cursor: Int64s, limit: Int64s, frames: Frames, row: Int64s) -> tuple[Bools, Int64s]:
    """Read one record of each batch. A cursor never leaves its batch, so a bad one reads nonsense and does no harm."""
    size, position = read_varints(buffer, cursor)
    end = position + (size >> 1)
    fits = (size & 1 == 0) & (end <= limit)
    end = np.where(fits, end, limit)
    position = np.minimum(position + 1, end)  # attributes, of which none is defined
    delta, position = read_varints(buffer, position, _LONG_BYTES_MAX)
    fits &= delta >= 0
    frames.timestamp_delta[row] = delta >> 1 ^ -(delta & 1)
    delta, position = read_varints(buffer, np.minimum(position, end))
    fits &= delta >= 0
    frames.offset_delta[row] = delta >> 1 ^ -(delta & 1)
    for starts, sizes in ((frames.key_start, frames.key_size), (frames.value_start, frames.value_size)):
        length, position = read_varints(buffer, np.minimum(position, end))
        is_null = length == 1
        size = np.where(is_null, 0, length >> 1)
        fits &= (is_null | (length & 1 == 0)) & (position + size <= end)
        starts[row] = position
        sizes[row] = np.where(is_null, -1, size)
        position = np.minimum(position + size, end)
    # No headers: coordinators write none.
    fits &= (buffer.take(position) == 0) & (position + 1 == end)
    return fits, np.where(fits, end, limit)


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
