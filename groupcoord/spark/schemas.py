"""Spark schemas of all tables, from the columns in :mod:`groupcoord.analysis.decode.schema`."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import (
    Column,
    DataFrame,
    functions as F,  # noqa: N812
)
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from groupcoord.analysis.decode import schema as tables
from groupcoord.analysis.decode.parquet import LATEST_MS, is_moment, time_name
from groupcoord.analysis.decode.schema import COLUMNS, Column as DeclaredColumn
from groupcoord.analysis.tables import TABLES, TABLES_OF_KINDS

_INT, _LONG, _STRING = IntegerType(), LongType(), StringType()


def table_schema(*columns: tuple[str, DataType, str]) -> StructType:
    """Return a schema of nullable columns; Spark shows the third item as a column's comment."""
    return StructType([StructField(name, kind, True, {"comment": comment}) for name, kind, comment in columns])


def declared(columns: Iterable[DeclaredColumn]) -> StructType:
    """Return the Spark schema of declared columns."""
    return table_schema(*((name, from_arrow_type(kind), comment) for name, kind, comment in columns))


def of_arrow(schema: pa.Schema) -> StructType:
    return StructType([StructField(column.name, from_arrow_type(column.type)) for column in schema])


RECORDS = declared(COLUMNS)
MESSAGES = declared(tables.MESSAGES)
COMMITS = declared(tables.COMMITS)
CURRENT_OFFSETS = declared(tables.CURRENT_OFFSETS)
CORRUPT = declared(tables.CORRUPT)
READ_COUNTS = declared(tables.READ_COUNTS)
PARTITION_LOAD = declared(tables.PARTITION_LOAD)
END_OFFSETS = declared(tables.END_OFFSETS)
LIVE_END_OFFSETS = declared(tables.LIVE_END_OFFSETS)
RECORD_TIMES = declared(tables.RECORD_TIMES)
LAG = declared(tables.LAG)

GENERATIONS = declared(tables.GENERATIONS)
MEMBERS = declared(tables.MEMBERS)
GROUPS = declared(tables.GROUPS)
REBALANCES = declared(tables.REBALANCES)
EPOCHS = declared(tables.EPOCHS)
MEMBERSHIPS = declared(tables.MEMBERSHIPS)
MOVES = declared(tables.MOVES)
REVOCATIONS = declared(tables.REVOCATIONS)
ANOMALIES = declared(tables.ANOMALIES)
OFFSET_EXPIRY = declared(tables.OFFSET_EXPIRY)
STALE_GROUPS = declared(tables.STALE_GROUPS)
DIFFERENCES = declared(tables.DIFFERENCES)

_DUPLICATE = (
    StructType()
    .add("generation", _INT)
    .add("topic", _STRING)
    .add("topic_partition", _INT)
    .add("member_ids", ArrayType(_STRING))
    .add("log_offset", _LONG)
    .add("log_timestamp_ms", _LONG)
)


def _without(schema: StructType, *names: str) -> StructType:
    return StructType([column for column in schema if column.name not in names])


_PLACE = ("group_id", "log_partition")

HISTORY = table_schema(
    ("group_id", _STRING, "the group"),
    ("log_partition", _INT, "where its records lie"),
    ("kind", _STRING, "which of the other columns is set"),
    *((kind, _without(declared(TABLES[name]), *_PLACE), f"a row of {name}") for kind, name in TABLES_OF_KINDS.items()),
    ("group", _without(GROUPS, *_PLACE, "last_commit_ms", "offset_count"), "a row of groups, but for its offsets"),
    ("duplicate", _DUPLICATE, "a partition that several members have at a time"),
)


def schema_with_times(schema: StructType) -> StructType:
    fields: list[StructField] = []
    for field in schema:
        fields.append(field)
        if is_moment(field.name):
            fields.append(StructField(time_name(field.name), TimestampType()))
    return StructType(fields)


def with_times(table: DataFrame) -> DataFrame:
    """Return a table with a timestamp after each point in time: ``started_utc`` after ``started_ms``.

    Tables of ``groupcoord analyze`` have them already. Durations get none.
    """
    columns: list[Column] = []
    for field in table.schema:
        columns.append(F.col(f"`{field.name}`"))
        name = time_name(field.name)
        if is_moment(field.name) and isinstance(field.dataType, LongType) and name not in table.columns:
            moment = F.col(field.name)
            columns.append(F.timestamp_millis(F.when((moment >= 0) & (moment <= LATEST_MS), moment)).alias(name))
    return table.select(*columns)
