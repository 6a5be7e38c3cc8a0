"""Logs that are decoded and written as tables, and held in memory for the tables that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.columns.chunks import RowSettings
from groupcoord.analysis.columns.commits import Written, write_run
from groupcoord.analysis.columns.errors import InputError
from groupcoord.analysis.columns.parquet import WRITTEN_COLUMNS, WRITTEN_SCHEMA, folder_name
from groupcoord.analysis.columns.results import ResultDirectory
from groupcoord.analysis.columns.schema import KIND_CORRUPT, KIND_READ, RECORDS
from groupcoord.analysis.columns.tasks import RecordTask

_OF_RANGES = frozenset({"file", "position", "end_offset", "batch_count", "complete_from"})
_HELD = tuple(name for name in WRITTEN_COLUMNS if name not in _OF_RANGES)


class HeldRecords(NamedTuple):
    """The table of records in memory.

    Attributes:
        records: records and control records, without where they were read.
        ranges: the rows about ranges of bytes, with all columns: corrupt ones, and accounts of what was read.
        written: how much that is.
    """

    records: pa.Table
    ranges: pa.Table
    written: Written

    def everything(self, columns: Sequence[str]) -> pa.Table:
        """Return some columns of all rows."""
        return pa.concat_tables([self.records.select(columns), self.ranges.select(columns)])


def read_records(
    tasks: Sequence[RecordTask], results: ResultDirectory, rows_max: int, tell: Callable[[int, int], None]
) -> HeldRecords:
    """Decode logs, write their records, and commits outside of transactions, and hold them.

    Args:
        tasks: what to read.
        results: where the tables go.
        rows_max: how many rows are held at most.
        tell: is called with how many tasks are done, and how many there are.

    Raises:
        InputError: there are more.
    """
    held = _Held(rows_max)
    found = Written()
    for number, task in enumerate(tasks):
        tell(number, len(tasks))
        for part, (partition, rows) in enumerate(task.runs(RowSettings(WRITTEN_COLUMNS))):
            name = f"{folder_name(partition)}/part-{number:05d}-{part:04d}.snappy.parquet"
            places = f"tables/records/{name}", f"tables/commits/{name}"
            found = found.plus(write_run(held.noted(partition, rows), results.new_table_file, *places))
    return HeldRecords(held.records(), held.ranges(), found)


class _Held:
    """Keeps what goes by."""

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._rows = 0
        self._records: list[pa.Table] = []
        self._ranges: list[pa.Table] = []

    def noted(self, partition: int | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what comes, and keep it."""
        for batch in batches:
            self._rows += batch.num_rows
            if self._rows > self._rows_max:
                raise InputError(
                    f"there are more than {self._rows_max:,} records, and without Spark all are held in memory: "
                    "use --engine spark"
                )
            is_range = pc.is_in(batch.column("kind"), pa.array([KIND_CORRUPT, KIND_READ]))
            self._records.append(_of_partition(batch.filter(pc.invert(is_range)).select(_HELD), partition))
            self._ranges.append(_of_partition(batch.filter(is_range), partition))
            yield batch

    def records(self) -> pa.Table:
        """Return the rows about records."""
        return _together(self._records, _HELD)

    def ranges(self) -> pa.Table:
        """Return the rows about ranges."""
        return _together(self._ranges, WRITTEN_COLUMNS)


def _of_partition(batch: pa.RecordBatch, partition: int | None) -> pa.Table:
    column = pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)
    return pa.Table.from_batches([batch]).append_column("log_partition", column)


def _together(tables: list[pa.Table], columns: Sequence[str]) -> pa.Table:
    schema = pa.schema([WRITTEN_SCHEMA.field(name) for name in columns]).append(RECORDS.field("log_partition"))
    return pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()
