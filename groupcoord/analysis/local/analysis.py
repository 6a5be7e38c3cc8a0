"""From a log to tables on disk, one page and its figures, without Spark: what ``analyze --engine local`` runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.columns.errors import InputError, RunFailedError, first_line
from groupcoord.analysis.columns.results import ResultDirectory
from groupcoord.analysis.figures.finished import FinishedTables
from groupcoord.analysis.figures.gathering import gather_report
from groupcoord.analysis.figures.page import (
    ANOMALIES,
    COUNT,
    HISTORY,
    LAG,
    OFFSETS,
    READ,
    REPORT,
    VERIFY,
    steps,
    write_report,
)
from groupcoord.analysis.history.anomalies import OFFSETS_RETENTION_MINUTES
from groupcoord.analysis.local.anomalies import anomalies
from groupcoord.analysis.local.groups import Histories, groups, histories, partition_holders
from groupcoord.analysis.local.lag import Ends, behind_ends, lag
from groupcoord.analysis.local.load import corrupt, partition_load, read_counts
from groupcoord.analysis.local.offsets import commits, current_offsets, transactional_commits
from groupcoord.analysis.local.records import read_records
from groupcoord.analysis.local.sources import LogSource, Source
from groupcoord.analysis.local.stale import stale_groups
from groupcoord.analysis.local.verify import verify
from groupcoord.analysis.report.model import (
    Report,
)
from groupcoord.analysis.report.text import format_size
from groupcoord.analysis.tables import END_OFFSETS_TABLE, TABLES_OF_KINDS, TableFiles
from groupcoord.clock import Clock, SystemClock

BYTES_MAX = 268_435_456
"""How large logs are at most, some 2.5 million commits: all of it is in memory at a time."""

ROWS_MAX = 5_000_000
"""How many records they have at most: compressed logs have more than their size tells."""


class LocalAnalysis:
    """One run over some logs into one directory, in this process.

    Args:
        paths: segment files, folders of a log partition, data directories, or patterns of these; local, or URLs; or a
            :class:`groupcoord.analysis.local.sources.Source`, such as a cluster that runs.
        out: an empty directory, or one that does not exist yet; a URL for fsspec is fine.
        partitions: only these log partitions; all if empty.
        end_offsets: a CSV file with a header and the columns of :data:`groupcoord.analysis.columns.tables.END_OFFSETS`.
        verifies: load the log into coordinators too, and compare.
        clock: says when the report is made.
        bytes_max: how large the logs may be; ``rows_max``: how many records they may have.

    Attributes:
        steps: the names of what :meth:`run` does, in order.
        tasks: how many pieces of the logs are read, and how many there are; (0, 0) before and behind that.

    Raises:
        InputError: an input can't be read, holds nothing or too much, or the directory can't be used.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]] | Source,
        out: str | os.PathLike[str],
        *,
        partitions: Iterable[int] = (),
        end_offsets: str | None = None,
        verifies: bool = False,
        clock: Clock | None = None,
        bytes_max: int = BYTES_MAX,
        rows_max: int = ROWS_MAX,
    ) -> None:
        self._source = paths if isinstance(paths, Source) else LogSource(frozenset(partitions), end_offsets, paths)
        self._verifies = verifies
        self._clock = clock or SystemClock()
        self._rows_max = rows_max
        size_bytes = self._source.check()
        if size_bytes > bytes_max:
            raise InputError(
                f"these logs have {format_size(size_bytes)}, and without Spark all of it is held in memory, up to "
                f"{format_size(bytes_max)}: use --engine spark, or --partition"
            )
        self._results = ResultDirectory(out)
        self.steps = steps(has_ends=self._source.has_ends, verifies=verifies)
        self.tasks = (0, 0)

    def run(self, begin: Callable[[str], None] = lambda step: None) -> Report:
        """Write the tables, the page and its figures.

        Args:
            begin: is called with the name of each step when it begins.

        Raises:
            InputError: there are too many records; what was written is removed.
            RunFailedError: a file can't be read or written on the way.
        """
        try:
            return self._run(begin)
        except OSError as error:
            raise RunFailedError(f"the analysis failed: {first_line(error)}") from error

    def _run(self, begin: Callable[[str], None]) -> Report:
        begin(READ)
        try:
            read_ms = self._clock.now_ms()
            held = read_records(self._source.tasks(), self._results, self._rows_max, self._note)
        except InputError:
            if self._results.has("tables"):
                self._results.remove("tables")
            raise
        self.tasks = (0, 0)
        files = TableFiles(self._results)
        files.counts["records"] = held.written.records
        begin(COUNT)
        made: dict[str, pa.Table] = {"read_counts": read_counts(held), "corrupt": corrupt(held)}
        begin(OFFSETS)
        made["commits"] = commits(held.records)
        made["current_offsets"] = current_offsets(made["commits"])
        for name in ("read_counts", "corrupt", "current_offsets"):
            files.write(name, made[name])
        files.write_rows("partition_load", partition_load(held))
        files.add_commits(transactional_commits(held.records), held.written.commits)
        begin(HISTORY)
        found = histories(held)
        now_ms, retention_minutes = held.written.last_timestamp_ms, self._source.offsets_retention_minutes()
        self._about_groups(files, made, found, now_ms, read_ms, retention_minutes, begin)
        if self._verifies:
            begin(VERIFY)
            files.write_rows("differences", verify(held.records, found, made["current_offsets"]))
        begin(REPORT)
        tables = FinishedTables(self._results, files.counts)
        report = gather_report(tables, self._source.names, self._clock, retention_minutes)
        write_report(self._results, report)
        return report

    def _note(self, done: int, total: int) -> None:
        self.tasks = (done, total)

    def _about_groups(
        self,
        files: TableFiles,
        made: Mapping[str, pa.Table],
        found: Histories,
        now_ms: int | None,
        read_ms: int,
        retention_minutes: int | None,
        begin: Callable[[str], None],
    ) -> None:
        """Write the tables about groups."""
        for kind, name in TABLES_OF_KINDS.items():
            files.write_rows(name, found[kind])
        committed, current = made["commits"], made["current_offsets"]
        told = self._source.read_ends(pc.unique(current["topic"]).to_pylist())
        if told is not None and "at_ms" in told.column_names:
            files.write(END_OFFSETS_TABLE, told)  # what the lag is told from
        ends = None if told is None else Ends(told)
        holders = partition_holders(found)
        rows = {"groups": groups(found, current)}
        begin(ANOMALIES)
        rows["anomalies"] = anomalies(found, committed, holders, ends, now_ms)
        kept_minutes = retention_minutes or OFFSETS_RETENTION_MINUTES
        rows["stale_groups"] = stale_groups(rows["groups"], current, committed, now_ms, kept_minutes)
        if ends is not None:
            begin(LAG)
            times = self._source.read_times(behind_ends(current, ends))
            rows["lag"] = lag(current, ends, committed, holders, now_ms, times, read_ms)
        for name, some in rows.items():
            files.write_rows(name, some)
