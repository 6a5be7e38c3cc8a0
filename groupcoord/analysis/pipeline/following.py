"""Incremental analysis of growing logs, for ``groupcoord analyze --follow``.

Memory holds the groups and the last :data:`HISTORY_ROWS_MAX` rows of each history table; tables are written again as a
whole. A run first reads the whole logs, as a coordinator does, so it needs no checkpoint.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Unpack

import pyarrow as pa
from attrs import field, frozen

from groupcoord.analysis.decode.parquet import WRITTEN_COLUMNS
from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.analysis.decode.schema import COMMITS, CORRUPT, arrow_schema
from groupcoord.analysis.errors import RunFailedError, first_line
from groupcoord.analysis.fold.commits import LAST_COMMITS, CommitFacts
from groupcoord.analysis.fold.histories import CarriedLog
from groupcoord.analysis.fold.history import KINDS, REBALANCE, Row
from groupcoord.analysis.fold.records import Accounts, LoadFold, corrupt, of_partition, partition_load
from groupcoord.analysis.pipeline.batch import Paths, Run, RunOptions
from groupcoord.analysis.pipeline.sources import Tail, attempted
from groupcoord.analysis.pipeline.tables import (
    HISTORY_ROWS_MAX,
    EndOffsetSamples,
    Known,
    topics_of,
    write_groups,
    write_lag,
)
from groupcoord.analysis.report.data.model import Report
from groupcoord.analysis.rules.lag import Ends, behind_ends
from groupcoord.analysis.tables import END_OFFSETS_TABLE, TABLES_OF_KINDS, FinishedTables, TableFiles

INTERVAL_S = 10.0

REPORT_SHARE = 4


@frozen
class Progress:
    """An update.

    Attributes:
        rows: number of rows of the table of records, in all.
        report: the report, if the page was written.
        seen_ms: when the input was listed, in milliseconds since 1970.
        is_look: only end offsets were read.
        tables: the tables, if they were written.
        earlier: number of rebalances dropped from the tables, by group and cause.
        leaderless: log partitions that were not read for lack of a leader.
    """

    update: int
    rows: int
    report: Report | None
    seen_ms: int
    is_look: bool = False
    tables: FinishedTables | None = None
    earlier: Mapping[tuple[str, str], int] = field(factory=dict)
    leaderless: Sequence[str] = ()


class LocalFollowing(Run):
    """Keeps tables and page up to date as the logs grow; tables of an earlier run in the directory are removed.

    Args:
        paths: as for :class:`groupcoord.analysis.pipeline.batch.Run`, as all others that are not listed.
        out: likewise, or the directory of an earlier run.
        interval_s: seconds from the end of an update to the next one.

    Raises:
        InputError: as there; or another process uses the directory.
    """

    _goes_on = "following"

    def __init__(
        self,
        paths: Paths,
        out: str | os.PathLike[str],
        *,
        interval_s: float = INTERVAL_S,
        **options: Unpack[RunOptions],
    ) -> None:
        super().__init__(paths, out, **options)
        self._interval_s = interval_s
        with self._lock():
            pass  # refuses at once, and not when it runs

    @property
    def cluster_name(self) -> str:
        """The id of the cluster that is followed; empty for files."""
        return self._source.cluster_name

    def run(self, is_stopped: Callable[[float], bool], on_update: Callable[[Progress], None]) -> Report | None:
        """Update tables and page until stopped; return the report, or None without a page.

        Args:
            is_stopped: waits a number of seconds, or until the run is to stop, and returns whether it is.
            on_update: called after each update.

        Raises:
            InputError: another process follows logs into the directory.
            RunFailedError: a file cannot be read or written.
        """
        try:
            with self._lock():
                if self._results.has("tables"):
                    self._results.remove("tables")
                self._begin()
                return self._follow(is_stopped, on_update)
        except OSError as error:
            raise RunFailedError(f"following the logs failed: {first_line(error)}") from error

    def _lock(self) -> AbstractContextManager[None]:
        return self._results.locked(self._goes_on, "follows logs into it")

    def _follow(self, is_stopped: Callable[[float], bool], on_update: Callable[[Progress], None]) -> Report | None:
        report: Report | None = None
        last, reported, next_ms = -1, -1, 0
        while True:
            seen_ms = self._clock.now_ms()
            attempted(self._read)
            is_new, is_behind = self._number > last, self._number > reported
            last = self._number
            made, tables, started_ms = None, None, self._clock.now_ms()
            is_look = not is_behind and self._source.asks_for_ends and last >= 0
            if (is_behind or is_look) and started_ms >= next_ms:
                tables = self._write(seen_ms)  # with the time of the listing
                if is_behind:
                    made = report = self._write_page(tables)
                    reported = last
                ended_ms = self._clock.now_ms()
                next_ms = ended_ms + REPORT_SHARE * (ended_ms - started_ms)
            if is_new or tables is not None:
                only_ends = made is None and not is_new
                leaderless = self._tail.leaderless
                on_update(Progress(last, self._row_count, made, seen_ms, only_ends, tables, self._gone, leaderless))
            if is_stopped(self._interval_s):
                break
        return self._write_page(self._write(seen_ms)) if last > reported else report

    def _begin(self) -> None:
        self._tail, self._number = Tail(self._source), -1
        self._logs: dict[int | None, CarriedLog] = {}
        self._told: dict[str, deque[Row]] = {kind: deque(maxlen=HISTORY_ROWS_MAX) for kind in KINDS}
        self._load = LoadFold()
        self._corrupt: deque[pa.Table] = deque(maxlen=HISTORY_ROWS_MAX)
        self._samples = EndOffsetSamples()
        self._row_count = 0
        self._gone: Counter[tuple[str, str]] = Counter()

    # ------------------------------------------------------------ folding

    def _read(self) -> None:
        read, row_count = Accounts(), 0  # of this update, which starts again if files change meanwhile
        for number, batches in self._tail.read(RowSettings(WRITTEN_COLUMNS)):
            if not batches:
                continue
            rows = pa.concat_tables(of_partition(batch, number) for batch in batches)
            read.add(rows)
            row_count += rows.num_rows
            for kind, row in self._logs.setdefault(number, CarriedLog(number)).add(rows):
                kept = self._told[kind]
                if kind == REBALANCE and len(kept) == kept.maxlen:
                    self._gone[kept[0]["group_id"], kept[0]["cause"]] += 1
                kept.append(row)
        self._load.take(read.load)
        if (damaged := corrupt(read.ranges())).num_rows:
            self._corrupt.append(damaged)
        self._row_count += row_count
        self._number += row_count > 0

    # ------------------------------------------------------------ tables

    def _write(self, read_ms: int) -> FinishedTables:
        files = TableFiles(self._results)
        rows = {kind: self._named(some) for kind, some in self._told.items()}
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
        files.write("corrupt", pa.concat_tables([arrow_schema(CORRUPT).empty_table(), *self._corrupt]))
        files.write_rows("partition_load", partition_load(self._load.keys()))
        ends = self._ends(known, files)
        write_groups([known], ends, files, now_ms, self._retention_minutes)
        if ends is not None:
            times = self._source.read_times(behind_ends([known.current], ends))
            write_lag([known], ends, times, files, now_ms, read_ms)
        return FinishedTables(self._results, files.counts)

    def _named(self, rows: Iterable[Row]) -> list[Row]:
        return [self._logs[row["log_partition"]].named(row) for row in rows]

    def _facts(self) -> CommitFacts:
        found = (CommitFacts(), *(log.facts() for log in self._logs.values()))
        tables = zip(*((one.last, one.rewinds, one.minutes) for one in found), strict=True)
        return CommitFacts(*(pa.concat_tables(some).combine_chunks() for some in tables))

    def _ends(self, known: Known, files: TableFiles) -> Ends | None:
        table = self._source.read_ends(topics_of([known]))
        if table is None or "at_ms" not in table.column_names:
            return None if table is None else Ends(table)
        ends = self._samples.take(table)
        files.write(END_OFFSETS_TABLE, self._samples.table())
        return ends


def _as_commits(facts: CommitFacts) -> pa.Table:
    columns = arrow_schema(COMMITS)
    count, names = facts.last.num_rows, LAST_COMMITS.names
    found = {one.name: facts.last[one.name] if one.name in names else pa.nulls(count, one.type) for one in columns}
    return pa.table(found, columns)
