"""Timelines of a group in one run: rebalances and owners over time, and a line with the state of all members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen

from groupcoord.analysis.report.html import layout
from groupcoord.analysis.report.html.layout import EMPTY, OWNER_COLOURS, Html, element, joined, legend, soft
from groupcoord.analysis.report.text import counted, format_duration
from groupcoord.member.membership import MemberState
from groupcoord.sim.actors.consumers import Consumer
from groupcoord.sim.reports.measures import ticks
from groupcoord.sim.world import START_MS, World

WIDTH, LEFT, RIGHT = 1040, 120, 16
ROW, TOP, BOTTOM = 12, 30, 24
ROWS_MAX, SPANS_MAX = 48, 4_000
MARGIN = 0.04
"""Margin before the first and after the last event, as a part of the time between them."""


@frozen
class Timeline:
    """Timeline of a group in one seed; times are milliseconds since the start of the run.

    Attributes:
        measured_from_ms: start of the measurement.
        rebalances: start and end of each.
        rows: partitions with their owners' spans (consumer, start, end), as many as fit into a picture.
    """

    group_id: str
    duration_ms: int
    measured_from_ms: int
    rebalances: tuple[tuple[int, int], ...]
    rows: tuple[tuple[str, tuple[tuple[str, int, int], ...]], ...]
    partition_count: int

    def happenings(self) -> Iterator[int]:
        """Yield the times of events since the start of the measurement, except those that the end of the run causes."""
        for start_ms, end_ms in self.rebalances:
            if end_ms > self.measured_from_ms:
                yield from (max(start_ms, self.measured_from_ms), end_ms)
        for _, spans in self.rows:
            for _, *moments in spans:
                yield from (at_ms for at_ms in moments if self.measured_from_ms < at_ms < self.duration_ms)


def timelines_of(world: World) -> Iterator[Timeline]:
    duration_ms = world.scheduler.time_ms - START_MS
    for group in world.groups:
        seen = group.observations
        spans: dict[str, list[tuple[str, int, int]]] = {f"{p.topic}-{p.partition}": [] for p in sorted(seen.figures())}
        for partition, consumer, start_ms, end_ms in seen.owned:
            name = f"{partition.topic}-{partition.partition}"
            spans[name].append((consumer, start_ms - START_MS, end_ms - START_MS))
        rows = tuple((name, tuple(found[:SPANS_MAX])) for name, found in list(spans.items())[:ROWS_MAX])
        rebalances = tuple((start - START_MS, end - START_MS) for start, end in seen.rebalances)
        measured_from_ms = world.options.measure_from_ms
        yield Timeline(group.options.group_id, duration_ms, measured_from_ms, rebalances, rows, len(spans))


def span_of(timelines: Sequence[Timeline]) -> tuple[int, int]:
    """Return the span of events in timelines, with a margin, or the whole run without events."""
    end_ms = max((timeline.duration_ms for timeline in timelines), default=0)
    moments = [at_ms for timeline in timelines for at_ms in timeline.happenings()]
    if not moments:
        return 0, end_ms
    first_ms, last_ms = min(moments), max(moments)
    margin_ms = max(round((last_ms - first_ms) * MARGIN), 1_000)
    return max(first_ms - margin_ms, 0), min(last_ms + margin_ms, end_ms)


def draw_timeline(timeline: Timeline, span: tuple[int, int], title: str = "") -> Html:
    """Return the picture of a group: a row of rebalances, and a row for each partition; empty without partitions.

    ``span`` is in milliseconds since the start of the run.
    """
    if not timeline.rows:
        return EMPTY
    height = TOP + (len(timeline.rows) + 1) * ROW + BOTTOM
    axis = _Axis(*span)
    parts: list[Html] = []
    for at_ms in ticks(*span, 9, is_time=True):
        x = axis.x(at_ms)
        parts += [
            layout.line(x, TOP - 4, x, height - BOTTOM, "grid"),
            layout.label(x, height - 8, format_duration(at_ms) if at_ms else "0", "middle"),
        ]
    parts.append(layout.label(LEFT - 6, TOP + ROW - 3, "rebalances", "end"))
    for start_ms, end_ms in timeline.rebalances:
        text = f"rebalance, {format_duration(end_ms - start_ms)}, from {format_duration(start_ms)} on"
        parts += axis.bar(start_ms, end_ms, TOP, "finding", text, width_min=1.5)
    consumers = sorted({consumer for _, spans in timeline.rows for consumer, _, _ in spans}, key=_in_order)
    styles = {consumer: f"owner-{place % OWNER_COLOURS}" for place, consumer in enumerate(consumers)}
    for place, (name, spans) in enumerate(timeline.rows, 1):
        y = TOP + place * ROW
        parts.append(layout.label(LEFT - 6, y + ROW - 3, name, "end"))
        for consumer, start_ms, end_ms in spans:
            text = f"{name}: {consumer}, {format_duration(start_ms)} to {format_duration(end_ms)}"
            parts += axis.bar(start_ms, end_ms, y, styles[consumer], text)
    label = f"time line of {timeline.group_id}: rebalances and owners of partitions"
    return joined(
        (
            element("h3", f"{title}: " if title else "", element("code", timeline.group_id)),
            soft(_summary(timeline, axis, len(consumers))),
            legend([(consumer, styles[consumer]) for consumer in consumers[:OWNER_COLOURS]]),
            element("div", layout.picture(WIDTH, height, label, parts), class_="plot"),
        )
    )


@frozen
class _Axis:
    """Horizontal axis for the shown span."""

    start_ms: int
    end_ms: int

    def x(self, at_ms: int) -> float:
        shown_ms = min(max(at_ms, self.start_ms), self.end_ms) - self.start_ms
        return LEFT + shown_ms * (WIDTH - LEFT - RIGHT) / max(self.end_ms - self.start_ms, 1)

    def bar(self, start_ms: int, end_ms: int, y: float, style: str, text: str, width_min: float = 0) -> list[Html]:
        if end_ms < self.start_ms or start_ms > self.end_ms:
            return []
        left, right = self.x(start_ms), self.x(end_ms)
        return [layout.titled(text, [layout.rect(left, y, max(right - left, width_min), ROW - 2, style)])]


def _summary(timeline: Timeline, axis: _Axis, consumer_count: int) -> str:
    shown = sum(end_ms >= axis.start_ms and start_ms <= axis.end_ms for start_ms, end_ms in timeline.rebalances)
    text = [f"{counted(shown, 'rebalance')}; a colour is a consumer, a gap is time without an owner."]
    if left_out := timeline.partition_count - len(timeline.rows):
        text.append(f"{counted(left_out, 'partition')} more are not shown.")
    if consumer_count > OWNER_COLOURS:
        text.append(f"Of {consumer_count:,} consumers some share a colour.")
    if axis.end_ms - axis.start_ms < timeline.duration_ms:
        text.append(
            f"{format_duration(axis.end_ms - axis.start_ms)} of {format_duration(timeline.duration_ms)} are shown, "
            "the span with measured events."
        )
    return " ".join([*text, "Hover over a bar for its consumer and times."])


def _in_order(consumer: str) -> tuple[str, int]:
    name, _, number = consumer.rpartition("-")
    return (name, int(number)) if number.isdecimal() else (consumer, 0)


LEGEND = (
    "nodes: digit up, x down · consumers: . dead  ? outside  j joins  s syncs  r reconciles  l leaves  "
    "0-9 owns so many (+: more)  z stands still  b is busy  ! failed"
)

_LETTERS = {
    MemberState.UNJOINED: "?",
    MemberState.UNSUBSCRIBED: "?",
    MemberState.FENCED: "?",
    MemberState.STALE: "?",
    MemberState.PREPARING_REBALANCE: "j",
    MemberState.JOINING: "j",
    MemberState.RECONCILING: "r",
    MemberState.ACKNOWLEDGING: "r",
    MemberState.PREPARE_LEAVING: "l",
    MemberState.LEAVING: "l",
    MemberState.COMPLETING_REBALANCE: "s",
    MemberState.FAILED: "!",
    MemberState.CLOSED: ".",
}
WIDEST = 60
"""Number of consumers in a :func:`picture`."""


def picture(world: World) -> str:
    """Return one letter for each node and consumer; consumers beyond :data:`WIDEST` are left out."""
    nodes = "".join(str(node.node_id % 10) if node.is_up else "x" for node in world.cluster.nodes)
    groups = []
    left = WIDEST
    for group in world.groups:
        shown = group.consumers[:left]
        left -= len(shown)
        if shown:
            groups.append("".join(_letter(consumer) for consumer in shown))
    return f"{nodes} {' '.join(groups)}"


def _letter(consumer: Consumer) -> str:
    if consumer.member is None:
        return "."
    if consumer.is_frozen:
        return "z"
    if consumer.is_busy:
        return "b"
    if consumer.member.state is MemberState.STABLE:
        return str(len(consumer.owned)) if len(consumer.owned) < 10 else "+"
    return _LETTERS[consumer.member.state]
