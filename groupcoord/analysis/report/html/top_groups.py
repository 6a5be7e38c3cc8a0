"""The answer that a page begins with: which groups are worst, what is wrong with them, and how far they are behind."""

from __future__ import annotations

from groupcoord.analysis.report.data.group_status import BAD, FINE, WARNING, Standing
from groupcoord.analysis.report.data.model import WORST_MAX, GroupRow, Report
from groupcoord.analysis.report.html.elements import EMPTY, Html, element, joined, text
from groupcoord.analysis.report.html.layout import enumeration, paragraph, pill
from groupcoord.analysis.report.html.sections import group_name
from groupcoord.analysis.report.text import counted, format_span, noun

MORE_NAMED_MAX = 15

NOT_JUDGED = ("UNKNOWN", "NO COMMIT")
"""Statuses of partitions whose lag is not known."""


def worst(report: Report) -> Html:
    """Return the section."""
    rows = [row for row in report.groups if not row.standing.is_fine]
    if not rows:
        return _all_is_well(report)
    total = sum(report.severities.get(severity, 0) for severity in (BAD, WARNING))
    bad = report.severities.get(BAD, 0)
    told = (
        f"{total:,} of {counted(sum(report.severities.values()), 'group')} {'needs' if total == 1 else 'need'} a look"
    )
    told += f"; in {bad:,} of them records are not processed, or twice." if bad else "."
    items = [_item(row, report) for row in rows[:WORST_MAX]]
    more = [
        joined((group_name(row.group_id, report), " ", pill(row.standing.word, row.standing.severity)))
        for row in rows[WORST_MAX : WORST_MAX + MORE_NAMED_MAX]
    ]
    left = total - WORST_MAX - len(more)
    if left > 0:
        more.append(text(f"{left:,} more"))
    others = paragraph("After them: ", enumeration(more), ".") if more else EMPTY
    return joined((paragraph(told, style="lead"), element("ol", *items, class_="worst"), others))


def _item(row: GroupRow, report: Report) -> Html:
    stands = row.standing
    behind = element("span", behind_told(stands), class_="behind") if stands.lag is not None else EMPTY
    head = element("div", group_name(row.group_id, report), pill(stands.word, stands.severity), behind, class_="head")
    return element("li", head, element("div", text(stands.told)), class_=stands.severity)


def behind_told(stands: Standing) -> str:
    """Return in words how far a group is behind."""
    if not stands.lag:
        return "not behind"
    age = f", {format_span(stands.lag_ms)}" if stands.lag_ms is not None else ""
    return f"{stands.lag:,} {noun(stands.lag, 'record')} behind{age}"


def _all_is_well(report: Report) -> Html:
    """Return what is known if nothing is wrong."""
    if report.overview.groups == 0:
        return EMPTY
    known = []
    if report.polls is None:
        known.append("no anomaly was found")
    elif report.polls.count > 1:  # one tells of nothing that takes time
        known.append("polls show no anomaly")
    is_judged = not any(one.status in NOT_JUDGED for one in report.statuses)
    if report.lag is not None and report.statuses and is_judged:
        known.append("each group keeps up with its topics")
    behind = [row for row in report.groups if row.standing.lag]
    behind.sort(key=lambda row: (-(row.standing.lag or 0), row.group_id))
    parts = []
    if known:
        told = " and ".join(known)
        parts.append(paragraph(f"{told[0].upper()}{told[1:]}.", style=f"lead {FINE}"))
    if behind:
        names = [
            joined((group_name(row.group_id, report), f" ({behind_told(row.standing)})")) for row in behind[:WORST_MAX]
        ]
        parts.append(paragraph("Furthest behind: ", enumeration(names), "."))
    return joined(parts)
