"""Axes of plots: round numbers that people read, at equal distances."""

from __future__ import annotations

from math import ceil, floor, log10

_S, _MIN, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
_STEPS_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(_S, 2 * _S, 5 * _S, 10 * _S, 15 * _S, 30 * _S),
    *(_MIN, 2 * _MIN, 5 * _MIN, 10 * _MIN, 15 * _MIN, 30 * _MIN),
    *(_H, 2 * _H, 3 * _H, 6 * _H, 12 * _H, _D),
)


def ticks(least: float, most: float, count_max: int, *, is_time: bool) -> list[int]:
    """Return whole round numbers from ``least`` to ``most``, at most so many and at least one.

    Args:
        least, most: the ends of the axis.
        count_max: how many there is room for, 2 or more.
        is_time: they are milliseconds: steps are those of a clock.
    """
    step = _step((most - least) / max(count_max - 1, 1), is_time=is_time)
    found = list(range(ceil(least / step) * step, floor(most / step) * step + 1, step))
    return found or [round(least)]


def _step(at_least: float, *, is_time: bool) -> int:
    if at_least <= 1:
        return 1
    if is_time and at_least <= _STEPS_MS[-1]:
        return next(step for step in _STEPS_MS if step >= at_least)
    scale = int(10 ** floor(log10(at_least)))
    return next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= at_least)
