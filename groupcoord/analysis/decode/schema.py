"""The table of records: every row that a log gives, whoever reads it.

Numbers are as Kafka writes them: -1 is "none" for epochs, producers and timestamps, except that what doesn't apply to
a row at all (a topic of a group record, the offset in a tombstone) is null. ``(log_partition, log_offset)`` is the key
of a record; a group lies in one log partition, so within a group ``log_offset`` is the order of events.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

KIND_RECORD = "record"
KIND_CONTROL = "control"
KIND_CORRUPT = "corrupt"
KIND_READ = "read"
KINDS = (KIND_RECORD, KIND_CONTROL, KIND_CORRUPT, KIND_READ)
"""What a row of :data:`RECORDS` is: a record, a control record such as a transaction marker, bytes that can't be read,
or the account of one byte range that was read."""

_SHORT, _INT, _LONG = pa.int16(), pa.int32(), pa.int64()
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
