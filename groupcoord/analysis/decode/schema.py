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
    Column("log_partition", _INT, "partition of __consumer_offsets; null if unknown from the file's folder"),
    Column("log_offset", _LONG, "offset in that partition; for corrupt bytes the first that may be lost"),
    Column("log_timestamp_ms", _LONG, "the record's timestamp; -1 in message format v0"),
    Column("record_type", _SHORT, "first two bytes of the key, Kafka's number, for records only; null without a key"),
    Column("control_type", _SHORT, "for control records: 0 abort, 1 commit; others are not transaction markers"),
    Column("group_id", _STRING, "from the key of every known type; null if unreadable"),
    Column("tombstone", _BOOLEAN, "the record has no value"),
    Column("value_version", _SHORT, "first two bytes of the value; null in a tombstone"),
    Column("topic", _STRING, "of committed offsets and their tombstones (types 0 and 1)"),
    Column("topic_partition", _INT, "goes with topic"),
    Column("committed_offset", _LONG, "for committed offsets, as all down to topic_id"),
    Column("leader_epoch", _INT, "-1: none"),
    Column("metadata", _STRING, "metadata of the client"),
    Column("commit_timestamp_ms", _LONG, "time of the commit"),
    Column("expire_timestamp_ms", _LONG, "its own expiry, in value version 1; -1: not set"),
    Column("topic_id", _BINARY, "16 bytes; null if not written or zero"),
    Column("producer_id", _LONG, "of the batch; -1: none"),
    Column("producer_epoch", _SHORT, "goes with it"),
    Column("is_transactional", _BOOLEAN, "part of a transaction, including markers"),
    Column("partition_leader_epoch", _INT, "leader epoch of the batch; -1: format v0, v1"),
    Column("key", _BINARY, "bytes of the key; null for offsets decoded into columns, unless raw_bytes is set"),
    Column("value", _BINARY, "bytes of the value; likewise"),
    Column("size_bytes", _LONG, "size of key and value; for a corrupt or read range, in the file"),
    Column("file", _STRING, "the file, or a name for it"),
    Column("position", _LONG, "byte position of its batch, or the range, in the file"),
    Column("problem", _STRING, "why bytes are corrupt, or why a record is unreadable; null: no problem"),
    Column("end_offset", _LONG, "for a corrupt or read range: the first offset after it, if known"),
    Column("batch_count", _INT, "for a read range: sound batches, including empty ones"),
    Column("complete_from", _LONG, "for a read range: no offset is missing from this one on"),
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
    Column("group_id", _STRING, "the group"),
    Column("topic", _STRING, "the topic"),
    Column("topic_partition", _INT, "the topic's partition"),
    Column("committed_offset", _LONG, "next offset to read; null in a tombstone, as all down to commit_timestamp_ms"),
    Column("leader_epoch", _INT, "-1: none"),
    Column("metadata", _STRING, "metadata of the client"),
    Column("commit_timestamp_ms", _LONG, "time of the commit"),
    Column("expire_timestamp_ms", _LONG, "its own expiry; -1: not set"),
    Column("topic_id", _BINARY, "16 bytes; null if not written or zero"),
    Column("producer_id", _LONG, "-1 outside transactions"),
    Column("transaction", _STRING, "null outside transactions, else committed or open"),
    Column("tombstone", _BOOLEAN, "the offset was deleted, expired, or its group or topic was deleted"),
    Column("size_bytes", _LONG, "size of key and value"),
)
"""One row for each commit and each tombstone; those of aborted transactions are left out."""

CURRENT_OFFSETS: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("topic", _STRING, "the topic"),
    Column("topic_partition", _INT, "the topic's partition"),
    Column("committed_offset", _LONG, "next offset to read"),
    Column("leader_epoch", _INT, "-1: none"),
    Column("metadata", _STRING, "metadata of the client"),
    Column("commit_timestamp_ms", _LONG, "time of the commit"),
    Column("expire_timestamp_ms", _LONG, "its own expiry; -1: not set"),
    Column("topic_id", _BINARY, "16 bytes; null if not written or zero"),
    Column("log_partition", _INT, "position of the record"),
    Column("log_offset", _LONG, "position of the record"),
)
"""The offsets that a coordinator would answer after loading the log: one row a group, topic and partition."""

CORRUPT: Columns = (
    Column("file", _STRING, "the file"),
    Column("position", _LONG, "byte position"),
    Column("size_bytes", _LONG, "number of bytes"),
    Column("reason", _STRING, "problem at their start"),
    Column("log_partition", _INT, "null if unknown from the file's folder"),
    Column("first_offset", _LONG, "first offset that may be lost; null without an earlier batch"),
    Column("end_offset", _LONG, "first sound offset after it; null without a later batch"),
)
"""Bytes that are not sound batches and were skipped."""

READ_COUNTS: Columns = (
    Column("log_partition", _INT, "null if unknown from the file's folder"),
    Column("kind", _STRING, "as in records"),
    Column("record_type", _SHORT, "of records"),
    Column("control_type", _SHORT, "of control records"),
    Column("problem", _STRING, "null: no problem"),
    Column("count", _LONG, "number of rows"),
    Column("size_bytes", _LONG, "bytes: key and value of records, size of ranges in the file"),
)
"""Rows and bytes that were read or skipped, and why."""

PARTITION_LOAD: Columns = (
    Column("log_partition", _INT, "partition of __consumer_offsets"),
    Column("records", _LONG, "records and control records"),
    Column("commits", _LONG, "committed offsets"),
    Column("group_records", _LONG, "records of groups and members"),
    Column("tombstones", _LONG, "records without a value"),
    Column("control_records", _LONG, "transaction markers"),
    Column("unknown_records", _LONG, "unreadable records"),
    Column("bytes", _LONG, "bytes of keys and values"),
    Column("file_bytes", _LONG, "bytes of the files read; null without files"),
    Column("corrupt_bytes", _LONG, "bytes that are not sound batches"),
    Column("groups", _LONG, "groups with a record"),
    Column("hottest_group", _STRING, "the group with most records"),
    Column("hottest_group_records", _LONG, "number of its records"),
    Column("hottest_group_share", _DOUBLE, "its share of the partition's records, 0 to 1"),
    Column("live_keys", _LONG, "keys with a value in their last record"),
    Column("superseded_records", _LONG, "records with a newer one of the same key"),
    Column("superseded_bytes", _LONG, "bytes of their keys and values, which compaction would save"),
    Column("first_timestamp_ms", _LONG, "earliest timestamp"),
    Column("last_timestamp_ms", _LONG, "latest timestamp"),
)
"""One row per log partition: its load, its largest group, and what compaction would save."""

END_OFFSETS: Columns = (
    Column("topic", _STRING, "the topic"),
    Column("topic_partition", _INT, "the topic's partition"),
    Column("end_offset", _LONG, "the offset after its last record"),
)
"""End offsets of topics, the second input of the lag table."""

LIVE_END_OFFSETS: Columns = (
    Column("topic", _STRING, "the topic"),
    Column("topic_partition", _INT, "the topic's partition; null: the whole topic is unknown"),
    Column("at_ms", _LONG, "time of the request"),
    Column("log_start_offset", _LONG, "first offset of the log; null, as the next two, if unknown"),
    Column("end_offset", _LONG, "the high watermark: the offset after the last record that can be read"),
    Column("last_stable_offset", _LONG, "the first offset of an open transaction, or the high watermark"),
    Column("leader_epoch", _INT, "leader epoch of the log; -1: unknown"),
    Column("error_code", _SHORT, "Kafka's error code; 0: none"),
)
"""Result of :func:`groupcoord.spark.read_end_offsets`, and an input of :func:`groupcoord.spark.lag`."""

RECORD_TIMES: Columns = (
    Column("topic", _STRING, "the topic"),
    Column("topic_partition", _INT, "the topic's partition"),
    Column("committed_offset", _LONG, "offset that a group has committed"),
    Column("record_timestamp_ms", _LONG, "timestamp of the first record at or after it"),
)
"""Timestamps of the next records of lagging groups."""

LAG: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("topic", _STRING, "the topic"),
    Column("topic_partition", _INT, "the topic's partition"),
    Column("committed_offset", _LONG, "next offset to read; null: none is committed, or -1"),
    Column("end_offset", _LONG, "null if unknown"),
    Column("lag", _LONG, "lag in records, at least 0; null without an end, or with records and no offset"),
    Column("commit_timestamp_ms", _LONG, "time of the commit"),
    Column("at_ms", _LONG, "time of the request for the end; null, as the next four, without one"),
    Column("lag_stable", _LONG, "lag to the last stable offset, as for a consumer with read_committed"),
    Column("is_lost", _BOOLEAN, "the log starts after the committed offset, so records are gone"),
    Column("lag_ms", _LONG, "approximate age of the next record at at_ms; null: unknown"),
    Column("lag_ms_method", _STRING, "method: record, interpolated or extrapolated"),
    Column("status", _STRING, "status of the group in the partition"),
    Column("complete", _DOUBLE, "how full the window of commits for the status was, 0 to 1"),
    Column(
        "member_id",
        _STRING,
        "owner of the partition; null, as the next two, if unknown",
    ),
    Column("client_id", _STRING, "its client id"),
    Column("client_host", _STRING, "host of the client"),
    Column("members", _INT, "number of members of the group; null: unknown"),
)
"""Lag of each group, by partition."""

MESSAGES: Columns = (
    Column("key", _BINARY, "the key's bytes"),
    Column("value", _BINARY, "the value's bytes; null: a tombstone"),
    Column("partition", _INT, "partition of __consumer_offsets"),
    Column("offset", _LONG, "offset in it"),
    Column("timestamp", _LONG, "milliseconds since 1970, or a timestamp"),
)
"""The columns that :func:`groupcoord.spark.from_messages` needs, as Spark's Kafka connector names them."""
