"""The table of records as Parquet files: columns go from the kernel to the file as they are."""

from __future__ import annotations

from typing import BinaryIO

import pyarrow as pa
from pyarrow.parquet import ParquetWriter

from groupcoord.analysis.decode.schema import RECORDS
from groupcoord.analysis.decode.times import schema_with_times, time_name, with_times

ROW_GROUP_ROWS = 262_144
"""How many rows are gathered before they are written."""

_PARTITIONED_BY = "log_partition"
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
WRITTEN_SCHEMA = RECORDS.remove(RECORDS.get_field_index(_PARTITIONED_BY))
WRITTEN_COLUMNS = tuple(WRITTEN_SCHEMA.names)
"""The columns of the files, in order: all but the log partition, which their folder tells."""

_RISING_MOMENTS = ("log_timestamp_ms", "commit_timestamp_ms")
# Numbers that go up and up are small as differences; everything else but bytes repeats itself.
_RISING = (
    *("log_offset", "committed_offset", "position", "end_offset"),
    *_RISING_MOMENTS,
    *map(time_name, _RISING_MOMENTS),
)


def folder_name(log_partition: int | None) -> str:
    """Return the name of the folder for the rows of a log partition, as Hive and Spark read it."""
    return f"{_PARTITIONED_BY}={_NO_PARTITION if log_partition is None else log_partition}"


class TableFile:
    """A Parquet file as it is written: what comes is gathered until there is enough for a row group.

    Points in time get a timestamp beside them; see :mod:`groupcoord.analysis.decode.times`.

    Args:
        file: where the bytes go; it is not closed.
        schema: of what comes.

    Attributes:
        rows: how many came.
    """

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        schema = schema_with_times(schema)
        is_nested = any(pa.types.is_nested(column.type) for column in schema)
        rising = [name for name in schema.names if name in _RISING]
        repeating = [column.name for column in schema if not (column.name in _RISING or _is_varied(column.type))]
        self._writer = ParquetWriter(
            file,
            schema,
            # Columns inside of others have names of their own here; such tables are small.
            use_dictionary=True if is_nested else repeating,
            column_encoding=None if is_nested else dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        self._waiting.append(with_times(batch))
        self._waiting_rows += batch.num_rows
        self.rows += batch.num_rows
        if self._waiting_rows >= ROW_GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        """Write what is left, and the end of the file."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=ROW_GROUP_ROWS)
        self._waiting, self._waiting_rows = [], 0


def _is_varied(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_boolean(kind))
