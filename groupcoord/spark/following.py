"""Logs to tables on disk, one page and its figures, kept up to date: what ``groupcoord analyze --follow`` runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from groupcoord.analysis.columns.errors import InputError
from groupcoord.analysis.columns.tailing import LogChangedError
from groupcoord.analysis.figures.finished import FinishedTables
from groupcoord.analysis.figures.gathering import gather_report
from groupcoord.analysis.figures.page import write_report
from groupcoord.analysis.report.model import Report
from groupcoord.analysis.running.following import ATTEMPTS_MAX, INTERVAL_S, REPORT_SHARE, Progress
from groupcoord.analysis.tables import END_OFFSETS_TABLE, TABLES_OF_KINDS
from groupcoord.clock import Clock, SystemClock
from groupcoord.spark.analysis import group_tables, was_asked
from groupcoord.spark.groups import History
from groupcoord.spark.inputs import Input, LogInput
from groupcoord.spark.lag import lag
from groupcoord.spark.load import partition_load
from groupcoord.spark.output import OutputDirectory, write_counted
from groupcoord.spark.stream_store import CHECKPOINT
from groupcoord.spark.streaming import FollowedTables, check_version, follow
from groupcoord.spark.tables import facts_of, last_moment

_PASSING = (
    LogChangedError.__name__,  # files changed while they were read
    # Spark waits ten seconds for a process of Python to start, which no setting changes: too little on a busy machine.
    "Python worker failed to connect back",
)

_INPUT = f"{CHECKPOINT}/input.json"
_STAGED = f"{CHECKPOINT}/staged"


class Following:
    """Follows some logs into one directory.

    Args:
        paths: as :func:`groupcoord.spark.read_log` takes them, or a
            :class:`groupcoord.spark.inputs.Input`, such as a cluster that runs.
        out: an empty directory, one that does not exist yet, or one where these logs were followed before; a URL for
            Spark and fsspec is fine.
        partitions: only these log partitions; all if empty.
        end_offsets: as for :class:`groupcoord.spark.analysis.Analysis`; read anew for each report.
        interval_s: seconds from the end of an update to the next look at the logs.
        clock: says when a report is made, and how long that took.

    Raises:
        InputError: an input can't be read, the directory can't be used, other logs were followed into it, or another
            process follows logs into it now.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]] | Input,
        out: str | os.PathLike[str],
        *,
        partitions: Iterable[int] = (),
        end_offsets: str | None = None,
        interval_s: float = INTERVAL_S,
        clock: Clock | None = None,
    ) -> None:
        check_version("following logs")
        self._input = paths if isinstance(paths, Input) else LogInput(frozenset(partitions), end_offsets, paths)
        self._interval_s = interval_s
        self._clock = clock or SystemClock()
        self._input.check(may_be_empty=True)
        self._output = OutputDirectory(out, goes_on=CHECKPOINT)
        with self._alone():
            self._remember_input()

    def run(
        self, spark: SparkSession, is_stopped: Callable[[float], bool], tell: Callable[[Progress], None]
    ) -> Report | None:
        """Keep everything up to date until it is stopped, and return what the page says then; None if there is none.

        An update that has begun is completed.

        Args:
            spark: any session.
            is_stopped: waits so many seconds, or until this is to stop, and says if it is.
            tell: is called after each update.

        Raises:
            InputError: Spark can't write to the directory, or another process follows logs into it now.
            StreamingQueryException: an update failed.
        """
        self._output.check_reach(spark)
        with self._alone():
            return self._run(spark, is_stopped, tell)

    def _run(
        self, spark: SparkSession, is_stopped: Callable[[float], bool], tell: Callable[[Progress], None]
    ) -> Report | None:
        tables = FollowedTables(spark, self._output.name)
        report: Report | None = None
        seen, reported, next_report_ms = None, -1, 0
        while True:
            found, seen_ms = self._input.state(), self._clock.now_ms()
            is_new = found != seen
            if is_new:
                self._update(spark)
                seen = found
            made, finished, is_look = None, None, False
            started_ms = self._clock.now_ms()
            if (is_behind := tables.refresh() > reported) and started_ms >= next_report_ms:
                made, finished = self._report(spark, tables, seen_ms)
                report, reported = made, tables.update
            elif self._input.asks_for_ends and not is_behind and started_ms >= next_report_ms and reported >= 0:
                finished, is_look = self._look_again(spark, tables, seen_ms), True
            if made is not None or is_look:
                ended_ms = self._clock.now_ms()
                next_report_ms = ended_ms + REPORT_SHARE * (ended_ms - started_ms)
            if made is not None or is_look or (is_new and tables.update >= 0):
                tell(Progress(tables.update, tables.row_count("records"), made, seen_ms, is_look, finished))
            if is_stopped(self._interval_s):
                break
        return self._report(spark, tables, seen_ms)[0] if tables.update > reported else report

    def _alone(self) -> AbstractContextManager[None]:
        """Keep others from following into the same directory."""
        return self._output.locked(CHECKPOINT, "follows logs into it")

    def _update(self, spark: SparkSession) -> None:
        """Read what is new; from the start again if compaction takes files away meanwhile, or the machine is busy."""
        for attempts_left in reversed(range(ATTEMPTS_MAX)):
            records = self._input.stream(spark)
            try:
                follow(records, self._output.name, until_end=True).awaitTermination()
            except StreamingQueryException as error:
                if not attempts_left or not any(told in str(error) for told in _PASSING):
                    raise
            else:
                return

    def _remember_input(self) -> None:
        """Make sure that a directory goes with one set of logs."""
        wanted = self._input.identity()
        if not self._output.has(_INPUT):
            self._output.replace_text(_INPUT, json.dumps(wanted) + "\n")
        elif (known := json.loads(self._output.read_text(_INPUT))) != wanted:
            of = f", partitions {known['partitions']}" if known["partitions"] else ""
            raise InputError(f"{self._output.name} follows {', '.join(json.loads(known['paths']))}{of}")

    @property
    def cluster_name(self) -> str:
        """The id of the cluster that is followed; empty for files."""
        return self._input.cluster_name

    # ------------------------------------------------------------ the page

    def _report(self, spark: SparkSession, tables: FollowedTables, read_ms: int) -> tuple[Report, FinishedTables]:
        """Write the tables that are made of others as a whole, and the page; return what it says, and the tables."""
        records, facts = tables.table("records"), facts_of(tables.table("commits")).persist()
        history = tables.table("history").persist()
        (last_ms,) = last_moment(records).collect()[0]
        now_ms = self._input.judged_at_ms(last_ms, read_ms)
        counts: dict[str, int] = {}
        current, counts["current_offsets"] = self._replace(spark, "current_offsets", tables.table("current_offsets"))
        made = {name: tables.table(name) for name in ("read_counts", "corrupt")}
        made["partition_load"] = partition_load(records)
        made |= {name: tables.table(name) for name in TABLES_OF_KINDS.values()}
        ends, samples = self._look(spark, current)
        times = None if ends is None else self._input.read_record_times(spark, current, ends)
        retention_minutes = self._input.offsets_retention_minutes()
        made |= group_tables(
            records,
            History(history),
            facts,
            current,
            ends,
            now_ms,
            end_offset_samples=samples,
            record_times=times,
            retention_minutes=retention_minutes,
            read_ms=read_ms,
        )
        written = {name: self._replace(spark, name, table) for name, table in made.items()}
        counts |= {name: rows for name, (_, rows) in written.items()}
        counts |= {name: tables.row_count(name) for name in ("commits", "records")}
        for held in (history, facts, ends):
            if held is not None:
                held.unpersist()
        finished = FinishedTables(self._output, counts, {"commits": tables.folders("commits")})
        report = gather_report(finished, self._input.names, self._clock, retention_minutes)
        write_report(self._output, report)
        return report, finished

    def _look(self, spark: SparkSession, current: DataFrame) -> tuple[DataFrame | None, DataFrame | None]:
        """Return where the committed topics end now, and all that a cluster has told of that so far."""
        ends = self._input.read_end_offsets(spark, current)
        if ends is None or not was_asked(ends):
            return ends, None
        write_counted(ends, self._output.path(f"tables/{END_OFFSETS_TABLE}"), mode="append")
        return ends, spark.read.schema(ends.schema).parquet(self._output.reading_path(f"tables/{END_OFFSETS_TABLE}"))

    def _look_again(self, spark: SparkSession, tables: FollowedTables, read_ms: int) -> FinishedTables:
        """Write the lag anew, where nothing but the ends of topics can have changed, and return that."""
        current, history = tables.table("current_offsets"), History(tables.table("history"))
        ends, samples = self._look(spark, current)
        assert ends is not None
        times = self._input.read_record_times(spark, current, ends)
        commits = tables.table("commits")
        table = lag(
            current,
            ends,
            end_offset_samples=samples,
            commits=commits,
            history=history,
            record_times=times,
            read_ms=read_ms,
        )
        _, rows = self._replace(spark, "lag", table)
        ends.unpersist()
        return FinishedTables(self._output, {"lag": rows})

    def _replace(self, spark: SparkSession, name: str, table: DataFrame) -> tuple[DataFrame, int]:
        """Write a table beside the one that is there, and put it in its place; return it and its row count."""
        rows = write_counted(table, self._output.path(f"{_STAGED}/{name}"), mode="overwrite")
        self._output.replace_folder(f"{_STAGED}/{name}", f"tables/{name}")
        path = self._output.reading_path(f"tables/{name}")
        return spark.read.schema(table.schema).parquet(path).select(*table.columns), rows
