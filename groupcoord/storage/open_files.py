"""LRU cache of open file descriptors."""

from __future__ import annotations

import os
from collections import OrderedDict

READING = os.O_RDONLY | os.O_CLOEXEC
WRITING = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


class OpenFiles:
    """Descriptors by path; the least recently used one is closed when a file is opened beyond the limit.

    Args:
        count_max: the most files that are open at a time.

    Attributes:
        closed_count: how many files were closed so far. A descriptor stays valid while it does not change.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self.closed_count = 0
        self._descriptors: OrderedDict[str, tuple[int, bool]] = OrderedDict()  # with whether it is writable

    def reading(self, path: str) -> int:
        """Return a descriptor for reading a file.

        Raises:
            OSError: it can't be opened.
        """
        found = self._descriptors.get(path)
        if found is None:
            return self._open(path, READING)
        self._descriptors.move_to_end(path)
        return found[0]

    def writing(self, path: str, *, creates: bool = False) -> int:
        """Return a descriptor for appending to a file and reading it.

        Args:
            path: the file.
            creates: whether to create it if it does not exist.

        Raises:
            OSError: it can't be opened.
        """
        found = self._descriptors.get(path)
        if found is not None and found[1]:
            self._descriptors.move_to_end(path)
            return found[0]
        self.close(path)
        return self._open(path, WRITING | os.O_CREAT if creates else WRITING)

    def find(self, path: str) -> int:
        """Return the descriptor of an open file, or -1."""
        return self._descriptors.get(path, (-1, False))[0]

    def close(self, path: str) -> None:
        """Close a file if it is open."""
        found = self._descriptors.pop(path, None)
        if found is not None:
            self.closed_count += 1
            os.close(found[0])

    def close_all(self) -> None:
        """Close all files."""
        for path in list(self._descriptors):
            self.close(path)

    def _open(self, path: str, flags: int) -> int:
        while len(self._descriptors) >= self._count_max:
            self.close(next(iter(self._descriptors)))
        descriptor = os.open(path, flags, 0o644)
        self._descriptors[path] = descriptor, bool(flags & os.O_RDWR)
        return descriptor
