"""The headers of many batches as columns: found in one pass over a chunk, which checks every CRC."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import numpy as np
from attrs import field, frozen
from crc32c import crc32c

from groupcoord.analysis.decode.framing import Bools, Int64s
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
    """Sound batches of a chunk, in order: their headers as arrays of one item for each.

    Attributes:
        chunk: the bytes that they lie in; ``base_position`` is where these start in their file.
        start: where each starts in the chunk; ``size_bytes`` is its whole length.
        base_offset: offset of its first slot.
        leader_epoch: of the log partition's leader that wrote it; -1 before format v2, as the producer's two.
        magic: its message format.
        attributes: its flags.
        last_offset_delta: from its first slot to its last.
        base_timestamp_ms: what the timestamps of its records are relative to.
        max_timestamp_ms: the largest, or the time of the append.
        producer_id: who wrote it; ``producer_epoch`` goes with it.
        record_count: how many records it says it has.
        objects: the batches, where these are at hand already.
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
        """Return one batch."""
        if self.objects is not None:
            return self.objects[number]
        start = int(self.start[number])
        return Batch(self.chunk, start, self.base_position + start)

    def part(self, start: int, stop: int) -> Batches:
        """Return some batches that lie one behind the other, by number."""
        arrays = (getattr(self, name)[start:stop] for name in _ARRAYS)
        objects = None if self.objects is None else self.objects[start:stop]
        return Batches(self.chunk, self.base_position, *arrays, objects=objects)

    @property
    def position(self) -> Int64s:
        """Where each starts in its file."""
        return self.start + self.base_position

    @property
    def end(self) -> int:
        """The position behind the last one in the file."""
        return int(self.position[-1] + self.size_bytes[-1])

    @property
    def next_offset(self) -> Int64s:
        """The offset after the last slot of each."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_compressed(self) -> Bools:
        """Which are compressed."""
        return self._has(CODEC_MASK)

    @property
    def has_append_time(self) -> Bools:
        """Of which all records have the time of the append."""
        return self._has(LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> Bools:
        """Which belong to a transaction."""
        return self._has(TRANSACTIONAL)

    @property
    def is_control(self) -> Bools:
        """Which hold control records."""
        return self._has(CONTROL)

    def _has(self, flags: int) -> Bools:
        found: Bools = (self.attributes & flags) != 0
        return found


_ARRAYS = ("start", "size_bytes", *[name for name in Batches.__annotations__ if name in dict(_FIELDS)])


def plain_batches(chunk: bytes, base_position: int, end: int) -> Batches:
    """Return the batches that a chunk starts with, up to the first that is not sound, not whole or not of format v2.

    What that one is, :func:`groupcoord.records.batches.iter_batches` tells: the two take the same batches.

    Args:
        chunk: batches back to back.
        base_position: of the chunk in its file.
        end: a position in the file; batches that start there or behind are left out.
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
    """Return the headers that start at some places of a chunk."""
    if not len(start):
        return given_batches([], chunk, base_position)
    everywhere = np.ndarray((len(chunk) - BATCH_HEADER_BYTES + 1,), _ANY_HEADER, chunk, strides=(1,))
    headers = everywhere[start].view(_HEADER)
    size_bytes = headers["length"].astype(np.int64) + LOG_OVERHEAD_BYTES
    return Batches(chunk, base_position, start, size_bytes, *[headers[name].astype(np.int64) for name in _ARRAYS[2:]])


def given_batches(batches: Sequence[Batch], chunk: bytes = b"", base_position: int = 0) -> Batches:
    """Return batches of any format that were found one by one; ``chunk`` may be left out if their records are known."""
    start = np.array([batch.position for batch in batches], np.int64) - base_position
    columns = (np.array([getattr(batch, name) for batch in batches], np.int64) for name in _ARRAYS[1:])
    return Batches(chunk, base_position, start, *columns, objects=batches)
