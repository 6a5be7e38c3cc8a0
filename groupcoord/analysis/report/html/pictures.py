"""Axes, scales and columns of the pictures in a report, which ``pictures.html.jinja`` draws."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import frozen

from groupcoord.analysis.fold.history.causes import CAUSES
from groupcoord.analysis.report.data.model import STATES, Bins

WIDTH = 960
LEFT, RIGHT = 76, 948
TICKS_MAX = 8
OWNER_COLOURS = 24

_LEVELS = (10, 15, 20, 25, 30, 40, 50, 60, 80, 100)
_S, _MIN, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
_STEPS_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(_S, 2 * _S, 5 * _S, 10 * _S, 15 * _S, 30 * _S),
    *(_MIN, 2 * _MIN, 5 * _MIN, 10 * _MIN, 15 * _MIN, 30 * _MIN),
    *(_H, 2 * _H, 3 * _H, 6 * _H, 12 * _H, _D),
)


def ticks(least: int, most: int, count_max: int, *, is_time: bool, step_min: int = 1) -> list[int]:
    """Return at most ``count_max`` round numbers from ``least`` to ``most``. Times are milliseconds, or whole days."""
    step = _step(max(-(-(most - least) // max(count_max - 1, 1)), step_min), is_time=is_time)
    return list(range(-(-least // step) * step, most + 1, step))


def _step(at_least: int, *, is_time: bool) -> int:
    if is_time:
        return next((step for step in _STEPS_MS if step >= at_least), -(-at_least // _D) * _D)
    scale: int = 10 ** (len(str(at_least)) - 1)
    return next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= at_least)


@frozen
class Axis:
    """Time from left to right."""

    start_ms: int
    end_ms: int
    left: float = LEFT
    right: float = RIGHT

    @property
    def span_ms(self) -> int:
        return max(self.end_ms - self.start_ms, 1)

    def x(self, at_ms: float) -> float:
        share = (at_ms - self.start_ms) / self.span_ms
        return self.left + (self.right - self.left) * min(max(share, 0.0), 1.0)

    def ticks(self) -> list[int]:
        return ticks(self.start_ms, self.end_ms, TICKS_MAX + 1, is_time=True, step_min=_S)


@frozen
class Scale:
    """Values from ``floor`` up to ``top``, which has the value ``highest``."""

    top: float
    floor: float
    highest: int
    lowest: int = 0

    @classmethod
    def of_counts(cls, counts: Iterable[int], top: float, floor: float) -> Scale:
        """Return the scale from 0 to a round number."""
        highest = max(counts, default=0)
        size = 10 ** (len(str(highest)) - 1)
        round_ones = (size * step // 10 for step in _LEVELS if size * step >= highest * 10)
        return cls(top, floor, max(highest, 1) if highest <= 4 else next(round_ones))

    def height(self, value: float) -> float:
        return (self.floor - self.top) * value / max(self.highest - self.lowest, 1)

    def y(self, value: float) -> float:
        return self.floor - self.height(value - self.lowest)


@frozen
class Column:
    """Counts of one bin by name, in drawing order and without zeros."""

    at_ms: int
    x: float
    width: float
    counts: Mapping[str, int]

    @property
    def words(self) -> str:
        return ", ".join(f"{name} {count:,}" for name, count in self.counts.items())


def columns(bins: Bins, axis: Axis) -> Iterator[Column]:
    """Yield the columns of bins with counts."""
    names = in_order(bins.series)
    for place in range(bins.length):
        counts = {name: bins.series[name][place] for name in names if bins.series[name][place]}
        if counts:
            at_ms = bins.start_ms + place * bins.width_ms
            x, end = axis.x(at_ms), axis.x(at_ms + bins.width_ms)
            yield Column(at_ms, x, max(end - 1 - x, 0.5), counts)


def steps(values: Sequence[tuple[int, int | None]], axis: Axis, scale: Scale) -> Iterator[str]:
    """Yield the points of step lines, which end where there is no value."""
    points: list[str] = []
    last: int | None = None
    for at_ms, value in (*values, (axis.end_ms, None)):
        if value != last:
            at = [f"{axis.x(at_ms):.0f},{scale.y(each):.0f}" for each in (last, value) if each is not None]
            points, last = points + at, value
            if value is None:
                yield " ".join(points)
                points = []


def cause_class(cause: str) -> str:
    return f"cause-{_slug(cause)}" if cause in CAUSES else "cause-other"


def state_class(state: str) -> str:
    return f"state-{_slug(state)}" if state in STATES else "state-other"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z]+", "-", name.lower())


def in_order(names: Iterable[str], order: Sequence[str] = CAUSES) -> list[str]:
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))
