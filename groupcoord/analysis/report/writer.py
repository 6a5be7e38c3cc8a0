"""The page of an analysis and its figures as files, on Spark or without it, and what the steps to them are called."""

from __future__ import annotations

import json

from groupcoord.analysis.decode.results import ResultDirectory
from groupcoord.analysis.report.data.model import Report, summary
from groupcoord.analysis.report.html.page import report_page

PAGE = "report.html"
SUMMARY = "summary.json"

READ, HISTORY = "reading the log", "offsets and histories of groups"
ANOMALIES, LAG, VERIFY, REPORT = "anomalies and forecasts", "lag", "verifying", "report"


def steps(*, has_ends: bool, verifies: bool) -> list[str]:
    """Return the names of what an analysis does, in order.

    Args:
        has_ends: it is known where topics end.
        verifies: coordinators load the log, too.
    """
    return [READ, HISTORY, ANOMALIES, *[LAG] * has_ends, *[VERIFY] * verifies, REPORT]


def write_report(results: ResultDirectory, report: Report) -> None:
    """Write the page and its figures."""
    results.replace_text(SUMMARY, json.dumps(summary(report), indent=1, ensure_ascii=False) + "\n")
    results.replace_text(PAGE, report_page(report))
