"""Indexes of a log: offsets, timestamps, aborted transactions and leader epochs, in memory or in Kafka's index files.

``.index`` holds the relative offset of the last record of a batch and the position of the batch. ``.timeindex`` holds
the largest timestamp so far and the relative offset of its batch. ``.txnindex`` holds aborted transactions. Sources:
``OffsetIndex``, ``TimeIndex``, ``AbortedTxn`` and ``LeaderEpochFileCache`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

from groupcoord.storage.files import OpenFiles
from groupcoord.storage.log.settings import LEADER_EPOCH, NO_LEADER_EPOCH

OFFSET_ENTRY, TIME_ENTRY = Struct(">ii"), Struct(">qi")
_ABORTED_ENTRY = Struct(">hqqqq")
_ABORTED_VERSION = 0

Entry = tuple[int, int]


class AbortedTransaction(NamedTuple):
    """Aborted transaction, which read-committed consumers skip.

    ``last_stable_offset`` is that after its marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class MemoryEntries:
    """Index in memory."""

    def __init__(self, layout: Struct, data: bytes = b"") -> None:
        self._layout = layout
        self.data = bytearray(data)

    def __len__(self) -> int:
        return len(self.data) // self._layout.size

    def __getitem__(self, index: int) -> Entry:
        first, second = self._layout.unpack_from(self.data, self._layout.size * (index % len(self)))
        return first, second


class _FileIndex:
    """Index in a file; each entry is read on access."""

    def __init__(self, files: OpenFiles, path: str, layout: Struct, size_bytes: int) -> None:
        self._files = files
        self._path = path
        self._layout = layout
        self._count = size_bytes // layout.size

    def __len__(self) -> int:
        return self._count

    def _read(self, index: int) -> tuple[int, ...]:
        position = self._layout.size * (index % self._count)
        return self._layout.unpack(os.pread(self._files.reading(self._path), self._layout.size, position))


class FileEntries(_FileIndex):
    """Offset index or time index in a file."""

    def __getitem__(self, index: int) -> Entry:
        first, second = self._read(index)
        return first, second


Entries = MemoryEntries | FileEntries


class AbortedEntries(_FileIndex):
    """Aborted transactions in a file, which the first one creates."""

    def __init__(self, files: OpenFiles, path: str, size_bytes: int = 0) -> None:
        super().__init__(files, path, _ABORTED_ENTRY, size_bytes)

    def __getitem__(self, index: int) -> AbortedTransaction:
        return AbortedTransaction(*self._read(index)[1:])

    def append(self, transaction: AbortedTransaction) -> None:
        entry = _ABORTED_ENTRY.pack(_ABORTED_VERSION, *transaction)
        written = os.write(self._files.writing(self._path, creates=True), entry)
        # The position of the next entry must follow the file.
        if written != len(entry):
            raise OSError(0, "only a part could be written", self._path)
        self._count += 1


class EpochEnd(NamedTuple):
    """A leader epoch and the offset after its last record."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """Leader epochs of a log with their start offsets, in order."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries = list(entries) or [(LEADER_EPOCH, 0)]

    @property
    def latest(self) -> int:
        return self._entries[-1][0]

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._entries)

    def begin(self, epoch: int, offset: int) -> None:
        """Begin a newer epoch, which replaces an epoch without records."""
        self._entries = [entry for entry in self._entries if entry[1] < offset]
        self._entries.append((epoch, offset))

    def trim(self, start_offset: int, end_offset: int) -> bool:
        """Remove epochs without records between two offsets, except the latest; return whether any was removed or
        moved.
        """
        before, latest = self._entries, self.latest
        first = max(bisect_right(before, start_offset, key=itemgetter(1)) - 1, 0)
        kept = [(epoch, max(offset, start_offset)) for epoch, offset in before[first:] if offset < end_offset]
        if not kept or kept[-1][0] != latest:
            kept.append((latest, end_offset))
        self._entries = kept
        return kept != before

    def end_of(self, epoch: int, end_offset: int) -> EpochEnd | None:
        """Return the last epoch up to the given one and the end of its records; None for -1 and newer epochs."""
        if epoch == self.latest:
            return EpochEnd(epoch, end_offset)
        # An epoch before the first one ends where the first begins, as in Kafka.
        following = bisect_right(self._entries, epoch, key=itemgetter(0))
        if epoch == NO_LEADER_EPOCH or following == len(self._entries):
            return None
        return EpochEnd(self._entries[following - 1][0] if following else epoch, self._entries[following][1])

    def at(self, offset: int) -> int:
        number = bisect_right(self._entries, offset, key=itemgetter(1))
        return self._entries[number - 1][0] if number else NO_LEADER_EPOCH
