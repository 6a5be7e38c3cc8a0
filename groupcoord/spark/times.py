"""Points in time as timestamps, on Spark: the rule is that of :mod:`groupcoord.analysis.decode.parquet`."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from groupcoord.analysis.decode.parquet import LATEST_MS, MOMENTS, time_name


def schema_with_times(schema: StructType) -> StructType:
    """Return a schema with a timestamp behind each point in time."""
    fields: list[StructField] = []
    for field in schema:
        fields.append(field)
        if field.name in MOMENTS:
            fields.append(StructField(time_name(field.name), TimestampType()))
    return StructType(fields)


def with_times(table: DataFrame) -> DataFrame:
    """Return a table with a timestamp behind each point in time: ``started_utc`` behind ``started_ms``.

    Tables that ``groupcoord analyze`` writes have them already; this is for those that functions return. What is no
    point in time has none, and so has what has one.

    Args:
        table: any of this package's tables.
    """
    columns: list[Column] = []
    for field in table.schema:
        columns.append(F.col(f"`{field.name}`"))
        name = time_name(field.name)
        if field.name in MOMENTS and isinstance(field.dataType, LongType) and name not in table.columns:
            moment = F.col(field.name)
            columns.append(F.timestamp_millis(F.when((moment >= 0) & (moment <= LATEST_MS), moment)).alias(name))
    return table.select(*columns)
