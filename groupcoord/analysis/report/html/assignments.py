"""Who has what of a group, with commits and lag of each partition; and how records were delivered to share groups."""

from __future__ import annotations

from collections.abc import Iterator

from groupcoord.analysis.report.data.group_status import MemberShare, ShareGroupRow
from groupcoord.analysis.report.data.model import GroupStory, Report
from groupcoord.analysis.report.html.elements import EMPTY, Html, element, joined, name, text
from groupcoord.analysis.report.html.layout import Columns, pill, soft, table, table_of
from groupcoord.analysis.report.text import counted, format_number, format_span, format_time

_HEAD = ("member", "partition", "#commits", "@last commit", "#behind", "#next record's age", "@status")


def who_has_what(story: GroupStory) -> Html:
    """Return the table; nothing for a group without members."""
    rows = [row for share in story.shares for row in _rows(share)]
    return table(_HEAD, rows, "Who has what, as the log ends") if rows else EMPTY


def _rows(share: MemberShare) -> Iterator[tuple[str, ...]]:
    """Yield a row for each partition, the first of them with the member."""
    member = _member(share)
    for one in share.partitions:
        yield (
            member,
            name(f"{one.topic}:{one.partition}"),
            format_number(one.commits),
            format_time(one.last_commit_ms),
            format_number(one.lag),
            format_span(one.lag_ms),
            pill(one.status, one.severity),
        )
        member = EMPTY
    more = share.partition_count - len(share.partitions)
    if more or not share.partitions:
        yield (member, text(f"{more:,} more" if more else "nothing"), "", "", "", "", "")


def _member(share: MemberShare) -> Html:
    """Return who it is, and what all of its partitions come to."""
    who = text("nobody") if share.client_id is None else name(share.client_id)
    host = f"{share.client_host.lstrip('/')}, " if share.client_host else ""
    behind = "" if share.lag is None else f", {share.lag:,} behind"
    told = f"{host}{counted(share.partition_count, 'partition')}, {counted(share.commits, 'commit')}{behind}"
    return joined((who, element("div", told, class_="soft")))


def deliveries(report: Report) -> Html:
    """Return how records were delivered to share groups."""
    if not report.share_groups:
        return EMPTY
    columns: Columns[ShareGroupRow] = (
        ("group", lambda row: name(row.group_id)),
        ("topic", lambda row: name(row.topic)),
        ("#partitions", lambda row: format_number(row.partitions)),
        ("#given up", lambda row: format_number(row.given_up)),
        ("#redeliveries", lambda row: format_number(row.redeliveries)),
        ("#waiting", lambda row: format_number(row.waiting)),
        ("#most deliveries", lambda row: format_number(row.delivered_max)),
        ("@last change", lambda row: format_time(row.last_ms)),
    )
    told = (
        "Given up are records that were rejected or delivered too often; waiting are those that go to somebody again, "
        "or that somebody has. Compaction leaves the last state of a partition, so the first two may be too low."
    )
    return joined((table_of(report.share_groups, columns), soft(told)))
