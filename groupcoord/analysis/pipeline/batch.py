"""Pipeline from a log to tables and a report, for ``groupcoord analyze`` on any engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import ClassVar, Protocol, TypedDict, Unpack

import pyarrow as pa
from attrs import evolve, frozen

from groupcoord.analysis.decode.files import RecordTask
from groupcoord.analysis.decode.parquet import ResultDirectory, Written
from groupcoord.analysis.decode.schema import KIND_RECORD
from groupcoord.analysis.errors import InputError, RunFailedError, first_line
from groupcoord.analysis.options import Selection
from groupcoord.analysis.pipeline.sources import LogSource, Source
from groupcoord.analysis.pipeline.tables import ShareStates
from groupcoord.analysis.report.data.gathering import gather_report, write_report
from groupcoord.analysis.report.data.model import Report
from groupcoord.analysis.rules.lag import Ends
from groupcoord.analysis.tables import END_OFFSETS_TABLE, FinishedTables, TableFiles
from groupcoord.clock import Clock, SystemClock

READ, HISTORY = "reading the log", "offsets and histories of groups"
ANOMALIES, LAG, VERIFY, REPORT = "anomalies and forecasts", "lag", "verifying", "report"


def steps(*, has_ends: bool, verifies: bool) -> list[str]:
    """Return the names of the steps of an analysis in order."""
    return [READ, HISTORY, ANOMALIES, *[LAG] * has_ends, *[VERIFY] * verifies, REPORT]


Paths = Sequence[str | os.PathLike[str]] | Source


class RunOptions(TypedDict, total=False):
    """Options of every run; see :class:`Run`."""

    partitions: Iterable[int]
    exclude_groups: Iterable[str]
    end_offsets: str | None
    clock: Clock | None


class Run:
    """A run over logs into one directory.

    Args:
        paths: segment files, folders of a log partition, data directories, or patterns of these; local, or URLs; or a
            :class:`groupcoord.analysis.pipeline.sources.Source`, such as a running cluster.
        out: a new or empty directory, or a URL.
        partitions: log partitions to read; all if empty.
        exclude_groups: regular expressions; groups with a fully matching name are excluded.
        end_offsets: a CSV file with a header and the columns of :data:`groupcoord.analysis.decode.schema.END_OFFSETS`;
            read again for each update.
        clock: for the times of reports and updates.

    Attributes:
        size_bytes: approximate size of the logs at the start.

    Raises:
        InputError: an input cannot be read or is empty, or the directory cannot be used.
    """

    _goes_on: ClassVar[str | None] = None
    """Name of the folder that marks the directory of an earlier run, if this run may continue there."""

    def __init__(
        self,
        paths: Paths,
        out: str | os.PathLike[str],
        *,
        partitions: Iterable[int] = (),
        exclude_groups: Iterable[str] = (),
        end_offsets: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(paths, Source):
            paths = LogSource(paths, selection=Selection(partitions, exclude_groups), end_offsets=end_offsets)
        self._source = paths
        self._clock = clock or SystemClock()
        self.size_bytes = self._source.check(may_be_empty=self._goes_on is not None)
        self._results = self._open(out)
        self._share_states = ShareStates(self._source)

    def _open(self, out: str | os.PathLike[str]) -> ResultDirectory:
        return ResultDirectory(out, goes_on=self._goes_on)

    @cached_property
    def _retention_minutes(self) -> int | None:
        return self._source.offsets_retention_minutes()

    def _write_page(self, tables: FinishedTables) -> Report:
        _check_has_groups(tables, self._source.names)
        self._share_states.write(tables)
        report = gather_report(tables, self._source.names, self._clock, self._retention_minutes)
        report = evolve(report, excluded_groups=self._source.selection.expressions)
        write_report(self._results, report)
        return report


def _check_has_groups(tables: FinishedTables, names: Sequence[str]) -> None:
    records = [row for row in tables.rows("read_counts", ("kind", "problem", "count")) if row["kind"] == KIND_RECORD]
    if records and all(row["problem"] is not None for row in records):
        count = sum(row["count"] for row in records)
        reason = "its only record is not" if count == 1 else f"none of its {count:,} records is"
        raise InputError(f"{', '.join(names)}: {reason} about groups; is it a log of __consumer_offsets?")


@frozen
class Moment:
    """The time of the analysis, and end offsets.

    Attributes:
        end_offsets: :data:`groupcoord.analysis.decode.schema.END_OFFSETS`, or ``LIVE_END_OFFSETS``; None if unknown.
        now_ms: the last timestamp of the records, in milliseconds since 1970; None without records.
        read_ms: when the log was read, if a cluster returned end offsets later.
        retention_minutes: ``offsets.retention.minutes`` of the brokers; None if unknown.
    """

    source: Source
    end_offsets: pa.Table | None
    now_ms: int | None
    read_ms: int
    retention_minutes: int | None

    @cached_property
    def ends(self) -> Ends | None:
        return None if self.end_offsets is None else Ends(self.end_offsets)


class Engine(Protocol):
    """The steps of a pipeline, each of which writes its tables.

    Attributes:
        tasks: the number of tasks of the present step that are done, and of all of them; (0, 0) if unknown.
    """

    @property
    def tasks(self) -> tuple[int, int]: ...

    def open(self, out: str | os.PathLike[str]) -> ResultDirectory:
        """Return the directory for the results, where the engine can write."""

    def decode(self, tasks: Sequence[RecordTask], files: TableFiles) -> Written:
        """Write the records, the commits outside transactions, and the read counts; return counts of written rows."""

    def fold(self, files: TableFiles, *, verifies: bool) -> None:
        """Write the histories of groups, current offsets, and the commits of transactions."""

    def topics(self) -> Collection[str]:
        """Return the topics that groups have committed or that members have."""

    def judge(self, step: str, moment: Moment, files: TableFiles) -> None:
        """Write the tables of one step: ``ANOMALIES``, ``LAG`` or ``VERIFY``."""

    def close(self) -> None:
        """Remove intermediate files."""


class Pipeline(Run):
    """One analysis of logs into one directory.

    Args:
        engine: the engine.
        paths: as for :class:`Run`, as all others that are not listed.
        out: likewise.
        verifies: also load the log into coordinators, and compare.

    Attributes:
        steps: the names of the steps of ``run``, in order.
    """

    def __init__(
        self,
        engine: Engine,
        paths: Paths,
        out: str | os.PathLike[str],
        *,
        verifies: bool = False,
        **options: Unpack[RunOptions],
    ) -> None:
        self._engine = engine
        super().__init__(paths, out, **options)
        self._verifies = verifies
        self.steps = steps(has_ends=self._source.has_ends, verifies=verifies)

    def _open(self, out: str | os.PathLike[str]) -> ResultDirectory:
        return self._engine.open(out)

    def run(self, begin: Callable[[str], None] = lambda step: None) -> Report:
        """Write the tables, the page and its figures, and return these.

        Args:
            begin: called with the name of each step when it begins.

        Raises:
            InputError: the engine can't write to the directory.
            RunFailedError: a file can't be read or written.
        """
        try:
            return self._run(begin)
        except OSError as error:
            raise RunFailedError(f"the analysis failed: {first_line(error)}") from error

    def _run(self, begin: Callable[[str], None]) -> Report:
        engine, files = self._engine, TableFiles(self._results)
        begin(READ)
        read_ms = self._clock.now_ms()
        written = engine.decode(self._source.tasks(), files)
        begin(HISTORY)
        engine.fold(files, verifies=self._verifies)
        ends = self._source.read_ends(engine.topics() if self._source.asks_for_ends else ())
        if ends is not None and self._source.asks_for_ends:
            files.write(END_OFFSETS_TABLE, ends)
        moment = Moment(self._source, ends, written.last_timestamp_ms, read_ms, self._retention_minutes)
        for step in (ANOMALIES, *[LAG] * (ends is not None), *[VERIFY] * self._verifies):
            begin(step)
            engine.judge(step, moment, files)
        engine.close()
        begin(REPORT)
        return self._write_page(FinishedTables(self._results, files.counts))
