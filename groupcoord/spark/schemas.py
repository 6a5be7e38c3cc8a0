"""The declared schema of every table: what a function of this package takes and gives.

Every table is made of one, :data:`RECORDS`, which :func:`groupcoord.spark.read_log` reads from segment files and
:func:`groupcoord.spark.from_messages` makes from any DataFrame of keys and values. Functions on it select their rows
by ``kind`` and ``record_type``, and what they need by name, so that columns may be added.

Numbers are as Kafka writes them: -1 is "none" for epochs, producers and timestamps, except that what doesn't apply to
a row at all (a topic of a group record, the offset in a tombstone) is null. ``(log_partition, log_offset)`` is the key
of a record; a group lies in one log partition, so within a group ``log_offset`` is the order of events.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from groupcoord.analysis.columns import tables
from groupcoord.analysis.columns.schema import COLUMNS, Column


def table_schema(*columns: tuple[str, DataType, str]) -> StructType:
    """Return a schema of nullable columns; Spark shows the third item as a column's comment."""
    return StructType([StructField(name, kind, True, {"comment": comment}) for name, kind, comment in columns])


def declared(columns: Iterable[Column]) -> StructType:
    """Return the schema of a table whose columns are declared without Spark."""
    return table_schema(*((name, from_arrow_type(kind), comment) for name, kind, comment in columns))


def of_arrow(schema: pa.Schema) -> StructType:
    """Return Arrow's schema as Spark's."""
    return StructType([StructField(column.name, from_arrow_type(column.type)) for column in schema])


RECORDS = declared(COLUMNS)
"""The table of records, as :data:`groupcoord.analysis.columns.schema.COLUMNS` declares it."""

COMMITS = declared(tables.COMMITS)
"""One row for each commit and each tombstone; those of aborted transactions are left out."""

CURRENT_OFFSETS = declared(tables.CURRENT_OFFSETS)
"""The offsets that a coordinator would answer after loading the log: one row a group, topic and partition."""

CORRUPT = declared(tables.CORRUPT)
"""Bytes that are no sound batch and were passed over."""

READ_COUNTS = declared(tables.READ_COUNTS)
"""What was read and what was passed over, and why."""

PARTITION_LOAD = declared(tables.PARTITION_LOAD)
"""One row a log partition: how loaded it is, by whom, and what compaction would save."""

END_OFFSETS = declared(tables.END_OFFSETS)
"""What :func:`groupcoord.spark.lag` takes besides offsets: where each topic's partitions end."""

LIVE_END_OFFSETS = declared(tables.LIVE_END_OFFSETS)
"""What :func:`groupcoord.spark.read_end_offsets` gives; :func:`groupcoord.spark.lag` takes it, too."""

RECORD_TIMES = declared(tables.RECORD_TIMES)
"""What :func:`groupcoord.spark.read_record_times` gives, for :func:`groupcoord.spark.lag`."""

LAG = declared(tables.LAG)
"""How far each group is behind."""

MESSAGES = declared(tables.MESSAGES)
"""The columns that :func:`groupcoord.spark.from_messages` needs, as Spark's Kafka connector names them."""
