"""``check_clock`` accepts clocks that keep the contract, and reports what others break."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from groupcoord import ManualClock, SystemClock
from groupcoord.clock import Clock, LeapingClock
from groupcoord.testing import check_clock
from tests.tables import as_one_test


def test_our_clocks_keep_the_contract() -> None:
    """The system's clock and the manual one are what the coordinator may rely on."""
    check_clock(SystemClock)
    check_clock(ManualClock, advance=ManualClock.advance)
    check_clock(LeapingClock)


class FromFunction:
    """A clock that shows what a function returns."""

    def __init__(self, now: Callable[[], object]) -> None:
        self._now = now

    def now_ms(self) -> int:
        return self._now()  # type: ignore[return-value]


def backwards() -> Callable[[], int]:
    numbers = iter(range(1_700_000_000_000, 0, -1))
    return lambda: next(numbers)


@as_one_test
@pytest.mark.parametrize(
    ("now", "message"),
    [
        (lambda: time.time() * 1000, "must be a whole number of milliseconds"),
        (lambda: None, "must be a whole number of milliseconds"),
        (lambda: True, "must be a whole number of milliseconds"),
        (lambda: int(time.time()), "no time of today in milliseconds"),
        (lambda: time.time_ns() // 1000, "no time of today in milliseconds"),
        (lambda: time.monotonic_ns() // 1_000_000, "no time of today in milliseconds"),
        (lambda: 1_700_000_000_000, r"the clock showed 0 ms while \d+ ms passed"),
        (backwards(), "the clock went back, from 1700000000000 to 1699999999999"),
    ],
)
def test_what_is_wrong_is_told(now: Callable[[], object], message: str) -> None:
    """Fractions, seconds, microseconds, another epoch, standing still and going back are each named."""
    with pytest.raises(AssertionError, match=message):
        check_clock(lambda: FromFunction(now))


class Coarse(ManualClock):
    """A virtual clock that drops what is less than a second."""

    def advance(self, duration_ms: int) -> None:
        super().advance(duration_ms // 1000 * 1000)


class Shared:
    """A virtual clock with a time common to its class."""

    time_ms = 0

    def now_ms(self) -> int:
        return Shared.time_ms

    def advance(self, duration_ms: int) -> None:
        Shared.time_ms += duration_ms


class Restless(ManualClock):
    """A virtual clock that moves by being looked at."""

    def now_ms(self) -> int:
        self.advance(1)
        return super().now_ms()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Coarse, "advanced by 1 ms, the clock went from 0 to 0"),
        (Shared, "advancing one clock moved another one"),
        (Restless, "a virtual clock advanced by itself"),
    ],
)
def test_what_is_wrong_with_a_virtual_clock_is_told(kind: type[Clock], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_clock(kind, advance=lambda clock, duration_ms: clock.advance(duration_ms))  # type: ignore[attr-defined]
