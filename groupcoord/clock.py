"""Clocks: the ``Clock`` protocol, the system's clock, and manual ones for tests."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time: milliseconds since the Unix epoch, monotonic."""

    def now_ms(self) -> int:
        """Return the current time in milliseconds since 1970-01-01T00:00:00Z."""


class SystemClock:
    """System time: read once from the wall clock and continued by the monotonic clock.

    So a step of the wall clock neither expires all sessions at once nor stops their expiry.
    """

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Return the current time in milliseconds since the Unix epoch."""
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000


class LeapingClock(SystemClock):
    """System time plus an offset: a running clock that can be advanced.

    >>> clock = LeapingClock()
    >>> before_ms = clock.now_ms()
    >>> clock.advance(3_600_000)
    >>> clock.now_ms() - before_ms >= 3_600_000
    True
    """

    def advance(self, duration_ms: int) -> None:
        """Advance the clock by ``duration_ms``.

        Raises:
            ValueError: the duration is negative.
        """
        if duration_ms < 0:
            raise ValueError(f"the duration must not be negative: advance({duration_ms})")
        self._offset_ns += duration_ms * 1_000_000

    def advance_to(self, now_ms: int) -> None:
        """Advance the clock to ``now_ms``; does nothing if that has passed."""
        self.advance(max(now_ms - self.now_ms(), 0))


class ManualClock:
    """Clock that only moves when it is advanced, for tests and simulations.

    >>> clock = ManualClock()
    >>> clock.advance(250)
    >>> clock.now_ms()
    250
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the current setting, in milliseconds."""
        return self._now_ms

    def advance(self, duration_ms: int) -> None:
        """Advance the clock by ``duration_ms``.

        Raises:
            ValueError: the duration is negative.
        """
        if duration_ms < 0:
            raise ValueError(f"the duration must not be negative: advance({duration_ms})")
        self._now_ms += duration_ms

    def advance_to(self, now_ms: int) -> None:
        """Advance the clock to ``now_ms``.

        Raises:
            ValueError: that time has passed.
        """
        self.advance(now_ms - self._now_ms)
