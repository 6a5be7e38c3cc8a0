"""Logs to tables on disk, one page and its figures, kept up to date: what ``groupcoord analyze --follow`` runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from groupcoord.analysis.columns.errors import InputError
from groupcoord.analysis.columns.tailing import LogChangedError
from groupcoord.analysis.figures.finished import FinishedTables
from groupcoord.analysis.report.model import Report
from groupcoord.analysis.running.runs import FollowingRun, Progress
from groupcoord.analysis.running.sources import ClusterSource, LogSource
from groupcoord.analysis.running.tails import ATTEMPTS_MAX
from groupcoord.analysis.tables import END_OFFSETS_TABLE, TABLES_OF_KINDS
from groupcoord.spark.analysis import Known, read_ends, was_asked
from groupcoord.spark.cluster_reading import read_cluster_stream
from groupcoord.spark.groups import History
from groupcoord.spark.load import partition_load
from groupcoord.spark.output import OutputDirectory, write_counted
from groupcoord.spark.reading import log_options
from groupcoord.spark.stream_store import CHECKPOINT
from groupcoord.spark.streaming import FollowedTables, check_version, follow, stream_of
from groupcoord.spark.tables import facts_of, last_moment

_PASSING = (
    LogChangedError.__name__,  # files changed while they were read
    # Spark waits ten seconds for a process of Python to start, which no setting changes: too little on a busy machine.
    "Python worker failed to connect back",
)

_INPUT = f"{CHECKPOINT}/input.json"
_STAGED = f"{CHECKPOINT}/staged"


class Following(FollowingRun):
    """Follows some logs into one directory, on Spark.

    The arguments are those of :class:`groupcoord.analysis.running.runs.FollowingRun`; ``out`` is for Spark and fsspec.
    """

    _goes_on = CHECKPOINT

    def _open(self, out: str | os.PathLike[str]) -> OutputDirectory:
        check_version("following logs")
        self._output = OutputDirectory(out, goes_on=CHECKPOINT)
        return self._output

    def run(
        self, spark: SparkSession, is_stopped: Callable[[float], bool], tell: Callable[[Progress], None]
    ) -> Report | None:
        """Keep everything up to date until it is stopped, and return what the page says then; None if there is none.

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
            self._spark, self._tables = spark, FollowedTables(spark, self._output.name)
            self._seen: Hashable = None
            return self._follow(is_stopped, tell)

    def _claim(self) -> None:
        """See :class:`FollowingRun`."""
        wanted = self._source.identity()
        if not self._output.has(_INPUT):
            self._output.replace_text(_INPUT, json.dumps(wanted) + "\n")
        elif (known := json.loads(self._output.read_text(_INPUT))) != wanted:
            of = f", partitions {known['partitions']}" if known["partitions"] else ""
            raise InputError(f"{self._output.name} follows {', '.join(json.loads(known['paths']))}{of}")

    def _update(self) -> int:
        """See :class:`FollowingRun`; from the start again if files change meanwhile, or the machine is busy."""
        found = self._source.state()
        for attempts_left in reversed(range(ATTEMPTS_MAX if found != self._seen else 0)):
            try:
                follow(self._records(), self._output.name, until_end=True).awaitTermination()
            except StreamingQueryException as error:
                if not attempts_left or not any(told in str(error) for told in _PASSING):
                    raise
            else:
                break
        self._seen = found
        return self._tables.refresh()

    def _records(self) -> DataFrame:
        """Return the table of records as a stream."""
        source = self._source
        if isinstance(source, ClusterSource):
            servers, config = source.address.bootstrap_servers, source.address.command_config
            return read_cluster_stream(
                self._spark, servers, command_config=config, topic=source.topic, partitions=source.partitions
            )
        assert isinstance(source, LogSource)
        return stream_of(self._spark, log_options(source.paths, partitions=source.partitions))

    def _rows(self) -> int:
        """See :class:`FollowingRun`."""
        return self._tables.row_count("records")

    # ------------------------------------------------------------ tables

    def _write(self, read_ms: int) -> FinishedTables:
        """See :class:`FollowingRun`: the tables that are made of others as a whole."""
        tables = self._tables
        records, facts = tables.table("records"), facts_of(tables.table("commits")).persist()
        history = tables.table("history").persist()
        (last_ms,) = last_moment(records).collect()[0]
        counts = {name: tables.row_count(name) for name in ("commits", "records")}
        current, counts["current_offsets"] = self._replace("current_offsets", tables.table("current_offsets"))
        ends, samples = self._ends(current)
        now_ms = self._source.judged_at_ms(last_ms, read_ms)
        known = Known(records, History(history), facts, current, ends, samples, now_ms, read_ms)
        made = {name: tables.table(name) for name in ("read_counts", "corrupt", *TABLES_OF_KINDS.values())}
        made |= {"partition_load": partition_load(records)} | known.tables(self._source, self._retention_minutes)
        counts |= {name: self._replace(name, table)[1] for name, table in made.items()}
        for held in (history, facts):
            held.unpersist()
        return FinishedTables(self._output, counts, {"commits": tables.folders("commits")})

    def _look(self, read_ms: int) -> FinishedTables:
        """See :class:`FollowingRun`: the lag."""
        tables = self._tables
        current, history = tables.table("current_offsets"), History(tables.table("history"))
        ends, samples = self._ends(current)
        assert ends is not None
        facts = facts_of(tables.table("commits"))
        known = Known(tables.table("records"), history, facts, current, ends, samples, None, read_ms)
        return FinishedTables(self._output, {"lag": self._replace("lag", known.lag(self._source, ends))[1]})

    def _ends(self, current: DataFrame) -> tuple[DataFrame | None, DataFrame | None]:
        """Return where the committed topics end now, and all that a cluster has told of that so far."""
        ends = read_ends(self._source, current)
        if ends is None or not was_asked(ends):
            return ends, None
        write_counted(ends, self._output.path(f"tables/{END_OFFSETS_TABLE}"), mode="append")
        path = self._output.reading_path(f"tables/{END_OFFSETS_TABLE}")
        return ends, self._spark.read.schema(ends.schema).parquet(path)

    def _replace(self, name: str, table: DataFrame) -> tuple[DataFrame, int]:
        """Write a table beside the one that is there, and put it in its place; return it and its row count."""
        rows = write_counted(table, self._output.path(f"{_STAGED}/{name}"), mode="overwrite")
        self._output.replace_folder(f"{_STAGED}/{name}", f"tables/{name}")
        path = self._output.reading_path(f"tables/{name}")
        return self._spark.read.schema(table.schema).parquet(path).select(*table.columns), rows
