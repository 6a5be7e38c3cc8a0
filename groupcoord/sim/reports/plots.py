"""Histograms of measures as SVG; several of one measure have the same axes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import ceil, floor, log10

from groupcoord.analysis.report.html import layout
from groupcoord.analysis.report.html.layout import EMPTY, Html, element, paragraph
from groupcoord.analysis.report.text import format_duration
from groupcoord.sim.reports.measures import Bin, Measure, histogram

_S, _MIN, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
_STEPS_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(_S, 2 * _S, 5 * _S, 10 * _S, 15 * _S, 30 * _S),
    *(_MIN, 2 * _MIN, 5 * _MIN, 10 * _MIN, 15 * _MIN, 30 * _MIN),
    *(_H, 2 * _H, 3 * _H, 6 * _H, 12 * _H, _D),
)


def ticks(least: float, most: float, count_max: int, *, is_time: bool) -> list[int]:
    """Return round whole numbers from ``least`` to ``most``: one to ``count_max``."""
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


WIDTH, HEIGHT = 440, 170
LEFT, RIGHT, TOP, BOTTOM = 46, 18, 22, 26
BAR_WIDTH_MAX, BAR_HEIGHT_MIN = 48, 1.5
X_TICKS_MAX, Y_TICKS_MAX = 5, 4


def format_value(measure: Measure, value: float) -> str:
    if measure.unit == "ms":
        return format_duration(value) if value > -0.5 else f"-{format_duration(-value)}"  # no sign for a rounded 0
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def plot(measure: Measure, series: Sequence[tuple[str, Sequence[int]]]) -> Html:
    every = list(chain.from_iterable(values for _, values in series))
    if not every:
        return EMPTY
    bounds = (min(every), max(every))
    found = [(name, histogram(values, bounds=bounds)) for name, values in series if values]
    highest = max(count for _, bins in found for _, _, count in bins)
    pictures = [_picture(measure, name, bins, highest) for name, bins in found]
    title = measure.title[:1].upper() + measure.title[1:]
    return element(
        "article",
        element("h3", title),
        paragraph(f"{measure.of_what} One value for each {measure.each}, in every seed."),
        *pictures,
        class_="card",
        id=measure.key,
    )


def _picture(measure: Measure, name: str, bins: Sequence[Bin], highest: int) -> Html:
    floor, top = HEIGHT - BOTTOM, TOP + 6
    width = min((WIDTH - LEFT - RIGHT) / len(bins), BAR_WIDTH_MAX)
    parts = _grid(highest, floor, top)
    for place, (start, end, count) in enumerate(bins):
        if count:
            height = max((floor - top) * count / highest, BAR_HEIGHT_MIN)
            bar = layout.rect(LEFT + place * width, floor - height, max(width - 1, 1), height, "values")
            parts.append(layout.titled(f"{_format_bin(measure, start, end)}: {count:,}", [bar]))
    parts += [layout.line(LEFT, floor, WIDTH - RIGHT, floor, "axis"), *_axis(measure, bins, width, floor)]
    parts.append(layout.label(LEFT, TOP - 8, name or "values", "start"))
    label = f"histogram of {measure.title}" + (f" of {name}" if name else "")
    return layout.picture(WIDTH, HEIGHT, label, parts)


def _grid(highest: int, floor: int, top: int) -> list[Html]:
    parts = []
    for count in ticks(0, highest, Y_TICKS_MAX, is_time=False):
        y = floor - (floor - top) * count / highest
        parts += [
            layout.line(LEFT, y, WIDTH - RIGHT, y, "grid"),
            layout.label(LEFT - 6, y + 4, f"{count:,}", "end"),
        ]
    return parts


def _axis(measure: Measure, bins: Sequence[Bin], width: float, floor: int) -> list[Html]:
    """Return round values below the bars. Where a bin is one value, a tick is at its middle."""
    start, end = bins[0][0], bins[-1][1]
    span = bins[0][1] - bins[0][0] + 1
    middle = 0.5 if span == 1 else 0.0
    parts = []
    for value in ticks(start, end, X_TICKS_MAX, is_time=measure.unit == "ms"):
        x = LEFT + ((value - start) / span + middle) * width
        parts += [
            layout.line(x, floor, x, floor + 4, "axis"),
            layout.label(x, HEIGHT - 6, format_value(measure, value), "middle"),
        ]
    return parts


def _format_bin(measure: Measure, start: int, end: int) -> str:
    least, most = format_value(measure, start), format_value(measure, end)
    return least if least == most else f"{least} to {most}"
