"""Polling of a cluster's groups into tables and one page: ``groupcoord analyze --poll``."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
from attrs import evolve, frozen

from groupcoord.analysis.decode.parquet import ResultDirectory
from groupcoord.analysis.decode.schema import (
    LIVE_END_OFFSETS,
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
from groupcoord.analysis.pipeline.tables import HISTORY_ROWS_MAX, EndOffsetSamples, Figures
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
from groupcoord.analysis.tables import END_OFFSETS_TABLE, TABLES
from groupcoord.clock import Clock, SystemClock

TIMES_MAX = 10_000


@frozen
class PolledRows:
    """Rows of the tables that a poll replaces, and its changes."""

    snapshot: Snapshot
    changes: Changes
    groups: Sequence[Row]
    members: Sequence[Row]
    lag: Sequence[Row]
    anomalies: Sequence[Row]


class PollFold:
    """Fold of the polls of a run."""

    def __init__(self, inputs: tuple[str, ...] = ("",)) -> None:
        self.groups = PolledGroups()
        self.count = 0
        self._inputs = inputs
        self._first_ms = 0
        self._samples = EndOffsetSamples()
        self._lags = LagWatch(self._next_record_ms)
        self._figures = RebalanceFigures(TIMES_MAX)
        self._causes: Counter[tuple[str, str]] = Counter()
        self._rebalances: deque[Row] = deque(maxlen=HISTORY_ROWS_MAX)
        self._since_ms: dict[str, int] = {}

    def take(self, snapshot: Snapshot) -> PolledRows:
        self.count += 1
        self._first_ms = self._first_ms or snapshot.at_ms
        changes = self.groups.take(snapshot)
        for row in changes.rebalances:
            self._figures.add(row)
            self._causes[row["group_id"], row["cause"]] += 1
            self._rebalances.append(row | {"log_partition": None})
        schema = arrow_schema(LIVE_END_OFFSETS)
        self._ends = self._samples.take(pa.Table.from_pylist([one._asdict() for one in snapshot.ends], schema))
        lag = self._lags.take(snapshot)
        groups, members = list(rows.group_rows(snapshot)), list(rows.member_rows(snapshot))
        found = self._anomalies(snapshot, changes, groups, members)
        return PolledRows(snapshot, changes, groups, members, lag, found)

    def _anomalies(
        self, snapshot: Snapshot, changes: Changes, groups: Sequence[Row], members: Sequence[Row]
    ) -> list[Row]:
        """Return the anomalies (:data:`groupcoord.analysis.decode.schema.ANOMALIES`).

        Changed offsets count as commits. Repeated commits of one offset are invisible, so a stall shows as a stop.
        """
        now_ms = snapshot.at_ms
        has_offsets = {group_id: one.offsets is not None for group_id, one in snapshot.groups.items()}
        self._since_ms = {name: self._since_ms.get(name, now_ms) for name in has_offsets.keys() | snapshot.missing}
        self._since_ms |= {row["group_id"]: now_ms for row in changes.rebalances if row["group_id"] in self._since_ms}
        found = {
            GROUP: [
                row | {"log_partition": None, "state_timestamp_ms": self._since_ms[row["group_id"]]}
                for row in groups
                if has_offsets[row["group_id"]]  # of others it isn't known whether they have committed
            ],
            MEMBER: [row | {"log_offset": 0} for row in members],
            REBALANCE: list(self._rebalances),
            **{kind: [] for kind in (DUPLICATE, REVOCATION, MEMBERSHIP)},
        }
        return anomalies(found, _facts(self._lags), assigned(found), self._ends, now_ms)

    def _next_record_ms(self, row: Row) -> int | None:
        behind = self._ends.of(row["topic"], row["topic_partition"], row["committed_offset"])
        time = behind._replace(lag=row["lag"]).time_lag(row["committed_offset"])
        return None if time is None else row["at_ms"] - time.lag_ms

    def report(self, last: PolledRows, tables: Mapping[str, int], made_ms: int) -> Report:
        """Return the report of all polls up to the last one."""
        seen, snapshot = self.groups.figures(), last.snapshot
        described = group_rows(
            last.groups,
            {group_id: one.rebalances for group_id, one in seen.items()},
            Counter(row["group_id"] for row in last.anomalies),
            {group_id: one.commits for group_id, one in seen.items()},
            {group_id: one.type for group_id, one in seen.items()},
            standings(last.anomalies, last.lag),
        )
        offsets = sum(row["offset_count"] or 0 for row in last.groups)
        problems = tuple(f"{one.subject}: {one.text}" for one in snapshot.problems[: model.PROBLEMS_MAX])
        return report_of_groups(
            self._inputs,
            model.Overview(self._first_ms, snapshot.at_ms, current_offsets=offsets),
            last.groups,
            described,
            self._figures,
            last.anomalies,
            last.lag,
            title=f"Consumer groups of {self._inputs[0]}",
            made_ms=made_ms,
            tables=tables,
            polls=model.Polls(self.count, self._first_ms, snapshot.at_ms, len(snapshot.problems), problems),
        )

    def figures(self, last: PolledRows) -> Figures:
        """Return the values for metrics. Beyond a limit all deleted groups are dropped from the rebalances."""
        gone = {group_id for group_id, _ in self._causes} - {row["group_id"] for row in last.groups}
        if len(gone) > GONE_MAX:
            self._causes = Counter({of: count for of, count in self._causes.items() if of[0] not in gone})
        return Figures(
            last.snapshot.at_ms,
            lag=worst_first(last.lag),
            groups=last.groups,
            rebalances=dict(self._causes),
            anomalies=Counter((row["group_id"], row["kind"]) for row in last.anomalies),
        )


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


REPLACED = {name: _polled(TABLES[name]) for name in ("groups", "members", "current_offsets", "lag", "anomalies")}
"""Tables of the last poll."""

APPENDED = {
    "rebalances": _polled(TABLES["rebalances"]),
    "epochs": _polled(TABLES["epochs"]),
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
        self._fold = PollFold((f"kafka://{address.settings().bootstrap_servers}",))
        self._output = ResultDirectory(out)
        self._counts = dict.fromkeys((*REPLACED, *APPENDED), 0)

    def cluster_name(self) -> str:
        return cluster_id_of(self._address)

    def run(self, is_stopped: Callable[[], bool], on_poll: Callable[[Polled], None]) -> None:
        """Poll, and write tables and the page, until ``is_stopped``; a poll that has begun is completed."""
        with connection(self._address, begins_run=True) as (cluster, patience):
            while True:
                snapshot = take_snapshot(
                    cluster, patience, self._clock.now_ms, topics_of, self._fold.groups.ids, self._selection
                )
                on_poll(self._take(snapshot))
                if is_stopped():
                    return

    def _take(self, snapshot: Snapshot) -> Polled:
        found = self._fold.take(snapshot)
        changes, under_way = found.changes, self._fold.groups.rebalances_under_way(snapshot.at_ms)
        self._replace("groups", found.groups)
        self._replace("members", found.members)
        self._replace("current_offsets", rows.offset_rows(snapshot))
        self._replace("lag", found.lag)
        self._replace("anomalies", (row | {"polled_ms": snapshot.at_ms} for row in found.anomalies))
        self._append("rebalances", changes.rebalances)
        self._write("rebalances", UNDER_WAY, under_way, APPENDED["rebalances"])
        self._append("epochs", changes.epochs)
        self._append(END_OFFSETS_TABLE, [one._asdict() for one in snapshot.ends])
        self._append("problems", rows.problem_rows(snapshot))
        self._append("polls", [rows.poll_row(snapshot)])
        counts = self._counts | {"rebalances": self._counts["rebalances"] + len(under_way)}
        report = self._fold.report(found, counts, self._clock.now_ms())
        write_report(self._output, evolve(report, excluded_groups=self._selection.expressions))
        return Polled(self._fold.count, snapshot, len(changes.rebalances), report, self._fold.figures(found))

    def _replace(self, name: str, some: Iterable[Row]) -> None:
        self._counts[name] = self._write(name, "last", some, REPLACED[name])

    def _append(self, name: str, some: Iterable[Row]) -> None:
        """Add rows to a table. The first poll writes a file in any case, so that each table can be read."""
        found = list(some)
        if found or self._fold.count == 1:
            self._counts[name] += self._write(name, f"poll-{self._fold.count:08}", found, APPENDED[name])

    def _write(self, name: str, part: str, some: Iterable[Row], columns: Columns) -> int:
        schema = arrow_schema(columns)
        rows = pa.RecordBatch.from_pylist(list(some), schema)
        with self._output.new_table_file(f"tables/{name}/{part}.parquet", schema) as file:
            file.write(rows)
        return int(rows.num_rows)
