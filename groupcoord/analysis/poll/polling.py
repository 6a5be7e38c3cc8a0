"""A cluster's groups, asked for every so often, to tables and one page: what ``groupcoord analyze --poll`` runs.

Rows are few: neither Spark nor its limits are needed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from attrs import asdict, frozen

from groupcoord.analysis.decode.group_tables import ANOMALIES, EPOCHS, GROUPS, MEMBERS, REBALANCES
from groupcoord.analysis.decode.results import ResultDirectory
from groupcoord.analysis.decode.schema import Column
from groupcoord.analysis.decode.tables import CURRENT_OFFSETS, LAG, LIVE_END_OFFSETS, Columns, arrow_schema
from groupcoord.analysis.live.connection import connection
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.live.snapshots import Snapshot, take_snapshot
from groupcoord.analysis.pipeline.metric_values import Figures, RebalanceCounts
from groupcoord.analysis.pipeline.tables import EndOffsetSamples
from groupcoord.analysis.poll import rows
from groupcoord.analysis.poll.anomalies import PolledAnomalies
from groupcoord.analysis.poll.figures import PolledFigures
from groupcoord.analysis.poll.groups import GONE_MAX, Changes, PolledGroups
from groupcoord.analysis.poll.lag import LagWatch, PartitionLag
from groupcoord.analysis.poll.rows import Row
from groupcoord.analysis.poll.views import topics_of
from groupcoord.analysis.report.data.model import Report
from groupcoord.analysis.report.writer import write_report
from groupcoord.analysis.rules.lag_status import time_lag_of
from groupcoord.analysis.tables import END_OFFSETS_TABLE
from groupcoord.clock import Clock, SystemClock

_LONG, _STRING = pa.int64(), pa.string()
_POLLED = Column("polled_ms", _LONG, "when the poll was over that showed it")

POLLS: Columns = (
    _POLLED,
    Column("asked_ms", _LONG, "when it began"),
    Column("groups", _LONG, "how many groups it shows"),
    Column("problems", _LONG, "how much is not told: so many rows of problems"),
    Column(
        "is_whole",
        pa.bool_(),
        "every broker listed its groups: one that is missing does not exist, or may not be seen",
    ),
)
"""One row a poll."""

PROBLEMS: Columns = (
    _POLLED,
    Column("subject", _STRING, "group NAME, topic NAME, broker ID, or cluster"),
    Column("problem", _STRING, "what is not told of it, and why"),
)
"""What polls did not tell."""


def _polled(columns: Columns) -> Columns:
    """Return the columns of a table whose rows are of polls: with one more, which marks them."""
    return (*columns, _POLLED)


REPLACED = {
    "groups": _polled(GROUPS),
    "members": _polled(MEMBERS),
    "current_offsets": _polled(CURRENT_OFFSETS),
    "lag": _polled(LAG),
    "anomalies": _polled(ANOMALIES),
}
"""By name, the tables that hold the last poll."""

APPENDED = {
    "rebalances": _polled(REBALANCES),
    "epochs": _polled(EPOCHS),
    END_OFFSETS_TABLE: LIVE_END_OFFSETS,
    "polls": POLLS,
    "problems": PROBLEMS,
}
"""By name, the tables that hold all polls of a run."""

UNDER_WAY = "under-way"
"""The file among those of ``rebalances`` with those that have no end yet."""


@frozen
class Polled:
    """What a poll came to.

    Attributes:
        number: of the poll, from 1 on.
        snapshot: what it told.
        rebalances: how many it showed.
        report: what the page says.
        figures: what metrics show.
    """

    number: int
    snapshot: Snapshot
    rebalances: int
    report: Report
    figures: Figures


class Polling:
    """Asks a cluster for its groups, into one directory.

    Args:
        address: where the cluster is.
        out: an empty directory, or one that does not exist yet; a URL for fsspec is fine.
        clock: says when polls and pages are made.

    Raises:
        InputError: a setting is wrong, or the directory can't be used.
    """

    def __init__(self, address: ClusterAddress, out: str | os.PathLike[str], *, clock: Clock | None = None) -> None:
        self._address = address
        self._clock = clock or SystemClock()
        inputs = (f"kafka://{address.settings().bootstrap_servers}",)
        self._output = ResultDirectory(out)
        self._groups = PolledGroups()
        self._figures = PolledFigures(inputs, self._groups)
        self._counts = dict.fromkeys((*REPLACED, *APPENDED), 0)
        self._number = 0
        self._samples = EndOffsetSamples()
        self._lags = LagWatch(self._next_record_ms)
        self._rebalances: Counter[tuple[str, str]] = Counter()
        self._anomalies = PolledAnomalies()

    def cluster_name(self) -> str:
        """Ask for the id of the cluster.

        Raises:
            ClusterError: the cluster can't be reached, or refuses the log-in.
            InputError: aiokafka is not installed.
        """
        with connection(self._address, begins_run=True) as (cluster, patience):
            return patience.try_for(lambda: cluster.metadata([])).cluster_id

    def run(self, is_stopped: Callable[[], bool], tell: Callable[[Polled], None]) -> None:
        """Poll, and write tables and the page, until it is stopped; a poll that has begun is completed.

        Args:
            is_stopped: waits until the next poll is due or this is to stop, and says if it is.
            tell: is called after each poll.

        Raises:
            ClusterError: the cluster can't be reached, or refuses the log-in.
            InputError: aiokafka is not installed.
        """
        with connection(self._address, begins_run=True) as (cluster, patience):
            while True:
                snapshot = take_snapshot(cluster, patience, self._clock.now_ms, topics_of, self._groups.ids)
                tell(self._take(snapshot))
                if is_stopped():
                    return

    def _take(self, snapshot: Snapshot) -> Polled:
        self._number += 1
        changes = self._groups.take(snapshot)
        self._figures.take(snapshot, changes)
        schema = arrow_schema(LIVE_END_OFFSETS)
        self._ends = self._samples.take(pa.Table.from_pylist([one._asdict() for one in snapshot.ends], schema))
        found = self._lags.take(snapshot)
        groups, members = list(rows.group_rows(snapshot)), list(rows.member_rows(snapshot))
        lag = list(_judged_lag(rows.lag_rows(snapshot), found))
        anomalies = self._anomalies.take(snapshot, changes, groups, members, self._lags, self._ends)
        self._replace("groups", groups)
        self._replace("members", members)
        self._replace("current_offsets", rows.offset_rows(snapshot))
        self._replace("lag", lag)
        self._replace("anomalies", (row | {"polled_ms": snapshot.at_ms} for row in anomalies))
        self._append("rebalances", changes.rebalances)
        under_way = self._groups.rebalances_under_way(snapshot.at_ms)
        self._write("rebalances", UNDER_WAY, under_way, APPENDED["rebalances"])
        self._append("epochs", changes.epochs)
        self._append(END_OFFSETS_TABLE, [one._asdict() for one in snapshot.ends])
        self._append("problems", rows.problem_rows(snapshot))
        self._append("polls", [rows.poll_row(snapshot)])
        counts = self._counts | {"rebalances": self._counts["rebalances"] + len(under_way)}
        report = self._figures.report(snapshot, groups, lag, anomalies, counts, self._clock.now_ms())
        write_report(self._output, report)
        kinds = Counter((row["group_id"], row["kind"]) for row in anomalies)
        figures = Figures(
            snapshot.at_ms,
            lag=[asdict(one) for one in found],
            groups=groups,
            rebalances=self._rebalance_counts(groups, changes),
            anomalies=kinds,
        )
        return Polled(self._number, snapshot, len(changes.rebalances), report, figures)

    def _rebalance_counts(self, groups: Sequence[Row], changes: Changes) -> RebalanceCounts:
        """Return how many rebalances all polls have shown; those of too many groups that are gone are forgotten."""
        self._rebalances.update((row["group_id"], row["cause"]) for row in changes.rebalances)
        gone = {group_id for group_id, _ in self._rebalances} - {row["group_id"] for row in groups}
        if len(gone) > GONE_MAX:
            self._rebalances = Counter({of: count for of, count in self._rebalances.items() if of[0] not in gone})
        return dict(self._rebalances)

    def _next_record_ms(self, row: Row) -> int | None:
        """Return when the next record was written that a row of ``lag`` is about, as the polls' ends tell it."""
        behind = self._ends.of(row["topic"], row["topic_partition"], row["committed_offset"])[0]
        told = time_lag_of(behind._asdict() | row | {"record_timestamp_ms": None})
        return row["at_ms"] - told["lag_ms"] if "lag_ms" in told else None

    def _replace(self, name: str, some: Iterable[Row]) -> None:
        """Write a table anew."""
        self._counts[name] = self._write(name, "last", some, REPLACED[name])

    def _append(self, name: str, some: Iterable[Row]) -> None:
        """Add rows to a table. The first poll writes a file in any case, so that each table can be read."""
        found = list(some)
        if found or self._number == 1:
            self._counts[name] += self._write(name, f"poll-{self._number:08}", found, APPENDED[name])

    def _write(self, name: str, part: str, some: Iterable[Row], columns: Columns) -> int:
        """Write a file of a table so that readers see it whole or not at all."""
        schema = arrow_schema(columns)
        rows = pa.RecordBatch.from_pylist(list(some), schema)
        with self._output.new_table_file(f"tables/{name}/{part}.parquet", schema) as file:
            file.write(rows)
        return int(rows.num_rows)


def _judged_lag(lag: Iterable[Row], found: Iterable[PartitionLag]) -> Iterator[Row]:
    """Yield rows of ``lag`` with status and lag as time."""
    by_place = {(one.group_id, one.topic, one.topic_partition): one for one in found}
    for row in lag:
        one = by_place[row["group_id"], row["topic"], row["topic_partition"]]
        yield row | {"lag_ms": one.lag_ms, "status": one.status}
