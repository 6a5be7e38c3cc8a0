"""A report as one HTML page: nothing from elsewhere, no script, pictures as inline SVG.

What goes into it is bounded (:mod:`groupcoord.spark.report_model`), and so is the page: below 1 MB for any log.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from groupcoord.history.causes import CAUSES, UNKNOWN
from groupcoord.spark import report_model as model
from groupcoord.spark.report_model import STATES, GroupRow, GroupStory, Report
from groupcoord.spark.report_pictures import (
    Axis,
    cause_class,
    cause_time_line,
    churn_time_line,
    group_picture,
    in_order,
    load_columns,
    state_bar,
    state_class,
)
from groupcoord.spark.report_story import story_of
from groupcoord.spark.report_style import style_sheet
from groupcoord.spark.report_text import (
    counted,
    html_name,
    html_text,
    listed,
    noun,
    told_limit,
    told_number,
    told_share,
    told_size,
    told_span,
    told_time,
)

LONG_TABLE_ROWS = 15
"""A table with more rows scrolls in a box of its own, under titles that stay."""

WORST_NAMED_MAX = 3

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_SECTIONS = (
    ("overview", "Overview"),
    ("states", "Groups by state"),
    ("rebalances", "Rebalances"),
    ("churn", "Churn"),
    ("troubled", "Most troubled groups"),
    ("anomalies", "Anomalies"),
    ("stale", "Expiring offsets"),
    ("lag", "Lag"),
    ("load", "Log load"),
    ("groups", "Groups"),
    ("read", "What was read"),
)


def report_page(report: Report) -> str:
    """Return the whole page."""
    bodies = {
        "states": _states(report),
        "rebalances": _rebalances(report),
        "churn": _churn(report),
        "troubled": _troubled(report),
        "anomalies": _anomalies(report),
        "stale": _stale(report),
        "lag": _lag(report),
        "load": _load(report),
        "groups": _groups(report),
        "read": _read(report),
    }
    bodies["overview"] = _overview(report, {name for name, body in bodies.items() if body})
    shown = [(name, title) for name, title in _SECTIONS if bodies[name]]
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title in shown)
    title = html_text(report.title)
    overview = report.overview
    span = ""
    if overview.first_timestamp_ms is not None and overview.last_timestamp_ms is not None:
        first, last = told_time(overview.first_timestamp_ms), told_time(overview.last_timestamp_ms)
        took = told_span(overview.last_timestamp_ms - overview.first_timestamp_ms)
        span = f"{first}. " if first == last else f"{first} to {last} ({took}). "
    sections = "".join(f'<section id="{name}"><h2>{title}</h2>{bodies[name]}</section>' for name, title in shown)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{style_sheet()}</style></head><body><main>"
        f'<h1>{title}</h1><p class="soft">{span}Made {told_time(report.made_ms)} by groupcoord '
        f"{html_text(report.version)}. All times are UTC.</p><nav>{links}</nav>{sections}</main></body></html>\n"
    )


# ---------------------------------------------------------------- parts


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Return a table. Titles that start with ``#`` stand above numbers, with ``@`` above what stays on one line."""
    rows = list(rows)
    kinds = ["n" if title.startswith("#") else "t" if title.startswith("@") else "" for title in head]
    classes = [f' class="{kind}"' if kind else "" for kind in kinds]
    titles = "".join(
        f'<th scope="col"{style}>{html_text(title.lstrip("#@"))}</th>'
        for title, style in zip(head, classes, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(f"<td{style}>{cell}</td>" for cell, style in zip(row, classes, strict=True)) + "</tr>\n"
        for row in rows
    )
    told = f"<caption>{caption}</caption>" if caption else ""
    size = "scroll long" if len(rows) > LONG_TABLE_ROWS else "scroll"
    table = f"<table>{told}<thead><tr>{titles}</tr></thead>\n<tbody>\n{body}</tbody></table>"
    return f'<div class="{size}" tabindex="0">{table}</div>'


def _legend(entries: Iterable[tuple[str, str]]) -> str:
    keys = "".join(f'<span><i class="key {style}"></i>{html_text(name)}</span>' for name, style in entries)
    return f'<div class="legend">{keys}</div>'


def _first_of(shown: int, total: int, what: str) -> str:
    return f"The first {shown:,} of {total:,} {what}; all are in the tables." if shown < total else ""


def _group_name(group_id: str | None, report: Report) -> str:
    """Return the name of a group; of one whose story is told, it leads there."""
    places = (place for place, story in enumerate(report.troubled, 1) if story.row.group_id == group_id)
    place = next(places, None)
    return html_name(group_id) if place is None else f'<a href="#{_card_id(place)}">{html_name(group_id)}</a>'


def _tile(value: str, name: str, section: str, shown: Collection[str], *, is_bad: bool = False) -> str:
    """Return one figure, which leads to its section if that is shown."""
    style, figure = "tile bad" if is_bad else "tile", f"<b>{value}</b><span>{name}</span>"
    if section not in shown:
        return f'<div class="{style}">{figure}</div>'
    return f'<a class="{style}" href="#{section}">{figure}</a>'


def _card_id(place: int) -> str:
    return f"group-{place}"


# ---------------------------------------------------------------- sections


def _overview(report: Report, shown: Collection[str]) -> str:
    """Return the figures, each leading to its section if that is ``shown``, and what to know before reading on."""
    found = report.overview
    tiles = [
        _tile(told_number(found.groups), noun(found.groups, "group"), "states", shown),
        _tile(told_number(found.members), noun(found.members, "member"), "groups", shown),
        _tile(told_number(found.rebalances), noun(found.rebalances, "rebalance"), "rebalances", shown),
        _tile(
            *(told_number(found.anomalies), noun(found.anomalies, "anomaly", "anomalies"), "anomalies", shown),
            is_bad=found.anomalies > 0,
        ),
        _tile(told_number(found.current_offsets), noun(found.current_offsets, "committed offset"), "stale", shown),
        _tile(told_number(found.records), noun(found.records, "record"), "read", shown),
        _tile(told_size(found.size_bytes), f"in {counted(found.log_partitions, 'log partition')}", "load", shown),
        _tile(
            *(told_number(found.corrupt_ranges), noun(found.corrupt_ranges, "corrupt range"), "read", shown),
            is_bad=found.corrupt_ranges > 0,
        ),
    ]
    inputs = ", ".join(html_name(path) for path in report.inputs[:20])
    if len(report.inputs) > 20:
        inputs += f" and {len(report.inputs) - 20:,} more"
    notes = [f'<p class="soft">Read from {inputs}.</p>', _verification(report)]
    worst = [
        f"{_group_name(story.row.group_id, report)} ({counted(story.row.trouble, 'point')})"
        for story in report.troubled[:WORST_NAMED_MAX]
    ]
    if worst:
        notes.append(f"<p>Most troubled: {listed(worst)}.</p>")
    unclear = sum(row.rebalances for row in report.causes if row.cause == UNKNOWN)
    if unclear:
        notes.append(
            f'<p class="note">Of {counted(found.rebalances, "rebalance")}, the log does not show the cause of '
            f"{unclear:,}. Heartbeats are not in the log, and compaction removes generations.</p>"
        )
    if found.corrupt_ranges:
        notes.append(
            f'<p class="note bad">{counted(found.corrupt_ranges, "byte range")} ({told_size(found.corrupt_bytes)}) '
            'could not be read: see <a href="#read">what was read</a>. Figures may be too low.</p>'
        )
    return f'<div class="tiles">{"".join(tiles)}</div>{"".join(notes)}'


def _verification(report: Report) -> str:
    verified = report.verification
    if verified is None:
        return ""
    groups = "" if verified.groups is None else f" of {counted(verified.groups, 'group')}"
    if not verified.difference_count:
        return (
            f'<p class="note good">Verified: a coordinator that loaded these logs answers for each{groups} what the '
            "tables say.</p>"
        )
    items = "".join(f"<li>{html_text(told)}</li>" for told in verified.differences)
    return (
        f'<div class="note bad"><p>A coordinator that loaded these logs answers otherwise than the tables in '
        f"{counted(verified.difference_count, 'place')}{groups and f' ({groups.strip()})'}:</p><ul>{items}</ul></div>"
    )


def _states(report: Report) -> str:
    if not report.states:
        return ""
    counts: Counter[str] = Counter()
    for row in report.states:
        counts[row.state] += row.groups
    legend = _legend((f"{state} {counts[state]:,}", state_class(state)) for state in in_order(counts, STATES))
    rows = [
        (html_text(row.type), html_text(row.state), told_number(row.groups), told_number(row.members))
        for row in report.states
    ]
    return state_bar(counts) + legend + _table(("type", "state", "#groups", "#members"), rows)


def _rebalances(report: Report) -> str:
    if report.rebalances is None and not report.causes:
        return "<p>The log shows no rebalance.</p>" if "rebalances" in report.tables else ""
    parts = []
    if report.rebalances is not None:
        names = in_order((name for name in report.rebalances.series if report.rebalances.total(name)), CAUSES)
        parts += [
            f'<p class="soft">When they ended; a column is {told_limit(report.rebalances.width_ms)}.</p>',
            cause_time_line(report.rebalances),
            _legend((name, cause_class(name)) for name in names),
        ]
    rows = [
        (
            f'<i class="key {cause_class(row.cause)}"></i>{html_text(row.cause)}',
            told_number(row.rebalances),
            told_number(row.groups),
            told_number(row.proven),
            told_share(row.confidence),
            told_span(row.median_ms),
            told_span(row.longest_ms),
        )
        for row in report.causes
    ]
    head = ("@cause", "#rebalances", "#groups", "#proven", "#mean confidence", "#median time", "#longest time")
    return (
        "".join(parts)
        + _table(head, rows)
        + '<p class="soft">Proven are causes that the records leave no doubt about. Times are what the log shows: of a '
        "classic group from the last join to the assignments, of another type from the new epoch until all members "
        "had come to it.</p>"
    )


def _churn(report: Report) -> str:
    if report.churn is None:
        return ""
    joined, left = report.churn.total("joined"), report.churn.total("left")
    rows = [
        (
            _group_name(row.group_id, report),
            told_number(row.joined),
            told_number(row.left),
            told_number(row.members),
            told_number(row.partitions_moved),
            told_number(row.rebalances),
        )
        for row in report.churning
    ]
    head = ("group", "#joined", "#left", "#members now", "#partitions moved", "#rebalances")
    return (
        f"<p>{counted(joined, 'member')} joined and {left:,} left, by expiry or on their own. "
        f'<span class="soft">A column is {told_limit(report.churn.width_ms)}.</span></p>'
        + churn_time_line(report.churn)
        + _legend((("joined", "joined"), ("left", "left")))
        + (_table(head, rows, "The groups with the most churn") if rows else "")
    )


def _troubled(report: Report) -> str:
    if not report.troubled:
        return ""
    cards = [_card(place, story, report) for place, story in enumerate(report.troubled, 1)]
    return (
        '<p class="soft">By points: 5 for each anomaly, 3 for each rebalance because a member expired or left, 1 for '
        "each other. The mark of a rebalance has the colour of its cause; triangles are anomalies. Point at a mark to "
        "read what it stands for.</p>" + "".join(cards)
    )


def _card(place: int, story: GroupStory, report: Report) -> str:
    words = " ".join(html_text(sentence) for sentence in story_of(story, report.overview.last_timestamp_ms))
    words = _TIME.sub(r"<time>\g<0></time>", words)
    picture = ""
    axis = _axis(story)
    if axis is not None:
        picture = group_picture(story, axis)
        picture += _legend((cause, cause_class(cause)) for cause in in_order(story.causes, CAUSES))
    findings = "".join(_findings(story.anomalies))
    told = story.rebalances[-model.REBALANCES_TOLD_MAX :]
    rows = [
        (
            told_time(one.ended_ms if one.ended_ms is not None else one.started_ms),
            _generations(one),
            f'<i class="key {cause_class(one.cause)}"></i>{html_text(one.cause)}',
            told_share(one.confidence),
            told_span(None if None in (one.started_ms, one.ended_ms) else (one.ended_ms or 0) - (one.started_ms or 0)),
            f"{one.joined:,} / {one.left:,}",
            html_text(one.evidence),
        )
        for one in told
    ]
    head = ("@ended", "#generation", "@cause", "#confidence", "#seen for", "#joined / left", "evidence")
    summary = f"Its last {counted(len(told), 'rebalance')}" if len(told) < story.row.rebalances else "Its rebalances"
    table = f"<details><summary>{summary}</summary>{_table(head, rows)}</details>" if rows else ""
    return (
        f'<article class="card" id="{_card_id(place)}"><h3>{place}. {html_name(story.row.group_id)} '
        f'<span class="soft">{counted(story.row.trouble, "point")}</span></h3><p>{words}</p>{picture}'
        + (f"<ul>{findings}</ul>" if findings else "")
        + f"{table}</article>"
    )


def _findings(anomalies: Sequence[model.AnomalyRow]) -> Iterator[str]:
    """Yield an item for each of the kinds that there are: its first finding, and how many more there are."""
    kinds: dict[str, list[model.AnomalyRow]] = {}
    for one in anomalies:
        kinds.setdefault(one.kind, []).append(one)
    for kind, (first, *others) in islice(kinds.items(), model.ANOMALIES_TOLD_MAX):
        subject = first.subject and f" of {html_text(first.subject)}"
        more = f" (and {len(others):,} more)" if others else ""
        told = f"<b>{html_text(kind)}</b>{subject}: {html_text(first.evidence)}{more}"
        yield f"<li>{told_time(first.first_ms)}: {told}</li>"


def _generations(one: model.RebalanceRow) -> str:
    before = "" if one.from_generation is None else f"{one.from_generation:,}"
    return f"{before} → {told_number(one.to_generation)}"


def _axis(story: GroupStory) -> Axis | None:
    """Return the time that a group's picture spans: from its first sign to its last."""
    times = [at_ms for one in story.rebalances for at_ms in (one.started_ms, one.ended_ms) if at_ms is not None]
    times += [at_ms for at_ms, _ in story.members]
    if story.commits is not None:
        times += [story.commits.start_ms, story.commits.end_ms]
    times = [at_ms for at_ms in times if at_ms >= 0]
    return Axis(min(times), max(times)) if times and max(times) > min(times) else None


def _anomalies(report: Report) -> str:
    if not report.anomaly_counts:
        return "<p>None was found.</p>" if "anomalies" in report.tables else ""
    counts = [
        (
            html_text(row.kind),
            _pill(row.status),
            told_number(row.count),
            told_number(row.groups),
            told_time(row.first_ms),
            told_time(row.last_ms),
        )
        for row in report.anomaly_counts
    ]
    rows = [
        (
            told_time(row.first_ms),
            _group_name(row.group_id, report),
            html_text(row.kind),
            html_text(row.subject),
            told_number(row.count),
            html_text(row.evidence),
        )
        for row in report.anomalies
    ]
    note = _first_of(len(rows), report.overview.anomalies, "anomalies")
    head = ("@anomaly", "Burrow's status", "#found", "#groups", "@first", "@last")
    return (
        _table(head, counts)
        + _table(
            ("@from", "group", "@anomaly", "of", "#times", "what was seen"),
            rows,
            "Groups with the most anomalies first",
        )
        + f'<p class="soft">{note}</p>'
    )


def _pill(text: str) -> str:
    return f'<span class="pill">{html_text(text)}</span>' if text else ""


def _stale(report: Report) -> str:
    if not report.stale_count:
        return ""
    rows = [
        (
            told_time(row.next_ms),
            _group_name(row.group_id, report),
            html_text(row.state),
            told_number(row.offsets),
            told_number(row.expiring),
            told_number(row.expired),
            told_time(row.last_commit_ms),
            told_time(row.group_ms),
        )
        for row in report.stale
    ]
    note = _first_of(len(rows), report.stale_count, "groups")
    head = ("@next expiry", "group", "state", "#offsets", "#expiring", "#due", "@last commit", "@group goes")
    return (
        f"<p>{counted(report.stale_count, 'group')} will lose offsets by the broker's retention if nobody uses "
        f"{noun(report.stale_count, 'it', 'them')}; the soonest first.</p>"
        f'{_table(head, rows)}<p class="soft">{note}</p>'
    )


def _lag(report: Report) -> str:
    if report.lag is None:
        return ""
    if not report.lag:
        return "<p>No group is behind in the topics whose ends were given.</p>"
    rows = [
        (
            _group_name(row.group_id, report),
            html_name(row.topic),
            told_number(row.partitions),
            told_number(row.lag),
            told_number(row.worst),
        )
        for row in report.lag
    ]
    return _table(("group", "topic", "#partitions", "#records behind", "#worst partition"), rows)


def _load(report: Report) -> str:
    rows = report.partitions
    if not rows:
        return ""
    records = [row.records for row in rows]
    mean = sum(records) / len(records)
    saved, total = sum(row.superseded_bytes for row in rows), sum(row.size_bytes for row in rows)
    hottest = max(rows, key=lambda row: row.records * (row.hottest_group_share or 0.0))
    words = []
    if mean and len(rows) > 1:
        words.append(f"The fullest log partition holds {max(records) / mean:.1f} times the mean.")
    if hottest.hottest_group is not None:
        name, share = _group_name(hottest.hottest_group, report), told_share(hottest.hottest_group_share)
        words.append(f"The hottest group, {name}, wrote {share} of log partition {told_number(hottest.log_partition)}.")
    if total:
        words.append(f"Compaction would save {told_size(saved)} of {told_size(total)} ({told_share(saved / total)}).")
    cells = [
        (
            told_number(row.log_partition),
            told_number(row.records),
            told_number(row.commits),
            told_number(row.group_records),
            told_number(row.tombstones),
            told_size(row.size_bytes),
            told_number(row.groups),
            _group_name(row.hottest_group, report),
            told_share(row.hottest_group_share),
            told_size(row.superseded_bytes),
        )
        for row in sorted(rows, key=lambda row: (-row.records, row.log_partition or 0))
    ]
    head = (
        *("#log partition", "#records", "#commits", "#of groups", "#tombstones", "#size", "#groups"),
        *("hottest group", "#its share", "#compaction saves"),
    )
    legend = _legend((("the partition's hottest group", "hot"), ("all others", "load")))
    return f"<p>{' '.join(words)}</p>{load_columns(rows)}{legend}{_table(head, cells)}"


def _groups(report: Report) -> str:
    if not report.groups:
        return ""
    head = (
        *("group", "#points", "type", "@state", "#generation", "#members", "#rebalances", "#joined / left"),
        *("#anomalies", "#commits", "@last commit"),
    )
    note = _first_of(len(report.groups), report.overview.groups, "groups")
    return (
        f'<p class="soft">The most troubled first. {note}</p>'
        f"{_table(head, (_group_cells(row, report) for row in report.groups))}"
    )


def _group_cells(row: GroupRow, report: Report) -> tuple[str, ...]:
    state = "gone" if row.state is None else html_text(row.state)
    style = state_class(row.state or "Dead")
    return (
        _group_name(row.group_id, report),
        told_number(row.trouble),
        html_text(row.type or "-"),
        f'<i class="key {style}"></i>{state}',
        told_number(row.generation),
        told_number(row.members),
        told_number(row.rebalances),
        f"{row.joined:,} / {row.left:,}",
        told_number(row.anomalies),
        told_number(row.commits),
        told_time(row.last_commit_ms),
    )


def _read(report: Report) -> str:
    rows = [
        (html_text(row.what), html_text(row.problem), told_number(row.count), told_size(row.size_bytes))
        for row in report.read
    ]
    parts = [
        "<p>Everything in the files is counted here once: records by type, and what was passed over with the "
        "reason.</p>",
        _table(("what", "problem", "#count", "#size"), rows),
    ]
    if report.corrupt:
        cells = [
            (
                html_text(row.file),
                told_number(row.position),
                told_number(row.size_bytes),
                html_text(row.reason),
                _lost(row),
            )
            for row in report.corrupt
        ]
        note = _first_of(len(cells), report.overview.corrupt_ranges, "corrupt ranges")
        head = ("file", "#position", "#bytes", "what is wrong", "offsets that may be lost")
        parts.append(f'<h3>Bytes that could not be read</h3>{_table(head, cells)}<p class="soft">{note}</p>')
    if report.tables:
        tables = ", ".join(f"{html_name(name)} {count:,}" for name, count in report.tables.items())
        parts.append(
            f'<p class="soft">Tables beside this page, under <code>tables/</code>, with their rows: {tables}.</p>'
        )
    return "".join(parts)


def _lost(row: model.CorruptRange) -> str:
    if row.first_offset is None:
        return "-" if row.end_offset is None else f"before {row.end_offset:,}"
    if row.end_offset is None:
        return f"from {row.first_offset:,} on"
    if row.end_offset <= row.first_offset:
        return "none"
    return f"{row.first_offset:,} to {row.end_offset - 1:,}"
