"""An analysis as one HTML page: nothing from elsewhere, no script, pictures as inline SVG.

What goes into it is bounded (:mod:`groupcoord.analysis.report.data.model`), and so is the page: below 1 MB for any log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from groupcoord.analysis.fold.history.causes import UNKNOWN
from groupcoord.analysis.report.data.model import Polls, Report
from groupcoord.analysis.report.html import layout, sections
from groupcoord.analysis.report.html.cards import deliveries, troubled
from groupcoord.analysis.report.html.elements import EMPTY, Html, element, joined, name, text
from groupcoord.analysis.report.html.layout import Section, listing, paragraph, soft, tile
from groupcoord.analysis.report.html.sections import consumer_groups, worst
from groupcoord.analysis.report.text import counted, format_number, format_size, format_span, format_time, noun

INPUTS_NAMED_MAX = 20

_SECTIONS: tuple[tuple[str, str, Callable[[Report], Html]], ...] = (
    ("anomalies", "Anomalies", sections.anomalies),
    ("lag", "Lag", sections.lag),
    ("troubled", "The worst groups one by one", troubled),
    ("groups", "Groups", sections.groups),
    ("rebalances", "Rebalances", sections.rebalances),
    ("churn", "Churn", sections.churn),
    ("consumer", "Consumer, share and streams groups", consumer_groups),
    ("deliveries", "Deliveries to share groups", deliveries),
    ("states", "Groups by state", sections.states),
    ("stale", "Expiring offsets", sections.stale),
    ("load", "Log load", sections.load),
    ("polls", "What was polled", sections.polls),
    ("read", "What was read", sections.read),
)
"""All behind the answer and the overview: name, title, and what makes it of a report; nothing if there is nothing."""


def report_page(report: Report) -> str:
    """Return the whole page."""
    made = [Section(section, title, make(report)) for section, title, make in _SECTIONS]
    shown = {section.name for section in made if section.body}
    answer = Section("worst", "What is wrong", worst(report))
    overview = Section("overview", "Overview", _overview(report, shown))
    lead = soft(
        _span(report),
        f"Made {format_time(report.made_ms)} by groupcoord ",
        text(report.version),
        ". All times are UTC.",
    )
    return layout.page(text(report.title), [lead], [answer, overview, *made])


def _span(report: Report) -> str:
    """Return from when until when the log tells, before another sentence."""
    first_ms, last_ms = report.overview.first_timestamp_ms, report.overview.last_timestamp_ms
    if first_ms is None or last_ms is None:
        return ""
    first, last = format_time(first_ms), format_time(last_ms)
    return f"{first}. " if first == last else f"{first} to {last} ({format_span(last_ms - first_ms)}). "


def _overview(report: Report, shown: Collection[str]) -> Html:
    """Return the figures, each leading to its section if that is ``shown``, and what to know before reading on."""
    found = report.overview
    anomalies = (format_number(found.anomalies), noun(found.anomalies, "anomaly", "anomalies"))
    tiles = [
        tile(format_number(found.groups), noun(found.groups, "group"), "states", shown),
        tile(format_number(found.members), noun(found.members, "member"), "groups", shown),
        tile(format_number(found.rebalances), noun(found.rebalances, "rebalance"), "rebalances", shown),
        tile(*anomalies, "anomalies", shown, is_bad=found.anomalies > 0),
        *(_tiles_of_log(report, shown) if report.polls is None else _tiles_of_polls(report, report.polls, shown)),
    ]
    notes = [_inputs(report), _verification(report), *_doubts(report)]
    return joined((element("div", *tiles, class_="tiles"), *notes))


def _tiles_of_log(report: Report, shown: Collection[str]) -> list[Html]:
    found = report.overview
    corrupt = (format_number(found.corrupt_ranges), noun(found.corrupt_ranges, "corrupt range"))
    return [
        tile(format_number(found.current_offsets), noun(found.current_offsets, "committed offset"), "stale", shown),
        tile(format_number(found.records), noun(found.records, "record"), "read", shown),
        tile(format_size(found.size_bytes), f"in {counted(found.log_partitions, 'log partition')}", "load", shown),
        tile(*corrupt, "read", shown, is_bad=found.corrupt_ranges > 0),
    ]


def _tiles_of_polls(report: Report, polls: Polls, shown: Collection[str]) -> list[Html]:
    offsets, count = report.overview.current_offsets, polls.problem_count
    return [
        tile(format_number(offsets), noun(offsets, "committed offset"), "lag", shown),
        tile(format_number(polls.count), noun(polls.count, "poll"), "polls", shown),
        tile(format_number(count), "not told", "polls", shown, is_bad=count > 0),
    ]


def _inputs(report: Report) -> Html:
    named = joined((name(path) for path in report.inputs[:INPUTS_NAMED_MAX]), ", ")
    more = len(report.inputs) - INPUTS_NAMED_MAX
    excluded = joined((name(one) for one in report.excluded_groups[:INPUTS_NAMED_MAX]), ", ")
    without = joined((" Groups whose names match ", excluded, " are left out.")) if report.excluded_groups else EMPTY
    return soft("Read from ", named, f" and {more:,} more" if more > 0 else "", ".", without)


def _doubts(report: Report) -> list[Html]:
    """Return what may be missing in the figures."""
    found, notes = report.overview, []
    unclear = sum(row.rebalances for row in report.causes if row.cause == UNKNOWN)
    if unclear and report.polls is None:
        notes.append(
            paragraph(
                f"Of {counted(found.rebalances, 'rebalance')}, the log does not show the cause of {unclear:,}. "
                "Heartbeats are not in the log, and compaction removes generations.",
                style="note",
            )
        )
    if found.corrupt_ranges:
        ranges = f"{counted(found.corrupt_ranges, 'byte range')} ({format_size(found.corrupt_bytes)})"
        link = element("a", "what was read", href="#read")
        notes.append(
            paragraph(f"{ranges} could not be read: see ", link, ". Figures may be too low.", style="note bad")
        )
    return notes


def _verification(report: Report) -> Html:
    verified = report.verification
    if verified is None:
        return EMPTY
    groups = "" if verified.groups is None else f"of {counted(verified.groups, 'group')}"
    if not verified.difference_count:
        told = f"Verified: a coordinator that loaded these logs answers for each {groups and f'{groups} '}what the "
        return paragraph(f"{told}tables say.", style="note good")
    places = counted(verified.difference_count, "place") + (f" ({groups})" if groups else "")
    return element(
        "div",
        paragraph(f"A coordinator that loaded these logs answers otherwise than the tables in {places}:"),
        listing(text(told) for told in verified.differences),
        class_="note bad",
    )
