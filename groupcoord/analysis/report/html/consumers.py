"""What a report says of groups with epochs besides what it says of all: who was slow, what assignors moved."""

from __future__ import annotations

from groupcoord.analysis.report.data.model import AssignorRow, ConsumerGroupRow, Report, SlowMemberRow
from groupcoord.analysis.report.html.elements import EMPTY, Html, joined, text
from groupcoord.analysis.report.html.layout import Columns, paragraph, soft, table_of
from groupcoord.analysis.report.html.sections import group_name
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
    columns: Columns[ConsumerGroupRow] = (
        ("group", lambda row: group_name(row.group_id, report)),
        ("#epoch", lambda row: format_number(row.epoch)),
        ("#epochs seen", lambda row: format_number(row.epochs)),
        ("#members seen", lambda row: format_number(row.members_seen)),
        ("#fenced", lambda row: format_number(row.fenced)),
        ("#partitions moved", lambda row: format_number(row.moved)),
        ("#without need", lambda row: format_number(row.swapped)),
        ("#longest without owner", lambda row: format_span(row.unowned_ms)),
        ("#revocations", lambda row: format_number(row.revocations)),
        ("#median time", lambda row: format_span(row.median_ms)),
        ("#slowest", lambda row: format_span(row.slowest_ms)),
    )
    told = (
        "Fenced members are static ones that did not come back within their session, and those that did not give "
        "partitions up in their rebalance time-out. A move is without need if the one who gave the partition up got "
        "another in its place that the new owner might have had. Nobody can work on a partition from when one member "
        "gave it up until the next one has it."
    )
    return joined((table_of(report.consumer_groups, columns, "Groups with fenced and slow members first"), soft(told)))


def _assignors(report: Report) -> Html:
    columns: Columns[AssignorRow] = (
        ("assignor", lambda row: text(row.assignor or "the broker's first")),
        ("#groups", lambda row: format_number(row.groups)),
        ("#target assignments", lambda row: format_number(row.targets)),
        ("#partitions moved", lambda row: format_number(row.moved)),
        ("#without need", lambda row: format_number(row.swapped)),
        ("#median time to arrive", lambda row: format_span(row.median_ms)),
        ("#longest without owner", lambda row: format_span(row.unowned_ms)),
    )
    return table_of(report.assignors, columns, "What assignors moved") if report.assignors else EMPTY


def _slow(report: Report) -> Html:
    columns: Columns[SlowMemberRow] = (
        ("group", lambda row: group_name(row.group_id, report)),
        ("client", lambda row: text(row.client_id)),
        ("#revocations", lambda row: format_number(row.revocations)),
        ("#median time", lambda row: format_span(row.median_ms)),
        ("#slowest", lambda row: format_span(row.slowest_ms)),
        ("@told at", lambda row: format_time(row.asked_ms)),
        ("#may take", lambda row: format_span(row.rebalance_timeout_ms)),
        ("#fenced for it", lambda row: format_number(row.fenced)),
    )
    return (
        table_of(report.slow_members, columns, "Who took longest to give partitions up")
        if report.slow_members
        else EMPTY
    )
