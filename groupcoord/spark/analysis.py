"""From a log to tables on disk, one page and its figures: what ``groupcoord analyze`` runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from groupcoord.analysis.columns.commits import Written
from groupcoord.analysis.columns.tasks import RecordTask
from groupcoord.analysis.figures.finished import FinishedTables
from groupcoord.analysis.figures.gathering import gather_report
from groupcoord.analysis.figures.page import (
    ANOMALIES,
    COUNT,
    HISTORY,
    LAG,
    READ,
    REPORT,
    VERIFY,
    steps,
    write_report,
)
from groupcoord.analysis.folding.records import corrupt
from groupcoord.analysis.history.anomalies import OFFSETS_RETENTION_MINUTES
from groupcoord.analysis.report.model import (
    Report,
)
from groupcoord.analysis.running.share_states import write_share_partitions
from groupcoord.analysis.tables import END_OFFSETS_TABLE, TABLES_OF_KINDS, TableFiles
from groupcoord.clock import Clock, SystemClock
from groupcoord.spark.anomalies import anomalies, stale_groups
from groupcoord.spark.decoding import Folders, write_records
from groupcoord.spark.folding import FACTS, OFFSETS, UNPACKED, WRITTEN, write_fold
from groupcoord.spark.groups import History, groups
from groupcoord.spark.inputs import Input, LogInput
from groupcoord.spark.lag import lag
from groupcoord.spark.load import KEY_COLUMNS, load_of
from groupcoord.spark.output import OutputDirectory, write_counted
from groupcoord.spark.packing import BLOBS
from groupcoord.spark.schemas import CURRENT_OFFSETS, RECORDS
from groupcoord.spark.sessions import C1, C2
from groupcoord.spark.tables import transactional_commits
from groupcoord.spark.verify import verify

C1_BYTES_MAX = 536_870_912
"""How large logs are at most for which Java's first compiler is enough, some 5 million commits."""

_STEPS = {"anomalies": ANOMALIES, "lag": LAG}
"""By the table with which it begins, a step that makes tables about groups."""


class Analysis:
    """One run over some logs into one directory.

    Args:
        paths: as :func:`groupcoord.spark.read_log` takes them, or a
            :class:`groupcoord.spark.inputs.Input`, such as a cluster that runs.
        out: an empty directory, or one that does not exist yet; a URL for Spark and fsspec is fine.
        partitions: only these log partitions; all if empty.
        end_offsets: a CSV file with a header and the columns of :data:`groupcoord.spark.schemas.END_OFFSETS`.
        verifies: load the log into coordinators too, and compare.
        clock: says when the report is made.

    Attributes:
        steps: the names of what :meth:`run` does, in order.
        compiler: of Java, that suits logs of this size; see :func:`groupcoord.spark.session`.

    Raises:
        InputError: an input can't be read or holds nothing, or the directory can't be used.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]] | Input,
        out: str | os.PathLike[str],
        *,
        partitions: Iterable[int] = (),
        end_offsets: str | None = None,
        verifies: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._input = paths if isinstance(paths, Input) else LogInput(frozenset(partitions), end_offsets, paths)
        self._verifies = verifies
        self._clock = clock or SystemClock()
        self.compiler: Literal["c1", "c2"] = C1 if self._input.check() <= C1_BYTES_MAX else C2
        self._output = OutputDirectory(out)
        self.steps = steps(has_ends=self._input.has_ends, verifies=verifies)

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
        records, keys, found = tables.decode(self._input.tasks())
        begin(COUNT)
        tables.write("partition_load", load_of(keys))
        begin(HISTORY)
        tables.add_commits(records, found)
        folded, current, facts = tables.fold(records)
        ends = self._input.read_end_offsets(spark, current)
        if ends is not None and was_asked(ends):
            ends = tables.write(END_OFFSETS_TABLE, ends)  # what the lag is told from
        times = None if ends is None else self._input.read_record_times(spark, current, ends)
        now_ms, retention_minutes = found.last_timestamp_ms, self._input.offsets_retention_minutes()
        of_groups = group_tables(
            records,
            folded,
            facts,
            current,
            ends,
            now_ms,
            record_times=times,
            retention_minutes=retention_minutes,
            read_ms=read_ms,
        )
        for name, table in of_groups.items():
            if name in _STEPS:
                begin(_STEPS[name])
            tables.write(name, table)
        if self._verifies:
            begin(VERIFY)
            tables.write("differences", verify(records, history=folded, offsets=current))
        self._output.remove(_WORKING)
        begin(REPORT)
        finished = FinishedTables(self._output, tables.counts)
        files = TableFiles(self._output)
        write_share_partitions(self._input, finished, files)
        tables.counts |= files.counts
        report = gather_report(finished, self._input.names, self._clock, retention_minutes)
        write_report(self._output, report)
        return report


_WORKING = "working"
"""The folder for what is needed on the way alone."""


def group_tables(
    records: DataFrame,
    history: History,
    commits: DataFrame,
    current_offsets: DataFrame,
    ends: DataFrame | None,
    now_ms: int | None = None,
    end_offset_samples: DataFrame | None = None,
    record_times: DataFrame | None = None,
    retention_minutes: int | None = None,
    read_ms: int | None = None,
) -> dict[str, DataFrame]:
    """Return the tables about groups that are made of others as a whole, by name: with ``lag`` if the ends are known.

    Args:
        records: the table of records.
        history: of its groups.
        commits: the table of this name, or what is known of them.
        current_offsets: the table of this name.
        ends: :data:`groupcoord.spark.schemas.END_OFFSETS`.
        now_ms: the last timestamp of the records, if it is known.
        end_offset_samples: all that a cluster has answered where topics end, if that was more than once.
        record_times: what a cluster has answered how old the next records are, if it was asked.
        retention_minutes: how long offsets are kept that nobody uses, if that was told.
        read_ms: as for :func:`groupcoord.spark.lag`.
    """
    made = {
        "groups": groups(records, history=history, offsets=current_offsets),
        "anomalies": anomalies(
            records,
            history=history,
            commits=commits,
            end_offsets=ends,
            end_offset_samples=end_offset_samples,
            now_ms=now_ms,
        ),
        "stale_groups": stale_groups(
            records,
            history=history,
            commits=commits,
            offsets=current_offsets,
            now_ms=now_ms,
            offsets_retention_minutes=retention_minutes or OFFSETS_RETENTION_MINUTES,
        ),
    }
    if ends is not None:
        made["lag"] = lag(
            current_offsets,
            ends,
            end_offset_samples=end_offset_samples,
            commits=commits,
            history=history,
            now_ms=now_ms,
            record_times=record_times,
            read_ms=read_ms,
        )
    return made


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
