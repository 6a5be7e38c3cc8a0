"""The declared columns of the tables that are made of the table of records, whoever makes them.

Numbers are as Kafka writes them, as in :mod:`groupcoord.analysis.decode.schema`. The tables about groups are in
:mod:`groupcoord.analysis.decode.group_tables`.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from groupcoord.analysis.decode.schema import Column

Columns = tuple[Column, ...]

_SHORT, _INT, _LONG, _DOUBLE = pa.int16(), pa.int32(), pa.int64(), pa.float64()
_STRING, _BINARY, _BOOLEAN = pa.string(), pa.binary(), pa.bool_()


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Return declared columns as Arrow's schema."""
    return pa.schema([(name, kind) for name, kind, _ in columns])


COMMITS: Columns = (
    Column("log_partition", _INT, "partition of __consumer_offsets"),
    Column("log_offset", _LONG, "offset in that partition"),
    Column("log_timestamp_ms", _LONG, "the record's timestamp"),
    Column("group_id", _STRING, "who committed"),
    Column("topic", _STRING, "the topic"),
    Column("topic_partition", _INT, "the topic's partition"),
    Column(
        "committed_offset", _LONG, "the next offset to read; null in a tombstone, as all down to commit_timestamp_ms"
    ),
    Column("leader_epoch", _INT, "-1: none"),
    Column("metadata", _STRING, "the client's text"),
    Column("commit_timestamp_ms", _LONG, "when it was committed"),
    Column("expire_timestamp_ms", _LONG, "when it expires by itself; -1: not set"),
    Column("topic_id", _BINARY, "16 bytes; null if not written or zero"),
    Column("producer_id", _LONG, "-1 outside of transactions"),
    Column("transaction", _STRING, "null outside of transactions, else committed or open"),
    Column("tombstone", _BOOLEAN, "the offset is gone: deleted, expired, or its group or topic deleted"),
    Column("size_bytes", _LONG, "of key and value"),
)
"""One row for each commit and each tombstone; those of aborted transactions are left out."""

CURRENT_OFFSETS: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("topic", _STRING, "the topic"),
    Column("topic_partition", _INT, "the topic's partition"),
    Column("committed_offset", _LONG, "the next offset to read"),
    Column("leader_epoch", _INT, "-1: none"),
    Column("metadata", _STRING, "the client's text"),
    Column("commit_timestamp_ms", _LONG, "when it was committed"),
    Column("expire_timestamp_ms", _LONG, "when it expires by itself; -1: not set"),
    Column("topic_id", _BINARY, "16 bytes; null if not written or zero"),
    Column("log_partition", _INT, "where the record lies"),
    Column("log_offset", _LONG, "where the record lies"),
)
"""The offsets that a coordinator would answer after loading the log: one row a group, topic and partition."""

CORRUPT: Columns = (
    Column("file", _STRING, "where the bytes are"),
    Column("position", _LONG, "where they start, in bytes"),
    Column("size_bytes", _LONG, "how many they are"),
    Column("reason", _STRING, "what is wrong where they start"),
    Column("log_partition", _INT, "null if the file's folder does not tell"),
    Column("first_offset", _LONG, "the first offset that may be lost; null if there is no batch before"),
    Column("end_offset", _LONG, "the first offset that is sound again; null if there is no batch behind"),
)
"""Bytes that are no sound batch and were passed over."""

READ_COUNTS: Columns = (
    Column("log_partition", _INT, "null if the file's folder does not tell"),
    Column("kind", _STRING, "as in records"),
    Column("record_type", _SHORT, "of records"),
    Column("control_type", _SHORT, "of control records"),
    Column("problem", _STRING, "null: understood"),
    Column("count", _LONG, "how many rows"),
    Column("size_bytes", _LONG, "their bytes: key and value of records, bytes in the file of ranges"),
)
"""What was read and what was passed over, and why."""

PARTITION_LOAD: Columns = (
    Column("log_partition", _INT, "partition of __consumer_offsets"),
    Column("records", _LONG, "records and control records"),
    Column("commits", _LONG, "committed offsets"),
    Column("group_records", _LONG, "records of groups and members"),
    Column("tombstones", _LONG, "records without a value"),
    Column("control_records", _LONG, "transaction markers"),
    Column("unknown_records", _LONG, "records that were not understood"),
    Column("bytes", _LONG, "of keys and values"),
    Column("file_bytes", _LONG, "of the files read; null if the records come from no files"),
    Column("corrupt_bytes", _LONG, "of them no sound batch"),
    Column("groups", _LONG, "groups with a record"),
    Column("hottest_group", _STRING, "the group with most records"),
    Column("hottest_group_records", _LONG, "how many it has"),
    Column("hottest_group_share", _DOUBLE, "of the partition's records, 0 to 1"),
    Column("live_keys", _LONG, "keys whose last record has a value"),
    Column("superseded_records", _LONG, "records with a newer one of the same key"),
    Column("superseded_bytes", _LONG, "of their keys and values: what compaction would save"),
    Column("first_timestamp_ms", _LONG, "of the records"),
    Column("last_timestamp_ms", _LONG, "of the records"),
)
"""One row a log partition: how loaded it is, by whom, and what compaction would save."""

END_OFFSETS: Columns = (
    Column("topic", _STRING, "the topic"),
    Column("topic_partition", _INT, "the topic's partition"),
    Column("end_offset", _LONG, "the offset after its last record"),
)
"""What a table of lag takes besides offsets: where each topic's partitions end."""

LIVE_END_OFFSETS: Columns = (
    Column("topic", _STRING, "the topic"),
    Column("topic_partition", _INT, "the topic's partition; null: the cluster tells nothing of the whole topic"),
    Column("at_ms", _LONG, "when the cluster was asked"),
    Column("log_start_offset", _LONG, "the first offset of the log; null, as the next two, if that is not told"),
    Column("end_offset", _LONG, "the high watermark: the offset after the last record that can be read"),
    Column("last_stable_offset", _LONG, "the first offset of an open transaction, or the high watermark"),
    Column("leader_epoch", _INT, "of the log's leader; -1: not told"),
    Column("error_code", _SHORT, "Kafka's; 0: none"),
)
"""What :func:`groupcoord.spark.read_end_offsets` gives; :func:`groupcoord.spark.lag` takes it, too."""

RECORD_TIMES: Columns = (
    Column("topic", _STRING, "the topic"),
    Column("topic_partition", _INT, "the topic's partition"),
    Column("committed_offset", _LONG, "what a group has committed"),
    Column("record_timestamp_ms", _LONG, "the timestamp of the first record there or behind"),
)
"""How old the next records are to which groups come."""

LAG: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("topic", _STRING, "the topic"),
    Column("topic_partition", _INT, "the topic's partition"),
    Column("committed_offset", _LONG, "the next offset to read; null: none is committed, or -1, which stands for none"),
    Column("end_offset", _LONG, "null if the end of this partition was not given"),
    Column("lag", _LONG, "records behind; never below 0; null without an end, or with records and no offset"),
    Column("commit_timestamp_ms", _LONG, "when it was committed"),
    Column("at_ms", _LONG, "when the cluster was asked for the end; null, as the next four, if it was not asked"),
    Column("lag_stable", _LONG, "records behind the last stable offset, as a consumer with read_committed sees it"),
    Column("is_lost", _BOOLEAN, "the log begins behind the committed offset: what is between them is gone"),
    Column("lag_ms", _LONG, "how old the next record to read was at_ms, about; null: that can't be told"),
    Column("lag_ms_method", _STRING, "how that was found: record, interpolated or extrapolated"),
    Column("status", _STRING, "how well the group keeps up with the partition"),
    Column("complete", _DOUBLE, "how full the window of commits was from which the status was made, 0 to 1"),
    Column(
        "member_id",
        _STRING,
        "the member that has the partition; null, as the next two, if that is not known",
    ),
    Column("client_id", _STRING, "what its client calls itself"),
    Column("client_host", _STRING, "where it connects from"),
)
"""How far each group is behind."""

MESSAGES: Columns = (
    Column("key", _BINARY, "the key's bytes"),
    Column("value", _BINARY, "the value's bytes; null: a tombstone"),
    Column("partition", _INT, "partition of __consumer_offsets"),
    Column("offset", _LONG, "offset in it"),
    Column("timestamp", _LONG, "milliseconds since 1970, or a timestamp"),
)
"""The columns that :func:`groupcoord.spark.from_messages` needs, as Spark's Kafka connector names them."""
