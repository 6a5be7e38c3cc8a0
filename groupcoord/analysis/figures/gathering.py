"""All that a page says of an analysis, gathered from its finished tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from groupcoord.analysis.figures import consumers, findings, groups
from groupcoord.analysis.figures.finished import FinishedTables
from groupcoord.analysis.figures.rebalances import RebalanceFigures, count_rebalances
from groupcoord.analysis.figures.values import Row
from groupcoord.analysis.history.anomalies import OFFSETS_RETENTION_MINUTES
from groupcoord.analysis.history.views import CONSUMER
from groupcoord.analysis.report.model import (
    ANOMALIES_MAX,
    ANOMALIES_OF_GROUP_MAX,
    GROUPS_MAX,
    TROUBLED_MAX,
    GroupRow,
    GroupStory,
    Overview,
    Report,
    Verification,
)
from groupcoord.analysis.report.rows import load_totals, partition_rows, report_title
from groupcoord.clock import Clock

_COUNTED = ("group_id", "cause", "confidence", "started_ms", "ended_ms", "joined", "left", "partitions_moved")
"""What is counted of rebalances."""


def gather_report(
    tables: FinishedTables, inputs: Sequence[str], clock: Clock, retention_minutes: int | None = None
) -> Report:
    """Return what the page says.

    Args:
        tables: all of an analysis; ``lag`` if it is known where topics end, ``differences`` if it was verified.
        inputs: what was read, for people.
        clock: says when this is.
        retention_minutes: how long brokers say that offsets are kept that nobody uses, if they do.
    """
    rebalances, of_groups = count_rebalances(tables.rows("rebalances", _COUNTED))
    anomalies, described = list(tables.rows("anomalies")), list(tables.rows("groups"))
    commits = groups.count_commits(tables.batches("commits", ("group_id", "tombstone", "commit_timestamp_ms")))
    found = Counter[str](row["group_id"] for row in anomalies if row["group_id"] is not None)
    rows = groups.group_rows(described, of_groups, found, commits)
    states, load = groups.state_counts(described), list(tables.rows("partition_load"))
    lag = list(tables.rows("lag")) if tables.has("lag") else None
    lines = rebalances.time_lines()
    members = sum(row.members for row in states)
    return Report(
        title=report_title(inputs),
        inputs=tuple(inputs),
        made_ms=clock.now_ms(),
        version=version("groupcoord"),
        overview=_overview(tables.counts, load, members, rebalances),
        states=states,
        causes=rebalances.causes(),
        rebalances=lines and lines[0],
        churn=lines and lines[1],
        churning=groups.most_churning(rows),
        consumer_groups=consumers.consumer_rows(*map(tables.rows, ("epochs", "memberships", "moves", "revocations"))),
        assignors=consumers.assignor_rows(tables.rows("moves")),
        slow_members=consumers.slow_rows(tables.rows("revocations")),
        groups=tuple(rows[:GROUPS_MAX]),
        troubled=_stories(tables, [row for row in rows[:TROUBLED_MAX] if row.trouble], anomalies),
        partitions=partition_rows(load),
        anomaly_counts=findings.anomaly_counts(anomalies),
        anomalies=tuple(findings.anomaly_rows(anomalies, ANOMALIES_OF_GROUP_MAX, ANOMALIES_MAX)),
        stale_count=tables.counts["stale_groups"],
        stale=findings.stale_rows(tables.rows("stale_groups")),
        retention_minutes=retention_minutes or OFFSETS_RETENTION_MINUTES,
        is_retention_told=retention_minutes is not None,
        lag=None if lag is None else findings.lag_rows(lag),
        statuses=findings.status_counts(lag or ()),
        read=findings.read_rows(tables.rows("read_counts")),
        corrupt=findings.corrupt_rows(tables.rows("corrupt")),
        verification=_verification(tables),
        tables=tables.counts,
    )


def _overview(counts: Mapping[str, int], load: Sequence[Row], members: int, rebalances: RebalanceFigures) -> Overview:
    return Overview(
        **load_totals(load),
        groups=counts["groups"],
        members=members,
        current_offsets=counts["current_offsets"],
        rebalances=rebalances.count,
        anomalies=counts["anomalies"],
        corrupt_ranges=counts["corrupt"],
    )


def _stories(tables: FinishedTables, troubled: Sequence[GroupRow], anomalies: Sequence[Row]) -> tuple[GroupStory, ...]:
    names = {row.group_id for row in troubled}
    if not names:
        return ()
    of_epochs = {row.group_id for row in troubled if row.type == CONSUMER}
    return groups.stories(
        troubled,
        tables.rows("rebalances", groups=names),
        [row for row in anomalies if row["group_id"] in names],
        tables.batches("commits", ("group_id", "log_timestamp_ms", "tombstone"), names),
        consumers.epoch_lines(tables.rows("epochs", groups=of_epochs), of_epochs) if of_epochs else {},
    )


def _verification(tables: FinishedTables) -> Verification | None:
    if not tables.has("differences"):
        return None
    differences = findings.difference_rows(tables.rows("differences"))
    return Verification(tables.counts["groups"], tables.counts["differences"], differences)
