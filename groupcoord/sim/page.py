"""A report as one HTML page: no scripts, nothing from elsewhere, plots as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from groupcoord.sim.durations import told_duration
from groupcoord.sim.figures import MEASURES, Distribution, Measure, histogram
from groupcoord.sim.runs import FleetReport
from groupcoord.sim.world import Deed

WIDTH, HEIGHT, MARGIN = 640, 150, 24

_STYLE = """
:root { color-scheme: light dark; --bar: #3b6fb6; --faint: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid var(--faint); }
th:first-child, td:first-child { text-align: left; }
svg { width: 100%; height: auto; } rect { fill: var(--bar); } line { stroke: var(--faint); }
svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
.failed { color: #c0392b; }
"""


def told_value(measure: Measure, value: float) -> str:
    """Return a value with its unit, as people read it."""
    if measure.unit == "ms":
        return told_duration(value)
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.2f}"


def told_seeds(report: FleetReport) -> str:
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
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(report.name)}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(report.name)}</h1>",
        f"<p>{told_seeds(report)}, {told_duration(figures['virtual_ms'])} of virtual time in all, "
        f"{figures['heartbeats']:,} heartbeats, {figures['commits']:,} commits of consumers.</p>",
        _failures(report, command),
        "<h2>Distributions</h2>",
        _table(report.distributions()),
    ]
    for measure in MEASURES:
        parts.append(_plot(measure, report.values(measure.key)))
    parts.append("<h2>What started the rebalances</h2>")
    parts.append(_causes(report.causes()))
    parts.append(_deeds(report.deeds()))
    if len(report.group_ids()) > 1:
        parts.append("<h2>Groups</h2>")
        for group_id in report.group_ids():
            parts.append(f"<h3>{escape(group_id)}</h3>{_table(report.distributions(group_id))}")
    parts.append("</body></html>")
    return "\n".join(parts)


def _failures(report: FleetReport, command: str) -> str:
    if not report.failed:
        return "<p>Every law held in every seed.</p>"
    items = "".join(
        f"<li>{escape(run.failure or '')}<br><code>{escape(command)} --seed {run.seed}</code></li>"
        for run in report.failed
    )
    return f'<div class="failed"><p>{len(report.failed)} seeds broke a law:</p><ul>{items}</ul></div>'


def _table(distributions: dict[str, Distribution]) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("", "values", "least", "p50", "p90", "p99", "most", "mean"))
    rows = []
    for measure in MEASURES:
        found = distributions[measure.key]
        if not found.count:
            continue
        values = (found.least, *found.percentiles.values(), found.most, found.mean)
        cells = "".join(f"<td>{escape(told_value(measure, value))}</td>" for value in values)
        rows.append(f"<tr><td>{escape(measure.title)}</td><td>{found.count:,}</td>{cells}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _plot(measure: Measure, values: Sequence[int]) -> str:
    """Return a histogram. The heights are how many values fall into each bin."""
    bins = histogram(values)
    if not bins:
        return ""
    highest = max(count for _, _, count in bins)
    width, floor = (WIDTH - 2 * MARGIN) / len(bins), HEIGHT - MARGIN
    bars = []
    for place, (start, end, count) in enumerate(bins):
        if not count:
            continue
        height = (floor - MARGIN) * count / highest
        span = (
            told_value(measure, start)
            if start == end
            else f"{told_value(measure, start)} to {told_value(measure, end)}"
        )
        told = f"{span}: {count:,}"
        bars.append(
            f'<rect x="{MARGIN + place * width:.1f}" y="{floor - height:.1f}" width="{max(width - 1, 1):.1f}" '
            f'height="{height:.1f}"><title>{escape(told)}</title></rect>'
        )
    least, most = told_value(measure, bins[0][0]), told_value(measure, bins[-1][1])
    return (
        f"<h3>{escape(measure.title)}</h3><p>{escape(measure.of_what)}</p>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="histogram of {escape(measure.title)}">'
        f'{"".join(bars)}<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{floor}" y2="{floor}"/>'
        f'<text x="{MARGIN}" y="{HEIGHT - 6}">{escape(least)}</text>'
        f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - 6}" text-anchor="end">{escape(most)}</text>'
        f'<text x="{MARGIN}" y="{MARGIN - 8}">{highest:,}</text></svg>'
    )


def _causes(causes: dict[str, int]) -> str:
    rows = "".join(f"<tr><td>{escape(cause)}</td><td>{count:,}</td></tr>" for cause, count in causes.items())
    return f"<table><tbody>{rows}</tbody></table>" if rows else "<p>There were none.</p>"


def _deeds(deeds: dict[Deed, int]) -> str:
    if not deeds:
        return ""
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(part)}</td>' for part in deed)}<td>{count:,}</td></tr>"
        for deed, count in deeds.items()
    )
    return (
        "<h2>What clients did</h2><p>Of consumers only what made them fail: then they are started again three seconds "
        "later. Of others, what they did or asked, and what came of it: of an answer its first error, or NONE. "
        "CompleteTransaction brings a transaction's marker, and is sent until it is taken.</p>"
        "<table><thead><tr><th></th><th>did</th><th>outcome</th><th>times</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )
