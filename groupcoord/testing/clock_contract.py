"""Is a clock what the coordinator may rely on? :func:`check_clock` asks it.

def test_my_clock():
    check_clock(MyClock)
    check_clock(MyVirtualClock, advance=lambda clock, duration_ms: clock.turn(duration_ms))
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from groupcoord.clock import Clock
from groupcoord.laws import require

ClockT = TypeVar("ClockT", bound=Clock)

READS = 1_000
EARLIEST_MS, LATEST_MS = 1_000_000_000_000, 9_999_999_999_999
"""2001 to 2286: neither seconds nor microseconds of today lie there."""
WATCHED_MS = 60
TOLERANCE_MS = 20
DURATIONS_MS = (0, 1, 45_000, 7 * 24 * 3_600_000)


def check_clock(make_clock: Callable[[], ClockT], *, advance: Callable[[ClockT, int], None] | None = None) -> None:
    """Check that a clock keeps the contract of :class:`groupcoord.Clock`: whole milliseconds that never go back.

    A clock that runs by itself must show milliseconds since the Unix epoch and keep pace with real time (that takes
    60 ms to see). A virtual one must stand still until it is told to move, move by just as much, and disturb no other.

    Args:
        make_clock: returns a new clock.
        advance: lets time pass on a virtual clock, by a number of milliseconds; leave it out for one that runs by
            itself.

    Raises:
        AssertionError: the clock breaks the contract; the message says how.
    """
    clock = make_clock()
    last_ms = _read(clock)
    for _ in range(READS):
        now_ms = _read(clock)
        require(now_ms >= last_ms, f"the clock went back, from {last_ms} to {now_ms}")
        last_ms = now_ms
    if advance is None:
        _check_pace(clock)
    else:
        _check_virtual(clock, make_clock(), advance)


def _read(clock: Clock) -> int:
    now_ms = clock.now_ms()
    require(type(now_ms) is int, f"now_ms() returned {now_ms!r}: it must be a whole number of milliseconds")
    return now_ms


def _check_pace(clock: Clock) -> None:
    now_ms = _read(clock)
    require(
        EARLIEST_MS <= now_ms <= LATEST_MS,
        f"now_ms() returned {now_ms}, which is no time of today in milliseconds since the Unix epoch",
    )
    outer_ns = time.monotonic_ns()
    first_ms = _read(clock)
    inner_ns = time.monotonic_ns()
    time.sleep(WATCHED_MS / 1000)
    at_least_ms = (time.monotonic_ns() - inner_ns) // 1_000_000
    shown_ms = _read(clock) - first_ms
    at_most_ms = (time.monotonic_ns() - outer_ns) // 1_000_000
    require(
        at_least_ms - TOLERANCE_MS <= shown_ms <= at_most_ms + TOLERANCE_MS,
        f"the clock showed {shown_ms} ms while {at_most_ms} ms passed",
    )


def _check_virtual(clock: ClockT, other: ClockT, advance: Callable[[ClockT, int], None]) -> None:
    other_ms = _read(other)
    for duration_ms in DURATIONS_MS:
        before_ms = _read(clock)
        require(_read(clock) == before_ms, "a virtual clock moved by itself")
        advance(clock, duration_ms)
        now_ms = _read(clock)
        require(
            now_ms == before_ms + duration_ms,
            f"advanced by {duration_ms} ms, the clock went from {before_ms} to {now_ms}",
        )
    require(_read(other) == other_ms, "advancing one clock moved another one")
