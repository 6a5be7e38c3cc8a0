"""Parquet files that Python workers write themselves: the table of records as they decode it, and commits beside it.

A row costs the JVM several times what it costs to decode, and here no row gets there: workers write columns as they
are, and Spark only says who reads what, and tries again what failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from attrs import frozen
from fsspec import AbstractFileSystem
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from groupcoord.analysis.decode.files import RecordTask
from groupcoord.analysis.decode.parquet import WRITTEN_COLUMNS, TableFile, Written, folder_name, write_run
from groupcoord.analysis.decode.results import whole_file
from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.analysis.decode.schema import READ_COUNTS, arrow_schema
from groupcoord.analysis.fold.load import KEYS, summed_counts
from groupcoord.analysis.fold.records import RANGES, Accounts
from groupcoord.spark.grouped_udf import blob_of, table_of
from groupcoord.spark.output import task_attempt

_BLOBS = ("counts", "ranges")
_WRITTEN = StructType(
    [StructField(name, LongType()) for name in Written._fields] + [StructField(name, BinaryType()) for name in _BLOBS]
)
_ARROW_WRITTEN = to_arrow_schema(_WRITTEN)


class WrittenLogs(NamedTuple):
    """What came of decoding.

    Attributes:
        written: how much was written.
        read_counts: :data:`groupcoord.analysis.decode.schema.READ_COUNTS`.
        ranges: :data:`groupcoord.analysis.fold.records.RANGES`.
    """

    written: Written
    read_counts: pa.Table
    ranges: pa.Table


@frozen
class Folders:
    """Where decoded logs are written; workers have to reach it.

    Attributes:
        file_system: the folders are in it.
        records: of the table of records.
        commits: of :data:`groupcoord.spark.schemas.COMMITS`, for those outside of transactions.
        keys: of :data:`groupcoord.analysis.fold.load.KEYS`.
    """

    file_system: AbstractFileSystem
    records: str
    commits: str
    keys: str


def write_records(spark: SparkSession, tasks: Sequence[RecordTask], folders: Folders) -> WrittenLogs:
    """Decode logs and write their records, in a folder for each log partition, as ``DataFrameWriter.partitionBy`` does.

    Args:
        spark: any session.
        tasks: what to read; each is one task of Spark's.
        folders: where to write.
    """
    numbers = spark.range(0, len(tasks), numPartitions=len(tasks))
    written, counts, ranges = Written(), [arrow_schema(READ_COUNTS).empty_table()], [RANGES.empty_table()]
    for row in numbers.mapInArrow(_writer(tasks, folders), _WRITTEN).toLocalIterator():
        written = written.plus(Written(*row[: len(Written._fields)]))
        counts = [summed_counts([*counts, table_of([row["counts"]])])]
        ranges.append(table_of([row["ranges"]]))
    return WrittenLogs(written, counts[0], pa.concat_tables(ranges))


def _writer(
    tasks: Sequence[RecordTask], folders: Folders
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        open_file = partial(new_file, folders.file_system)
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
            blobs = {"counts": blob_of(accounts.load.read_counts()), "ranges": blob_of(accounts.ranges())}
            yield pa.RecordBatch.from_pylist([found._asdict() | blobs], _ARROW_WRITTEN)

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
