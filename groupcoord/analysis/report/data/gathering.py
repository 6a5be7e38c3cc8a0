"""Report of an analysis: gathered from its finished tables, and written as a page and a summary."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

from attrs import evolve

from groupcoord.analysis.decode.parquet import ResultDirectory
from groupcoord.analysis.fold.history.rows import (
    CLASSIC,
    Row,
)
from groupcoord.analysis.options import OFFSETS_RETENTION_MINUTES
from groupcoord.analysis.report.data import groups
from groupcoord.analysis.report.data.groups import (
    COLUMNS_OF_GROUPS,
    CommitsOfGroups,
    RebalanceFigures,
    count_commits,
    count_rebalances,
    members_now,
    shares,
)
from groupcoord.analysis.report.data.model import (
    ANOMALIES_MAX,
    ANOMALIES_OF_GROUP_MAX,
    GROUPS_MAX,
    TROUBLED_MAX,
    GroupRow,
    GroupStory,
    Overview,
    Report,
    Verification,
    summary,
)
from groupcoord.analysis.report.data.rows import (
    anomaly_counts,
    anomaly_rows,
    by_group,
    corrupt_rows,
    difference_rows,
    lag_rows,
    load_totals,
    partition_rows,
    read_rows,
    report_title,
    share_group_rows,
    stale_rows,
    standings,
    status_counts,
)
from groupcoord.analysis.report.html.page import report_page
from groupcoord.analysis.tables import FinishedTables
from groupcoord.clock import Clock

PAGE = "report.html"
SUMMARY = "summary.json"

_COUNTED = ("group_id", "cause", "confidence", "started_ms", "ended_ms", "joined", "left", "partitions_moved")


def gather_report(
    tables: FinishedTables, inputs: Sequence[str], clock: Clock, retention_minutes: int | None = None
) -> Report:
    rebalances, of_groups = count_rebalances(tables.rows("rebalances", _COUNTED))
    anomalies, described = list(tables.rows("anomalies")), list(tables.rows("groups"))
    commits = count_commits(tables.batches("commits", ("group_id", "tombstone", "commit_timestamp_ms")))
    found = Counter[str](row["group_id"] for row in anomalies if row["group_id"] is not None)
    load = list(tables.rows("partition_load"))
    lag = list(tables.rows("lag")) if tables.has("lag") else None
    stands = standings(anomalies, lag or ())
    rows = groups.group_rows(described, of_groups, found, commits, standings=stands)
    counts = {"current_offsets": tables.counts["current_offsets"], "corrupt_ranges": tables.counts["corrupt"]}
    overview = Overview(**load_totals(load), **counts)
    worst = [row for row in rows[:TROUBLED_MAX] if not row.standing.is_fine]
    return report_of_groups(
        inputs,
        overview,
        described,
        rows,
        rebalances,
        anomalies,
        lag,
        title=report_title(inputs),
        made_ms=clock.now_ms(),
        consumer_groups=groups.consumer_rows(*map(tables.rows, ("epochs", "memberships", "moves", "revocations"))),
        assignors=groups.assignor_rows(tables.rows("moves")),
        slow_members=groups.slow_rows(tables.rows("revocations")),
        share_groups=share_group_rows(tables.rows("share_partitions")),
        troubled=_stories(tables, worst, overview, anomalies, lag or ()),
        partitions=partition_rows(load),
        stale_count=tables.counts["stale_groups"],
        stale=stale_rows(tables.rows("stale_groups")),
        retention_minutes=retention_minutes or OFFSETS_RETENTION_MINUTES,
        is_retention_told=retention_minutes is not None,
        read=read_rows(tables.rows("read_counts")),
        corrupt=corrupt_rows(tables.rows("corrupt")),
        verification=_verification(tables),
        tables=tables.counts,
    )


def report_of_groups(
    inputs: Sequence[str],
    overview: Overview,
    described: Sequence[Row],
    rows: Sequence[GroupRow],
    rebalances: RebalanceFigures,
    anomalies: Sequence[Row],
    lag: Sequence[Row] | None,
    **others: Any,
) -> Report:
    """Return a report with all that a log and polls have in common; ``others`` are further fields."""
    states, lines = groups.state_counts(described), rebalances.time_lines()
    ranks = {row.group_id: rank for rank, row in enumerate(rows)}
    totals = {"groups": len(described), "rebalances": rebalances.count, "anomalies": len(anomalies)}
    return Report(
        inputs=tuple(inputs),
        version=version("groupcoord"),
        overview=evolve(overview, members=sum(row.members for row in states), **totals),
        states=states,
        causes=rebalances.causes(),
        rebalances=lines and lines[0],
        churn=lines and lines[1],
        churning=groups.most_churning(rows),
        groups=tuple(rows[:GROUPS_MAX]),
        severities=groups.severities(rows),
        anomaly_counts=anomaly_counts(anomalies),
        anomalies=tuple(anomaly_rows(anomalies, ANOMALIES_OF_GROUP_MAX, ANOMALIES_MAX, ranks)),
        lag=None if lag is None else lag_rows(lag),
        statuses=status_counts(lag or ()),
        **others,
    )


def _stories(
    tables: FinishedTables,
    troubled: Sequence[GroupRow],
    overview: Overview,
    anomalies: Sequence[Row],
    lag: Iterable[Row],
) -> tuple[GroupStory, ...]:
    names = {row.group_id for row in troubled}
    if not names:
        return ()
    of_epochs = {row.group_id for row in troubled if row.type != CLASSIC}
    commits = CommitsOfGroups(overview.first_timestamp_ms, overview.last_timestamp_ms)
    for batch in tables.batches("commits", COLUMNS_OF_GROUPS, names):
        commits.add(batch)
    generations = {row.group_id: row.generation for row in troubled if row.members and row.generation is not None}
    members = members_now(tables.batches("members", groups=generations.keys()), generations)
    behind = by_group(row for row in lag if row["group_id"] in names)
    return groups.stories(
        troubled,
        tables.rows("rebalances", groups=names),
        [row for row in anomalies if row["group_id"] in names],
        commits,
        groups.epoch_lines(tables.rows("epochs", groups=of_epochs), of_epochs) if of_epochs else {},
        {name: shares(members.get(name, ()), commits.places(name), behind.get(name, ())) for name in sorted(names)},
    )


def _verification(tables: FinishedTables) -> Verification | None:
    if not tables.has("differences"):
        return None
    differences = difference_rows(tables.rows("differences"))
    return Verification(tables.counts["groups"], tables.counts["differences"], differences)


def write_report(results: ResultDirectory, report: Report) -> None:
    results.replace_text(SUMMARY, json.dumps(summary(report), indent=1, ensure_ascii=False) + "\n")
    results.replace_text(PAGE, report_page(report))
