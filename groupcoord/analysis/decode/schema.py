"""Columns of the table of records, and of the tables of commits, offsets, lag and what was read.

Numbers are as Kafka writes them. The tables about groups are in :mod:`groupcoord.analysis.decode.group_tables`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from groupcoord.records.schemas import RecordType

KIND_RECORD = "record"
KIND_CONTROL = "control"
KIND_CORRUPT = "corrupt"
KIND_READ = "read"
KINDS = (KIND_RECORD, KIND_CONTROL, KIND_CORRUPT, KIND_READ)
"""What a row of :data:`RECORDS` is: a record, a control record such as a transaction marker, bytes that can't be read,
or the account of one byte range that was read."""

_SHORT, _INT, _LONG, _DOUBLE = pa.int16(), pa.int32(), pa.int64(), pa.float64()
_STRING, _BINARY, _BOOLEAN = pa.string(), pa.binary(), pa.bool_()


class Column(NamedTuple):
    """A column of a table; every one may be null.

    Attributes:
        name: what it is called.
        type: of its values.
        comment: what they mean.
    """

    name: str
    type: pa.DataType
    comment: str


COLUMNS = (
    Column("kind", _STRING, "record, control, corrupt or read"),
    Column("log_partition", _INT, "partition of __consumer_offsets; null if the file's folder does not tell"),
    Column("log_offset", _LONG, "offset in that partition; of corrupt bytes the first that may be lost"),
    Column("log_timestamp_ms", _LONG, "the record's timestamp; -1 in message format v0"),
    Column("record_type", _SHORT, "first two bytes of the key, Kafka's number, of records alone; null without a key"),
    Column("control_type", _SHORT, "of control records: 0 abort, 1 commit, others are no transaction markers"),
    Column("group_id", _STRING, "from the key of every known type; null if the key can't be read"),
    Column("tombstone", _BOOLEAN, "the record has no value"),
    Column("value_version", _SHORT, "first two bytes of the value; null in a tombstone"),
    Column("topic", _STRING, "of committed offsets and their tombstones (types 0 and 1)"),
    Column("topic_partition", _INT, "goes with topic"),
    Column("committed_offset", _LONG, "of committed offsets, as all down to topic_id"),
    Column("leader_epoch", _INT, "-1: none"),
    Column("metadata", _STRING, "the client's text"),
    Column("commit_timestamp_ms", _LONG, "when it was committed"),
    Column("expire_timestamp_ms", _LONG, "when it expires by itself, in value version 1; -1: not set"),
    Column("topic_id", _BINARY, "16 bytes; null if not written or zero"),
    Column("producer_id", _LONG, "of the batch; -1: none"),
    Column("producer_epoch", _SHORT, "goes with it"),
    Column(
        "is_transactional", _BOOLEAN, "part of a transaction, which a marker commits or aborts; markers themselves too"
    ),
    Column("partition_leader_epoch", _INT, "of the log partition's leader that wrote the batch; -1: format v0, v1"),
    Column("key", _BINARY, "the key's bytes; null for offsets decoded into columns, unless raw_bytes is asked for"),
    Column("value", _BINARY, "the value's bytes; likewise"),
    Column("size_bytes", _LONG, "of key and value; of a corrupt or read range, in the file"),
    Column("file", _STRING, "where it was read"),
    Column("position", _LONG, "where its batch, or the range, starts in the file, in bytes"),
    Column("problem", _STRING, "why bytes are corrupt, or why a record was not understood; null: all is well"),
    Column("end_offset", _LONG, "of a corrupt or read range: the first offset behind it, if known"),
    Column("batch_count", _INT, "of a read range: sound batches, emptied ones too"),
    Column("complete_from", _LONG, "of a read range: from this offset of it on none is missing"),
)
"""Everything that was found in a log, one row each.

* ``kind = 'record'``: a record. A committed offset or its tombstone (``record_type`` 0 and 1) is decoded into columns,
  and ``key`` and ``value`` are null. All others keep ``key`` and ``value`` as bytes, for
  :func:`groupcoord.records.typed.parse_record` and :func:`groupcoord.records.codec.decode_record`; of them only the
  group id and the value's version are decoded. A record with a ``problem`` keeps its bytes too, whatever its type.
* ``kind = 'control'``: a control record with its bytes; ``control_type`` 0 and 1 end the transaction of
  ``producer_id`` in that log partition.
* ``kind = 'corrupt'``: ``size_bytes`` bytes at ``position`` of ``file`` that are no sound batch, and the ``problem``.
* ``kind = 'read'``: the account of a byte range: the ranges of a file lie end to end from its first byte to its last.
"""

RECORDS = pa.schema([(name, kind) for name, kind, _ in COLUMNS])
"""The same as Arrow's schema."""


_NAMES = {int(known): known.name for known in RecordType}
_CONTROLS = {0: "control records: aborted", 1: "control records: committed"}


def describe_kind(kind: str, record_type: int | None, control_type: int | None) -> str:
    """Return what rows of a kind and type are called in a report."""
    if kind == KIND_RECORD:
        if record_type is None:
            return "records without a type"
        name = _NAMES.get(record_type)
        return f"records of type {record_type}" if name is None else f"records {name}"
    if kind == KIND_CORRUPT:
        return "corrupt byte ranges"
    if kind == KIND_READ:
        return "byte ranges of files"
    return "control records: other" if control_type is None else _CONTROLS.get(control_type, "control records: other")


Columns = tuple[Column, ...]


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
