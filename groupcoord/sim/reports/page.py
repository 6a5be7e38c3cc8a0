"""HTML pages of simulations: the report of one fleet, the comparison of variants, and timelines of groups."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import chain

from groupcoord.analysis.report.html.pictures import OWNER_COLOURS
from groupcoord.analysis.report.text import listed
from groupcoord.sim.reports import measures
from groupcoord.sim.reports.measures import (
    DONE,
    MEASURES,
    UNOWNED,
    Bin,
    Distribution,
    Measure,
    Scale,
    histogram,
    scale_of,
)
from groupcoord.sim.reports.runs import COMPARED_MAX, Comparison, Difference, FleetReport, Timeline

STATISTICS = ("values", "least", "p50", "p90", "p99", "most", "mean")


def describe_seeds(report: FleetReport) -> str:
    seeds = [run.seed for run in report.runs]
    if len(seeds) == 1:
        return f"1 seed ({seeds[0]})"
    return f"{len(seeds)} seeds ({seeds[0]} to {seeds[-1]})"


def report_page(report: FleetReport, command: str) -> str:
    """Return the page of a report. ``command`` runs a seed again when followed by ``--seed`` and the seed."""
    timelines = report.runs[0].timelines[:COMPARED_MAX]
    return _render("fleet", report=report, timelines=timelines, command=command)


def comparison_page(comparison: Comparison, command: str) -> str:
    """Return the page of a comparison: the verdict, timelines of one seed, tables and distributions.

    ``command`` runs a seed again when followed by ``--seed`` and the seed.
    """
    return _render("comparison", comparison=comparison, command=command)


def _render(template: str, **values: object) -> str:
    from groupcoord.analysis.report.html.rendering import render  # the base install has no jinja2

    return render(f"sim/reports/{template}.html.jinja", measures=measures, page=sys.modules[__name__], **values)


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


def histograms(measure: Measure, reports: Sequence[tuple[str, FleetReport]]) -> dict[str, list[Bin]]:
    """Return a histogram for each report with values, by its name and with common bounds."""
    series = {name: report.values(measure.key) for name, report in reports}
    every = list(chain.from_iterable(series.values()))
    bounds = (min(every), max(every)) if every else None
    return {name: histogram(values, bounds=bounds) for name, values in series.items() if values}


def titles_by_style(differences: Sequence[Difference]) -> dict[str, list[str]]:
    """Return the titles of the measures that are better and worse, and of those without a clear difference."""
    titles: dict[str, list[str]] = {"better": [], "worse": [], "": []}
    for difference in differences:
        titles[style_of(difference)].append(difference.measure.title)
    return {style: found for style, found in titles.items() if found}


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


def owner_styles(timeline: Timeline) -> dict[str, str]:
    """Return the style of each consumer that owns a partition."""
    consumers = sorted({consumer for _, spans in timeline.rows for consumer, _, _ in spans}, key=_in_order)
    return {consumer: f"owner-{place % OWNER_COLOURS}" for place, consumer in enumerate(consumers)}


def _in_order(consumer: str) -> tuple[str, int]:
    name, _, number = consumer.rpartition("-")
    return (name, int(number)) if number.isdecimal() else (consumer, 0)
