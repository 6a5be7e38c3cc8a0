"""Tables of an analysis as any reader of Parquet finds them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from groupcoord.analysis.decode.parquet import schema_with_times
from groupcoord.analysis.decode.schema import arrow_schema
from groupcoord.analysis.tables import TABLES

_BY_LOG_PARTITION = ds.partitioning(pa.schema([("log_partition", pa.int32())]), flavor="hive")


def read_table(out: Path, name: str) -> pa.Table:
    """Return a written table, with the column from its folders' names."""
    folder = out / "tables" / name
    partitioning = _BY_LOG_PARTITION if any(folder.glob("log_partition=*")) else None
    return ds.dataset(folder, format="parquet", partitioning=partitioning).to_table()


def written_columns(name: str) -> dict[str, pa.DataType]:
    """Return the columns of a table as files hold them: those that are declared, and timestamps."""
    return {column.name: column.type for column in schema_with_times(arrow_schema(TABLES[name]))}


def columns_of(table: pa.Table) -> dict[str, pa.DataType]:
    return {column.name: column.type for column in table.schema}


def table_names(out: Path) -> set[str]:
    return {path.name for path in (out / "tables").iterdir()}


def sorted_rows(table: pa.Table) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())
