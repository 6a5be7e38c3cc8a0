"""From a log to tables on disk, one page and its figures: what ``groupcoord analyze`` runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Literal

from attrs import frozen
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from groupcoord.analysis.columns.commits import Written
from groupcoord.analysis.columns.tasks import RecordTask
from groupcoord.analysis.figures.finished import FinishedTables
from groupcoord.analysis.figures.page import ANOMALIES, COUNT, HISTORY, LAG, READ, REPORT, VERIFY
from groupcoord.analysis.folding.records import corrupt
from groupcoord.analysis.history.anomalies import OFFSETS_RETENTION_MINUTES
from groupcoord.analysis.report.model import Report
from groupcoord.analysis.running.runs import AnalysisRun
from groupcoord.analysis.running.sources import ClusterSource, Source
from groupcoord.analysis.tables import END_OFFSETS_TABLE, TABLES_OF_KINDS, TableFiles
from groupcoord.spark.anomalies import anomalies, stale_groups
from groupcoord.spark.decoding import Folders, write_records
from groupcoord.spark.folding import FACTS, OFFSETS, UNPACKED, WRITTEN, write_fold
from groupcoord.spark.groups import History, groups
from groupcoord.spark.lag import held_topics, lag
from groupcoord.spark.load import KEY_COLUMNS, load_of
from groupcoord.spark.output import OutputDirectory, write_counted
from groupcoord.spark.packing import BLOBS
from groupcoord.spark.record_times import read_record_times
from groupcoord.spark.schemas import CURRENT_OFFSETS, RECORDS
from groupcoord.spark.sessions import C1, C2
from groupcoord.spark.tables import transactional_commits
from groupcoord.spark.verify import verify

C1_BYTES_MAX = 536_870_912
"""How large logs are at most for which Java's first compiler is enough, some 5 million commits."""

_STEPS = {"anomalies": ANOMALIES, "lag": LAG}
"""By the table with which it begins, a step that makes tables about groups."""


class Analysis(AnalysisRun):
    """One run over some logs into one directory, on Spark.

    The arguments are those of :class:`groupcoord.analysis.running.runs.AnalysisRun`; ``out`` is for Spark and fsspec.
    """

    @property
    def compiler(self) -> Literal["c1", "c2"]:
        """Java's compiler that suits logs of this size; see :func:`groupcoord.spark.session`."""
        return C1 if self._size_bytes <= C1_BYTES_MAX else C2

    def _open(self, out: str | os.PathLike[str]) -> OutputDirectory:
        self._output = OutputDirectory(out)
        return self._output

    def run(self, spark: SparkSession, begin: Callable[[str], None] = lambda step: None) -> Report:
        """Write the tables, the page and its figures.

        Args:
            spark: any session.
            begin: is called with the name of each step when it begins.

        Raises:
            InputError: Spark can't write to the directory.
        """
        self._output.check_reach(spark)
        tables = Tables(spark, self._output)
        begin(READ)
        read_ms = self._clock.now_ms()
        records, keys, found = tables.decode(self._source.tasks())
        begin(COUNT)
        tables.write("partition_load", load_of(keys))
        begin(HISTORY)
        tables.add_commits(records, found)
        history, current, facts = tables.fold(records)
        ends = read_ends(self._source, current, history)
        if ends is not None and was_asked(ends):
            ends = tables.write(END_OFFSETS_TABLE, ends)  # what the lag is told from
        known = Known(records, history, facts, current, ends, None, found.last_timestamp_ms, read_ms)
        for name, table in known.tables(self._source, self._retention_minutes).items():
            if name in _STEPS:
                begin(_STEPS[name])
            tables.write(name, table)
        if self._verifies:
            begin(VERIFY)
            tables.write("differences", verify(records, history=history, offsets=current))
        self._output.remove(_WORKING)
        begin(REPORT)
        return self._write_page(FinishedTables(self._output, tables.counts))


_WORKING = "working"
"""The folder for what is needed on the way alone."""


@frozen
class Known:
    """What tables about groups are made of that are made of others as a whole.

    Attributes:
        records: the table of records.
        history: of its groups.
        facts: what is known of their commits.
        current: the table of current offsets.
        ends: :data:`groupcoord.spark.schemas.END_OFFSETS`; None: they are not known.
        samples: all that a cluster has answered where topics end, if that was more than once.
        now_ms: the moment to judge from; None: it isn't known.
        read_ms: when the log was read; see :func:`groupcoord.spark.lag`.
    """

    records: DataFrame
    history: History
    facts: DataFrame
    current: DataFrame
    ends: DataFrame | None
    samples: DataFrame | None
    now_ms: int | None
    read_ms: int

    def tables(self, source: Source, retention_minutes: int | None) -> dict[str, DataFrame]:
        """Return the tables by name: with ``lag`` if it is known where topics end.

        Args:
            source: what is read.
            retention_minutes: how long offsets are kept that nobody uses, if that was told.
        """
        made = {
            "groups": groups(self.records, history=self.history, offsets=self.current),
            "anomalies": anomalies(
                self.records,
                history=self.history,
                commits=self.facts,
                end_offsets=self.ends,
                end_offset_samples=self.samples,
                now_ms=self.now_ms,
            ),
            "stale_groups": stale_groups(
                self.records,
                history=self.history,
                commits=self.facts,
                offsets=self.current,
                now_ms=self.now_ms,
                offsets_retention_minutes=retention_minutes or OFFSETS_RETENTION_MINUTES,
            ),
        }
        return made if self.ends is None else made | {"lag": self.lag(source, self.ends)}

    def lag(self, source: Source, ends: DataFrame) -> DataFrame:
        """Return how far groups are behind, by the age of their next records if the source is to tell it."""
        times = None
        if isinstance(source, ClusterSource) and source.lag_from_records and source.asks_for_ends:
            servers, config = source.address.bootstrap_servers, source.address.command_config
            spark = self.current.sparkSession
            times = read_record_times(spark, self.current, ends, servers, command_config=config)
        return lag(
            self.current,
            ends,
            end_offset_samples=self.samples,
            commits=self.facts,
            history=self.history,
            now_ms=self.now_ms,
            record_times=times,
            read_ms=self.read_ms,
        )


def read_ends(source: Source, offsets: DataFrame, history: History | None = None) -> DataFrame | None:
    """Return the ends of topics with committed offsets, and of those that members have; None if they can't be known."""
    topics: set[str] = set()
    if source.asks_for_ends:
        named = offsets.select("topic")
        if history is not None:
            named = named.union(held_topics(history))
        topics = {row.topic for row in named.distinct().collect()}
    told = source.read_ends(topics)
    return None if told is None else offsets.sparkSession.createDataFrame(told)


def was_asked(ends: DataFrame) -> bool:
    """Tell whether ends of topics are a cluster's answer, which is worth keeping, and not what a file told."""
    return "at_ms" in ends.columns


class Tables:
    """The tables of one analysis. Each is written once and read back, so that nothing is decoded twice.

    Attributes:
        counts: by name of a table, how many rows it has.
    """

    def __init__(self, spark: SparkSession, output: OutputDirectory) -> None:
        self._spark = spark
        self._output = output
        self.counts: dict[str, int] = {}

    def write(self, name: str, table: DataFrame, *by: str) -> DataFrame:
        """Write a table as Parquet, in a folder for each value of the columns ``by``, and return what was written."""
        self.counts[name] = write_counted(table, self._output.path(f"tables/{name}"), *by)
        return self._read(name, table.schema)

    def decode(self, tasks: Sequence[RecordTask]) -> tuple[DataFrame, DataFrame, Written]:
        """Write the table of records of some logs, commits outside of transactions, and what was passed over.

        Returns:
            The records, counts of them by key, and how much was written.
        """
        file_system, _ = self._output.place("tables")
        keys = f"{_WORKING}/keys"
        places = (self._output.place(name)[1] for name in ("tables/records", "tables/commits", keys))
        found = write_records(self._spark, tasks, Folders(file_system, *places))
        files = TableFiles(self._output)
        files.write("read_counts", found.read_counts)
        files.write("corrupt", corrupt(found.ranges))
        self.counts |= files.counts | {"records": found.written.records}
        return self._read("records", RECORDS), self._read_at(keys, KEY_COLUMNS), found.written

    def add_commits(self, records: DataFrame, found: Written) -> None:
        """Write the commits of transactions beside the others that are there already."""
        self.counts["commits"] = found.commits
        if found.transactional or not found.commits:
            path = self._output.path("tables/commits")
            table = transactional_commits(records)
            self.counts["commits"] += write_counted(table, path, "log_partition", mode="append")

    def fold(self, records: DataFrame) -> tuple[History, DataFrame, DataFrame]:
        """Write the rows of the history, and current offsets; return them, and what is known of commits."""
        shown = {**TABLES_OF_KINDS, OFFSETS: "current_offsets"}
        names = {name: f"tables/{shown[name]}" if name in shown else f"{_WORKING}/{name}" for name in WRITTEN}
        file_system, _ = self._output.place("tables")
        folders = {name: self._output.place(folder)[1] for name, folder in names.items()}
        counts = write_fold(records, file_system, folders)
        self.counts |= {shown[name]: count for name, count in counts.items() if name in shown}
        unpacked = {kind: self._read_at(names[kind], schema) for kind, schema in UNPACKED.items()}
        current = self._read_at(names[OFFSETS], CURRENT_OFFSETS)
        return History(unpacked=unpacked), current, self._read_at(names[FACTS], BLOBS)

    def _read(self, name: str, schema: StructType) -> DataFrame:
        return self._read_at(f"tables/{name}", schema)

    def _read_at(self, place: str, schema: StructType) -> DataFrame:
        path = self._output.reading_path(place)
        return self._spark.read.schema(schema).parquet(path).select(*schema.fieldNames())
