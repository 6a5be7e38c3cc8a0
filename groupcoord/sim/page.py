"""A report as one HTML page: no scripts, nothing from elsewhere, plots as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from groupcoord.sim.durations import told_duration
from groupcoord.sim.figures import MEASURES, Distribution, Measure, histogram
from groupcoord.sim.runs import FleetReport
from groupcoord.sim.world import Deed

WIDTH, HEIGHT, MARGIN = 440, 160, 24
BAR_WIDTH_MAX, BAR_HEIGHT_MIN = 48, 1.5
BARS_LABELLED_MAX = 8

_STYLE = """
:root { color-scheme: light dark; --page: #fbfbfa; --card: #fff; --text: #1c2126; --soft: #5d6771; --line: #d9dde1;
  --bar: #3b82c4; --accent: #2563a8; --bad: #b3261e; --good: #1d7a3e; }
@media screen and (prefers-color-scheme: dark) {
  :root { --page: #14181c; --card: #1b2127; --text: #e4e8eb; --soft: #9aa5af; --line: #353e47;
    --bar: #5aa0e0; --accent: #7ab3ee; --bad: #ff8a80; --good: #7bd69a; }
}
* { box-sizing: border-box; }
body { font: 15px/1.55 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 1rem 1rem 3rem;
  background: var(--page); color: var(--text); }
h1, h3 { overflow-wrap: anywhere; } h2 { margin-top: 2.2rem; } p { max-width: 50rem; color: var(--soft); }
h3 { font-size: 1rem; margin: .2rem 0; } h3::first-letter { text-transform: uppercase; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
code { overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); } th:first-child, td:first-child { padding-left: 0; text-align: left; }
.words :is(th, td):not(:last-child) { text-align: left; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: .8rem; }
.plots section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .7rem 1rem;
  display: flex; flex-direction: column; break-inside: avoid; }
.plots p { margin: 0; font-size: .9rem; } .plots svg { margin-top: auto; }
svg { width: 100%; height: auto; } rect { fill: var(--bar); } line { stroke: var(--line); }
svg text { font: 12.5px system-ui, sans-serif; fill: var(--soft); }
.result { border-left: 4px solid var(--good); padding-left: .8rem; color: var(--text); }
.result.failed { border-color: var(--bad); } .failed p { color: var(--bad); font-weight: 600; }
@media print { body { print-color-adjust: exact; -webkit-print-color-adjust: exact; } .scroll { overflow: visible; } }
"""


def told_value(measure: Measure, value: float) -> str:
    """Return a value with its unit, as people read it."""
    if measure.unit == "ms":
        return told_duration(value)
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


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
    plots = [plot(measure, report.values(measure.key)) for measure in MEASURES]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(report.name)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(report.name)}</h1>",
        f"<p>{told_seeds(report)}, {told_duration(figures['virtual_ms'])} of virtual time in all, "
        f"{figures['heartbeats']:,} heartbeats, {figures['commits']:,} commits of consumers.</p>",
        _failures(report, command),
        "<h2>Distributions</h2>",
        _table(report.distributions(), linked=True),
        f'<div class="plots">{"".join(plots)}</div>',
        "<h2>What started the rebalances</h2>",
        _causes(report.causes()),
        _deeds(report.deeds()),
    ]
    if len(report.group_ids()) > 1:
        parts.append("<h2>Groups</h2>")
        for group_id in report.group_ids():
            parts.append(f"<h3><code>{escape(group_id)}</code></h3>{_table(report.distributions(group_id))}")
    parts.append("</body></html>")
    return "\n".join(parts)


def _failures(report: FleetReport, command: str) -> str:
    if not report.failed:
        return '<p class="result">Every law held in every seed.</p>'
    items = "".join(
        f"<li>{escape(run.failure or '')}<br><code>{escape(command)} --seed {run.seed}</code></li>"
        for run in report.failed
    )
    failed = "1 seed" if len(report.failed) == 1 else f"{len(report.failed):,} seeds"
    return f'<div class="result failed"><p>{failed} broke a law:</p><ul>{items}</ul></div>'


def _table(distributions: dict[str, Distribution], *, linked: bool = False) -> str:
    """Return a row for each measure that has values; ``linked`` to its plot."""
    rows = []
    for measure in MEASURES:
        found = distributions[measure.key]
        if not found.count:
            continue
        title = escape(measure.title)
        values = (found.least, *found.percentiles.values(), found.most, found.mean)
        rows.append(
            (
                f'<a href="#{measure.key}">{title}</a>' if linked else title,
                f"{found.count:,}",
                *(escape(told_value(measure, value)) for value in values),
            )
        )
    return _rows(("", "values", "least", "p50", "p90", "p99", "most", "mean"), rows)


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]], style: str = "") -> str:
    if not rows:
        return "<p>There were none.</p>"
    titles = "".join(f'<th scope="col">{title}</th>' for title in head)
    body = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    table = f'<table class="{style}"><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="scroll" tabindex="0">{table}</div>'


def plot(measure: Measure, values: Sequence[int]) -> str:
    """Return a histogram. The heights are how many values fall into each bin; the least can be seen too."""
    bins = histogram(values)
    if not bins:
        return ""
    highest = max(count for _, _, count in bins)
    width, floor = min((WIDTH - 2 * MARGIN) / len(bins), BAR_WIDTH_MAX), HEIGHT - MARGIN
    bars = []
    for place, (start, end, count) in enumerate(bins):
        if not count:
            continue
        height = max((floor - MARGIN) * count / highest, BAR_HEIGHT_MIN)
        told = f"{_told_bin(measure, start, end)}: {count:,}"
        bars.append(
            f'<rect x="{MARGIN + place * width:.1f}" y="{floor - height:.1f}" width="{max(width - 1, 1):.1f}" '
            f'height="{height:.1f}"><title>{escape(told)}</title></rect>'
        )
    return (
        f'<section id="{measure.key}"><h3>{escape(measure.title)}</h3><p>{escape(measure.of_what)}</p>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="histogram of {escape(measure.title)}">'
        f'{"".join(bars)}<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{floor}" y2="{floor}"/>'
        f"{_axis(measure, bins, width)}"
        f'<text x="{MARGIN}" y="{MARGIN - 8}">{highest:,} {"value" if highest == 1 else "values"}</text>'
        "</svg></section>"
    )


def _told_bin(measure: Measure, start: int, end: int) -> str:
    least, most = told_value(measure, start), told_value(measure, end)
    return least if least == most else f"{least} to {most}"


def _axis(measure: Measure, bins: Sequence[tuple[int, int, int]], width: float) -> str:
    """Return what stands below the bars: each one's value where they are few, or the ends and the middle."""
    if len(bins) <= BARS_LABELLED_MAX:
        labels = [(MARGIN + (place + 0.5) * width, start, "middle") for place, (start, _, _) in enumerate(bins)]
    else:
        middle = len(bins) // 2
        labels = [
            (MARGIN, bins[0][0], "start"),
            (MARGIN + middle * width, bins[middle][0], "middle"),
            (MARGIN + len(bins) * width, bins[-1][1], "end"),
        ]
    return "".join(
        f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{escape(told_value(measure, value))}</text>'
        for x, value, anchor in labels
    )


def _causes(causes: dict[str, int]) -> str:
    return _rows(("cause", "rebalances"), [(escape(cause), f"{count:,}") for cause, count in causes.items()])


def _deeds(deeds: dict[Deed, int]) -> str:
    if not deeds:
        return ""
    rows = [(*(escape(part) for part in deed), f"{count:,}") for deed, count in deeds.items()]
    return (
        "<h2>What clients did</h2><p>Of consumers only what made them fail: then they are started again three seconds "
        "later. Of others, what they did or asked, and what came of it: of an answer its first error, or NONE. "
        "CompleteTransaction brings a transaction's marker, and is sent until it is taken.</p>"
        f"{_rows(('client', 'did', 'outcome', 'times'), rows, 'words')}"
    )
