"""Logs that grow, in this process: what ``groupcoord analyze --follow --engine local`` runs.

Groups are kept in memory and folded on by what is new; all that is made of them is written anew. Memory is that of the
groups and of the last :data:`ROWS_MAX` rows of each table of histories. A run begins with all that the logs hold, as a
coordinator does, so there is nothing to go on from but the logs themselves.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen

from groupcoord.analysis.columns.chunks import RowSettings
from groupcoord.analysis.columns.errors import RunFailedError, first_line
from groupcoord.analysis.columns.parquet import WRITTEN_COLUMNS
from groupcoord.analysis.columns.results import ResultDirectory
from groupcoord.analysis.columns.schema import KIND_CORRUPT
from groupcoord.analysis.columns.tables import COMMITS, arrow_schema
from groupcoord.analysis.columns.tailing import LogChangedError
from groupcoord.analysis.figures.finished import FinishedTables
from groupcoord.analysis.figures.gathering import gather_report
from groupcoord.analysis.figures.page import write_report
from groupcoord.analysis.folding.carrying import CarriedLog
from groupcoord.analysis.folding.commits import LAST_COMMITS, MINUTES, REWINDS, CommitFacts
from groupcoord.analysis.folding.load import LoadFold, partition_load
from groupcoord.analysis.folding.records import RANGES, corrupt, of_partition
from groupcoord.analysis.history import KINDS, REBALANCE, Row
from groupcoord.analysis.judging.ends import Ends, behind_ends
from groupcoord.analysis.report.model import Report
from groupcoord.analysis.running.judged import EndOffsetSamples, Known, topics_of, write_groups, write_lag
from groupcoord.analysis.running.sources import LogSource, Source
from groupcoord.analysis.running.tails import Tail
from groupcoord.analysis.tables import END_OFFSETS_TABLE, TABLES_OF_KINDS, TableFiles
from groupcoord.clock import Clock, SystemClock

INTERVAL_S = 10.0

REPORT_SHARE = 4
"""After tables and page, updates go on without them for this many times as long as they took: a fifth of all."""

ROWS_MAX = 50_000
"""So many rows of each table of histories are kept, the newest."""

ATTEMPTS_MAX = 4
"""So often an update is begun if files change while they are read."""

_FOLDER = "following"
"""What shows that a directory is that of an earlier run, and is locked by the one that uses it."""


@frozen
class Progress:
    """How far things are.

    Attributes:
        update: the number of the last update.
        rows: how many rows of the table of records there are.
        report: what the page says, if it was made anew.
        seen_ms: when the input was looked at, in milliseconds since 1970.
        is_look: nothing but where topics end was looked at.
        tables: those that were made anew, if any were.
        earlier: rebalances that are in no table any more, by group and cause.
    """

    update: int
    rows: int
    report: Report | None
    seen_ms: int
    is_look: bool = False
    tables: FinishedTables | None = None
    earlier: Mapping[tuple[str, str], int] = field(factory=dict)


class _Read:
    """What is counted of an update; it is begun again where files change meanwhile."""

    def __init__(self) -> None:
        self.load = LoadFold()
        self.damaged: list[pa.Table] = []
        self.rows = 0

    def add(self, rows: pa.Table) -> None:
        """Count some rows of the table of records."""
        self.load.add(rows)
        self.rows += rows.num_rows
        damaged = rows.filter(pc.equal(rows["kind"], KIND_CORRUPT)).select(RANGES.names)
        if damaged.num_rows:
            self.damaged.append(damaged)


class LocalFollowing:
    """Follows some logs into one directory.

    Args:
        paths: as for :class:`groupcoord.analysis.running.analysis.LocalAnalysis`.
        out: an empty directory, one that does not exist yet, or that of an earlier run, whose tables go; a URL for
            fsspec is fine.
        partitions: only these log partitions; all if empty.
        end_offsets: as for :class:`groupcoord.analysis.running.analysis.LocalAnalysis`; read anew each time.
        interval_s: seconds from the end of an update to the next look at the logs.
        clock: says when a report is made, and how long that took.

    Raises:
        InputError: an input can't be read, the directory can't be used, or another process uses it.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]] | Source,
        out: str | os.PathLike[str],
        *,
        partitions: Iterable[int] = (),
        end_offsets: str | None = None,
        interval_s: float = INTERVAL_S,
        clock: Clock | None = None,
    ) -> None:
        self._source = paths if isinstance(paths, Source) else LogSource(frozenset(partitions), end_offsets, paths)
        self._interval_s = interval_s
        self._clock = clock or SystemClock()
        self._source.check(may_be_empty=True)
        self._results = ResultDirectory(out, goes_on=_FOLDER)
        with self._alone():
            pass
        self._logs: dict[int | None, CarriedLog] = {}
        self._rows: dict[str, deque[Row]] = {kind: deque(maxlen=ROWS_MAX) for kind in KINDS}
        self._load = LoadFold()
        self._corrupt: deque[pa.Table] = deque(maxlen=ROWS_MAX)
        self._samples = EndOffsetSamples()
        self._row_count = 0
        self._earlier: Counter[tuple[str, str]] = Counter()
        self._retention_minutes: int | None = None

    @property
    def cluster_name(self) -> str:
        """The id of the cluster that is followed; empty for files."""
        return self._source.cluster_name

    def run(self, is_stopped: Callable[[float], bool], tell: Callable[[Progress], None]) -> Report | None:
        """Keep everything up to date until it is stopped, and return what the page says then; None if there is none.

        Args:
            is_stopped: waits so many seconds, or until this is to stop, and says if it is.
            tell: is called after each update.

        Raises:
            InputError: another process follows logs into the directory now.
            RunFailedError: a file can't be read or written on the way.
        """
        try:
            with self._alone():
                if self._results.has("tables"):
                    self._results.remove("tables")
                return self._run(is_stopped, tell)
        except OSError as error:
            raise RunFailedError(f"following the logs failed: {first_line(error)}") from error

    def _alone(self) -> AbstractContextManager[None]:
        return self._results.locked(_FOLDER, "follows logs into it")

    def _run(self, is_stopped: Callable[[float], bool], tell: Callable[[Progress], None]) -> Report | None:
        tail, update, next_ms, is_due = self._source.tail(), -1, 0, False
        report: Report | None = None
        self._retention_minutes = self._source.offsets_retention_minutes()
        while True:
            seen_ms = self._clock.now_ms()
            is_new = self._take(tail)
            update += is_new
            is_due, tables, made = is_due or is_new, None, None
            started_ms = self._clock.now_ms()
            is_look = not is_due and self._source.asks_for_ends and update >= 0
            if (is_due or is_look) and started_ms >= next_ms:
                tables = self._write(seen_ms)
                if is_due:
                    made = report = self._write_page(tables)
                ended_ms = self._clock.now_ms()
                next_ms, is_due = ended_ms + REPORT_SHARE * (ended_ms - started_ms), False
            if is_new or tables is not None:
                only_ends = made is None and not is_new
                tell(Progress(update, self._row_count, made, seen_ms, only_ends, tables, self._earlier))
            if is_stopped(self._interval_s):
                break
        return self._write_page(self._write(seen_ms)) if is_due else report

    # ------------------------------------------------------------ folding

    def _take(self, tail: Tail) -> bool:
        """Fold what is new; tell whether there was something."""
        for attempts_left in reversed(range(ATTEMPTS_MAX)):
            try:
                read = self._read(tail)
            except LogChangedError:
                if not attempts_left:
                    raise
            else:
                self._load.take(read.load)
                self._corrupt.extend(read.damaged)
                self._row_count += read.rows
                return read.rows > 0
        return False

    def _read(self, tail: Tail) -> _Read:
        """Fold what there is behind what was taken, as far as it was not folded before, and take it."""
        read = _Read()
        for task in tail.look():
            runs = [
                (number, pa.concat_tables(tables))
                for number, batches in task.runs(RowSettings(WRITTEN_COLUMNS))
                if (tables := [of_partition(batch, number) for batch in batches])
            ]
            tail.check(task)
            for number, rows in runs:
                read.add(rows)
                for kind, row in self._logs.setdefault(number, CarriedLog(number)).add(rows):
                    kept = self._rows[kind]
                    if kind == REBALANCE and len(kept) == kept.maxlen:
                        self._earlier[kept[0]["group_id"], kept[0]["cause"]] += 1
                    kept.append(row)
        tail.take()
        return read

    # ------------------------------------------------------------ tables

    def _write(self, read_ms: int) -> FinishedTables:
        """Write the tables, and return them."""
        files = TableFiles(self._results)
        rows = {kind: self._named(some) for kind, some in self._rows.items()}
        for log in self._logs.values():
            for kind, row in log.ends():
                rows[kind].append(row)
        for kind, name in TABLES_OF_KINDS.items():
            files.write_rows(name, rows[kind])
        times_ms = [log.last_timestamp_ms for log in self._logs.values()]
        last_ms = max((one for one in times_ms if one is not None), default=None)
        now_ms = self._source.judged_at_ms(last_ms, read_ms)
        known = Known.of(self._facts(), rows)
        files.write("current_offsets", known.current)
        files.write("commits", _as_commits(known.facts))
        files.write("read_counts", self._load.read_counts())
        files.write("corrupt", corrupt(pa.concat_tables([RANGES.empty_table(), *self._corrupt])))
        files.write_rows("partition_load", partition_load(self._load.keys()))
        ends = self._look(known, files)
        write_groups([known], ends, files, now_ms, self._retention_minutes)
        if ends is not None:
            times = self._source.read_times(behind_ends([known.current], ends))
            write_lag([known], ends, times, files, now_ms, read_ms)
        return FinishedTables(self._results, files.counts)

    def _named(self, rows: Iterable[Row]) -> list[Row]:
        """Return rows with the names of topics that are known by now."""
        return [self._logs[row["log_partition"]].named(row) for row in rows]

    def _facts(self) -> CommitFacts:
        """Return what is known of the commits of all log partitions."""
        found = [log.facts() for log in self._logs.values()]
        nothing = CommitFacts(LAST_COMMITS.empty_table(), REWINDS.empty_table(), MINUTES.empty_table())
        tables = zip(*((one.last, one.rewinds, one.minutes) for one in (nothing, *found)), strict=True)
        return CommitFacts(*(pa.concat_tables(some).combine_chunks() for some in tables))

    def _look(self, known: Known, files: TableFiles) -> Ends | None:
        """Return where the committed topics end now, as far as a cluster has told of that so far."""
        told = self._source.read_ends(topics_of([known]))
        if told is None or "at_ms" not in told.column_names:
            return None if told is None else Ends(told)
        ends = self._samples.take(told)
        files.write(END_OFFSETS_TABLE, self._samples.table())
        return ends

    def _write_page(self, tables: FinishedTables) -> Report:
        report = gather_report(tables, self._source.names, self._clock, self._retention_minutes)
        write_report(self._results, report)
        return report


def _as_commits(facts: CommitFacts) -> pa.Table:
    """Return the last commits as rows of the table of commits."""
    columns = arrow_schema(COMMITS)
    count, told = facts.last.num_rows, LAST_COMMITS.names
    found = {one.name: facts.last[one.name] if one.name in told else pa.nulls(count, one.type) for one in columns}
    return pa.table(found, columns)
