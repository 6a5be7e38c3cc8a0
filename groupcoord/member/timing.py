"""When a member does things: never, or when a wait is over. Times are milliseconds of the host's clock."""

from __future__ import annotations

from collections.abc import Callable

NEVER_MS = 2**63
"""Later than every time that a host can name."""


JITTER = 0.2
"""The wait is up to this part shorter or longer, so that clients don't all come back at the same time."""

_DOUBLINGS_MAX = 63


class ExponentialBackoff:
    """Doubles the wait with each try, with jitter, up to a longest one.

    Args:
        initial_ms: the first wait (``retry.backoff.ms``).
        longest_ms: no wait is longer (``retry.backoff.max.ms``); if not above ``initial_ms``, all are this long.
        random: returns numbers from 0 up to, but not, 1.
    """

    __slots__ = ("_initial_ms", "_longest_ms", "_random")

    def __init__(self, initial_ms: int, longest_ms: int, random: Callable[[], float]) -> None:
        self._initial_ms = min(initial_ms, longest_ms)
        self._longest_ms = longest_ms
        self._random = random

    def wait_ms(self, attempts: int) -> int:
        """Return how long to wait after a number of tries that failed before the last one."""
        if self._initial_ms == self._longest_ms:
            return self._initial_ms
        wait_ms = min(self._initial_ms << min(attempts, _DOUBLINGS_MAX), self._longest_ms)
        return min(int(wait_ms * (1 - JITTER + 2 * JITTER * self._random())), self._longest_ms)
