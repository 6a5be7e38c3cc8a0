"""Interface of a log segment, in memory or in files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from groupcoord.storage.cleaned_transactions import AbortedTransaction

Pieces = tuple[bytes | bytearray | memoryview, ...]
"""Consecutive bytes in pieces."""

INDEX_INTERVAL_BYTES = 4_096
"""Kafka's ``index.interval.bytes``: an index has an entry for the first batch after this many bytes. A broker knows the
end of what it has read only with this granularity.
"""


NOT_READ = memoryview(b"")


class Place(NamedTuple):
    """Position of a batch in its segment, in bytes.

    Attributes:
        data: the bytes from there on, as far as they were read to find the position.
    """

    position: int
    end_position: int
    data: memoryview = NOT_READ


class AbortedTransactions(Protocol):
    """Aborted transactions whose markers are in a segment, in order."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> AbortedTransaction: ...


class Segment(ABC):
    """Consecutive batches. Positions are bytes from the beginning.

    Attributes:
        base_offset: lower bound of its offsets.
        next_offset: the offset after the last record.
        size_bytes: the size of all batches.
        goes_on: whether it belongs to the same segment of Kafka as the one before.
    """

    __slots__ = ("base_offset", "goes_on", "next_offset", "size_bytes")

    def __init__(self, base_offset: int, *, goes_on: bool = False) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.goes_on = goes_on

    def has_room(self, size_bytes: int) -> bool:
        """Return whether a batch of this size fits, by the limits of the segment itself."""
        return True

    @property
    @abstractmethod
    def max_timestamp_ms(self) -> int:
        """Largest timestamp, or -1."""

    @property
    @abstractmethod
    def aborted(self) -> AbortedTransactions:
        """Aborted transactions whose markers are here."""

    # ------------------------------------------------------------ writing

    @abstractmethod
    def append(
        self, pieces: Pieces, size_bytes: int, next_offset: int, max_timestamp_ms: int, *, is_marker: bool = False
    ) -> None:
        """Append a batch.

        Args:
            pieces: the batch, with its offsets.
            size_bytes: its size.
            next_offset: the offset after its last record.
            max_timestamp_ms: the largest timestamp of its records.
            is_marker: whether it is a transaction marker, which may use the reserve.

        Raises:
            RefusedBatchError: there is no room; nothing has changed.
            FailedLogError: it is unknown what was written.
        """

    @abstractmethod
    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Add the aborted transaction of the marker that was appended last.

        Raises:
            FailedLogError: it can't be written.
        """

    @abstractmethod
    def release(self) -> None:
        """Free its memory or delete its files: it is no part of the log any more."""

    # ------------------------------------------------------------ reading; all raise FailedLogError

    @abstractmethod
    def first_batch_ms(self) -> int:
        """Return the largest timestamp of the first batch, or -1."""

    @abstractmethod
    def place_of(self, offset: int, ahead_bytes: int = 0) -> Place | None:
        """Return the position of the batch that holds an offset or is the next one after it, or None.

        Args:
            offset: the offset.
            ahead_bytes: how much will be read from there.
        """

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
        """Yield the batches beyond an offset with a timestamp of at least ``timestamp_ms``."""
