"""Engine of the pipeline on Spark, for ``analyze --engine spark``."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from fsspec import AbstractFileSystem
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.sql import (
    DataFrame,
    Observation,
    SparkSession,
    functions as F,  # noqa: N812
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from groupcoord.analysis.decode.files import RecordTask
from groupcoord.analysis.decode.parquet import (
    ABORTED,
    WRITTEN_COLUMNS,
    ResultDirectory,
    TableFile,
    Written,
    every,
    folder_name,
    new_table_file,
    write_run,
)
from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.analysis.decode.schema import CURRENT_OFFSETS as _CURRENT_COLUMNS, READ_COUNTS, arrow_schema
from groupcoord.analysis.errors import InputError, first_line
from groupcoord.analysis.fold.commits import CommitFold
from groupcoord.analysis.fold.histories import folded_histories
from groupcoord.analysis.fold.history.rows import (
    DUPLICATE,
    GROUP,
)
from groupcoord.analysis.fold.records import KEYS, RANGES, Accounts, corrupt, summed_counts
from groupcoord.analysis.options import OFFSETS_RETENTION_MINUTES
from groupcoord.analysis.pipeline.batch import ANOMALIES, LAG, Moment
from groupcoord.analysis.pipeline.sources import ClusterSource
from groupcoord.analysis.tables import TABLES, TABLES_OF_KINDS, TableFiles
from groupcoord.records.schemas import RecordType
from groupcoord.spark.grouped_udf import batched
from groupcoord.spark.rules import anomalies, held_topics, lag, offset_expiry, read_record_times, stale_groups
from groupcoord.spark.schemas import (
    CURRENT_OFFSETS,
    HISTORY,
    RECORDS,
    declared,
    with_times,
)
from groupcoord.spark.sessions import count_tasks
from groupcoord.spark.tables import (
    FACTS,
    FOLDED,
    KEY_COLUMNS,
    History,
    as_row,
    facts_rows,
    groups,
    load_of,
    sorted_rows,
    transactional_commits,
    verify,
)

_WORKING = "working"


class SparkEngine:
    """Engine of a :class:`groupcoord.analysis.pipeline.batch.Pipeline` on Spark, which writes each table once and reads
    it back.
    """

    def __init__(self, spark: SparkSession | None = None) -> None:
        self.spark = spark

    @property
    def tasks(self) -> tuple[int, int]:
        return (0, 0) if self.spark is None else count_tasks(self.spark)

    def open(self, out: str | os.PathLike[str]) -> OutputDirectory:
        self._output = OutputDirectory(out)
        return self._output

    def close(self) -> None:
        self._output.remove(_WORKING)

    def decode(self, tasks: Sequence[RecordTask], files: TableFiles) -> Written:
        self._output.check_reach(self._session)
        file_system, _ = self._output.place("tables")
        keys = f"{_WORKING}/keys"
        places = (self._output.place(name)[1] for name in ("tables/records", "tables/commits", keys))
        found = write_records(self._session, tasks, Folders(file_system, *places))
        files.counts["records"] = found.written.records
        files.write("read_counts", found.read_counts)
        files.write("corrupt", corrupt(found.ranges))
        self._write("partition_load", load_of(self._read(keys, KEY_COLUMNS)), files)
        self._records, self._written = self._read("tables/records", RECORDS), found.written
        return found.written

    def fold(self, files: TableFiles, *, verifies: bool) -> None:
        records, written = self._records, self._written
        files.counts["commits"] = written.commits
        if written.transactional or not written.commits:
            path = self._output.path("tables/commits")
            added = write_counted(transactional_commits(records), path, "log_partition", mode="append")
            files.counts["commits"] += added
        shown = {**TABLES_OF_KINDS, OFFSETS: "current_offsets"}
        names = {name: f"tables/{shown[name]}" if name in shown else f"{_WORKING}/{name}" for name in WRITTEN}
        file_system, _ = self._output.place("tables")
        folders = {name: self._output.place(folder)[1] for name, folder in names.items()}
        counts = write_fold(records, file_system, folders)
        files.counts |= {shown[name]: count for name, count in counts.items() if name in shown}
        self._history = History(unpacked={kind: self._read(names[kind], schema) for kind, schema in UNPACKED.items()})
        self._facts, self._current = (
            self._read(names[WRITTEN_FACTS], FACTS),
            self._read(names[OFFSETS], CURRENT_OFFSETS),
        )

    def topics(self) -> set[str]:
        held = held_topics(self._history).select("topic")
        return {row.topic for row in self._current.select("topic").union(held).distinct().collect()}

    def judge(self, step: str, moment: Moment, files: TableFiles) -> None:
        records, offsets = self._records, self._current
        known: dict[str, Any] = {"history": self._history, "commits": self._facts}
        ends = None if moment.end_offsets is None else self._session.createDataFrame(moment.end_offsets)
        if step == ANOMALIES:
            kept: dict[str, Any] = {"offsets_retention_minutes": moment.retention_minutes or OFFSETS_RETENTION_MINUTES}
            tables = {
                "groups": groups(records, history=self._history, offsets=offsets),
                "anomalies": anomalies(records, **known, end_offsets=ends, now_ms=moment.now_ms),
                "offset_expiry": offset_expiry(records, **known, offsets=offsets, **kept),
                "stale_groups": stale_groups(records, **known, offsets=offsets, now_ms=moment.now_ms, **kept),
            }
        elif step == LAG:
            assert ends is not None
            times, source = None, moment.source
            if isinstance(source, ClusterSource) and source.lag_from_records and source.asks_for_ends:
                servers, config = source.address.bootstrap_servers, source.address.command_config
                times = read_record_times(self._session, offsets, ends, servers, command_config=config)
            moments: dict[str, Any] = {"now_ms": moment.now_ms, "read_ms": moment.read_ms}
            tables = {"lag": lag(offsets, ends, **known, record_times=times, **moments)}
        else:
            tables = {"differences": verify(records, history=self._history, offsets=offsets)}
        for name, table in tables.items():
            self._write(name, table, files)

    @property
    def _session(self) -> SparkSession:
        assert self.spark is not None, "SparkEngine.spark is set before the pipeline runs"
        return self.spark

    def _write(self, name: str, table: DataFrame, files: TableFiles) -> None:
        files.counts[name] = write_counted(table, self._output.path(f"tables/{name}"))

    def _read(self, place: str, schema: StructType) -> DataFrame:
        path = self._output.reading_path(place)
        return self._session.read.schema(schema).parquet(path).select(*schema.fieldNames())


_TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"
_GLOB = re.compile(r"([\[\]{}*?\\])")


def write_counted(table: DataFrame, path: str, *by: str, mode: str = "error") -> int:
    """Write a table as Parquet with timestamps, and return the number of rows, counted on the way."""
    counted = Observation()
    rows = with_times(table).observe(counted, F.count(F.lit(1)).alias("rows"))
    with _times_in_micros(table.sparkSession):
        rows.write.mode(mode).partitionBy(*by).parquet(path)
    return int(counted.get["rows"])


def task_attempt() -> int:
    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())


def task_file() -> str:
    context = TaskContext.get()
    return f"part-{0 if context is None else context.partitionId():05d}.snappy.parquet"


@contextmanager
def _times_in_micros(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(_TIMESTAMP_TYPE) or "INT96"
    spark.conf.set(_TIMESTAMP_TYPE, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(_TIMESTAMP_TYPE, before)


class OutputDirectory(ResultDirectory):
    """A result directory that Spark writes to, too."""

    def check_reach(self, spark: SparkSession) -> None:
        """Raise InputError if Spark has no file system for it."""
        java = getattr(spark, "_jvm", None)  # absent in a session of Spark Connect
        if self.is_local or java is None:
            return
        try:
            java.org.apache.hadoop.fs.Path(self.name).getFileSystem(spark._jsc.hadoopConfiguration())
        except Py4JJavaError as error:
            raise InputError(f"Spark can't write to {self.name}: {first_line(error)}") from error

    def path(self, name: str) -> str:
        # Spark resolves a path without scheme in its default file system, which may not be this machine's.
        return f"file://{self.place(name)[1]}" if self.is_local else f"{self.name.rstrip('/')}/{name}"

    def reading_path(self, name: str) -> str:
        return _GLOB.sub(r"\\\1", self.path(name))


_RESULT = StructType([StructField("result", BinaryType())])


class WrittenLogs(NamedTuple):
    """Result of decoding."""

    written: Written
    read_counts: pa.Table
    ranges: pa.Table


@frozen
class Folders:
    """Folders of decoded logs, which workers must reach."""

    file_system: AbstractFileSystem
    records: str
    commits: str
    keys: str


def write_records(spark: SparkSession, tasks: Sequence[RecordTask], folders: Folders) -> WrittenLogs:
    """Decode logs and write their records, with a folder for each log partition."""
    numbers = spark.range(0, len(tasks), numPartitions=len(tasks))
    written, counts, ranges = Written(), [arrow_schema(READ_COUNTS).empty_table()], [RANGES.empty_table()]
    for row in numbers.mapInArrow(_writer(tasks, folders), _RESULT).toLocalIterator():
        of_task, found_counts, found_ranges = pickle.loads(row["result"])
        written = written.plus(of_task)
        counts = [summed_counts([*counts, found_counts])]
        ranges.append(found_ranges)
    return WrittenLogs(written, counts[0], pa.concat_tables(ranges))


def _writer(
    tasks: Sequence[RecordTask], folders: Folders
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        open_file = partial(new_table_file, folders.file_system, attempt=task_attempt())
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            found, accounts = Written(), Accounts()
            # A file for each run of ranges of one log partition.
            for part, (partition, rows) in enumerate(tasks[number].runs(RowSettings(WRITTEN_COLUMNS))):
                name = f"{folder_name(partition)}/part-{number:05d}-{part:04d}.snappy.parquet"
                noted = accounts.noted(partition, rows)
                found = found.plus(
                    write_run(noted, open_file, f"{folders.records}/{name}", f"{folders.commits}/{name}")
                )
            with open_file(f"{folders.keys}/part-{number:05d}.snappy.parquet", KEYS) as file:
                for keys in accounts.load.keys().to_batches():
                    file.write(keys)
            result = pickle.dumps((found, accounts.load.read_counts(), accounts.ranges()))
            yield pa.RecordBatch.from_pydict({"result": [result]})

    return write


def _flat(kind: str) -> StructType:
    rows = HISTORY[kind].dataType
    assert isinstance(rows, StructType)
    return StructType([HISTORY["group_id"], HISTORY["log_partition"], *rows])


UNPACKED: Mapping[str, StructType] = {
    **{kind: declared(TABLES[name]) for kind, name in TABLES_OF_KINDS.items()},
    **{kind: _flat(kind) for kind in (GROUP, DUPLICATE)},
}
OFFSETS, WRITTEN_FACTS = "current offsets", "facts"
_SCHEMAS = {kind: to_arrow_schema(schema) for kind, schema in UNPACKED.items()}
_SCHEMAS |= {OFFSETS: arrow_schema(_CURRENT_COLUMNS), WRITTEN_FACTS: to_arrow_schema(FACTS)}
WRITTEN = tuple(_SCHEMAS)
_ROWS = StructType([StructField("name", StringType()), StructField("rows", LongType())])


def write_fold(records: DataFrame, file_system: AbstractFileSystem, folders: Mapping[str, str]) -> dict[str, int]:
    """Fold records, write the tables as Parquet, and return their number of rows."""
    counts = dict.fromkeys(WRITTEN, 0)
    for row in sorted_rows(records).mapInArrow(_fold_writer(file_system, folders), _ROWS).collect():
        counts[row["name"]] += row["rows"]
    for name, count in counts.items():
        if not count:
            with new_table_file(file_system, f"{folders[name]}/part-empty.snappy.parquet", _SCHEMAS[name]):
                pass  # an empty table needs a file, too
    return counts


def _fold_writer(
    file_system: AbstractFileSystem, folders: Mapping[str, str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part = task_file()
        files: dict[str, TableFile] = {}
        commits = CommitFold()
        with ExitStack() as stack:
            for name, batch in _made(batches, commits):
                if name not in files:
                    opened = new_table_file(file_system, f"{folders[name]}/{part}", _SCHEMAS[name], task_attempt())
                    files[name] = stack.enter_context(opened)
                files[name].write(batch)
        found = [{"name": name, "rows": file.rows} for name, file in files.items()]
        yield pa.RecordBatch.from_pylist(found, to_arrow_schema(_ROWS))

    return write


def _made(batches: Iterable[pa.RecordBatch], commits: CommitFold) -> Iterator[tuple[str, pa.RecordBatch]]:
    for rows in batched(map(as_row, folded_histories(_fed(batches, commits), None))):
        by_kind: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            place = {name: row[name] for name in ("log_partition", "group_id")}
            by_kind.setdefault(row["kind"], []).append(place | row[row["kind"]])
        for kind, some in by_kind.items():
            yield kind, pa.RecordBatch.from_pylist(some, _SCHEMAS[kind])
    facts = commits.facts()
    for batch in facts.current_offsets().to_batches():
        yield OFFSETS, batch
    for batch in facts_rows(facts):
        yield WRITTEN_FACTS, batch


def _fed(batches: Iterable[pa.RecordBatch], commits: CommitFold) -> Iterator[pa.Table]:
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        is_commit = pc.less_equal(rows["record_type"], int(RecordType.OFFSET_COMMIT))
        is_aborted = pc.fill_null(pc.equal(rows["transaction"], ABORTED), False)
        commits.add(rows.filter(every(is_commit, pc.invert(is_aborted))).cast(_FOLDED))
        yield rows


_FOLDED = to_arrow_schema(FOLDED)
