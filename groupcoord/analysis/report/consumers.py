"""What a report says of groups with epochs besides what it says of all: who was slow, what assignors moved."""

from __future__ import annotations

from groupcoord.analysis.report.html import EMPTY, Html, joined, text
from groupcoord.analysis.report.layout import paragraph, soft, table
from groupcoord.analysis.report.model import Report
from groupcoord.analysis.report.sections import group_name
from groupcoord.analysis.report.text import counted, format_number, format_span, format_time


def consumer_groups(report: Report) -> Html:
    """Return the section; nothing if there is no such group."""
    if not report.consumer_groups:
        return EMPTY
    return joined((_words(report), _groups(report), _assignors(report), _slow(report)))


def _words(report: Report) -> Html:
    moved = sum(row.moved for row in report.assignors)
    swapped = sum(row.swapped for row in report.assignors)
    fenced = sum(row.fenced for row in report.consumer_groups)
    parts = [f"Assignors gave {counted(moved, 'partition')} to another member, {swapped:,} of them without need."]
    if fenced:
        parts.append(f" {counted(fenced, 'member')} {'was' if fenced == 1 else 'were'} fenced by a time-out.")
    return paragraph(*parts)


def _groups(report: Report) -> Html:
    rows = [
        (
            group_name(row.group_id, report),
            format_number(row.epoch),
            format_number(row.epochs),
            format_number(row.members_seen),
            format_number(row.fenced),
            format_number(row.moved),
            format_number(row.swapped),
            format_span(row.unowned_ms),
            format_number(row.revocations),
            format_span(row.median_ms),
            format_span(row.slowest_ms),
        )
        for row in report.consumer_groups
    ]
    head = (
        *("group", "#epoch", "#epochs seen", "#members seen", "#fenced", "#partitions moved", "#without need"),
        *("#longest without owner", "#revocations", "#median time", "#slowest"),
    )
    told = (
        "Fenced members are static ones that did not come back within their session, and those that did not give "
        "partitions up in their rebalance time-out. A move is without need if the one who gave the partition up got "
        "another in its place that the new owner might have had. Nobody can work on a partition from when one member "
        "gave it up until the next one has it."
    )
    return joined((table(head, rows, "Groups with fenced and slow members first"), soft(told)))


def _assignors(report: Report) -> Html:
    rows = [
        (
            text(row.assignor or "the broker's first"),
            format_number(row.groups),
            format_number(row.targets),
            format_number(row.moved),
            format_number(row.swapped),
            format_span(row.median_ms),
            format_span(row.unowned_ms),
        )
        for row in report.assignors
    ]
    head = (
        *("assignor", "#groups", "#target assignments", "#partitions moved", "#without need"),
        *("#median time to arrive", "#longest without owner"),
    )
    return table(head, rows, "What assignors moved") if rows else EMPTY


def _slow(report: Report) -> Html:
    rows = [
        (
            group_name(row.group_id, report),
            text(row.client_id),
            format_number(row.revocations),
            format_span(row.median_ms),
            format_span(row.slowest_ms),
            format_time(row.asked_ms),
            format_span(row.rebalance_timeout_ms),
            format_number(row.fenced),
        )
        for row in report.slow_members
    ]
    head = ("group", "client", "#revocations", "#median time", "#slowest", "@told at", "#may take", "#fenced for it")
    return table(head, rows, "Who took longest to give partitions up") if rows else EMPTY
