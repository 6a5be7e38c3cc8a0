"""Manual clock and system clock."""

from __future__ import annotations

import time

import pytest

from groupcoord import ManualClock, SystemClock


def test_a_manual_clock() -> None:
    """It starts at a given time, and moves only forward."""
    clock = ManualClock(100)
    assert clock.now_ms() == clock.now_ms() == 100
    clock.advance(50)
    clock.advance_to(200)
    clock.advance(0)
    assert clock.now_ms() == 200
    assert ManualClock().now_ms() == 0


def test_a_manual_clock_does_not_go_back() -> None:
    """Neither by a negative duration nor to a moment in the past."""
    clock = ManualClock(100)
    with pytest.raises(ValueError, match=r"the duration must not be negative: advance\(-1\)"):
        clock.advance(-1)
    with pytest.raises(ValueError, match="the duration must not be negative"):
        clock.advance_to(99)
    assert clock.now_ms() == 100


def test_the_system_clock() -> None:
    """It returns the time of day."""
    before = time.time_ns() // 1_000_000
    now_ms = SystemClock().now_ms()
    assert before - 50 <= now_ms <= time.time_ns() // 1_000_000 + 50


def test_the_system_clock_ignores_steps_of_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once made, it follows the monotonic clock alone."""
    monkeypatch.setattr(time, "time_ns", lambda: 5_000_000_000)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 1_000_000_000)
    clock = SystemClock()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 1_007_999_999)
    assert clock.now_ms() == 5_007
