"""The timer queue, and clocks."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import example, given, settings, strategies as st

from groupcoord import InvariantError, ManualClock, SystemClock
from groupcoord.core.timers import Timer, TimerKey, TimerKind, TimerQueue


def timer(name: str = "t") -> Timer:
    return Timer(TimerKey(TimerKind.SESSION, 0, "group", name))


@pytest.fixture
def queue() -> TimerQueue:
    return TimerQueue()


def test_advances(queue: TimerQueue) -> None:
    """They change exactly when the next deadline comes nearer."""
    one, other = timer("one"), timer("other")
    seen = [queue.advances]
    for armed, deadline_ms in ((one, 100), (other, 200), (one, 300), (other, 150), (other, 50), (one, 40)):
        queue.arm(armed, deadline_ms)
        seen.append(queue.advances)
    assert [after - before for before, after in pairwise(seen)] == [1, 0, 0, 0, 1, 1]
    queue.cancel(one)
    assert queue.next_deadline_ms() == 50
    queue.arm(one, 45)
    queue.cancel(one)
    queue.cancel(other)
    assert queue.next_deadline_ms() is None
    queue.arm(other, 1_000)
    assert queue.advances == seen[-1] + 2


@pytest.mark.parametrize("deadline_ms", [None, 5])
def test_check(queue: TimerQueue, deadline_ms: int | None) -> None:
    """``check`` finds an entry without an armed timer, or with a timer that is due earlier."""
    one = timer("culprit")
    queue.arm(one, 10)
    queue.check()
    one.deadline_ms = deadline_ms
    with pytest.raises(InvariantError, match="culprit"):
        queue.check()


class PlainTimers:
    """Model of timers: a list of (deadline, arming, name), sorted on each read."""

    def __init__(self) -> None:
        self.armed: dict[str, tuple[int, int]] = {}
        self.count = 0

    def arm(self, name: str, deadline_ms: int) -> None:
        self.count += 1
        self.armed[name] = (deadline_ms, self.count)

    def pop_due(self, now_ms: int) -> str | None:
        first = min(self.armed.items(), key=lambda entry: entry[1], default=None)
        if first is None or first[1][0] > now_ms:
            return None
        del self.armed[first[0]]
        return first[0]


NAMES = st.sampled_from("abcde")
MOMENTS = st.integers(0, 6)
STEPS = st.one_of(
    st.tuples(st.just("arm"), NAMES, MOMENTS),
    st.tuples(st.just("cancel"), NAMES),
    st.tuples(st.just("pop"), MOMENTS),
    st.tuples(st.just("look")),
)


@given(st.lists(STEPS, max_size=60))
@example([("arm", "a", 1), ("arm", "b", 2), ("arm", "a", 2)])  # equal deadlines fire in the order of arming
@example([("arm", "a", 1), ("arm", "a", 2), ("arm", "b", 2), ("look",)])  # also if somebody looks meanwhile
@settings(deadline=None)
def test_like_a_plain_list(steps: list[tuple]) -> None:
    """Arming, cancelling, firing and reading agree with the model."""
    queue, plain = TimerQueue(), PlainTimers()
    timers = {name: timer(name) for name in "abcde"}
    seen_advances, wakes_ms = queue.advances, None
    for action, *arguments in steps:
        if action == "arm":
            name, moment = arguments
            queue.arm(timers[name], moment)
            plain.arm(name, moment)
        elif action == "cancel":
            queue.cancel(timers[arguments[0]])
            plain.armed.pop(arguments[0], None)
        elif action == "pop":
            due = queue.pop_due(arguments[0])
            assert (due.key.member_id if due else None) == plain.pop_due(arguments[0])
        else:
            assert queue.next_deadline_ms() == min((deadline for deadline, _ in plain.armed.values()), default=None)
        queue.check()
        first_ms = min((deadline for deadline, _ in plain.armed.values()), default=None)
        if queue.advances != seen_advances or action == "pop":
            seen_advances, wakes_ms = queue.advances, queue.next_deadline_ms()
        # Who asks when something was due, and when told to, is never late.
        assert first_ms is None or (wakes_ms is not None and wakes_ms <= first_ms)
        assert len(queue.armed()) == len(plain.armed)
        assert {one.key.member_id: one.deadline_ms for one in queue.armed()} == {
            name: deadline for name, (deadline, _) in plain.armed.items()
        }
    while (name := plain.pop_due(6)) is not None:
        due = queue.pop_due(6)
        assert due is timers[name]


# ---------------------------------------------------------------- clocks


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


def test_the_system_clock_ignores_steps_of_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins at the time of day and follows the monotonic clock alone."""
    monkeypatch.setattr(time, "time_ns", lambda: 5_000_000_000)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 1_000_000_000)
    clock = SystemClock()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 1_007_999_999)
    assert clock.now_ms() == 5_007
