"""Pictures of a report: rebalances and churn over time, states, load, and the history of a group."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from attrs import frozen

from groupcoord.analysis.fold.history.causes import CAUSES
from groupcoord.analysis.report.data.model import STATES, Bins, GroupStory, PartitionRow
from groupcoord.analysis.report.html.layout import Html, element, joined, label, line, picture, rect, titled
from groupcoord.analysis.report.text import (
    counted,
    format_clock,
    format_limit,
    format_number,
    format_share,
    format_size,
    format_span,
    format_time,
)

WIDTH = 960
LEFT, RIGHT = 76, 12
TICKS_MAX = 8
COLUMN_WIDTH_MAX = 72
PARTITIONS_LABELLED_MAX = 24
SILENCE_SHARE_MIN = 0.15
"""Share of the log's time: a shorter time without commits at its end is not marked."""

_CHARACTER_WIDTH = 7.5
_LEVELS = (10, 15, 20, 25, 30, 40, 50, 60, 80, 100)
_LABEL_STEPS = (1, 2, 5, 10, 20, 50, 100)
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@frozen
class Axis:
    """Time from left to right."""

    start_ms: int
    end_ms: int

    @property
    def span_ms(self) -> int:
        return max(self.end_ms - self.start_ms, 1)

    def x(self, at_ms: float) -> float:
        share = (at_ms - self.start_ms) / self.span_ms
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(share, 0.0), 1.0)

    def ticks(self) -> list[int]:
        step_ms = next((step * 1000 for step in _STEPS_S if self.span_ms / (step * 1000) <= TICKS_MAX), None)
        if step_ms is None:
            days = -(-self.span_ms // (TICKS_MAX * 86_400_000))
            step_ms = days * 86_400_000
        first = -(-self.start_ms // step_ms) * step_ms
        return list(range(first, self.end_ms + 1, step_ms))


def cause_class(cause: str) -> str:
    return f"cause-{_slug(cause)}" if cause in CAUSES else "cause-other"


def state_class(state: str) -> str:
    return f"state-{_slug(state)}" if state in STATES else "state-other"


def in_order(names: Iterable[str], order: Sequence[str]) -> list[str]:
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))


def cause_time_line(bins: Bins) -> Html:
    height, top, floor = 200, 14, 172
    names = in_order((name for name in bins.series if bins.total(name)), CAUSES)
    highest = max((sum(bins.series[name][place] for name in names) for place in range(bins.length)), default=0)
    axis = Axis(bins.start_ms, bins.end_ms)
    parts = [_levels(highest, top, floor), _times(axis, top, floor)]
    for place in range(bins.length):
        counts = {name: bins.series[name][place] for name in names if bins.series[name][place]}
        if counts:
            parts.append(_column(axis, bins, place, counts, floor, (floor - top) / _round_up(highest)))
    return _plot(height, "rebalances over time by cause", parts)


def _column(axis: Axis, bins: Bins, place: int, counts: Mapping[str, int], floor: float, scale: float) -> Html:
    left, right = _edges(axis, bins, place)
    title = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    parts, y = [], floor
    for name, count in counts.items():
        y -= count * scale
        parts.append(rect(left, y, right - left, count * scale, cause_class(name)))
    return titled(f"{format_time(bins.start_ms + place * bins.width_ms)}: {title}", parts)


def churn_time_line(bins: Bins) -> Html:
    height, top, bottom = 190, 14, 164
    middle = (top + bottom) / 2
    joined, left = (bins.series.get(name, (0,) * bins.length) for name in ("joined", "left"))
    highest = max((*joined, *left), default=0)
    scale = (middle - top) / _round_up(highest)
    axis = Axis(bins.start_ms, bins.end_ms)
    parts = [_times(axis, top, bottom), line(LEFT, middle, WIDTH - RIGHT, middle, "axis")]
    most = _round_up(highest)
    parts += [label(LEFT - 6, y + 4, f"{most:,}", "end") for y in (top, bottom)]
    for place, (up, down) in enumerate(zip(joined, left, strict=True)):
        if up or down:
            start, end = _edges(axis, bins, place)
            title = f"{format_time(bins.start_ms + place * bins.width_ms)}: {up:,} joined, {down:,} left"
            shapes = [rect(start, middle - up * scale, end - start, up * scale, "joined")] if up else []
            shapes += [rect(start, middle, end - start, down * scale, "left")] if down else []
            parts.append(titled(title, shapes))
    return _plot(height, "members that joined and left over time", parts)


def state_bar(counts: Mapping[str, int]) -> Html:
    total = sum(counts.values())
    x, parts = 0.0, []
    for state in in_order((name for name, count in counts.items() if count), STATES):
        width = WIDTH * counts[state] / total
        title = f"{state}: {counts[state]:,} of {counted(total, 'group')}"
        parts.append(titled(title, [rect(x, 0, max(width - 1, 0.5), 26, state_class(state))]))
        x += width
    return picture(WIDTH, 26, "groups by state", parts)


def load_columns(partitions: Sequence[PartitionRow]) -> Html:
    """Draw the records of each log partition, its hottest group at the bottom."""
    height, top, floor = 190, 14, 160
    highest = max((row.records for row in partitions), default=0)
    scale = (floor - top) / _round_up(highest)
    width = min((WIDTH - LEFT - RIGHT) / max(len(partitions), 1), COLUMN_WIDTH_MAX)
    every = next((step for step in _LABEL_STEPS if len(partitions) <= step * PARTITIONS_LABELLED_MAX), len(partitions))
    parts = [_levels(highest, top, floor)]
    for place, row in enumerate(partitions):
        x = LEFT + place * width
        hot = row.records * (row.hottest_group_share or 0.0)
        gap = min(width * 0.25, 6)
        title = f"log partition {_partition_name(row)}: {counted(row.records, 'record')}, {format_size(row.size_bytes)}"
        if row.hottest_group is not None:
            title += f"; {format_share(row.hottest_group_share)} of group {row.hottest_group}"
        shapes = [
            rect(x + gap / 2, floor - row.records * scale, width - gap, (row.records - hot) * scale, "load"),
            rect(x + gap / 2, floor - hot * scale, width - gap, hot * scale, "hot"),
        ]
        parts.append(titled(title, shapes))
        if place % every == 0:
            parts.append(label(x + width / 2, floor + 16, _partition_name(row), "middle"))
    parts.append(label(LEFT - 6, floor + 16, "partition", "end"))
    return _plot(height, "records of each log partition", parts)


def _partition_name(row: PartitionRow) -> str:
    return "?" if row.log_partition is None else str(row.log_partition)


def group_picture(story: GroupStory, axis: Axis) -> Html:
    members = (18, 78)
    events = (92, 116)
    commits = (136, 180)
    parts = [_times(axis, members[0], commits[1])]
    for name, (top, bottom) in (("members", members), ("rebalances", events), ("commits", commits)):
        parts.append(label(LEFT - 6, (top + bottom) / 2 + 4, name, "end"))
        parts.append(line(LEFT, bottom, WIDTH - RIGHT, bottom, "axis"))
    parts += _member_steps(story, axis, *members)
    parts += _rebalance_marks(story, axis, *events)
    parts += _anomaly_marks(story, axis, members[0] - 6)
    parts += _commit_columns(story, axis, *commits)
    parts += _silence(story, axis, *commits)
    return _plot(204, f"group {story.row.group_id} over time", parts)


def _member_steps(story: GroupStory, axis: Axis, top: float, bottom: float) -> list[Html]:
    if not story.members:
        return []
    most = max(1, *(count for _, count in story.members))
    points, y = [], bottom
    for at_ms, count in story.members:
        x = axis.x(at_ms)
        points.append(f"{x:.1f},{y:.1f}")
        y = bottom - (bottom - top) * count / most
        points.append(f"{x:.1f},{y:.1f}")
    points.append(f"{WIDTH - RIGHT},{y:.1f}")
    first, last = axis.x(story.members[0][0]), WIDTH - RIGHT
    area = f"{first:.1f},{bottom} {' '.join(points)} {last},{bottom}"
    title = f"at most {counted(most, 'member')}"
    return [
        titled(title, [element("polygon", class_="members-area", points=area)]),
        element("polyline", class_="members-line", points=" ".join(points)),
        label(WIDTH - RIGHT, top - 4, title, "end"),
    ]


def epoch_lines(story: GroupStory, axis: Axis) -> Html:
    """Draw the epochs of a KIP-848 group over time; gaps between lines show a rebalance."""
    top, bottom = 14, 74
    points = story.epochs
    lowest = min(epoch for point in points for epoch in (point.target, point.lowest) if epoch is not None)
    highest = max(point.group for point in points)
    scale = (bottom - top) / max(highest - lowest, 1)
    parts = [_times(axis, top, bottom)]
    for epoch in dict.fromkeys((lowest, highest)):
        y = bottom - (epoch - lowest) * scale
        parts += [line(LEFT, y, WIDTH - RIGHT, y, "grid"), label(LEFT - 6, y + 4, f"{epoch:,}", "end")]
    series: dict[str, list[tuple[int, int | None]]] = {
        "epoch-member": [(point.at_ms, point.lowest) for point in points],
        "epoch-target": [(point.at_ms, point.target) for point in points],
        "epoch-group": [(point.at_ms, point.group) for point in points],
    }
    for style, steps in series.items():
        parts += [
            element("polyline", class_=style, points=drawn)
            for drawn in _steps(axis, steps, lambda epoch: bottom - (epoch - lowest) * scale)
        ]
    return _plot(98, f"epochs of group {story.row.group_id} over time", parts)


def _steps(axis: Axis, steps: Sequence[tuple[int, int | None]], y_of: Callable[[int], float]) -> Iterator[str]:
    """Yield the points of step lines, which end where there is no value."""
    points: list[str] = []
    y: float | None = None
    last: int | None = None
    for at_ms, value in (*steps, (axis.end_ms, None)):
        if value == last:
            continue
        x, last = axis.x(at_ms), value
        if y is not None:
            points.append(f"{x:.0f},{y:.0f}")
        y = None if value is None else y_of(value)
        if y is not None:
            points.append(f"{x:.0f},{y:.0f}")
        elif points:
            yield " ".join(points)
            points = []


def _rebalance_marks(story: GroupStory, axis: Axis, top: float, bottom: float) -> list[Html]:
    parts = []
    for one in story.rebalances:
        end_ms = one.ended_ms if one.ended_ms is not None else one.started_ms
        if end_ms is None:
            continue
        start_ms = end_ms if one.started_ms is None else min(one.started_ms, end_ms)
        start, end = axis.x(start_ms), axis.x(end_ms)
        generation = "" if one.to_generation is None else f" to generation {one.to_generation:,}"
        took = "" if start_ms == end_ms else f", {format_span(end_ms - start_ms)}"
        title = f"{format_time(end_ms)}{generation}: {one.cause}{took}"
        width = max(end - start, 3.0)
        parts.append(titled(title, [rect(end - width, top, width, bottom - top, cause_class(one.cause))]))
    return parts


def _anomaly_marks(story: GroupStory, axis: Axis, top: float) -> list[Html]:
    parts = []
    for anomaly in story.anomalies:
        if anomaly.first_ms is None:
            continue
        x = axis.x(anomaly.first_ms)
        shape = element("path", class_="finding", d=f"M{x - 5:.1f},{top}h10l-5,8z")
        parts.append(
            titled(f"{format_time(anomaly.first_ms)}: {anomaly.kind} {anomaly.subject}: {anomaly.evidence}", [shape])
        )
    return parts


def _commit_columns(story: GroupStory, axis: Axis, top: float, bottom: float) -> list[Html]:
    bins = story.commits
    if bins is None:
        return []
    counts = bins.series.get("commits", ())
    highest = max((*counts, 1))
    parts = []
    for place, count in enumerate(counts):
        if count:
            start, end = _edges(axis, bins, place)
            height = (bottom - top) * count / highest
            title = f"{format_time(bins.start_ms + place * bins.width_ms)}: {counted(count, 'commit')}"
            parts.append(titled(title, [rect(start, bottom - height, end - start, height, "commits")]))
    most = f"at most {counted(highest, 'commit')} in {format_limit(bins.width_ms)}"
    return [*parts, label(WIDTH - RIGHT, top - 3, most, "end")]


def _silence(story: GroupStory, axis: Axis, top: float, bottom: float) -> list[Html]:
    """Mark the time without commits up to the end of the log, if it is long enough."""
    last_ms = story.row.last_commit_ms
    if story.row.commits and last_ms is None:
        return []
    start_ms = axis.start_ms if last_ms is None else max(last_ms, axis.start_ms)
    silent_ms = axis.end_ms - start_ms
    if silent_ms < axis.span_ms * SILENCE_SHARE_MIN:
        return []
    left = axis.x(start_ms)
    title = f"no commit for {format_span(silent_ms)}"
    shapes = [rect(left, top, axis.x(axis.end_ms) - left, bottom - top, "silence")]
    words = label((left + axis.x(axis.end_ms)) / 2, (top + bottom) / 2 + 4, title, "middle")
    return [titled(title, shapes), words]


def _edges(axis: Axis, bins: Bins, place: int) -> tuple[float, float]:
    start = axis.x(bins.start_ms + place * bins.width_ms)
    end = axis.x(bins.start_ms + (place + 1) * bins.width_ms)
    return start, max(end - 1, start + 0.5)


def _round_up(highest: int) -> int:
    if highest <= 4:
        return max(highest, 1)
    size: int = 10 ** (len(str(highest)) - 1)
    return next(size * step // 10 for step in _LEVELS if size * step >= highest * 10)


def _levels(highest: int, top: float, floor: float) -> Html:
    most = _round_up(highest)
    parts = []
    for level in sorted({0, most // 2, most}):
        y = floor - (floor - top) * level / most
        parts.append(line(LEFT, y, WIDTH - RIGHT, y, "axis" if level == 0 else "grid"))
        parts.append(label(LEFT - 6, y + 4, format_number(level), "end"))
    return joined(parts)


def _times(axis: Axis, top: float, floor: float) -> Html:
    parts = []
    for at_ms in axis.ticks():
        x = axis.x(at_ms)
        parts.append(line(x, top, x, floor, "grid"))
        title = format_clock(at_ms, axis.span_ms)
        reach = len(title) * _CHARACTER_WIDTH / 2
        parts.append(label(min(x, WIDTH - reach), floor + 16, title, "middle"))
    return joined(parts)


def _plot(height: int, title: str, parts: Iterable[Html]) -> Html:
    """Return a picture that scrolls where it does not fit."""
    return element("div", picture(WIDTH, height, title, parts), class_="plot", tabindex=0)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z]+", "-", name.lower())
