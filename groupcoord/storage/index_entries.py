"""Index entries of fixed size in memory or in Kafka's index files.

``.index`` holds the relative offset of the last record of a batch and the position of the batch. ``.timeindex`` holds
the largest timestamp so far and the relative offset of its batch. ``.txnindex`` holds the aborted transactions whose
markers are in the segment. Sources: ``OffsetIndex``, ``TimeIndex`` and ``AbortedTxn`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import os
from struct import Struct

from groupcoord.storage.cleaned_transactions import AbortedTransaction
from groupcoord.storage.open_files import OpenFiles

OFFSET_ENTRY, TIME_ENTRY = Struct(">ii"), Struct(">qi")
_ABORTED_ENTRY = Struct(">hqqqq")
_ABORTED_VERSION = 0

Entry = tuple[int, int]


class MemoryEntries:
    """Index in memory, which entries can be added to."""

    def __init__(self, layout: Struct, data: bytes = b"") -> None:
        self._layout = layout
        self.data = bytearray(data)

    def __len__(self) -> int:
        return len(self.data) // self._layout.size

    def __getitem__(self, index: int) -> Entry:
        first, second = self._layout.unpack_from(self.data, self._layout.size * (index % len(self)))
        return first, second

    def append(self, first: int, second: int) -> None:
        """Append an entry."""
        self.data += self._layout.pack(first, second)


class FileEntries:
    """Index in a file; each entry is read on access.

    Args:
        files: the open files.
        path: the file.
        layout: the layout of one entry.
        count: the number of entries.
    """

    def __init__(self, files: OpenFiles, path: str, layout: Struct, count: int) -> None:
        self._files = files
        self._path = path
        self._layout = layout
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Entry:
        size = self._layout.size
        first, second = self._layout.unpack(os.pread(self._files.reading(self._path), size, size * index % self._end))
        return first, second

    @property
    def _end(self) -> int:
        return self._layout.size * self._count


Entries = MemoryEntries | FileEntries


class AbortedEntries:
    """Aborted transactions in a file, which is created with the first one.

    Args:
        files: the open files.
        path: the file.
        count: the number of entries.
    """

    def __init__(self, files: OpenFiles, path: str, count: int = 0) -> None:
        self._files = files
        self._path = path
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> AbortedTransaction:
        size = _ABORTED_ENTRY.size
        return AbortedTransaction(
            *_ABORTED_ENTRY.unpack(os.pread(self._files.reading(self._path), size, size * index))[1:]
        )

    def append(self, transaction: AbortedTransaction) -> None:
        """Append an aborted transaction.

        Raises:
            OSError: it can't be written.
        """
        entry = _ABORTED_ENTRY.pack(_ABORTED_VERSION, *transaction)
        written = os.write(self._files.writing(self._path, creates=True), entry)
        if written != len(entry):
            raise OSError(0, "only a part could be written", self._path)
        self._count += 1


def aborted_count(size_bytes: int) -> int:
    """Return the number of aborted transactions in a file of this size."""
    return size_bytes // _ABORTED_ENTRY.size
