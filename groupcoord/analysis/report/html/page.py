"""HTML page of a report: self-contained, without scripts, with pictures as inline SVG, and below 1 MB for any log."""

from __future__ import annotations

from groupcoord.analysis.report.data.model import Report


def report_page(report: Report) -> str:
    """Return the whole page."""
    from groupcoord.analysis.report.html.rendering import render  # most commands make no page

    cards = {story.row.group_id: f"group-{place}" for place, story in enumerate(report.troubled, 1)}
    return render("analysis/report/html/report.html.jinja", report=report, cards=cards)
