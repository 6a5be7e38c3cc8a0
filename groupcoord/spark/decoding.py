"""Parquet files that Python workers write themselves: the table of records as they decode it, and commits beside it.

A row costs the JVM several times what it costs to decode, and here no row gets there: workers write columns as they
are, and Spark only says who reads what, and tries again what failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from fsspec import AbstractFileSystem
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from groupcoord.columns.chunks import RowSettings
from groupcoord.columns.parquet import WRITTEN_COLUMNS, WRITTEN_SCHEMA, TableFile, folder_name
from groupcoord.columns.schema import KIND_RECORD
from groupcoord.spark.output import whole_file
from groupcoord.spark.schemas import COMMITS
from groupcoord.spark.source import RecordTask
from groupcoord.spark.tables import OFFSET_TYPES


class Written(NamedTuple):
    """What was written.

    Attributes:
        records: how many rows of the table of records.
        commits: how many commits and tombstones outside of transactions.
        transactional: how many records of transactions, their markers too.
        last_timestamp_ms: the last timestamp of a record; None: there is no record.
    """

    records: int = 0
    commits: int = 0
    transactional: int = 0
    last_timestamp_ms: int | None = None

    def plus(self, other: Written) -> Written:
        """Return both together."""
        times_ms = [one.last_timestamp_ms for one in (self, other) if one.last_timestamp_ms is not None]
        return Written(
            self.records + other.records,
            self.commits + other.commits,
            self.transactional + other.transactional,
            max(times_ms, default=None),
        )


_WRITTEN = StructType([StructField(name, LongType()) for name in Written._fields])
_ARROW_WRITTEN = to_arrow_schema(_WRITTEN)
_COMMITS = to_arrow_schema(COMMITS).remove(COMMITS.fieldNames().index("log_partition"))


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
                    found = found.plus(_write_run(rows, file_system, f"{records}/{name}", f"{commits}/{name}"))
                yield pa.RecordBatch.from_pylist([found._asdict()], _ARROW_WRITTEN)

    return write


def _write_run(
    batches: Iterable[pa.RecordBatch], file_system: AbstractFileSystem, records: str, commits: str
) -> Written:
    """Write the rows of some ranges of one log partition: all of them, and the commits among them once more."""
    transactional, last_ms = 0, []
    with ExitStack() as stack:
        table = stack.enter_context(new_file(file_system, records, WRITTEN_SCHEMA))
        plain: TableFile | None = None
        for batch in batches:
            table.write(batch)
            transactional += pc.sum(batch.column("is_transactional")).as_py() or 0
            is_record = pc.equal(batch.column("kind"), KIND_RECORD)
            last_ms.append(pc.max(batch.column("log_timestamp_ms").filter(is_record)).as_py())
            found = _plain_commits(batch, is_record)
            if found.num_rows:
                plain = plain or stack.enter_context(new_file(file_system, commits, _COMMITS))
                plain.write(found)
    known_ms = [one for one in last_ms if one is not None]
    return Written(table.rows, 0 if plain is None else plain.rows, transactional, max(known_ms, default=None))


def _plain_commits(rows: pa.RecordBatch, is_record: pa.BooleanArray) -> pa.RecordBatch:
    """Return the commits and tombstones outside of transactions, as :func:`groupcoord.spark.commits` has them."""
    is_offset = pc.and_(is_record, pc.is_in(rows.column("record_type"), pa.array(OFFSET_TYPES, pa.int16())))
    is_plain = pc.and_not(is_offset, pc.or_(rows.column("is_transactional"), pc.is_valid(rows.column("problem"))))
    found = rows.filter(is_plain)
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(found.num_rows, column.type) if column.name == "transaction" else found.column(column.name)
            for column in _COMMITS
        ],
        schema=_COMMITS,
    )


@contextmanager
def new_file(file_system: AbstractFileSystem, path: str, schema: pa.Schema) -> Iterator[TableFile]:
    """Give a Parquet file to write in a task. It gets its name when it is whole, whichever attempt that was."""
    with whole_file(file_system, path) as file:
        table = TableFile(file, schema)
        try:
            yield table
        finally:
            table.close()
