"""Parquet files that Python workers write themselves: the table of records as they decode it, and commits beside it.

A row costs the JVM several times what it costs to decode, and here no row gets there: workers write columns as they
are, and Spark only says who reads what, and tries again what failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
from fsspec import AbstractFileSystem
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from groupcoord.analysis.columns.chunks import RowSettings
from groupcoord.analysis.columns.commits import Written, write_run
from groupcoord.analysis.columns.parquet import WRITTEN_COLUMNS, TableFile, folder_name
from groupcoord.analysis.columns.results import whole_file
from groupcoord.analysis.columns.tasks import RecordTask
from groupcoord.spark.output import task_attempt

_WRITTEN = StructType([StructField(name, LongType()) for name in Written._fields])
_ARROW_WRITTEN = to_arrow_schema(_WRITTEN)


def write_records(
    spark: SparkSession, tasks: Sequence[RecordTask], file_system: AbstractFileSystem, records: str, commits: str
) -> Written:
    """Decode logs and write their records, in a folder for each log partition, as ``DataFrameWriter.partitionBy`` does.

    Args:
        spark: any session.
        tasks: what to read; each is one task of Spark's.
        file_system: where to write; workers have to reach it.
        records: the folder of the table of records in that file system.
        commits: that of :data:`groupcoord.spark.schemas.COMMITS`, for those outside of transactions.
    """
    numbers = spark.range(0, len(tasks), numPartitions=len(tasks))
    found = Written()
    for row in numbers.mapInArrow(_writer(tasks, file_system, records, commits), _WRITTEN).toLocalIterator():
        found = found.plus(Written(*row))
    return found


def _writer(
    tasks: Sequence[RecordTask], file_system: AbstractFileSystem, records: str, commits: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = Written()
                # A file for each run of ranges of one log partition.
                for part, (partition, rows) in enumerate(tasks[number].runs(RowSettings(WRITTEN_COLUMNS))):
                    name = f"{folder_name(partition)}/part-{number:05d}-{part:04d}.snappy.parquet"
                    open_file = partial(new_file, file_system)
                    found = found.plus(write_run(rows, open_file, f"{records}/{name}", f"{commits}/{name}"))
                yield pa.RecordBatch.from_pylist([found._asdict()], _ARROW_WRITTEN)

    return write


@contextmanager
def new_file(file_system: AbstractFileSystem, path: str, schema: pa.Schema) -> Iterator[TableFile]:
    """Give a Parquet file to write in a task. It gets its name when it is whole, whichever attempt that was."""
    with whole_file(file_system, path, task_attempt()) as file:
        table = TableFile(file, schema)
        try:
            yield table
        finally:
            table.close()
