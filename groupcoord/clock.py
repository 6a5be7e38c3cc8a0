"""Where time comes from: the ``Clock`` protocol, the system's clock and one that tests turn by hand."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time: milliseconds since the Unix epoch, which never go back."""

    def now_ms(self) -> int:
        """Return the current time in milliseconds since 1970-01-01T00:00:00Z."""


class SystemClock:
    """The system's time, read once from the wall clock and carried on by the monotonic one.

    A step of the wall clock (NTP, an operator) can therefore neither expire every session at once nor stop them from
    expiring; commit timestamps keep the time of day the process started with.
    """

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Return the current time in milliseconds since the Unix epoch."""
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000


class LeapingClock(SystemClock):
    """The system's time, and what has been added to it: a clock that goes on by itself and can be turned forward.

    >>> clock = LeapingClock()
    >>> before_ms = clock.now_ms()
    >>> clock.advance(3_600_000)
    >>> clock.now_ms() - before_ms >= 3_600_000
    True
    """

    def advance(self, duration_ms: int) -> None:
        """Let ``duration_ms`` milliseconds pass at once.

        Raises:
            ValueError: the duration is negative.
        """
        if duration_ms < 0:
            raise ValueError(f"time cannot go back: advance({duration_ms})")
        self._offset_ns += duration_ms * 1_000_000

    def advance_to(self, now_ms: int) -> None:
        """Let time pass until ``now_ms``; a moment that is over already changes nothing."""
        self.advance(max(now_ms - self.now_ms(), 0))


class ManualClock:
    """A clock that stands still until it is told otherwise: for tests and simulations.

    >>> clock = ManualClock()
    >>> clock.advance(250)
    >>> clock.now_ms()
    250
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time that was set last, in milliseconds."""
        return self._now_ms

    def advance(self, duration_ms: int) -> None:
        """Let ``duration_ms`` milliseconds pass.

        Raises:
            ValueError: the duration is negative.
        """
        if duration_ms < 0:
            raise ValueError(f"time cannot go back: advance({duration_ms})")
        self._now_ms += duration_ms

    def advance_to(self, now_ms: int) -> None:
        """Let time pass until ``now_ms``.

        Raises:
            ValueError: that moment is in the past.
        """
        self.advance(now_ms - self._now_ms)
