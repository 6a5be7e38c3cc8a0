"""What happened to a group in one seed, over time: rebalances, and who owned which partition."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from groupcoord.analysis.report import svg
from groupcoord.analysis.report.durations import format_duration
from groupcoord.analysis.report.html import EMPTY, Html, element, joined
from groupcoord.analysis.report.layout import soft
from groupcoord.analysis.report.text import counted
from groupcoord.sim.reports.axes import ticks
from groupcoord.sim.world import START_MS, World

WIDTH, LEFT, RIGHT = 1040, 120, 16
ROW, TOP, BOTTOM = 12, 30, 24
ROWS_MAX, SPANS_MAX, OWNERS_COLOURED = 48, 4_000, 8


@frozen
class Timeline:
    """One group in one seed; moments are milliseconds from the start of the run.

    Attributes:
        group_id: the group.
        duration_ms: of the run.
        rebalances: begin and end of each.
        rows: partitions, each with who had it from when until when; no more than fit into a picture.
        partition_count: how many there are in all.
    """

    group_id: str
    duration_ms: int
    rebalances: tuple[tuple[int, int], ...]
    rows: tuple[tuple[str, tuple[tuple[str, int, int], ...]], ...]
    partition_count: int


def timelines_of(world: World) -> Iterator[Timeline]:
    """Return what happened to each group of a world that has run."""
    duration_ms = world.scheduler.time_ms - START_MS
    for group in world.groups:
        seen = group.observations
        spans: dict[str, list[tuple[str, int, int]]] = {f"{p.topic}-{p.partition}": [] for p in sorted(seen.figures())}
        for partition, consumer, start_ms, end_ms in seen.owned:
            name = f"{partition.topic}-{partition.partition}"
            spans[name].append((consumer, start_ms - START_MS, end_ms - START_MS))
        rows = tuple((name, tuple(found[:SPANS_MAX])) for name, found in list(spans.items())[:ROWS_MAX])
        rebalances = tuple((start - START_MS, end - START_MS) for start, end in seen.rebalances)
        yield Timeline(group.options.group_id, duration_ms, rebalances, rows, len(spans))


def draw_timeline(timeline: Timeline) -> Html:
    """Return the picture of a group: a row of rebalances, and a row for each partition."""
    if not timeline.rows:
        return EMPTY
    height = TOP + (len(timeline.rows) + 1) * ROW + BOTTOM
    scale = (WIDTH - LEFT - RIGHT) / max(timeline.duration_ms, 1)
    parts: list[Html] = []
    for at_ms in ticks(0, timeline.duration_ms, 9, is_time=True):
        x = LEFT + at_ms * scale
        parts += [
            svg.line(x, TOP - 4, x, height - BOTTOM, "grid"),
            svg.label(x, height - 8, format_duration(at_ms) if at_ms else "0", "middle"),
        ]
    parts.append(svg.label(LEFT - 6, TOP + ROW - 3, "rebalances", "end"))
    for start_ms, end_ms in timeline.rebalances:
        told = f"rebalance, {format_duration(end_ms - start_ms)}, from {format_duration(start_ms)} on"
        bar = svg.rect(LEFT + start_ms * scale, TOP, max((end_ms - start_ms) * scale, 1.5), ROW - 2, "finding")
        parts.append(svg.titled(told, [bar]))
    consumers = sorted({consumer for _, spans in timeline.rows for consumer, _, _ in spans}, key=_in_order)
    colours = {consumer: place % OWNERS_COLOURED for place, consumer in enumerate(consumers)}
    for place, (name, spans) in enumerate(timeline.rows, 1):
        y = TOP + place * ROW
        parts.append(svg.label(LEFT - 6, y + ROW - 3, name, "end"))
        for consumer, start_ms, end_ms in spans:
            told = f"{name}: {consumer}, {format_duration(start_ms)} to {format_duration(end_ms)}"
            bar = svg.rect(
                LEFT + start_ms * scale, y, (end_ms - start_ms) * scale, ROW - 2, f"owner-{colours[consumer]}"
            )
            parts.append(svg.titled(told, [bar]))
    label = f"time line of {timeline.group_id}: rebalances and owners of partitions"
    left_out = timeline.partition_count - len(timeline.rows)
    more = f" {counted(left_out, 'partition')} more are left out." if left_out else ""
    told = (
        f"{counted(len(timeline.rebalances), 'rebalance')}; a colour is a consumer, a gap is a partition without owner."
        f"{more} Point at a bar to see who and when."
    )
    return joined(
        (
            element("h3", element("code", timeline.group_id)),
            soft(told),
            element("div", svg.picture(WIDTH, height, label, parts), class_="plot"),
        )
    )


def _in_order(consumer: str) -> tuple[str, int]:
    name, _, number = consumer.rpartition("-")
    return (name, int(number)) if number.isdecimal() else (consumer, 0)
