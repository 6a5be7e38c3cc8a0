"""A simulation's report as one HTML page: no scripts, nothing from elsewhere, plots as inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from groupcoord.analysis.report.html import layout
from groupcoord.analysis.report.html.layout import EMPTY, Html, Section, element, joined, listing, paragraph, soft
from groupcoord.analysis.report.text import counted, format_duration
from groupcoord.sim.reports.measures import MEASURES, Distribution, Measure, Scale, scale_of
from groupcoord.sim.reports.plots import plot
from groupcoord.sim.reports.runs import COMPARED_MAX, FleetReport
from groupcoord.sim.reports.timeline import draw_timeline, span_of

_DISTRIBUTION_HEAD = ("@measure", "@unit", "#values", "#least", "#p50", "#p90", "#p99", "#most", "#mean")


def describe_seeds(report: FleetReport) -> str:
    """Return how many seeds there are, and which."""
    seeds = [run.seed for run in report.runs]
    if len(seeds) == 1:
        return f"1 seed ({seeds[0]})"
    return f"{len(seeds)} seeds ({seeds[0]} to {seeds[-1]})"


def report_page(report: FleetReport, command: str) -> str:
    """Return the whole page.

    Args:
        report: what came of the seeds.
        command: runs a seed again if it is followed by ``--seed`` and the seed.
    """
    figures = report.to_json()
    told = (
        f"{describe_seeds(report)}, {format_duration(figures['virtual_ms'])} of virtual time in all, "
        f"{figures['heartbeats']:,} heartbeats, {figures['commits']:,} commits of consumers."
    )
    sections = [Section(name, title, make(report)) for name, title, make in _SECTIONS]
    return layout.page(report.name, [soft(told), result_of(report, command)], sections)


def result_of(report: FleetReport, command: str) -> Html:
    """Return whether every law held, and how to see the seeds again where one did not."""
    if not report.failed:
        return paragraph("Every law held in every seed.", style="note good")
    items = [
        joined((run.failure or "", element("br"), element("code", f"{command} --seed {run.seed}")))
        for run in report.failed
    ]
    told = f"{counted(len(report.failed), 'seed')} broke a law:"
    return element("div", paragraph(element("b", told)), listing(items), class_="note bad")


def _distributions(report: FleetReport) -> Html:
    plots = [plot(measure, [("", report.values(measure.key))]) for measure in MEASURES]
    return joined((_table(report.distributions(), is_linked=True), element("div", *plots, class_="plots")))


def _table(distributions: dict[str, Distribution], *, is_linked: bool = False) -> Html:
    """Return a row for each measure that has values, linked to its plot if there is one."""
    rows = []
    for measure in MEASURES:
        found = distributions[measure.key]
        if found.count:
            title = element("a", measure.title, href=f"#{measure.key}") if is_linked else measure.title
            unit, values = distribution_row(measure, found)
            rows.append((title, unit, f"{found.count:,}", *values))
    return layout.table(_DISTRIBUTION_HEAD, rows) if rows else _NONE


def distribution_row(measure: Measure, found: Distribution) -> tuple[str, tuple[str, ...]]:
    """Return the unit of a measure's row, and in it the least, percentiles, the most and the mean."""
    values = (found.least, *found.percentiles.values(), found.most, found.mean)
    scale = scale_of(measure, values)
    return unit_of(measure, scale), tuple(scale.format(value) for value in values)


def unit_of(measure: Measure, scale: Scale) -> str:
    """Return what the values of a row are, and of what: ``s per partition``."""
    return f"{scale.name} per {measure.each}".strip()


def compared(report: FleetReport) -> list[tuple[str, ...]]:
    """Return a row for each measure that has values: its title, unit, and for each group its middle and most."""
    return middles_and_mosts([report.distributions(group_id) for group_id in report.compared_ids()])


def middles_and_mosts(found: Sequence[dict[str, Distribution]]) -> list[tuple[str, ...]]:
    """Return a row for each measure that has values: its title, unit, and of each what half and 99 % are not above."""
    rows = []
    for measure in MEASURES:
        each = [distributions[measure.key] for distributions in found]
        if any(one.count for one in each):
            pairs = [(one.percentiles[50], one.percentiles[99]) if one.count else () for one in each]
            scale = scale_of(measure, [value for pair in pairs for value in pair])
            told = [dict.fromkeys(scale.format(value) for value in pair) for pair in pairs]
            rows.append((measure.title, unit_of(measure, scale), *("; ".join(one) for one in told)))
    return rows


def _compared(report: FleetReport) -> Html:
    rows = compared(report)
    if not rows:
        return EMPTY
    told = "For each group, what half of all values and what 99 % of them are not above."
    return joined(
        (soft(told), layout.table(("@measure", "@unit", *(f"#{name}" for name in report.compared_ids())), rows))
    )


def causes_table(report: FleetReport) -> Html:
    """Return what started how many rebalances."""
    rows = [(cause, f"{count:,}") for cause, count in report.causes().items()]
    return layout.table(("@cause", "#rebalances"), rows) if rows else _NONE


def _clients(report: FleetReport) -> Html:
    operations = report.operations()
    if not operations:
        return EMPTY
    told = (
        "Of consumers only what made them fail: then they are started again three seconds later. Of others, what they "
        "did or asked, and what came of it: of an answer its first error, or NONE. CompleteTransaction brings a "
        "transaction's marker, and is sent until it is taken."
    )
    rows = [(*operation, f"{count:,}") for operation, count in operations.items()]
    return joined((soft(told), layout.table(("client", "did", "outcome", "#times"), rows)))


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
    return joined((soft(f"Of seed {run.seed}."), *(draw_timeline(each, span) for each in shown)))


_NONE = paragraph("There were none.")
_SECTIONS: tuple[tuple[str, str, Callable[[FleetReport], Html]], ...] = (
    ("distributions", "Distributions", _distributions),
    ("compared", "Groups beside each other", _compared),
    ("causes", "What started the rebalances", causes_table),
    ("timeline", "Over time", _timelines),
    ("clients", "What clients did", _clients),
    ("groups", "Groups", _groups),
)
"""Name, title, and what makes the section of a report; nothing if there is nothing to tell."""
