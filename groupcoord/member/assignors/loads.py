"""Who has the fewest partitions, and who has the most: heaps whose entries are put right when they come up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace


class Loads:
    """How many partitions each member has.

    Attributes:
        sizes: the numbers, by member.
    """

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self._floors = list(sizes)
        self._rankings: list[list[FewestFirst]] = [[] for _ in sizes]

    def grew(self, member: int) -> None:
        """Count one partition more."""
        self.sizes[member] += 1

    def shrank(self, member: int) -> None:
        """Count one partition less, and have every ranking know of it."""
        self.sizes[member] -= 1
        size = self.sizes[member]
        if size < self._floors[member]:
            # Half of it, so that a member which gives up thousands of partitions is not ranked anew for each.
            self._floors[member] = size // 2
            for ranking in self._rankings[member]:
                ranking.add(member, size // 2)

    def rank(self, members: list[int]) -> FewestFirst:
        """Return a ranking of these members."""
        ranking = FewestFirst(self, members)
        for member in members:
            self._rankings[member].append(ranking)
            self.came_up(member)
        return ranking

    def came_up(self, member: int) -> None:
        """Note that a ranking has a member's exact size, and no smaller one any more."""
        self._floors[member] = max(self._floors[member], self.sizes[member])


class FewestFirst:
    """Members by how many partitions they have, then by themselves.

    Each member has an entry that is not larger than its size. An entry that is smaller is replaced when it comes up.
    """

    def __init__(self, loads: Loads, members: list[int]) -> None:
        self._loads = loads
        self._heap = [(loads.sizes[member], member) for member in members]
        heapify(self._heap)

    def first(self) -> tuple[int, int]:
        """Return size and member for the one that has the fewest partitions."""
        heap, sizes = self._heap, self._loads.sizes
        size, member = heap[0]
        while size != sizes[member]:
            heapreplace(heap, (sizes[member], member))
            self._loads.came_up(member)
            size, member = heap[0]
        return size, member

    def add(self, member: int, size: int) -> None:
        """Add an entry for a member that takes part; it is the smallest one for it."""
        heappush(self._heap, (size, member))


class LargestOwner:
    """Of the owners of one topic's partitions, the one that has the most partitions, of any topic.

    Args:
        owners: for each partition of the topic its owner.
        sizes: how many partitions each member has. They change elsewhere; what shrank is noticed when it comes up.
    """

    def __init__(self, owners: Iterable[int], sizes: list[int]) -> None:
        self._sizes = sizes
        self._counts = Counter(owners)
        self._largest_entry = {owner: -sizes[owner] for owner in self._counts}
        self._heap = [(entry, owner) for owner, entry in self._largest_entry.items()]
        heapify(self._heap)

    def size(self) -> int:
        """Return how many partitions the largest owner has."""
        heap, sizes = self._heap, self._sizes
        while True:
            entry, owner = heap[0]
            now = -sizes[owner]
            if not self._counts[owner] or entry != self._largest_entry[owner]:
                heappop(heap)
            elif entry != now:
                self._largest_entry[owner] = now
                heapreplace(heap, (now, owner))
            else:
                return -entry

    def lost(self, owner: int) -> None:
        """Take note that an owner has one of the topic's partitions less."""
        self._counts[owner] -= 1

    def gained(self, owner: int) -> None:
        """Take note that a member has one of the topic's partitions more."""
        self._counts[owner] += 1
        self.grew(owner)

    def grew(self, owner: int) -> None:
        """Take note that an owner has more partitions now, of whatever topic."""
        self._largest_entry[owner] = -self._sizes[owner]
        heappush(self._heap, (-self._sizes[owner], owner))
