"""A stretch of a log in memory: its batches, and where each begins, by offset and by time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from groupcoord.topic_logs.log_memory import BATCH_OVERHEAD_BYTES, LogMemory

SEGMENT_BYTES = 1_048_576
"""A segment takes no batch that would make it larger, but for its first: memory is given back a segment at a time."""

SEGMENT_BATCHES = 1_024
"""Nor more batches than these: whoever passes over a segment's batches one by one has not more of them."""

FIRST_BYTES = 1_024
"""A segment begins with so much memory, which is doubled when it is full."""


class Segment:
    """Batches that follow each other, in one buffer, of which readers are given views.

    Whatever was read stays as it is: a buffer that is full is replaced by a larger one, and never changed where
    something stands already.

    Attributes:
        base_offset: the offset of the first batch.
        base_position: how many bytes of the log stand before it.
        base_offsets, positions, max_timestamps_ms: of each batch.
        next_offset: the offset after the last.
        size_bytes: of all batches.
        max_timestamp_ms: the largest of all.
    """

    __slots__ = (
        "_buffer",
        "_memory",
        "base_offset",
        "base_offsets",
        "base_position",
        "max_timestamp_ms",
        "max_timestamps_ms",
        "next_offset",
        "positions",
        "size_bytes",
    )

    def __init__(self, base_offset: int, base_position: int, memory: LogMemory) -> None:
        self.base_offset = base_offset
        self.base_position = base_position
        self.next_offset = base_offset
        self.size_bytes = 0
        self.max_timestamp_ms = -1
        self.base_offsets: list[int] = []
        self.positions: list[int] = []
        self.max_timestamps_ms: list[int] = []
        self._buffer = bytearray()
        self._memory = memory

    # ------------------------------------------------------------ writing

    def has_room(self, size_bytes: int) -> bool:
        """Tell whether a batch of this size goes here."""
        if not self.positions:
            return True
        return self.size_bytes + size_bytes <= SEGMENT_BYTES and len(self.positions) < SEGMENT_BATCHES

    def reserve(self, size_bytes: int, *, is_marker: bool = False) -> None:
        """Have memory for one more batch of this size.

        Raises:
            RefusedBatchError: there is none left; nothing has changed.
        """
        needed, capacity = self.size_bytes + size_bytes, len(self._buffer)
        if needed <= capacity:
            self._memory.take(BATCH_OVERHEAD_BYTES, is_marker=is_marker)
            return
        larger = max(needed, min(2 * capacity, SEGMENT_BYTES), FIRST_BYTES)
        self._memory.take(larger - capacity + BATCH_OVERHEAD_BYTES, is_marker=is_marker)
        buffer = bytearray(larger)
        buffer[: self.size_bytes] = memoryview(self._buffer)[: self.size_bytes]
        self._buffer = buffer

    def append(self, data: bytes | bytearray, base_offset: int, next_offset: int, max_timestamp_ms: int) -> None:
        """Add a batch for which memory was reserved."""
        self._buffer[self.size_bytes : self.size_bytes + len(data)] = data
        self.base_offsets.append(base_offset)
        self.positions.append(self.base_position + self.size_bytes)
        self.max_timestamps_ms.append(max_timestamp_ms)
        self.next_offset = next_offset
        self.size_bytes += len(data)
        self.max_timestamp_ms = max(self.max_timestamp_ms, max_timestamp_ms)

    def release(self) -> None:
        """Give back its memory; those who read from it keep what they have."""
        self._memory.give_back(len(self._buffer) + BATCH_OVERHEAD_BYTES * len(self.positions))

    # ------------------------------------------------------------ reading

    @property
    def end_position(self) -> int:
        """How many bytes of the log there are up to its end."""
        return self.base_position + self.size_bytes

    def place_of(self, offset: int) -> int:
        """Return which batch holds an offset that is not before the segment."""
        return bisect_right(self.base_offsets, offset) - 1

    def next_after(self, place: int) -> int:
        """Return the offset behind a batch."""
        return self.base_offsets[place + 1] if place + 1 < len(self.base_offsets) else self.next_offset

    def end_of(self, place: int) -> int:
        """Return the position behind a batch."""
        return self.positions[place + 1] if place + 1 < len(self.positions) else self.end_position

    def end_before(self, offset: int) -> int:
        """Return the position behind the last batch that begins before an offset."""
        place = bisect_left(self.base_offsets, offset)
        return self.positions[place] if place < len(self.positions) else self.end_position

    def view(self, position: int, end_position: int) -> memoryview:
        """Return the bytes between two positions."""
        return memoryview(self._buffer)[position - self.base_position : end_position - self.base_position]

    def batch(self, place: int) -> memoryview:
        """Return one batch."""
        return self.view(self.positions[place], self.end_of(place))

    def places_since(self, timestamp_ms: int, offset: int) -> Iterator[int]:
        """Pass over the batches with a time not before this one, of those that reach beyond an offset."""
        for place in range(max(self.place_of(offset), 0), len(self.positions)):
            if self.max_timestamps_ms[place] >= timestamp_ms:
                yield place
