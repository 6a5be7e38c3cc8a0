"""The table of records as Parquet files: columns go from the kernel to the file as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from fsspec import AbstractFileSystem
from pyarrow.parquet import ParquetWriter

from groupcoord.columns.schema import RECORDS

ROW_GROUP_ROWS = 262_144
"""How many rows are gathered before they are written."""

_PARTITIONED_BY = "log_partition"
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_SCHEMA = RECORDS.remove(RECORDS.get_field_index(_PARTITIONED_BY))
WRITTEN_COLUMNS = tuple(_SCHEMA.names)
"""The columns of the files, in order: all but the log partition, which their folder tells."""

# Numbers that go up and up are small as differences; everything else but bytes repeats itself.
_RISING = ("log_offset", "log_timestamp_ms", "committed_offset", "commit_timestamp_ms", "position", "end_offset")
_REPEATING = [
    name for name in WRITTEN_COLUMNS if name not in (*_RISING, "key", "value", "tombstone", "is_transactional")
]


def folder_name(log_partition: int | None) -> str:
    """Return the name of the folder for the rows of a log partition, as Hive and Spark read it."""
    return f"{_PARTITIONED_BY}={_NO_PARTITION if log_partition is None else log_partition}"


def write_rows(batches: Iterable[pa.RecordBatch], file_system: AbstractFileSystem, path: str) -> int:
    """Write one file with :data:`WRITTEN_COLUMNS`, and return how many rows that were."""
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
