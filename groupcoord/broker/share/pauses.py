"""When what could not be done now is tried again: after 1, 2, 4 and 8 s.

As in ``PersisterStateManager`` of Apache Kafka 4.4 there are five tries, and pauses between them that double. There
they are a fifth longer or shorter by chance.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from groupcoord.broker.work import Waker

TRIES_MAX = 5
FIRST_PAUSE_MS = 1_000


class Pauses(Waker):
    """The pauses of all that is to be tried again.

    Args:
        now_ms: returns the time.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._count = 0
        self._now_ms = now_ms
        self._over: list[tuple[int, int, Callable[[], None]]] = []

    def begin(self, try_count: int, go_on: Callable[[], None]) -> None:
        """Have something go on after a pause, which is the longer the oftener it was tried."""
        self._count += 1
        heappush(self._over, (self._now_ms() + (FIRST_PAUSE_MS << try_count - 1), self._count, go_on))
        self.wake_earlier()

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`tick` is wanted; None: there is no pause."""
        return self._over[0][0] if self._over else None

    def tick(self, now_ms: int) -> None:
        """Time has passed: go on with what has paused for long enough."""
        while self._over and self._over[0][0] <= now_ms:
            heappop(self._over)[2]()
