"""Sections of a report, each a function of the whole report; empty without content."""

from __future__ import annotations

from collections import Counter

from groupcoord.analysis.fold.history.causes import CAUSES
from groupcoord.analysis.report.data.model import (
    BAD,
    FINE,
    STATES,
    WARNING,
    WORST_MAX,
    AnomalyCount,
    AnomalyRow,
    AssignorRow,
    CauseCount,
    ConsumerGroupRow,
    CorruptRange,
    GroupRow,
    LagRow,
    PartitionRow,
    ReadCount,
    Report,
    SlowMemberRow,
    StaleRow,
    Standing,
    StateCount,
    StatusCount,
)
from groupcoord.analysis.report.html.layout import (
    EMPTY,
    Columns,
    Html,
    element,
    enumeration,
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
)
from groupcoord.analysis.report.html.pictures import (
    cause_class,
    cause_time_line,
    churn_time_line,
    in_order,
    load_columns,
    state_bar,
    state_class,
)
from groupcoord.analysis.report.text import (
    counted,
    format_limit,
    format_number,
    format_share,
    format_size,
    format_span,
    format_time,
    noun,
)

MS_PER_MINUTE = 60_000


def card_id(place: int) -> str:
    return f"group-{place}"


def group_name(group_id: str | None, report: Report) -> Html:
    """Return the name of a group, linked to its details if there are any."""
    places = (place for place, story in enumerate(report.troubled, 1) if story.row.group_id == group_id)
    place = next(places, None)
    return name(group_id) if place is None else element("a", name(group_id), href=f"#{card_id(place)}")


def _first_of(shown: int, total: int, what: str) -> str:
    return f"The first {shown:,} of {total:,} {what}; all are in the tables." if shown < total else ""


def states(report: Report) -> Html:
    """Return groups by state, as a bar and a table."""
    if not report.states:
        return EMPTY
    counts: Counter[str] = Counter()
    for row in report.states:
        counts[row.state] += row.groups
    colours = legend((f"{state} {counts[state]:,}", state_class(state)) for state in in_order(counts, STATES))
    columns: Columns[StateCount] = (
        ("type", lambda row: text(row.type)),
        ("state", lambda row: text(row.state)),
        ("#groups", lambda row: format_number(row.groups)),
        ("#members", lambda row: format_number(row.members)),
    )
    return joined((state_bar(counts), colours, table_of(report.states, columns)))


def rebalances(report: Report) -> Html:
    if report.rebalances is None and not report.causes:
        shows = "The log shows" if report.polls is None else "Polls show"
        return paragraph(f"{shows} no rebalance.") if "rebalances" in report.tables else EMPTY
    parts = []
    if report.rebalances is not None:
        names = in_order((one for one in report.rebalances.series if report.rebalances.total(one)), CAUSES)
        parts += [
            soft(f"When they ended; a column is {format_limit(report.rebalances.width_ms)}."),
            cause_time_line(report.rebalances),
            legend((cause, cause_class(cause)) for cause in names),
        ]
    columns: Columns[CauseCount] = (
        ("@cause", lambda row: joined((key(cause_class(row.cause)), text(row.cause)))),
        ("#rebalances", lambda row: format_number(row.rebalances)),
        ("#groups", lambda row: format_number(row.groups)),
        ("#proven", lambda row: format_number(row.proven)),
        ("#mean confidence", lambda row: format_share(row.confidence)),
        ("#median time", lambda row: format_span(row.median_ms)),
        ("#longest time", lambda row: format_span(row.longest_ms)),
    )
    note = (
        "Proven: the records leave no doubt. Times are those that the log shows: in a classic group from the last join "
        "to the assignments, otherwise from the new epoch until all members had reached it."
    )
    if report.polls is not None:
        note = (
            "Polls show only results, so no cause is proven, and several rebalances between two polls count as one. "
            "Times are from the first poll during the rebalance to the first one after it."
        )
    return joined((*parts, table_of(report.causes, columns), soft(note)))


def churn(report: Report) -> Html:
    if report.churn is None:
        return EMPTY
    joined_count, left_count = report.churn.total("joined"), report.churn.total("left")
    columns: Columns[GroupRow] = (
        ("group", lambda row: group_name(row.group_id, report)),
        ("#joined", lambda row: format_number(row.joined)),
        ("#left", lambda row: format_number(row.left)),
        ("#members now", lambda row: format_number(row.members)),
        ("#partitions moved", lambda row: format_number(row.partitions_moved)),
        ("#rebalances", lambda row: format_number(row.rebalances)),
    )
    width = element("span", f"A column is {format_limit(report.churn.width_ms)}.", class_="soft")
    note = f"{counted(joined_count, 'member')} joined and {left_count:,} left, by expiry or on their own. "
    return joined(
        (
            paragraph(note, width),
            churn_time_line(report.churn),
            legend((("joined", "joined"), ("left", "left"))),
            table_of(report.churning, columns, "The groups with the most churn") if report.churning else EMPTY,
        )
    )


def anomalies(report: Report) -> Html:
    if not report.anomaly_counts:
        return paragraph("None was found.") if "anomalies" in report.tables else EMPTY
    columns_of_counts: Columns[AnomalyCount] = (
        ("@anomaly", lambda row: pill(row.kind, row.severity)),
        ("Burrow's status", lambda row: text(row.status)),
        ("#found", lambda row: format_number(row.count)),
        ("#groups", lambda row: format_number(row.groups)),
        ("@first", lambda row: format_time(row.first_ms)),
        ("@last", lambda row: format_time(row.last_ms)),
    )
    columns: Columns[AnomalyRow] = (
        ("@from", lambda row: format_time(row.first_ms)),
        ("group", lambda row: group_name(row.group_id, report)),
        ("@anomaly", lambda row: text(row.kind)),
        ("of", lambda row: text(row.subject)),
        ("#times", lambda row: format_number(row.count)),
        ("~what was seen", lambda row: text(row.evidence)),
    )
    kinds = table_of(report.anomaly_counts, columns_of_counts)
    found = table_of(report.anomalies, columns, "The worst groups first")
    return joined((kinds, found, soft(_first_of(len(report.anomalies), report.overview.anomalies, "anomalies"))))


def stale(report: Report) -> Html:
    if not report.stale_count:
        return EMPTY
    columns: Columns[StaleRow] = (
        ("@next expiry", lambda row: format_time(row.next_ms)),
        ("group", lambda row: group_name(row.group_id, report)),
        ("state", lambda row: text(row.state)),
        ("#offsets", lambda row: format_number(row.offsets)),
        ("#expiring", lambda row: format_number(row.expiring)),
        ("#due", lambda row: format_number(row.expired)),
        ("@last commit", lambda row: format_time(row.last_commit_ms)),
        ("@group deleted", lambda row: format_time(row.group_ms)),
    )
    kept = format_limit(report.retention_minutes * MS_PER_MINUTE)
    source = "as set on the brokers" if report.is_retention_told else "Kafka's default"
    note = (
        f"{counted(report.stale_count, 'group')} will lose offsets after a retention of {kept} ({source}) without "
        "further use; the soonest first."
    )
    return joined(
        (
            paragraph(note),
            table_of(report.stale, columns),
            soft(_first_of(len(report.stale), report.stale_count, "groups")),
        )
    )


def lag(report: Report) -> Html:
    """Return the lagging topics of groups, with counts by status."""
    if report.lag is None:
        return EMPTY
    if not report.lag:
        return paragraph("No group lags in the topics with known end offsets.")
    columns: Columns[LagRow] = (
        ("group", lambda row: group_name(row.group_id, report)),
        ("topic", lambda row: name(row.topic)),
        ("#partitions", lambda row: format_number(row.partitions)),
        ("#records behind", lambda row: format_number(row.lag)),
        ("#worst partition", lambda row: format_number(row.worst)),
        ("#next record's age", lambda row: format_span(row.lag_ms)),
        ("@worst status", lambda row: pill(row.status, row.severity)),
    )
    columns_of_statuses: Columns[StatusCount] = (
        ("@Burrow's status", lambda row: pill(row.status, row.severity)),
        ("#partitions", lambda row: format_number(row.partitions)),
        ("#groups", lambda row: format_number(row.groups)),
    )
    of_statuses = table_of(report.statuses, columns_of_statuses) if report.statuses else EMPTY
    return joined((of_statuses, table_of(report.lag, columns)))


def load(report: Report) -> Html:
    """Return the load of the log partitions."""
    rows = report.partitions
    if not rows:
        return EMPTY
    columns: Columns[PartitionRow] = (
        ("#log partition", lambda row: format_number(row.log_partition)),
        ("#records", lambda row: format_number(row.records)),
        ("#commits", lambda row: format_number(row.commits)),
        ("#of groups", lambda row: format_number(row.group_records)),
        ("#tombstones", lambda row: format_number(row.tombstones)),
        ("#size", lambda row: format_size(row.size_bytes)),
        ("#groups", lambda row: format_number(row.groups)),
        ("hottest group", lambda row: group_name(row.hottest_group, report)),
        ("#its share", lambda row: format_share(row.hottest_group_share)),
        ("#compaction saves", lambda row: format_size(row.superseded_bytes)),
    )
    colours = legend((("the partition's hottest group", "hot"), ("all others", "load")))
    return joined(
        (
            _load_words(report),
            load_columns(rows),
            colours,
            table_of(sorted(rows, key=lambda row: (-row.records, row.log_partition or 0)), columns),
        )
    )


def _load_words(report: Report) -> Html:
    rows = report.partitions
    records = [row.records for row in rows]
    mean = sum(records) / len(records)
    saved, total = sum(row.superseded_bytes for row in rows), sum(row.size_bytes for row in rows)
    hottest = max(rows, key=lambda row: row.records * (row.hottest_group_share or 0.0))
    words: list[str] = []
    if mean and len(rows) > 1:
        words.append(f"The fullest log partition holds {max(records) / mean:.1f} times the mean.")
    if hottest.hottest_group is not None:
        share = f"{format_share(hottest.hottest_group_share)} of log partition {format_number(hottest.log_partition)}."
        words.append(joined(("The hottest group, ", group_name(hottest.hottest_group, report), f", wrote {share}")))
    if total:
        words.append(
            f"Compaction would save {format_size(saved)} of {format_size(total)} ({format_share(saved / total)})."
        )
    return element("p", joined(words, " "))


def groups(report: Report) -> Html:
    """Return every group, the most troubled first."""
    if not report.groups:
        return EMPTY
    head = (
        *("group", "@", "#behind", "#points", "type", "@state", "#generation", "#members", "#rebalances"),
        *("#joined / left", "#anomalies", "#commits", "@last commit"),
    )
    note = _first_of(len(report.groups), report.overview.groups, "groups")
    rows = [_group_cells(row, report) for row in report.groups]
    return joined((soft("The worst first. ", note), table(head, rows)))


def _group_cells(row: GroupRow, report: Report) -> tuple[str, ...]:
    state = "gone" if row.state is None else text(row.state)
    return (
        group_name(row.group_id, report),
        pill(row.standing.word, row.standing.severity),
        format_number(row.standing.lag),
        format_number(row.trouble),
        text(row.type or "-"),
        state,
        format_number(row.generation),
        format_number(row.members),
        format_number(row.rebalances),
        f"{row.joined:,} / {row.left:,}",
        format_number(row.anomalies),
        format_number(row.commits),
        format_time(row.last_commit_ms),
    )


def polls(report: Report) -> Html:
    polled = report.polls
    if polled is None:
        return EMPTY
    note = (
        f"{counted(polled.count, 'poll')} of the groups; the log was not read. Commits are changes of an offset "
        "between polls, so there may have been more."
    )
    parts = [paragraph(note)]
    if polled.problem_count:
        parts += [element("h3", "Gaps of the last poll"), listing(text(one) for one in polled.problems)]
        parts.append(soft(_first_of(len(polled.problems), polled.problem_count, "gaps")))
    return joined((*parts, _tables(report)))


def read(report: Report) -> Html:
    """Return the read counts, with what was skipped and why."""
    if report.polls is not None:
        return EMPTY
    note = "Everything in the files is counted once: records by type, and skipped bytes with the reason."
    if report.excluded_groups:
        note = f"{note} Records of excluded groups are not counted."
    columns: Columns[ReadCount] = (
        ("what", lambda row: text(row.what)),
        ("problem", lambda row: text(row.problem)),
        ("#count", lambda row: format_number(row.count)),
        ("#size", lambda row: format_size(row.size_bytes)),
    )
    parts = [paragraph(note), table_of(report.read, columns)]
    if report.corrupt:
        parts += _corrupt(report)
    return joined((*parts, _tables(report)))


def _tables(report: Report) -> Html:
    if not report.tables:
        return EMPTY
    tables = joined((joined((name(table_name), f" {count:,}")) for table_name, count in report.tables.items()), ", ")
    where = element("code", "tables/")
    return soft("Tables next to this page, in ", where, ", with their number of rows: ", tables, ".")


def _corrupt(report: Report) -> list[Html]:
    columns: Columns[CorruptRange] = (
        ("file", lambda row: text(row.file)),
        ("#position", lambda row: format_number(row.position)),
        ("#bytes", lambda row: format_number(row.size_bytes)),
        ("what is wrong", lambda row: text(row.reason)),
        ("offsets that may be lost", _lost),
    )
    note = _first_of(len(report.corrupt), report.overview.corrupt_ranges, "corrupt ranges")
    return [element("h3", "Bytes that could not be read"), table_of(report.corrupt, columns), soft(note)]


def _lost(row: CorruptRange) -> str:
    if row.first_offset is None:
        return "-" if row.end_offset is None else f"before {row.end_offset:,}"
    if row.end_offset is None:
        return f"from {row.first_offset:,} on"
    if row.end_offset <= row.first_offset:
        return "none"
    return f"{row.first_offset:,} to {row.end_offset - 1:,}"


def consumer_groups(report: Report) -> Html:
    """Return KIP-848 groups, moves by assignor, and slow members."""
    if not report.consumer_groups:
        return EMPTY
    return joined((_words(report), _groups(report), _assignors(report), _slow(report)))


def _words(report: Report) -> Html:
    moved = sum(row.moved for row in report.assignors)
    swapped = sum(row.swapped for row in report.assignors)
    fenced = sum(row.fenced for row in report.consumer_groups)
    parts = [f"Assignors moved {counted(moved, 'partition')} to another member, {swapped:,} of them unnecessarily."]
    if fenced:
        parts.append(f" {counted(fenced, 'member')} {'was' if fenced == 1 else 'were'} fenced by a timeout.")
    return paragraph(*parts)


def _groups(report: Report) -> Html:
    columns: Columns[ConsumerGroupRow] = (
        ("group", lambda row: group_name(row.group_id, report)),
        ("#epoch", lambda row: format_number(row.epoch)),
        ("#epochs seen", lambda row: format_number(row.epochs)),
        ("#members seen", lambda row: format_number(row.members_seen)),
        ("#fenced", lambda row: format_number(row.fenced)),
        ("#partitions moved", lambda row: format_number(row.moved)),
        ("#unnecessary", lambda row: format_number(row.swapped)),
        ("#longest without owner", lambda row: format_span(row.unowned_ms)),
        ("#revocations", lambda row: format_number(row.revocations)),
        ("#median time", lambda row: format_span(row.median_ms)),
        ("#slowest", lambda row: format_span(row.slowest_ms)),
    )
    note = (
        "Fenced: static members that did not return within their session, and members that exceeded their rebalance "
        "timeout. A move is unnecessary if its owner gained another partition that the new owner could have had. A "
        "partition is without owner from its revocation until the next member has it."
    )
    return joined((table_of(report.consumer_groups, columns, "Groups with fenced and slow members first"), soft(note)))


def _assignors(report: Report) -> Html:
    columns: Columns[AssignorRow] = (
        ("assignor", lambda row: text(row.assignor or "the brokers' default")),
        ("#groups", lambda row: format_number(row.groups)),
        ("#target assignments", lambda row: format_number(row.targets)),
        ("#partitions moved", lambda row: format_number(row.moved)),
        ("#unnecessary", lambda row: format_number(row.swapped)),
        ("#median time to arrive", lambda row: format_span(row.median_ms)),
        ("#longest without owner", lambda row: format_span(row.unowned_ms)),
    )
    return table_of(report.assignors, columns, "Moves by assignor") if report.assignors else EMPTY


def _slow(report: Report) -> Html:
    columns: Columns[SlowMemberRow] = (
        ("group", lambda row: group_name(row.group_id, report)),
        ("client", lambda row: text(row.client_id)),
        ("#revocations", lambda row: format_number(row.revocations)),
        ("#median time", lambda row: format_span(row.median_ms)),
        ("#slowest", lambda row: format_span(row.slowest_ms)),
        ("@started", lambda row: format_time(row.asked_ms)),
        ("#timeout", lambda row: format_span(row.rebalance_timeout_ms)),
        ("#fenced", lambda row: format_number(row.fenced)),
    )
    return table_of(report.slow_members, columns, "Slowest revocations") if report.slow_members else EMPTY


MORE_NAMED_MAX = 15

NOT_JUDGED = ("UNKNOWN", "NO COMMIT")


def worst(report: Report) -> Html:
    rows = [row for row in report.groups if not row.standing.is_fine]
    if not rows:
        return _all_is_well(report)
    total = sum(report.severities.get(severity, 0) for severity in (BAD, WARNING))
    bad = report.severities.get(BAD, 0)
    groups_text = counted(sum(report.severities.values()), "group")
    lead = f"{total:,} of {groups_text} {'needs' if total == 1 else 'need'} attention"
    lead += f"; {bad:,} of them without progress, or with records processed twice." if bad else "."
    items = [_item(row, report) for row in rows[:WORST_MAX]]
    more = [
        joined((group_name(row.group_id, report), " ", pill(row.standing.word, row.standing.severity)))
        for row in rows[WORST_MAX : WORST_MAX + MORE_NAMED_MAX]
    ]
    left = total - WORST_MAX - len(more)
    if left > 0:
        more.append(text(f"{left:,} more"))
    others = paragraph("Others: ", enumeration(more), ".") if more else EMPTY
    return joined((paragraph(lead, style="lead"), element("ol", *items, class_="worst"), others))


def _item(row: GroupRow, report: Report) -> Html:
    stands = row.standing
    behind = element("span", lag_text(stands), class_="behind") if stands.lag is not None else EMPTY
    head = element("div", group_name(row.group_id, report), pill(stands.word, stands.severity), behind, class_="head")
    return element("li", head, element("div", text(stands.told)), class_=stands.severity)


def lag_text(stands: Standing) -> str:
    if not stands.lag:
        return "not behind"
    age = f", {format_span(stands.lag_ms)}" if stands.lag_ms is not None else ""
    return f"{stands.lag:,} {noun(stands.lag, 'record')} behind{age}"


def _all_is_well(report: Report) -> Html:
    if report.overview.groups == 0:
        return EMPTY
    known = []
    if report.polls is None:
        known.append("no anomaly was found")
    elif report.polls.count > 1:  # one poll shows no duration
        known.append("polls show no anomaly")
    is_judged = not any(one.status in NOT_JUDGED for one in report.statuses)
    if report.lag is not None and report.statuses and is_judged:
        known.append("each group keeps up with its topics")
    behind = [row for row in report.groups if row.standing.lag]
    behind.sort(key=lambda row: (-(row.standing.lag or 0), row.group_id))
    parts = []
    if known:
        sentence = " and ".join(known)
        parts.append(paragraph(f"{sentence[0].upper()}{sentence[1:]}.", style=f"lead {FINE}"))
    if behind:
        names = [
            joined((group_name(row.group_id, report), f" ({lag_text(row.standing)})")) for row in behind[:WORST_MAX]
        ]
        parts.append(paragraph("Furthest behind: ", enumeration(names), "."))
    return joined(parts)
