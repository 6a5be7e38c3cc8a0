"""The declared schema of every table: what a function of this package takes and gives.

Every table is made of one, :data:`RECORDS`, which :func:`groupcoord.spark.read_log` reads from segment files and
:func:`groupcoord.spark.from_messages` makes from any DataFrame of keys and values. Functions on it select their rows
by ``kind`` and ``record_type``, and what they need by name, so that columns may be added.

Numbers are as Kafka writes them: -1 is "none" for epochs, producers and timestamps, except that what doesn't apply to
a row at all (a topic of a group record, the offset in a tombstone) is null. ``(log_partition, log_offset)`` is the key
of a record; a group lies in one log partition, so within a group ``log_offset`` is the order of events.
"""

from __future__ import annotations

from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from groupcoord.columns.schema import COLUMNS

_SHORT, _INT, _LONG, _DOUBLE = ShortType(), IntegerType(), LongType(), DoubleType()
_STRING, _BINARY, _BOOLEAN = StringType(), BinaryType(), BooleanType()


def table_schema(*columns: tuple[str, DataType, str]) -> StructType:
    """Return a schema of nullable columns; Spark shows the third item as a column's comment."""
    return StructType([StructField(name, kind, True, {"comment": comment}) for name, kind, comment in columns])


RECORDS = table_schema(*((name, from_arrow_type(kind), comment) for name, kind, comment in COLUMNS))
"""The table of records, as :data:`groupcoord.columns.schema.COLUMNS` declares it."""

COMMITS = table_schema(
    ("log_partition", _INT, "partition of __consumer_offsets"),
    ("log_offset", _LONG, "offset in that partition"),
    ("log_timestamp_ms", _LONG, "the record's timestamp"),
    ("group_id", _STRING, "who committed"),
    ("topic", _STRING, "the topic"),
    ("topic_partition", _INT, "the topic's partition"),
    ("committed_offset", _LONG, "the next offset to read; null in a tombstone, as all down to commit_timestamp_ms"),
    ("leader_epoch", _INT, "-1: none"),
    ("metadata", _STRING, "the client's text"),
    ("commit_timestamp_ms", _LONG, "when it was committed"),
    ("expire_timestamp_ms", _LONG, "when it expires by itself; -1: not set"),
    ("topic_id", _BINARY, "16 bytes; null if not written or zero"),
    ("producer_id", _LONG, "-1 outside of transactions"),
    ("transaction", _STRING, "null outside of transactions, else committed or open"),
    ("tombstone", _BOOLEAN, "the offset is gone: deleted, expired, or its group or topic deleted"),
    ("size_bytes", _LONG, "of key and value"),
)
"""One row for each commit and each tombstone; those of aborted transactions are left out."""

CURRENT_OFFSETS = table_schema(
    ("group_id", _STRING, "the group"),
    ("topic", _STRING, "the topic"),
    ("topic_partition", _INT, "the topic's partition"),
    ("committed_offset", _LONG, "the next offset to read"),
    ("leader_epoch", _INT, "-1: none"),
    ("metadata", _STRING, "the client's text"),
    ("commit_timestamp_ms", _LONG, "when it was committed"),
    ("expire_timestamp_ms", _LONG, "when it expires by itself; -1: not set"),
    ("topic_id", _BINARY, "16 bytes; null if not written or zero"),
    ("log_partition", _INT, "where the record lies"),
    ("log_offset", _LONG, "where the record lies"),
)
"""The offsets that a coordinator would answer after loading the log: one row a group, topic and partition."""

CORRUPT = table_schema(
    ("file", _STRING, "where the bytes are"),
    ("position", _LONG, "where they start, in bytes"),
    ("size_bytes", _LONG, "how many they are"),
    ("reason", _STRING, "what is wrong where they start"),
    ("log_partition", _INT, "null if the file's folder does not tell"),
    ("first_offset", _LONG, "the first offset that may be lost; null if there is no batch before"),
    ("end_offset", _LONG, "the first offset that is sound again; null if there is no batch behind"),
)
"""Bytes that are no sound batch and were passed over."""

READ_COUNTS = table_schema(
    ("log_partition", _INT, "null if the file's folder does not tell"),
    ("kind", _STRING, "as in records"),
    ("record_type", _SHORT, "of records"),
    ("control_type", _SHORT, "of control records"),
    ("problem", _STRING, "null: understood"),
    ("count", _LONG, "how many rows"),
    ("size_bytes", _LONG, "their bytes: key and value of records, bytes in the file of ranges"),
)
"""What was read and what was passed over, and why."""

PARTITION_LOAD = table_schema(
    ("log_partition", _INT, "partition of __consumer_offsets"),
    ("records", _LONG, "records and control records"),
    ("commits", _LONG, "committed offsets"),
    ("group_records", _LONG, "records of groups and members"),
    ("tombstones", _LONG, "records without a value"),
    ("control_records", _LONG, "transaction markers"),
    ("unknown_records", _LONG, "records that were not understood"),
    ("bytes", _LONG, "of keys and values"),
    ("file_bytes", _LONG, "of the files read; null if the records come from no files"),
    ("corrupt_bytes", _LONG, "of them no sound batch"),
    ("groups", _LONG, "groups with a record"),
    ("hottest_group", _STRING, "the group with most records"),
    ("hottest_group_records", _LONG, "how many it has"),
    ("hottest_group_share", _DOUBLE, "of the partition's records, 0 to 1"),
    ("live_keys", _LONG, "keys whose last record has a value"),
    ("superseded_records", _LONG, "records with a newer one of the same key"),
    ("superseded_bytes", _LONG, "of their keys and values: what compaction would save"),
    ("first_timestamp_ms", _LONG, "of the records"),
    ("last_timestamp_ms", _LONG, "of the records"),
)
"""One row a log partition: how loaded it is, by whom, and what compaction would save."""

END_OFFSETS = table_schema(
    ("topic", _STRING, "the topic"),
    ("topic_partition", _INT, "the topic's partition"),
    ("end_offset", _LONG, "the offset after its last record"),
)
"""What :func:`groupcoord.spark.lag` takes besides offsets: where each topic's partitions end."""

LIVE_END_OFFSETS = table_schema(
    ("topic", _STRING, "the topic"),
    ("topic_partition", _INT, "the topic's partition; null: the cluster tells nothing of the whole topic"),
    ("at_ms", _LONG, "when the cluster was asked"),
    ("log_start_offset", _LONG, "the first offset of the log; null, as the next two, if that is not told"),
    ("end_offset", _LONG, "the high watermark: the offset after the last record that can be read"),
    ("last_stable_offset", _LONG, "the first offset of an open transaction, or the high watermark"),
    ("leader_epoch", _INT, "of the log's leader; -1: not told"),
    ("error_code", _SHORT, "Kafka's; 0: none"),
)
"""What :func:`groupcoord.spark.read_end_offsets` gives; :func:`groupcoord.spark.lag` takes it, too."""

RECORD_TIMES = table_schema(
    ("topic", _STRING, "the topic"),
    ("topic_partition", _INT, "the topic's partition"),
    ("committed_offset", _LONG, "what a group has committed"),
    ("record_timestamp_ms", _LONG, "the timestamp of the first record there or behind"),
)
"""What :func:`groupcoord.spark.read_record_times` gives, for :func:`groupcoord.spark.lag`."""

LAG = table_schema(
    ("group_id", _STRING, "the group"),
    ("topic", _STRING, "the topic"),
    ("topic_partition", _INT, "the topic's partition"),
    ("committed_offset", _LONG, "the next offset to read"),
    ("end_offset", _LONG, "null if the end of this partition was not given"),
    ("lag", _LONG, "records behind; never below 0; null without an end"),
    ("commit_timestamp_ms", _LONG, "when it was committed"),
    ("at_ms", _LONG, "when the cluster was asked for the end; null, as the next four, if it was not asked"),
    ("lag_stable", _LONG, "records behind the last stable offset, as a consumer with read_committed sees it"),
    ("is_lost", _BOOLEAN, "the log begins behind the committed offset: what is between them is gone"),
    ("lag_ms", _LONG, "how old the next record to read was at_ms, about; null: that can't be told"),
    ("lag_ms_method", _STRING, "how that was found: record, interpolated or extrapolated"),
    ("status", _STRING, "Burrow's: OK, WARN, STOP, STALL or REWIND; null without commits or an end"),
    ("complete", _DOUBLE, "how full the window of commits was from which the status was made, 0 to 1"),
    (
        "member_id",
        _STRING,
        "the member that has the partition; null, as the next two, if that is not known",
    ),
    ("client_id", _STRING, "what its client calls itself"),
    ("client_host", _STRING, "where it connects from"),
)
"""How far each group is behind."""

MESSAGES = table_schema(
    ("key", _BINARY, "the key's bytes"),
    ("value", _BINARY, "the value's bytes; null: a tombstone"),
    ("partition", _INT, "partition of __consumer_offsets"),
    ("offset", _LONG, "offset in it"),
    ("timestamp", _LONG, "milliseconds since 1970, or a timestamp"),
)
"""The columns that :func:`groupcoord.spark.from_messages` needs, as Spark's Kafka connector names them."""
