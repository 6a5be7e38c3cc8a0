"""Exponential backoff and deadlines of a member, in milliseconds of the host's clock."""

from __future__ import annotations

from collections.abc import Callable

NEVER_MS = 2**63
"""Later than any time of a host."""


JITTER = 0.2
"""Largest relative deviation of a wait, so that clients do not return at the same time."""

_DOUBLINGS_MAX = 63


class ExponentialBackoff:
    """Doubles the wait with each attempt, with jitter, up to a maximum.

    Args:
        initial_ms: the first wait (``retry.backoff.ms``).
        longest_ms: the maximum (``retry.backoff.max.ms``); if not above ``initial_ms``, all waits are this long.
        random: returns numbers in [0, 1).
    """

    __slots__ = ("_initial_ms", "_longest_ms", "_random")

    def __init__(self, initial_ms: int, longest_ms: int, random: Callable[[], float]) -> None:
        self._initial_ms = min(initial_ms, longest_ms)
        self._longest_ms = longest_ms
        self._random = random

    def wait_ms(self, attempts: int) -> int:
        """Return the wait after this many failed attempts before the last one."""
        if self._initial_ms == self._longest_ms:
            return self._initial_ms
        wait_ms = min(self._initial_ms << min(attempts, _DOUBLINGS_MAX), self._longest_ms)
        return min(int(wait_ms * (1 - JITTER + 2 * JITTER * self._random())), self._longest_ms)
