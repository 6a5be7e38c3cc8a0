"""The page of a cluster that is polled: its rows out of what polls have told so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version

from groupcoord.analysis.live.snapshots import Snapshot
from groupcoord.analysis.poll.groups import Changes, PolledGroups
from groupcoord.analysis.poll.rows import Row
from groupcoord.analysis.report.data import model
from groupcoord.analysis.report.data.findings import anomaly_counts, anomaly_rows, lag_rows, status_counts
from groupcoord.analysis.report.data.groups import group_rows, most_churning, severities, state_counts
from groupcoord.analysis.report.data.rebalances import RebalanceFigures
from groupcoord.analysis.report.data.standings import standings

TIMES_MAX = 10_000
"""Of so many rebalances of a cause it is kept how long they took: the newest."""


class PolledFigures:
    """What the page says, kept up to date with each poll.

    Args:
        inputs: what is polled, for people.
        groups: its groups.
    """

    def __init__(self, inputs: tuple[str, ...], groups: PolledGroups) -> None:
        self._inputs = inputs
        self._groups = groups
        self._polls = 0
        self._first_ms = 0
        self._rebalances = RebalanceFigures(TIMES_MAX)

    def take(self, snapshot: Snapshot, changes: Changes) -> None:
        """Count what the next poll shows."""
        self._first_ms = self._first_ms or snapshot.at_ms
        self._polls += 1
        for row in changes.rebalances:
            self._rebalances.add(row)

    def report(
        self,
        snapshot: Snapshot,
        groups: Iterable[Row],
        lag: Sequence[Row],
        anomalies: Sequence[Row],
        tables: Mapping[str, int],
        made_ms: int,
    ) -> model.Report:
        """Return what the page says.

        Args:
            snapshot: the last poll.
            groups: its rows of this table.
            lag: its rows of this table.
            anomalies: likewise.
            tables: how many rows each table has.
            made_ms: when this is.
        """
        now = list(groups)
        seen = self._groups.figures()
        rows = group_rows(
            now,
            {group_id: one.rebalances for group_id, one in seen.items()},
            Counter(row["group_id"] for row in anomalies),
            {group_id: one.commits for group_id, one in seen.items()},
            {group_id: one.type for group_id, one in seen.items()},
            standings(anomalies, lag),
        )
        ranks = {row.group_id: rank for rank, row in enumerate(rows)}
        states, lines = state_counts(now), self._rebalances.time_lines()
        problems = tuple(f"{one.subject}: {one.text}" for one in snapshot.problems[: model.PROBLEMS_MAX])
        return model.Report(
            title=f"Consumer groups of {self._inputs[0]}",
            inputs=self._inputs,
            made_ms=made_ms,
            version=version("groupcoord"),
            overview=self._overview(snapshot, now, len(anomalies)),
            states=states,
            causes=self._rebalances.causes(),
            rebalances=lines and lines[0],
            churn=lines and lines[1],
            churning=most_churning(rows),
            groups=tuple(rows[: model.GROUPS_MAX]),
            severities=severities(rows),
            anomaly_counts=anomaly_counts(anomalies),
            anomalies=tuple(anomaly_rows(anomalies, model.ANOMALIES_OF_GROUP_MAX, model.ANOMALIES_MAX, ranks)),
            lag=lag_rows(lag),
            statuses=status_counts(lag),
            tables=tables,
            polls=model.Polls(self._polls, self._first_ms, snapshot.at_ms, len(snapshot.problems), problems),
        )

    def _overview(self, snapshot: Snapshot, now: Sequence[Row], anomalies: int) -> model.Overview:
        return model.Overview(
            first_timestamp_ms=self._first_ms,
            last_timestamp_ms=snapshot.at_ms,
            records=0,
            size_bytes=0,
            log_partitions=0,
            groups=len(now),
            members=sum(row["member_count"] or 0 for row in now),
            current_offsets=sum(row["offset_count"] or 0 for row in now),
            rebalances=self._rebalances.count,
            anomalies=anomalies,
            corrupt_ranges=0,
            corrupt_bytes=0,
        )
