"""Polling of a cluster's groups into tables and one page: ``groupcoord analyze --poll``."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
from attrs import evolve, frozen

from groupcoord.analysis.decode.parquet import ResultDirectory
from groupcoord.analysis.decode.schema import (
    ANOMALIES,
    CURRENT_OFFSETS,
    EPOCHS,
    GROUPS,
    LAG,
    LIVE_END_OFFSETS,
    MEMBERS,
    REBALANCES,
    Column,
    Columns,
    arrow_schema,
)
from groupcoord.analysis.fold.commits import LAST_COMMITS, PARTITION, REWINDS, CommitFacts
from groupcoord.analysis.fold.history import DUPLICATE, GROUP, MEMBER, MEMBERSHIP, REBALANCE, REVOCATION
from groupcoord.analysis.fold.history.rows import Row
from groupcoord.analysis.live.cluster import cluster_id_of, connection
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.live.snapshots import Snapshot, take_snapshot
from groupcoord.analysis.options import Selection
from groupcoord.analysis.pipeline.tables import HISTORY_ROWS_MAX, EndOffsetSamples, Figures, RebalanceCounts
from groupcoord.analysis.poll import rows
from groupcoord.analysis.poll.lag import LagWatch, worst_first
from groupcoord.analysis.poll.rows import (
    GONE_MAX,
    Changes,
    PolledGroups,
    topics_of,
)
from groupcoord.analysis.report.data import model
from groupcoord.analysis.report.data.gathering import report_of_groups, write_report
from groupcoord.analysis.report.data.groups import RebalanceFigures, group_rows
from groupcoord.analysis.report.data.model import Report
from groupcoord.analysis.report.data.rows import standings
from groupcoord.analysis.rules.anomalies import anomalies, assigned
from groupcoord.analysis.rules.groups import Place
from groupcoord.analysis.rules.lag import Ends
from groupcoord.analysis.tables import END_OFFSETS_TABLE
from groupcoord.clock import Clock, SystemClock

TIMES_MAX = 10_000


class PolledFigures:
    """Report values, updated with each poll."""

    def __init__(self, inputs: tuple[str, ...], groups: PolledGroups) -> None:
        self._inputs = inputs
        self._groups = groups
        self._polls = 0
        self._first_ms = 0
        self._rebalances = RebalanceFigures(TIMES_MAX)

    def take(self, snapshot: Snapshot, changes: Changes) -> None:
        self._first_ms = self._first_ms or snapshot.at_ms
        self._polls += 1
        for row in changes.rebalances:
            self._rebalances.add(row)

    def report(
        self,
        snapshot: Snapshot,
        groups: Sequence[Row],
        lag: Sequence[Row],
        anomalies: Sequence[Row],
        tables: Mapping[str, int],
        made_ms: int,
    ) -> model.Report:
        seen = self._groups.figures()
        rows = group_rows(
            groups,
            {group_id: one.rebalances for group_id, one in seen.items()},
            Counter(row["group_id"] for row in anomalies),
            {group_id: one.commits for group_id, one in seen.items()},
            {group_id: one.type for group_id, one in seen.items()},
            standings(anomalies, lag),
        )
        offsets = sum(row["offset_count"] or 0 for row in groups)
        overview = model.Overview(self._first_ms, snapshot.at_ms, current_offsets=offsets)
        problems = tuple(f"{one.subject}: {one.text}" for one in snapshot.problems[: model.PROBLEMS_MAX])
        return report_of_groups(
            self._inputs,
            overview,
            groups,
            rows,
            self._rebalances,
            anomalies,
            lag,
            title=f"Consumer groups of {self._inputs[0]}",
            made_ms=made_ms,
            tables=tables,
            polls=model.Polls(self._polls, self._first_ms, snapshot.at_ms, len(snapshot.problems), problems),
        )


class PolledAnomalies:
    """Facts for anomalies, updated with each poll."""

    def __init__(self) -> None:
        self._rebalances: deque[Row] = deque(maxlen=HISTORY_ROWS_MAX)
        self._since_ms: dict[str, int] = {}

    def take(
        self,
        snapshot: Snapshot,
        changes: Changes,
        groups: Iterable[Row],
        members: Iterable[Row],
        watch: LagWatch,
        ends: Ends,
    ) -> list[Row]:
        """Return the anomalies (:data:`groupcoord.analysis.decode.schema.ANOMALIES`).

        Changed offsets count as commits. Repeated commits of one offset are invisible, so a stall shows as a stop.
        """
        now_ms = snapshot.at_ms
        self._rebalances.extend(row | {"log_partition": None} for row in changes.rebalances)
        told = {group_id: one.offsets is not None for group_id, one in snapshot.groups.items()}
        self._since_ms = {name: self._since_ms.get(name, now_ms) for name in told.keys() | snapshot.missing}
        self._since_ms |= {row["group_id"]: now_ms for row in changes.rebalances if row["group_id"] in self._since_ms}
        found = {
            GROUP: [
                row | {"log_partition": None, "state_timestamp_ms": self._since_ms[row["group_id"]]}
                for row in groups
                if told[row["group_id"]]  # of others it isn't known whether they have committed
            ],
            MEMBER: [row | {"log_offset": 0} for row in members],
            REBALANCE: list(self._rebalances),
            **{kind: [] for kind in (DUPLICATE, REVOCATION, MEMBERSHIP)},
        }
        return anomalies(found, _facts(watch), assigned(found), ends, now_ms)


def _facts(watch: LagWatch) -> CommitFacts:
    last = [
        _of(place)
        | {
            "log_offset": number,
            "log_timestamp_ms": one.at_ms,
            "commit_timestamp_ms": one.at_ms,
            "committed_offset": one.committed_offset,
            "tombstone": False,
        }
        for place, watched in watch.offsets.items()
        for number, one in enumerate(watched.window)
    ]
    rewinds = [_of(place) | one.rewind for place, one in watch.offsets.items() if one.rewind is not None]
    return CommitFacts(
        pa.Table.from_pylist(last, LAST_COMMITS),
        pa.Table.from_pylist(rewinds, REWINDS),
        are_samples=True,
    )


def _of(place: Place) -> Row:
    return dict(zip(PARTITION, (None, *place), strict=True))


_LONG, _STRING = pa.int64(), pa.string()
_POLLED = Column("polled_ms", _LONG, "end of the poll")

POLLS: Columns = (
    _POLLED,
    Column("asked_ms", _LONG, "start of the poll"),
    Column("groups", _LONG, "number of groups"),
    Column("problems", _LONG, "number of rows of problems"),
    Column(
        "is_whole",
        pa.bool_(),
        "every broker listed its groups; a missing one does not exist, or may not be described",
    ),
)
PROBLEMS: Columns = (
    _POLLED,
    Column("subject", _STRING, "group NAME, topic NAME, broker ID, or cluster"),
    Column("problem", _STRING, "missing information, and the reason"),
)


def _polled(columns: Columns) -> Columns:
    return (*columns, _POLLED)


REPLACED = {
    "groups": _polled(GROUPS),
    "members": _polled(MEMBERS),
    "current_offsets": _polled(CURRENT_OFFSETS),
    "lag": _polled(LAG),
    "anomalies": _polled(ANOMALIES),
}
"""Tables of the last poll."""

APPENDED = {
    "rebalances": _polled(REBALANCES),
    "epochs": _polled(EPOCHS),
    END_OFFSETS_TABLE: LIVE_END_OFFSETS,
    "polls": POLLS,
    "problems": PROBLEMS,
}
"""Tables of all polls of a run."""

UNDER_WAY = "under-way"


@frozen
class Polled:
    """A poll."""

    number: int
    snapshot: Snapshot
    rebalances: int
    report: Report
    figures: Figures


class Polling:
    """Polls of a cluster's groups into one directory."""

    def __init__(
        self,
        address: ClusterAddress,
        out: str | os.PathLike[str],
        *,
        exclude_groups: Iterable[str] = (),
        clock: Clock | None = None,
    ) -> None:
        self._address = address
        self._selection = Selection(excluded_groups=exclude_groups)
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
        return cluster_id_of(self._address)

    def run(self, is_stopped: Callable[[], bool], tell: Callable[[Polled], None]) -> None:
        """Poll, and write tables and the page, until ``is_stopped``; a poll that has begun is completed."""
        with connection(self._address, begins_run=True) as (cluster, patience):
            while True:
                snapshot = take_snapshot(
                    cluster, patience, self._clock.now_ms, topics_of, self._groups.ids, self._selection
                )
                tell(self._take(snapshot))
                if is_stopped():
                    return

    def _take(self, snapshot: Snapshot) -> Polled:
        self._number += 1
        changes = self._groups.take(snapshot)
        self._figures.take(snapshot, changes)
        schema = arrow_schema(LIVE_END_OFFSETS)
        self._ends = self._samples.take(pa.Table.from_pylist([one._asdict() for one in snapshot.ends], schema))
        lag = self._lags.take(snapshot)
        groups, members = list(rows.group_rows(snapshot)), list(rows.member_rows(snapshot))
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
        write_report(self._output, evolve(report, excluded_groups=self._selection.expressions))
        kinds = Counter((row["group_id"], row["kind"]) for row in anomalies)
        figures = Figures(
            snapshot.at_ms,
            lag=worst_first(lag),
            groups=groups,
            rebalances=self._rebalance_counts(groups, changes),
            anomalies=kinds,
        )
        return Polled(self._number, snapshot, len(changes.rebalances), report, figures)

    def _rebalance_counts(self, groups: Sequence[Row], changes: Changes) -> RebalanceCounts:
        """Return the number of rebalances by group and cause; beyond a limit all deleted groups are dropped."""
        self._rebalances.update((row["group_id"], row["cause"]) for row in changes.rebalances)
        gone = {group_id for group_id, _ in self._rebalances} - {row["group_id"] for row in groups}
        if len(gone) > GONE_MAX:
            self._rebalances = Counter({of: count for of, count in self._rebalances.items() if of[0] not in gone})
        return dict(self._rebalances)

    def _next_record_ms(self, row: Row) -> int | None:
        behind = self._ends.of(row["topic"], row["topic_partition"], row["committed_offset"])
        time = behind._replace(lag=row["lag"]).time_lag(row["committed_offset"])
        return None if time is None else row["at_ms"] - time.lag_ms

    def _replace(self, name: str, some: Iterable[Row]) -> None:
        self._counts[name] = self._write(name, "last", some, REPLACED[name])

    def _append(self, name: str, some: Iterable[Row]) -> None:
        """Add rows to a table. The first poll writes a file in any case, so that each table can be read."""
        found = list(some)
        if found or self._number == 1:
            self._counts[name] += self._write(name, f"poll-{self._number:08}", found, APPENDED[name])

    def _write(self, name: str, part: str, some: Iterable[Row], columns: Columns) -> int:
        schema = arrow_schema(columns)
        rows = pa.RecordBatch.from_pylist(list(some), schema)
        with self._output.new_table_file(f"tables/{name}/{part}.parquet", schema) as file:
            file.write(rows)
        return int(rows.num_rows)
