"""Java's ``PriorityQueue``: a binary heap, whose steps decide which of several equal entries comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

EntryT = TypeVar("EntryT")


class PriorityQueue(Generic[EntryT]):
    """Entries of which the least one can be taken.

    Args:
        key: by which entries are compared. It may change for those that are not in the queue.
        entries: what is put into it, one by one.

    >>> queue = PriorityQueue(len, ["aa", "bb", "c"])
    >>> queue.take(), queue.take(), queue.take(), len(queue)
    ('c', 'bb', 'aa', 0)
    """

    __slots__ = ("_entries", "_key")

    def __init__(self, key: Callable[[EntryT], float], entries: Iterable[EntryT] = ()) -> None:
        self._key = key
        self._entries: list[EntryT] = []
        for entry in entries:
            self.put(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: EntryT) -> None:
        """Insert an entry: it rises until what is above it is not larger."""
        entries, key = self._entries, self._key
        place = len(entries)
        entries.append(entry)
        own_key = key(entry)
        while place > 0:
            parent = (place - 1) // 2
            if own_key >= key(entries[parent]):
                break
            entries[place] = entries[parent]
            place = parent
        entries[place] = entry

    def take(self) -> EntryT:
        """Remove the least entry and return it; the last one sinks from its place until nothing below is smaller.

        Raises:
            IndexError: there is none.
        """
        entries, key = self._entries, self._key
        last = entries.pop()
        if not entries:
            return last
        least, size, place = entries[0], len(entries), 0
        last_key = key(last)
        while place < size // 2:
            child = 2 * place + 1
            if child + 1 < size and key(entries[child + 1]) < key(entries[child]):
                child += 1
            if last_key <= key(entries[child]):
                break
            entries[place] = entries[child]
            place = child
        entries[place] = last
        return least
