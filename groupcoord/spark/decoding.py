"""The table of records as Parquet files, written by the Python workers that decode it.

A row costs the JVM several times what it costs to decode, and here no row gets there: workers write columns as they
are, and Spark only says who reads what, and tries again what failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from fsspec import AbstractFileSystem
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from groupcoord.columns.chunks import RowSettings
from groupcoord.columns.parquet import WRITTEN_COLUMNS, folder_name, write_rows
from groupcoord.spark.source import RecordTask

_WRITTEN = StructType([StructField("rows", LongType())])


def write_records(
    spark: SparkSession, tasks: Sequence[RecordTask], file_system: AbstractFileSystem, folder: str
) -> int:
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
    tasks: Sequence[RecordTask], file_system: AbstractFileSystem, folder: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [_write_task(tasks[number], number, file_system, folder) for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(rows, pa.int64())], ["rows"])

    return write


def _write_task(task: RecordTask, number: int, file_system: AbstractFileSystem, folder: str) -> int:
    """Write what one task reads, a file for each run of ranges of one log partition; return how many rows that was."""
    rows = 0
    for part, (partition, found) in enumerate(task.runs(RowSettings(WRITTEN_COLUMNS))):
        inner = f"{folder}/{folder_name(partition)}"
        file_system.makedirs(inner, exist_ok=True)
        name = f"part-{number:05d}-{part:04d}.snappy.parquet"
        context = TaskContext.get()
        hidden = f"{inner}/.{name}.{0 if context is None else context.taskAttemptId()}"
        rows += write_rows(found, file_system, hidden)
        file_system.mv(hidden, f"{inner}/{name}")
    return rows
