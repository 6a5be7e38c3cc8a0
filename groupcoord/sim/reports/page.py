"""HTML pages of simulations: the report of one fleet, the comparison of variants, and timelines of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from attrs import frozen

from groupcoord.analysis.report.html import layout
from groupcoord.analysis.report.html.layout import (
    EMPTY,
    OWNER_COLOURS,
    Html,
    Section,
    element,
    joined,
    legend,
    listing,
    paragraph,
    soft,
)
from groupcoord.analysis.report.text import counted, format_duration, listed
from groupcoord.sim.reports.measures import DONE, MEASURES, UNOWNED, Distribution, Measure, Scale, plot, scale_of, ticks
from groupcoord.sim.reports.runs import COMPARED_MAX, Comparison, Difference, FleetReport, Timeline

STATISTICS = ("values", "least", "p50", "p90", "p99", "most", "mean")


def describe_seeds(report: FleetReport) -> str:
    seeds = [run.seed for run in report.runs]
    if len(seeds) == 1:
        return f"1 seed ({seeds[0]})"
    return f"{len(seeds)} seeds ({seeds[0]} to {seeds[-1]})"


def report_page(report: FleetReport, command: str) -> str:
    """Return the page of a report. ``command`` runs a seed again when followed by ``--seed`` and the seed."""
    figures = report.to_json()
    sentence = (
        f"{describe_seeds(report)}, {format_duration(figures['virtual_ms'])} of virtual time in all, "
        f"{figures['heartbeats']:,} heartbeats, {figures['commits']:,} commits of consumers."
    )
    sections = [Section(name, title, make(report)) for name, title, make in _SECTIONS]
    return layout.page(report.name, [soft(sentence), result_of(report, command)], sections)


def result_of(report: FleetReport, command: str) -> Html:
    """Return whether every law held, and the command to repeat each seed that failed."""
    if not report.failed:
        return paragraph("Every law held in every seed.", style="note good")
    items = [
        joined((run.failure or "", element("br"), element("code", f"{command} --seed {run.seed}")))
        for run in report.failed
    ]
    sentence = f"{counted(len(report.failed), 'seed')} broke a law:"
    return element("div", paragraph(element("b", sentence)), listing(items), class_="note bad")


def _distributions(report: FleetReport) -> Html:
    return joined((_table(report.distributions(), is_linked=True), _plots([("", report)])))


def _table(distributions: dict[str, Distribution], *, is_linked: bool = False) -> Html:
    rows = [
        (element("a", measure.title, href=f"#{measure.key}") if is_linked else measure.title, *cells)
        for measure, cells in distribution_rows(distributions)
    ]
    return layout.table(("@measure", "@unit", *(f"#{name}" for name in STATISTICS)), rows) if rows else _NONE


def distribution_rows(distributions: dict[str, Distribution]) -> Iterator[tuple[Measure, tuple[str, ...]]]:
    """Yield each measure that has values, with its unit and :data:`STATISTICS`."""
    for measure in MEASURES:
        found = distributions[measure.key]
        if found.count:
            values = (found.least, *found.percentiles.values(), found.most, found.mean)
            scale = scale_of(measure, values)
            yield measure, (unit_of(measure, scale), f"{found.count:,}", *map(scale.format, values))


def unit_of(measure: Measure, scale: Scale) -> str:
    return f"{scale.name} per {measure.each}".strip()


def compared(report: FleetReport) -> list[tuple[str, ...]]:
    return median_and_p99_rows([report.distributions(group_id) for group_id in report.compared_ids()])


def median_and_p99_rows(found: Sequence[dict[str, Distribution]]) -> list[tuple[str, ...]]:
    """Return a row for each measure with values: title, unit, and median and 99th percentile of each distribution."""
    rows = []
    for measure in MEASURES:
        each = [distributions[measure.key] for distributions in found]
        if any(one.count for one in each):
            pairs = [(one.percentiles[50], one.percentiles[99]) if one.count else () for one in each]
            scale = scale_of(measure, [value for pair in pairs for value in pair])
            sentence = [dict.fromkeys(scale.format(value) for value in pair) for pair in pairs]  # equal ones once
            rows.append((measure.title, unit_of(measure, scale), *("; ".join(one) for one in sentence)))
    return rows


def _compared(report: FleetReport) -> Html:
    rows = compared(report)
    return _medians(report.compared_ids(), rows, "of each group") if rows else EMPTY


def _medians(names: Iterable[str], rows: list[tuple[str, ...]], of_what: str) -> Html:
    table = layout.table(("@measure", "@unit", *(f"#{name}" for name in names)), rows)
    return joined((soft(f"Median and 99th percentile {of_what}."), table))


def causes_table(report: FleetReport) -> Html:
    rows = [(cause, f"{count:,}") for cause, count in report.causes().items()]
    return layout.table(("@cause", "#rebalances"), rows) if rows else _NONE


def _clients(report: FleetReport) -> Html:
    operations = report.operations()
    if not operations:
        return EMPTY
    sentence = (
        "Consumers: the errors that made them fail; they restart three seconds later. Other clients: every operation "
        "with its outcome, which is the first error of the response, or NONE. CompleteTransaction is the marker of a "
        "transaction, repeated until it is accepted."
    )
    rows = [(*operation, f"{count:,}") for operation, count in operations.items()]
    return joined((soft(sentence), layout.table(("client", "did", "outcome", "#times"), rows)))


def _groups(report: FleetReport) -> Html:
    if len(report.group_ids()) < 2:
        return EMPTY
    parts = []
    for group_id in report.group_ids():
        parts += [element("h3", element("code", group_id)), _table(report.distributions(group_id))]
    return joined(parts)


def _timelines(report: FleetReport) -> Html:
    run = report.runs[0]
    if not run.timelines:
        return EMPTY
    shown = run.timelines[:COMPARED_MAX]
    span = span_of(shown)
    return joined((soft(f"Seed {run.seed}."), *(draw_timeline(each, span) for each in shown)))


_NONE = paragraph("None.")
_SECTIONS: tuple[tuple[str, str, Callable[[FleetReport], Html]], ...] = (
    ("distributions", "Distributions", _distributions),
    ("compared", "Comparison of groups", _compared),
    ("causes", "Causes of rebalances", causes_table),
    ("timeline", "Timeline", _timelines),
    ("clients", "Operations of clients", _clients),
    ("groups", "Groups", _groups),
)
"""Id, title and function of each section of a report; a section without content is left out."""


def comparison_page(comparison: Comparison, command: str) -> str:
    """Return the page of a comparison: the verdict, timelines of one seed, tables and distributions.

    ``command`` runs a seed again when followed by ``--seed`` and the seed.
    """
    first = comparison.reports[0]
    names = [report.variant for report in comparison.reports]
    lead: list[Html] = [*_answer(comparison), soft(f"{', '.join(names)}: each with {describe_seeds(first)}.")]
    for report in comparison.reports:
        if report.failed:
            lead += [element("h3", element("code", report.variant)), result_of(report, command)]
    if not any(report.failed for report in comparison.reports):
        lead.append(paragraph("Every law held in every seed of every variant.", style="note good"))
    sections = [
        Section("timeline", f"Owners of partitions, seed {first.runs[0].seed}", _timelines_of_variants(comparison)),
        Section("differences", f"Differences from {first.variant}", _differences(comparison)),
        Section("beside", "Comparison", _medians(names, beside_rows(comparison), "over all groups and seeds")),
        Section("distributions", "Distributions", _plots(list(zip(names, comparison.reports, strict=True)))),
        Section("causes", "Causes of rebalances", _causes(comparison)),
    ]
    return layout.page(first.name, lead, sections)


LESS = {UNOWNED.key: "less without owner per partition", DONE.key: "less per record until it is done"}
"""Text after a saved amount, by the measure that ranks the variants."""


def format_verdict(comparison: Comparison) -> str:
    """Return the best variant in one or two sentences; empty if no seed has values."""
    verdict = comparison.verdict()
    if verdict is None:
        return ""
    best, other, difference = verdict.best.variant, verdict.other.variant, verdict.difference
    scale = scale_of(difference.measure, [difference.mean])
    less = f"{scale.format(-difference.mean)} {scale.name} {LESS[difference.measure.key]} than {other}"
    if difference.least is None or difference.most is None:
        return f"{best} costs least: {less}, in one seed."
    between = f"95 % between {scale.format(-difference.most)} and {scale.format(-difference.least)} {scale.name}"
    if not difference.is_clear:
        return f"No variant clearly costs least: {best} is {less}, {between}."
    sentence = f"{best} costs least: {less}, {between}."
    if verdict.equals:
        sentence += (
            f" {listed([report.variant for report in verdict.equals])} may be as good: the difference isn't clear."
        )
    return sentence


def beside_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    return median_and_p99_rows([report.distributions() for report in comparison.reports])


def difference_rows(comparison: Comparison) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Return a row for each measure with values: title, unit, and the difference of each variant from the first one.

    A difference is a mean with its confidence interval, and a style: ``better``, ``worse``, or empty if the interval
    contains 0.
    """
    others = [{each.measure.key: each for each in comparison.differences(report)} for report in comparison.reports[1:]]
    rows = []
    for measure in MEASURES:
        found = [each.get(measure.key) for each in others]
        values = [value for each in found if each for value in (each.mean, each.least, each.most) if value is not None]
        if values:
            scale = scale_of(measure, values)
            cells = [(_format_difference(each, scale), style_of(each)) if each else ("", "") for each in found]
            rows.append((measure.title, unit_of(measure, scale), cells))
    return rows


def style_of(difference: Difference) -> str:
    if not difference.is_clear:
        return ""
    return "better" if difference.mean < 0 else "worse"


def _format_difference(difference: Difference, scale: Scale) -> str:
    mean = _signed(scale, difference.mean)
    if difference.least is None or difference.most is None:
        return mean
    return f"{mean} ({_signed(scale, difference.least)} to {_signed(scale, difference.most)})"


def _signed(scale: Scale, value: float) -> str:
    text = scale.format(value)
    return f"+{text}" if value > 0 and text.strip("0.") else text  # no sign for a rounded 0


def _answer(comparison: Comparison) -> list[Html]:
    """Return the verdict, and for each variant but the first the measures that are better and worse."""
    sentence = format_verdict(comparison)
    first = comparison.reports[0].variant
    items = []
    for report in comparison.reports[1:]:
        by_style: dict[str, list[str]] = {"better": [], "worse": [], "": []}
        for difference in comparison.differences(report):
            by_style[style_of(difference)].append(difference.measure.title)
        parts = [
            joined((element("b", word, class_=style), f": {', '.join(by_style[style])}"))
            for style, word in (("better", "less"), ("worse", "more"), ("", "no clear difference"))
            if by_style[style]
        ]
        items.append(joined((element("code", report.variant), f" compared with {first}: ", joined(parts, "; "), ".")))
    return [paragraph(sentence, style="answer"), listing(items)]


def _differences(comparison: Comparison) -> Html:
    head = ("@measure", "@unit", *(f"#{report.variant}" for report in comparison.reports[1:]))
    sentence = joined(
        (
            "Difference between the means of the same seed: its mean over all seeds, with the 95 % confidence interval "
            "(Student's t). Lower is better. A clear difference is coloured ",
            element("span", "better", class_="better"),
            " or ",
            element("span", "worse", class_="worse"),
            ": its interval does not contain 0.",
        )
    )
    rows = [
        (title, unit, *(element("span", sentence, class_=style) for sentence, style in cells))
        for title, unit, cells in difference_rows(comparison)
    ]
    return joined((soft(sentence), layout.table(head, rows)))


def _plots(named: Sequence[tuple[str, FleetReport]]) -> Html:
    """Return the histograms of all measures, each with a picture for each report."""
    cards = [plot(measure, [(name, report.values(measure.key)) for name, report in named]) for measure in MEASURES]
    return element("div", *cards, class_="plots")


def _causes(comparison: Comparison) -> Html:
    parts = []
    for report in comparison.reports:
        parts += [element("h3", element("code", report.variant)), causes_table(report)]
    return joined(parts)


def _timelines_of_variants(comparison: Comparison) -> Html:
    span = span_of([timeline for report in comparison.reports for timeline in report.runs[0].timelines])
    return joined(
        draw_timeline(timeline, span, report.variant)
        for report in comparison.reports
        for timeline in report.runs[0].timelines
    )


WIDTH, LEFT, RIGHT = 1040, 120, 16
ROW, TOP, BOTTOM = 12, 30, 24
MARGIN = 0.04
"""Margin before the first and after the last event, as a part of the time between them."""


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
