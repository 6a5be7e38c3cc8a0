"""A simulation's report as one HTML page: no scripts, nothing from elsewhere, plots as inline SVG."""

from __future__ import annotations

from collections.abc import Callable

from groupcoord.analysis.report import layout
from groupcoord.analysis.report.durations import format_duration
from groupcoord.analysis.report.html import EMPTY, Html, element, joined
from groupcoord.analysis.report.layout import Section, listing, paragraph, soft
from groupcoord.analysis.report.text import counted
from groupcoord.sim.reports.measures import MEASURES, Distribution, Measure
from groupcoord.sim.reports.plots import format_value, plot
from groupcoord.sim.reports.runs import COMPARED_MAX, FleetReport
from groupcoord.sim.reports.timeline import draw_timeline

_DISTRIBUTION_HEAD = ("@measure", "#values", "#least", "#p50", "#p90", "#p99", "#most", "#mean")


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
            values = (found.least, *found.percentiles.values(), found.most, found.mean)
            rows.append((title, f"{found.count:,}", *(format_value(measure, value) for value in values)))
    return layout.table(_DISTRIBUTION_HEAD, rows) if rows else _NONE


def compared(report: FleetReport) -> list[tuple[str, ...]]:
    """Return a row for each measure that has values: its title, and for each group what half and 99 % are not above."""
    found = [report.distributions(group_id) for group_id in report.compared_ids()]
    return [
        (measure.title, *(middle_and_most(measure, each[measure.key]) for each in found))
        for measure in MEASURES
        if any(each[measure.key].count for each in found)
    ]


def middle_and_most(measure: Measure, distribution: Distribution) -> str:
    """Return what half of all values and what 99 % of them are not above; nothing without values."""
    if not distribution.count:
        return ""
    middle, most = (format_value(measure, distribution.percentiles[p]) for p in (50, 99))
    return middle if middle == most else f"{middle}, {most}"


def _compared(report: FleetReport) -> Html:
    rows = compared(report)
    if not rows:
        return EMPTY
    told = "For each group, what half of all values and what 99 % of them are not above."
    return joined((soft(told), layout.table(("measure", *(f"#{name}" for name in report.compared_ids())), rows)))


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
    return joined((soft(f"Of seed {run.seed}."), *(draw_timeline(each) for each in run.timelines[:COMPARED_MAX])))


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
