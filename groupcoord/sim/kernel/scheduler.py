"""One virtual clock and what is due on it."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Action = Callable[[Any], None]
"""What happens; called with the argument that was scheduled beside it."""

WORLD_RANK = 0
"""Faults come first."""


def rank_of_node(node_id: int) -> int:
    """Return the rank of what a node does by itself."""
    return node_id


def rank_of_arrival(client_number: int) -> int:
    """Return the rank of a consumer's request that reaches a node; the next rank is that of answers."""
    return _FIRST_CLIENT + 4 * client_number


def rank_of_deadline(client_number: int) -> int:
    """Return the rank of what a consumer does by itself."""
    return _FIRST_CLIENT + 4 * client_number + 2


_FIRST_CLIENT = 1_000


class Scheduler:
    """A heap of what is to happen; a clock for everybody in the world (see :class:`groupcoord.Clock`).

    What is due at the same millisecond happens in the order of ranks, and among equals in the order in which it was
    scheduled. Whoever acts has ranks of its own, so that the order does not depend on how early others made up their
    minds. Nothing is ever taken out: who no longer wants to be called looks when it is.

    Attributes:
        time_ms: now, in milliseconds since the Unix epoch.
        executed: how much has happened so far.
    """

    __slots__ = ("_heap", "_sequence", "executed", "time_ms")

    def __init__(self, start_ms: int) -> None:
        self.time_ms = start_ms
        self.executed = 0
        self._heap: list[tuple[int, int, int, Action, Any]] = []
        self._sequence = 0

    def now_ms(self) -> int:
        """Return the virtual time in milliseconds since the Unix epoch."""
        return self.time_ms

    def at(self, time_ms: int, rank: int, action: Action, argument: Any = None) -> None:
        """Let ``action(argument)`` happen at ``time_ms``, or now if that is in the past.

        Args:
            time_ms: when, in milliseconds since the Unix epoch.
            rank: whose turn comes first at the same time: :data:`WORLD_RANK` and others here.
            action: what to do.
            argument: what it is called with.
        """
        self._sequence = sequence = self._sequence + 1
        now_ms = self.time_ms
        heappush(self._heap, (time_ms if time_ms > now_ms else now_ms, rank, sequence, action, argument))

    def run_until(self, end_ms: int, after_each: Callable[[], None] | None = None) -> None:
        """Let everything up to and including ``end_ms`` happen, ``after_each`` after each of it."""
        heap = self._heap
        executed = 0
        try:
            while heap and heap[0][0] <= end_ms:
                self.time_ms, _, _, action, argument = heappop(heap)
                executed += 1
                action(argument)
                if after_each is not None:
                    after_each()
        finally:
            self.executed += executed
        self.time_ms = max(self.time_ms, end_ms)
