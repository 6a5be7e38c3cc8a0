"""The table of records as Parquet files, written by the Python workers that decode it.

A row costs the JVM several times what it costs to decode, and here no row gets there: workers write columns as they
are, and Spark only says who reads what, and tries again what failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import pyarrow as pa
from fsspec import AbstractFileSystem
from pyarrow.parquet import ParquetWriter
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from groupcoord.spark.chunks import RowSettings
from groupcoord.spark.columns import ARROW_RECORDS
from groupcoord.spark.source import LogPartition, log_rows

PARTITIONED_BY = "log_partition"
ROW_GROUP_ROWS = 262_144
"""How many rows a worker gathers before it writes them."""

_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_SCHEMA = ARROW_RECORDS.remove(ARROW_RECORDS.get_field_index(PARTITIONED_BY))
_COLUMNS = tuple(_SCHEMA.names)
# Numbers that go up and up are small as differences; everything else but bytes repeats itself.
_RISING = ("log_offset", "log_timestamp_ms", "committed_offset", "commit_timestamp_ms", "position", "end_offset")
_REPEATING = [name for name in _COLUMNS if name not in (*_RISING, "key", "value", "tombstone", "is_transactional")]
_WRITTEN = StructType([StructField("rows", LongType())])


def write_records(spark: SparkSession, tasks: list[LogPartition], file_system: AbstractFileSystem, folder: str) -> int:
    """Decode logs and write their records, in a folder for each log partition, as ``DataFrameWriter.partitionBy`` does.

    Args:
        spark: any session.
        tasks: what to read; each is one task of Spark's.
        file_system: where to write; workers have to reach it.
        folder: in that file system. A file gets its name when it is whole, and the same name however often its task
            is tried.

    Returns:
        How many rows were written.
    """
    numbers = spark.range(0, len(tasks), numPartitions=len(tasks))
    written = numbers.mapInArrow(_writer(tasks, file_system, folder), _WRITTEN)
    return sum(row.rows for row in written.groupBy().sum("rows").withColumnRenamed("sum(rows)", "rows").collect())


def _writer(
    tasks: list[LogPartition], file_system: AbstractFileSystem, folder: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [_write_task(tasks[number], number, file_system, folder) for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(rows, pa.int64())], ["rows"])

    return write


def _write_task(task: LogPartition, number: int, file_system: AbstractFileSystem, folder: str) -> int:
    """Write what one task reads, a file for each run of ranges of one log partition; return how many rows that was."""
    rows = 0
    runs = groupby(task.ranges, lambda found: found.segment.partition)
    for part, (partition, ranges) in enumerate(runs):
        inner = f"{folder}/{PARTITIONED_BY}={_NO_PARTITION if partition is None else partition}"
        file_system.makedirs(inner, exist_ok=True)
        name = f"part-{number:05d}-{part:04d}.snappy.parquet"
        context = TaskContext.get()
        hidden = f"{inner}/.{name}.{0 if context is None else context.taskAttemptId()}"
        found = log_rows(LogPartition(task.file_system, list(ranges)), RowSettings(_COLUMNS))
        rows += _write_file(found, file_system, hidden)
        file_system.mv(hidden, f"{inner}/{name}")
    return rows


def _write_file(batches: Iterable[pa.RecordBatch], file_system: AbstractFileSystem, path: str) -> int:
    rows = 0
    encodings = dict.fromkeys(_RISING, "DELTA_BINARY_PACKED")
    with (
        file_system.open(path, "wb") as file,
        ParquetWriter(file, _SCHEMA, use_dictionary=_REPEATING, column_encoding=encodings) as writer,
    ):
        for table in _gathered(batches):
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
            rows += table.num_rows
    return rows


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield batches together, so that there is enough in each table for a row group."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= ROW_GROUP_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
