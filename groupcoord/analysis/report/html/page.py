"""HTML page of a report: self-contained, without scripts, with pictures as inline SVG, and below 1 MB for any log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from statistics import median

from groupcoord.analysis.fold.history.causes import (
    ASSIGNOR_CHANGE,
    CAUSES,
    COORDINATOR_MOVE,
    EXPIRY_OR_LEAVE,
    JOIN,
    LEADER_REJOIN,
    LEAVE,
    METADATA_CHANGE,
    REBALANCE_TIMEOUT,
    REGEX_CHANGE,
    SESSION_EXPIRY,
    STATIC_REPLACE,
    TOPIC_CHANGE,
    UNKNOWN,
)
from groupcoord.analysis.report.data.model import (
    ANOMALIES_SHOWN_MAX,
    REBALANCES_SHOWN_MAX,
    AnomalyRow,
    GroupRow,
    GroupStory,
    MemberShare,
    Polls,
    RebalanceRow,
    Report,
    ShareGroupRow,
)
from groupcoord.analysis.report.html import layout, sections
from groupcoord.analysis.report.html.layout import (
    EMPTY,
    Columns,
    Html,
    Section,
    element,
    joined,
    key,
    legend,
    listing,
    name,
    paragraph,
    pill,
    soft,
    table,
    table_of,
    text,
    tile,
)
from groupcoord.analysis.report.html.pictures import Axis, cause_class, epoch_lines, group_picture, in_order
from groupcoord.analysis.report.html.sections import card_id, consumer_groups, lag_text, worst
from groupcoord.analysis.report.text import (
    counted,
    format_number,
    format_share,
    format_size,
    format_span,
    format_time,
    listed,
    noun,
)

INPUTS_NAMED_MAX = 20


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
    first_ms, last_ms = report.overview.first_timestamp_ms, report.overview.last_timestamp_ms
    if first_ms is None or last_ms is None:
        return ""
    first, last = format_time(first_ms), format_time(last_ms)
    return f"{first}. " if first == last else f"{first} to {last} ({format_span(last_ms - first_ms)}). "


def _overview(report: Report, shown: Collection[str]) -> Html:
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
        tile(format_number(count), noun(count, "gap"), "polls", shown, is_bad=count > 0),
    ]


def _inputs(report: Report) -> Html:
    named = joined((name(path) for path in report.inputs[:INPUTS_NAMED_MAX]), ", ")
    more = len(report.inputs) - INPUTS_NAMED_MAX
    excluded = joined((name(one) for one in report.excluded_groups[:INPUTS_NAMED_MAX]), ", ")
    without = joined((" Groups whose names match ", excluded, " are excluded.")) if report.excluded_groups else EMPTY
    return soft("Read from ", named, f" and {more:,} more" if more > 0 else "", ".", without)


def _doubts(report: Report) -> list[Html]:
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
        sentence = "Verified: the responses of a coordinator that loaded these logs equal the tables"
        return paragraph(f"{sentence}{groups and f' {groups}'}.", style="note good")
    places = counted(verified.difference_count, "place") + (f" ({groups})" if groups else "")
    return element(
        "div",
        paragraph(f"A coordinator that loaded these logs differs from the tables in {places}:"),
        listing(text(difference) for difference in verified.differences),
        class_="note bad",
    )


_HEAD = ("member", "partition", "#commits", "@last commit", "#behind", "#next record's age", "@status")


def who_has_what(story: GroupStory) -> Html:
    rows = [row for share in story.shares for row in _rows(share)]
    return table(_HEAD, rows, "Partitions by member at the end of the log") if rows else EMPTY


def _rows(share: MemberShare) -> Iterator[tuple[str, ...]]:
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
    who = text("no owner") if share.client_id is None else name(share.client_id)
    host = f"{share.client_host.lstrip('/')}, " if share.client_host else ""
    behind = "" if share.lag is None else f", {share.lag:,} behind"
    note = f"{host}{counted(share.partition_count, 'partition')}, {counted(share.commits, 'commit')}{behind}"
    return joined((who, element("div", note, class_="soft")))


def deliveries(report: Report) -> Html:
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
    note = (
        "Given up: rejected, or delivered too often. Waiting: released, or acquired. Compaction keeps only the last "
        "state of a partition, so the first two may be too low."
    )
    return joined((table_of(report.share_groups, columns), soft(note)))


_BECAUSE = {
    JOIN: "because a member joined",
    LEAVE: "because a member left",
    EXPIRY_OR_LEAVE: "because a member expired or left",
    SESSION_EXPIRY: "because a static member did not return in time",
    REBALANCE_TIMEOUT: "because a member did not revoke partitions in time",
    METADATA_CHANGE: "because a subscription or its metadata changed",
    TOPIC_CHANGE: "because its topics changed",
    REGEX_CHANGE: "because other topics matched a regular expression",
    ASSIGNOR_CHANGE: "because a member selected another assignor",
    LEADER_REJOIN: "because the leader joined again",
    STATIC_REPLACE: "because a static member returned under a new id",
    COORDINATOR_MOVE: "after the coordinator moved",
    UNKNOWN: "for a reason that the log does not show",
}
_OFTEN_MS = 300_000

CAUSES_MAX = 4


def story_of(story: GroupStory, end_ms: int | None) -> list[str]:
    row = story.row
    sentences = [_what_it_is(row)]
    if row.rebalances:
        sentences.append(_how_often(row))
        sentences.append(_why(story))
        sentences += _how_long(row, story.rebalances)
        sentences += _churn(row)
        sentences += _repeated(story.rebalances)
    else:
        sentences.append("The log shows no rebalance of it.")
    sentences.append(_commits(row, end_ms))
    if story.anomalies:
        kinds = Counter(anomaly.kind for anomaly in story.anomalies)
        anomalies = [f"{kind} ({number})" if number > 1 else kind for kind, number in kinds.items()]
        sentences.append(f"Anomalies: {listed(anomalies)}.")
    return sentences


def _what_it_is(row: GroupRow) -> str:
    if row.state is None:
        return "The group no longer exists at the end of the log."
    kind = f"A {row.type.lower()} group" if row.type else "A group"
    generation = "" if row.generation is None else f" in generation {row.generation:,}"
    if row.type and row.type.lower() != "classic":
        generation = generation.replace("generation", "epoch")
    members = "without members" if not row.members else f"with {counted(row.members, 'member')}"
    return f"{kind}, {row.state}{generation}, {members} at the end of the log."


def _how_often(row: GroupRow) -> str:
    first, last = row.first_rebalance_ms, row.last_rebalance_ms
    times = _times(row.rebalances)
    if first is None or last is None or row.rebalances == 1:
        return f"It rebalanced {times}" + (f", at {format_time(last)}." if last is not None else ".")
    every = (last - first) / (row.rebalances - 1)
    pace = f", every {format_span(round(every))} on average" if row.rebalances > 2 else ""
    return f"It rebalanced {times} from {format_time(first)} to {format_time(last)}{pace}."


def _times(number: int) -> str:
    return "once" if number == 1 else "twice" if number == 2 else f"{number:,} times"


def _why(story: GroupStory) -> str:
    ordered = sorted(story.causes.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) == 1:
        reasons = [_BECAUSE.get(cause, f"because of {cause}") for cause, _ in ordered]
    else:
        reasons = [
            f"{_times(number)} {_BECAUSE.get(cause, f'because of {cause}')}" for cause, number in ordered[:CAUSES_MAX]
        ]
        others = sum(number for _, number in ordered[CAUSES_MAX:])
        reasons += [f"{_times(others)} for other reasons"] if others else []
    return f"That was {listed(reasons)}."


def _how_long(row: GroupRow, rebalances: tuple[RebalanceRow, ...]) -> list[str]:
    """Describe the durations of rebalances as far as the log shows them: joining leaves no trace."""
    known = [
        (one.ended_ms - one.started_ms, one)
        for one in rebalances
        if one.started_ms is not None and one.ended_ms is not None and one.ended_ms >= one.started_ms
    ]
    if not known:
        return []
    longest_ms, longest = max(known, key=lambda pair: pair[0])
    middle = format_span(round(median(duration for duration, _ in known)))
    is_classic = row.type is None or row.type.lower() == "classic"
    what = "From the last join to the assignments" if is_classic else "Until all members had reached the new epoch"
    generation = "generation" if is_classic else "epoch"
    where = "" if longest.to_generation is None else f", to {generation} {longest.to_generation:,},"
    if format_span(longest_ms) == middle:
        return [f"{what}, {'it' if len(known) == 1 else 'each'} took {middle}."]
    return [f"{what}, half of them took {middle} or less, and the longest{where} took {format_span(longest_ms)}."]


def _churn(row: GroupRow) -> list[str]:
    if not row.joined + row.left + row.partitions_moved:
        return []
    parts = []
    if row.joined:
        parts.append(f"{counted(row.joined, 'member')} joined")
    if row.left:
        parts.append(f"{counted(row.left, 'member')} left")
    if row.partitions_moved:
        parts.append(f"{counted(row.partitions_moved, 'partition')} changed their owner")
    return [f"In all, {listed(parts)}."]


def _repeated(rebalances: tuple[RebalanceRow, ...]) -> list[str]:
    """Name the worst five minutes if more than half of the rebalances fall into them."""
    times = sorted(one.ended_ms for one in rebalances if one.ended_ms is not None)
    most, start, first = 0, 0, 0
    for place, at_ms in enumerate(times):
        while times[first] <= at_ms - _OFTEN_MS:
            first += 1
        if place - first + 1 > most:
            most, start = place - first + 1, first
    spans_more = len(times) > 1 and times[-1] - times[0] > _OFTEN_MS
    if most < 3 or not spans_more or most * 2 <= len(times):
        return []
    share = format_share(most / len(times))
    return [f"{most:,} of the rebalances ({share}) fell into the five minutes after {format_time(times[start])}."]


def _commits(row: GroupRow, end_ms: int | None) -> str:
    if not row.commits:
        return "The log has no commit of it."
    text = f"The log holds {counted(row.commits, 'commit')} of it"
    if row.last_commit_ms is None:
        return f"{text}."
    ago = ""
    if end_ms is not None and end_ms >= row.last_commit_ms:
        ago = f", {format_span(end_ms - row.last_commit_ms)} before the log ends"
    return f"{text}; the last was at {format_time(row.last_commit_ms)}{ago}."


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def troubled(report: Report) -> Html:
    if not report.troubled:
        return EMPTY
    note = (
        "Bad groups come before those with warnings, each by points: 5 for an anomaly, 3 for a rebalance by an "
        "expired, departed or fenced member, 1 for any other rebalance. Pictures span the whole log. Rebalances have "
        "the colour of their cause; triangles are anomalies. Hover over a mark for details."
    )
    axis = _axis(report)
    cards = (_card(place, story, report, axis) for place, story in enumerate(report.troubled, 1))
    return joined((soft(note), *cards))


def _card(place: int, story: GroupStory, report: Report, axis: Axis | None) -> Html:
    stands = story.row.standing
    behind = "" if stands.lag is None else f"{lag_text(stands)}, "
    points = element("span", f"{behind}{counted(story.row.trouble, 'point')}", class_="soft")
    return element(
        "article",
        element("h3", f"{place}. ", name(story.row.group_id), " ", pill(stands.word, stands.severity), " ", points),
        paragraph(_words(story, report)),
        _picture(story, axis),
        listing(_findings(story.anomalies)),
        who_has_what(story),
        _last_rebalances(story),
        class_=f"card {stands.severity}",
        id=card_id(place),
    )


def _words(story: GroupStory, report: Report) -> Html:
    prose = joined((text(sentence) for sentence in story_of(story, report.overview.last_timestamp_ms)), " ")
    return Html(_TIME.sub(lambda found: element("time", found[0]), prose))


def _picture(story: GroupStory, axis: Axis | None) -> Html:
    if axis is None or not (story.rebalances or story.members or story.commits or story.epochs):
        return EMPTY
    causes = legend((cause, cause_class(cause)) for cause in in_order(story.causes, CAUSES))
    return joined((group_picture(story, axis), causes, _epochs(story, axis)))


def _epochs(story: GroupStory, axis: Axis) -> Html:
    if not story.epochs:
        return EMPTY
    names = (("group epoch", "epoch-group"), ("target epoch", "epoch-target"), ("lowest member epoch", "epoch-member"))
    return joined((epoch_lines(story, axis), legend(names)))


def _axis(report: Report) -> Axis | None:
    """Return the time axis of all pictures: the whole log, so that a stopped group shows its silence."""
    first_ms, last_ms = report.overview.first_timestamp_ms, report.overview.last_timestamp_ms
    return None if first_ms is None or last_ms is None or first_ms >= last_ms else Axis(first_ms, last_ms)


def _last_rebalances(story: GroupStory) -> Html:
    shown = story.rebalances[-REBALANCES_SHOWN_MAX:]
    if not shown:
        return EMPTY
    head = ("@ended", "#generation", "@cause", "#confidence", "#seen for", "#joined / left", "~evidence")
    summary = f"Its last {counted(len(shown), 'rebalance')}" if len(shown) < story.row.rebalances else "Its rebalances"
    return element("details", element("summary", summary), table(head, map(_rebalance_cells, shown)))


def _rebalance_cells(one: RebalanceRow) -> tuple[str, ...]:
    before = "" if one.from_generation is None else f"{one.from_generation:,}"
    took_ms = None if one.started_ms is None or one.ended_ms is None else one.ended_ms - one.started_ms
    return (
        format_time(one.ended_ms if one.ended_ms is not None else one.started_ms),
        f"{before} → {format_number(one.to_generation)}",
        joined((key(cause_class(one.cause)), text(one.cause))),
        format_share(one.confidence),
        format_span(took_ms),
        f"{one.joined:,} / {one.left:,}",
        text(one.evidence),
    )


def _findings(anomalies: Sequence[AnomalyRow]) -> Iterator[Html]:
    """Yield the first anomaly of each kind, and the number of others."""
    kinds: dict[str, list[AnomalyRow]] = {}
    for one in anomalies:
        kinds.setdefault(one.kind, []).append(one)
    for kind, (first, *others) in islice(kinds.items(), ANOMALIES_SHOWN_MAX):
        subject = joined((" of ", text(first.subject))) if first.subject else ""
        more = f" (and {len(others):,} more)" if others else ""
        yield joined(
            (f"{format_time(first.first_ms)}: ", element("b", text(kind)), subject, ": ", text(first.evidence), more)
        )


_SECTIONS: tuple[tuple[str, str, Callable[[Report], Html]], ...] = (
    ("anomalies", "Anomalies", sections.anomalies),
    ("lag", "Lag", sections.lag),
    ("troubled", "The worst groups", troubled),
    ("groups", "Groups", sections.groups),
    ("rebalances", "Rebalances", sections.rebalances),
    ("churn", "Churn", sections.churn),
    ("consumer", "Consumer, share and streams groups", consumer_groups),
    ("deliveries", "Deliveries to share groups", deliveries),
    ("states", "Groups by state", sections.states),
    ("stale", "Expiring offsets", sections.stale),
    ("load", "Log load", sections.load),
    ("polls", "Polls", sections.polls),
    ("read", "What was read", sections.read),
)
"""Sections after the overview: name, title, and function; empty sections are omitted."""
