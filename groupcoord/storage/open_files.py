"""Files that are open, not more than so many: the one that was not used for longest is closed for another."""

from __future__ import annotations

import os
from collections import OrderedDict

READING = os.O_RDONLY | os.O_CLOEXEC
WRITING = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


class OpenFiles:
    """Descriptors by path.

    Args:
        count_max: how many files are open at most.

    Attributes:
        closed_count: how many were closed ever: a descriptor is good as long as none was.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self.closed_count = 0
        self._descriptors: OrderedDict[str, tuple[int, bool]] = OrderedDict()  # and whether it can be written to

    def reading(self, path: str) -> int:
        """Return a descriptor to read a file with.

        Raises:
            OSError: it can't be opened.
        """
        found = self._descriptors.get(path)
        if found is None:
            return self._open(path, READING)
        self._descriptors.move_to_end(path)
        return found[0]

    def writing(self, path: str, *, creates: bool = False) -> int:
        """Return a descriptor to append to a file, and to read it.

        Args:
            path: the file.
            creates: make it if there is none.

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
        """Return the descriptor of a file that is open; -1 if it isn't."""
        return self._descriptors.get(path, (-1, False))[0]

    def close(self, path: str) -> None:
        """Close a file if it is open."""
        found = self._descriptors.pop(path, None)
        if found is not None:
            self.closed_count += 1
            os.close(found[0])

    def close_all(self) -> None:
        """Close every file."""
        for path in list(self._descriptors):
            self.close(path)

    def _open(self, path: str, flags: int) -> int:
        while len(self._descriptors) >= self._count_max:
            self.close(next(iter(self._descriptors)))
        descriptor = os.open(path, flags, 0o644)
        self._descriptors[path] = descriptor, bool(flags & os.O_RDWR)
        return descriptor
