"""A stretch of a log, in memory or in files: what a log asks of either."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from groupcoord.storage.cleaned_transactions import AbortedTransaction

Pieces = tuple[bytes | bytearray | memoryview, ...]
"""What stands one behind the other."""

INDEX_INTERVAL_BYTES = 4_096
"""Kafka's ``index.interval.bytes``: an index has an entry for the first batch behind so many bytes, and
to this grain only a broker knows where what it has read ends."""


NOT_READ = memoryview(b"")


class Place(NamedTuple):
    """Where a batch stands in its segment, in bytes.

    Attributes:
        data: what stands there and behind it, as far as it was read to find the place.
    """

    position: int
    end_position: int
    data: memoryview = NOT_READ


class AbortedTransactions(Protocol):
    """The aborted transactions whose markers stand in a segment, in order."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> AbortedTransaction: ...


class Segment(ABC):
    """Batches that follow each other. Positions are bytes from its beginning.

    Attributes:
        base_offset: no record of it has a lower offset.
        next_offset: the offset after the last.
        size_bytes: of all batches.
        goes_on: it is a part of the same segment of Kafka's as the one before.
    """

    __slots__ = ("base_offset", "goes_on", "next_offset", "size_bytes")

    def __init__(self, base_offset: int, *, goes_on: bool = False) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.goes_on = goes_on

    def has_room(self, size_bytes: int) -> bool:
        """Tell whether a batch of this size goes here, for what the segment itself is."""
        return True

    @property
    @abstractmethod
    def max_timestamp_ms(self) -> int:
        """The largest of all; -1 if there is none."""

    @property
    @abstractmethod
    def aborted(self) -> AbortedTransactions:
        """The transactions that end here, and were aborted."""

    # ------------------------------------------------------------ writing

    @abstractmethod
    def append(
        self, pieces: Pieces, size_bytes: int, next_offset: int, max_timestamp_ms: int, *, is_marker: bool = False
    ) -> None:
        """Add a batch.

        Args:
            pieces: the batch, with its offset.
            size_bytes: of all of it.
            next_offset: the offset after its last.
            max_timestamp_ms: the largest of its records.
            is_marker: it ends a transaction, and has a reserve.

        Raises:
            RefusedBatchError: there is no room; nothing has changed.
            FailedLogError: what was written can't be told.
        """

    @abstractmethod
    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Note an aborted transaction whose marker was appended last.

        Raises:
            FailedLogError: it can't be written.
        """

    @abstractmethod
    def release(self) -> None:
        """Give back what it takes: it is no part of the log any more."""

    # ------------------------------------------------------------ reading; all raise FailedLogError

    @abstractmethod
    def first_batch_ms(self) -> int:
        """Return the largest timestamp of the first batch; -1 if there is none."""

    @abstractmethod
    def place_of(self, offset: int, ahead_bytes: int = 0) -> Place | None:
        """Return where the batch stands that holds an offset or is the next behind it; None if there is none.

        Args:
            offset: the offset.
            ahead_bytes: so much will be read from there on.
        """

    @abstractmethod
    def end_before(self, offset: int) -> int:
        """Return the position behind the last batch that begins before an offset."""

    @abstractmethod
    def first_offset_at(self, position: int) -> int:
        """Return the offset of the first batch that begins at a position or behind it."""

    @abstractmethod
    def view(self, position: int, end_position: int) -> memoryview:
        """Return the bytes between two positions."""

    @abstractmethod
    def batches_since(self, timestamp_ms: int, offset: int) -> Iterator[memoryview]:
        """Pass over the batches with a time not before this one, of those that reach beyond an offset."""
