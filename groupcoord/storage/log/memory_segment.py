"""Log segments: their interface, and segments in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from attrs import Factory, define, field

from groupcoord.core.log.records import NO_TIMESTAMP
from groupcoord.records.batches import LAST_OFFSET_DELTA_POSITION, Batch, iter_batches
from groupcoord.storage.log.index import AbortedEntries, AbortedTransaction
from groupcoord.storage.log.settings import BATCH_OVERHEAD_BYTES, LogMemory

Pieces = tuple[bytes | bytearray | memoryview, ...]
"""Consecutive bytes in pieces."""

INDEX_INTERVAL_BYTES = 4_096
"""Kafka's ``index.interval.bytes``: an index has an entry for the first batch after this many bytes."""


NOT_READ = memoryview(b"")


class Place(NamedTuple):
    """Position of a batch in its segment, in bytes; ``data``: the bytes that were read to find it."""

    position: int
    end_position: int
    data: memoryview = NOT_READ


@define(eq=False, repr=False, weakref_slot=False)
class Segment(ABC):
    """Consecutive batches. Positions are bytes from the beginning.

    Attributes:
        next_offset: the offset after the last record.
        goes_on: whether it continues the segment before: both are one segment in Kafka.
    """

    base_offset: int
    goes_on: bool = field(default=False, kw_only=True)
    next_offset: int = field(init=False, default=Factory(lambda self: self.base_offset, takes_self=True))
    size_bytes: int = field(init=False, default=0)

    def has_room(self, size_bytes: int) -> bool:
        """Return whether a batch fits into the segment's own buffer."""
        return True

    @property
    def filled_bytes(self) -> int:
        """Its part of ``segment.bytes``, as compaction merges segments."""
        return self.size_bytes

    @property
    @abstractmethod
    def max_timestamp_ms(self) -> int:
        """Largest timestamp, or -1."""

    @property
    @abstractmethod
    def aborted(self) -> AbortedEntries | list[AbortedTransaction]:
        """Aborted transactions with markers here, in the order of the markers."""

    # ------------------------------------------------------------ writing

    @abstractmethod
    def append(
        self, pieces: Pieces, size_bytes: int, next_offset: int, max_timestamp_ms: int, *, is_marker: bool = False
    ) -> None:
        """Append a batch. A marker (``is_marker``) may use the reserve of memory.

        Raises:
            RefusedBatchError: there is no room; nothing has changed.
            FailedLogError: it is unknown what was written.
        """

    @abstractmethod
    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Add the aborted transaction of the marker that was appended last."""

    @abstractmethod
    def release(self) -> None:
        """Free its memory or delete its files."""

    # ------------------------------------------------------------ reading; all raise FailedLogError

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """Yield all batches. InvalidBatchError means that one is malformed, OSError that a file can't be read."""

    @abstractmethod
    def first_batch_ms(self) -> int:
        """Return the largest timestamp of the first batch, or -1."""

    @abstractmethod
    def place_of(self, offset: int, ahead_bytes: int = 0) -> Place | None:
        """Return the position of the batch that holds an offset or follows it, or None."""

    @abstractmethod
    def end_before(self, offset: int) -> int:
        """Return the position after the last batch that begins before an offset."""

    @abstractmethod
    def first_offset_at(self, position: int) -> int:
        """Return the offset of the first batch at or after a position."""

    @abstractmethod
    def view(self, position: int, end_position: int) -> memoryview:
        """Return the bytes between two positions."""

    @abstractmethod
    def batches_since(self, timestamp_ms: int, offset: int) -> Iterator[memoryview]:
        """Yield the batches that may hold a record beyond an offset with a timestamp of at least ``timestamp_ms``."""


SEGMENT_BYTES = 1_048_576
"""Largest segment in memory, unless its first batch is larger; several make one of Kafka's."""

SEGMENT_BATCHES = 1_024
"""Most batches of a segment, which bounds every pass over it."""

FIRST_BYTES = 1_024
"""Initial buffer of a segment, which is doubled when full."""


_UNPACK_LAST_OFFSET_DELTA = Struct(">i").unpack_from


@define(eq=False, repr=False, weakref_slot=False)
class MemorySegment(Segment):
    """Batches in one buffer, of which readers get views."""

    _memory: LogMemory
    max_timestamp_ms: int = field(init=False, default=NO_TIMESTAMP)
    aborted: list[AbortedTransaction] = field(init=False, factory=list)
    _base_offsets: list[int] = field(init=False, factory=list)
    _positions: list[int] = field(init=False, factory=list)
    _max_timestamps_ms: list[int] = field(init=False, factory=list)
    _buffer: bytearray = field(init=False, factory=bytearray)

    # ------------------------------------------------------------ writing

    def has_room(self, size_bytes: int) -> bool:
        if not self._positions:
            return True
        return self.size_bytes + size_bytes <= SEGMENT_BYTES and len(self._positions) < SEGMENT_BATCHES

    def append(
        self,
        pieces: Pieces,
        size_bytes: int,
        next_offset: int,
        max_timestamp_ms: int,
        *,
        is_marker: bool = False,
        base_offset: int | None = None,
    ) -> None:
        """Append a batch, in a compacted log at ``base_offset`` behind a gap."""
        # The only step that may fail.
        self._reserve(size_bytes, is_marker=is_marker)
        end = self.size_bytes
        for piece in pieces:
            self._buffer[end : end + len(piece)] = piece
            end += len(piece)
        self._base_offsets.append(self.next_offset if base_offset is None else base_offset)
        self._positions.append(self.size_bytes)
        self._max_timestamps_ms.append(max_timestamp_ms)
        self.next_offset = next_offset
        self.size_bytes = end
        self.max_timestamp_ms = max(self.max_timestamp_ms, max_timestamp_ms)

    def _reserve(self, size_bytes: int, *, is_marker: bool) -> None:
        needed, capacity = self.size_bytes + size_bytes, len(self._buffer)
        if needed <= capacity:
            self._memory.take(BATCH_OVERHEAD_BYTES, is_marker=is_marker)
            return
        larger = max(needed, min(2 * capacity, SEGMENT_BYTES), FIRST_BYTES)
        self._memory.take(larger - capacity + BATCH_OVERHEAD_BYTES, is_marker=is_marker)
        # Copied instead of extended, since readers hold views of the old buffer.
        buffer = bytearray(larger)
        buffer[: self.size_bytes] = memoryview(self._buffer)[: self.size_bytes]
        self._buffer = buffer

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        self.aborted.append(transaction)

    def release(self) -> None:
        # Views of responses stay valid.
        self._memory.give_back(len(self._buffer) + BATCH_OVERHEAD_BYTES * len(self._positions))

    # ------------------------------------------------------------ reading

    def place_of(self, offset: int, ahead_bytes: int = 0) -> Place | None:
        if offset >= self.next_offset:
            return None
        number = max(bisect_right(self._base_offsets, offset) - 1, 0)
        if number < len(self._positions) and self._end_offset_of(number) <= offset:
            number += 1  # in a gap left by compaction
        return Place(self._positions[number], self._end_of(number)) if number < len(self._positions) else None

    def _end_offset_of(self, number: int) -> int:
        (delta,) = _UNPACK_LAST_OFFSET_DELTA(self._buffer, self._positions[number] + LAST_OFFSET_DELTA_POSITION)
        end_offset: int = self._base_offsets[number] + delta + 1
        return end_offset

    def _end_of(self, number: int) -> int:
        return self._positions[number + 1] if number + 1 < len(self._positions) else self.size_bytes

    def end_before(self, offset: int) -> int:
        number = bisect_left(self._base_offsets, offset)
        return self._positions[number] if number < len(self._positions) else self.size_bytes

    def first_offset_at(self, position: int) -> int:
        number = bisect_left(self._positions, position)
        return self._base_offsets[number] if number < len(self._base_offsets) else self.next_offset

    def view(self, position: int, end_position: int) -> memoryview:
        return memoryview(self._buffer)[position:end_position]

    def batches(self) -> Iterator[Batch]:
        return iter_batches(self.view(0, self.size_bytes), check_crc=False)

    @property
    def filled_bytes(self) -> int:
        # A segment is also full at its limit of batches.
        return max(self.size_bytes, len(self._positions) * SEGMENT_BYTES // SEGMENT_BATCHES)

    def first_batch_ms(self) -> int:
        return self._max_timestamps_ms[0] if self._max_timestamps_ms else NO_TIMESTAMP

    def batches_since(self, timestamp_ms: int, offset: int) -> Iterator[memoryview]:
        # The first may end before the offset, since compaction leaves gaps.
        for number in range(max(bisect_right(self._base_offsets, offset) - 1, 0), len(self._positions)):
            if self._max_timestamps_ms[number] >= timestamp_ms:
                yield self.view(self._positions[number], self._end_of(number))
