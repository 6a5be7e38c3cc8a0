"""Variants beside each other as one HTML page."""

from __future__ import annotations

from groupcoord.analysis.report import layout
from groupcoord.analysis.report.html import Html, element, joined
from groupcoord.analysis.report.layout import Section, paragraph, soft
from groupcoord.sim.reports.comparison import Comparison, Difference
from groupcoord.sim.reports.measures import MEASURES
from groupcoord.sim.reports.page import causes_table, describe_seeds, middle_and_most, result_of
from groupcoord.sim.reports.plots import format_value, plot
from groupcoord.sim.reports.timeline import draw_timeline


def comparison_page(comparison: Comparison, command: str) -> str:
    """Return the whole page.

    Args:
        comparison: the variants.
        command: runs a seed again if it is followed by ``--seed`` and the seed.
    """
    first = comparison.reports[0]
    names = [report.variant for report in comparison.reports]
    lead: list[Html] = [soft(f"{', '.join(names)}: each with {describe_seeds(first)}.")]
    for report in comparison.reports:
        if report.failed:
            lead += [element("h3", element("code", report.variant)), result_of(report, command)]
    if not any(report.failed for report in comparison.reports):
        lead.append(paragraph("Every law held in every seed of every variant.", style="note good"))
    sections = [
        Section("beside", "Beside each other", _beside(comparison)),
        Section("differences", f"Differences from {first.variant}", _differences(comparison)),
        Section("distributions", "Distributions", _plots(comparison)),
        Section("causes", "What started the rebalances", _causes(comparison)),
        Section("timeline", f"Over time, seed {first.runs[0].seed}", _timelines(comparison)),
    ]
    return layout.page(first.name, lead, sections)


def beside_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return a row for each measure with values: its title, and for each variant what half and 99 % are not above."""
    found = [report.distributions() for report in comparison.reports]
    return [
        (measure.title, *(middle_and_most(measure, each[measure.key]) for each in found))
        for measure in MEASURES
        if any(each[measure.key].count for each in found)
    ]


def difference_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return a row for each measure: its title, and for each variant but the first by how much it differs."""
    others = [{each.measure.key: each for each in comparison.differences(report)} for report in comparison.reports[1:]]
    return [
        (measure.title, *(format_difference(each.get(measure.key)) for each in others))
        for measure in MEASURES
        if any(measure.key in each for each in others)
    ]


def format_difference(difference: Difference | None) -> str:
    """Return a mean difference with its confidence interval; a star: the interval has 0 outside."""
    if difference is None:
        return ""
    mean = _signed(difference, difference.mean)
    if difference.least is None or difference.most is None:
        return mean
    star = " *" if difference.is_clear else ""
    return f"{mean} ({_signed(difference, difference.least)} to {_signed(difference, difference.most)}){star}"


def _signed(difference: Difference, value: float) -> str:
    text = format_value(difference.measure, value)
    return f"+{text}" if value > 0 else text


def _beside(comparison: Comparison) -> Html:
    head = ("@measure", *(f"#{report.variant}" for report in comparison.reports))
    told = "What half of all values and what 99 % of them are not above, over all groups and seeds."
    return joined((soft(told), layout.table(head, beside_rows(comparison))))


def _differences(comparison: Comparison) -> Html:
    head = ("@measure", *(f"#{report.variant}" for report in comparison.reports[1:]))
    told = (
        "By how much the mean of a seed is another than the same seed's, as the mean over all seeds with its 95 % "
        "confidence interval (Student's t). A star stands where the interval doesn't hold 0."
    )
    return joined((soft(told), layout.table(head, difference_rows(comparison))))


def _plots(comparison: Comparison) -> Html:
    cards = [
        plot(measure, [(report.variant, report.values(measure.key)) for report in comparison.reports])
        for measure in MEASURES
    ]
    return element("div", *cards, class_="plots")


def _causes(comparison: Comparison) -> Html:
    parts = []
    for report in comparison.reports:
        parts += [element("h3", element("code", report.variant)), causes_table(report)]
    return joined(parts)


def _timelines(comparison: Comparison) -> Html:
    parts = []
    for report in comparison.reports:
        parts.append(element("h3", element("code", report.variant)))
        parts += [draw_timeline(timeline) for timeline in report.runs[0].timelines]
    return joined(parts)
