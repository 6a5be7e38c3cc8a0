"""Columns of every table. Codes of types and errors are Kafka's."""

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
"""Kinds of rows of :data:`RECORDS`."""

_SHORT, _INT, _LONG, _DOUBLE = pa.int16(), pa.int32(), pa.int64(), pa.float64()
_STRING, _BINARY, _BOOLEAN = pa.string(), pa.binary(), pa.bool_()


class Column(NamedTuple):
    """A nullable column of a table."""

    name: str
    type: pa.DataType
    comment: str


_OF_OFFSET = (
    Column("leader_epoch", _INT, "-1: none"),
    Column("metadata", _STRING, "metadata of the client"),
    Column("commit_timestamp_ms", _LONG, "time of the commit"),
    Column("expire_timestamp_ms", _LONG, "its own expiry, in value version 1; -1: not set"),
    Column("topic_id", _BINARY, "16 bytes; null if not written or zero"),
)
_GROUP = Column("group_id", _STRING, "the group")
_TOPIC_PARTITION = (
    Column("topic", _STRING, "the topic"),
    Column("topic_partition", _INT, "the topic's partition"),
)
_CLIENT = (
    Column("client_id", _STRING, "client id"),
    Column("client_host", _STRING, "host of the client"),
)


def _position(which: str = "") -> tuple[Column, Column]:
    comment = f"position of the record{which}"
    return Column("log_partition", _INT, comment), Column("log_offset", _LONG, comment)


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
    *_OF_OFFSET,
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
"""Rows for all content of a log.

* ``kind = 'record'``: a record. A committed offset or its tombstone (``record_type`` 0 and 1) is decoded into columns,
  and ``key`` and ``value`` are null unless ``raw_bytes`` is set. Others, and those with a ``problem``, keep them for
  :func:`groupcoord.records.typed.parse_record` and :func:`groupcoord.records.codec.decode_record`.
* ``kind = 'control'``: a control record with its bytes; ``control_type`` 0 and 1 end the transaction of ``producer_id``
  in that log partition.
* ``kind = 'corrupt'``: ``size_bytes`` bytes at ``position`` of ``file`` that are not a sound batch.
* ``kind = 'read'``: a byte range that was read; ranges of a file are contiguous.
"""

RECORDS = pa.schema([(name, kind) for name, kind, _ in COLUMNS])

_NAMES = {int(known): known.name for known in RecordType}
_CONTROLS = {0: "control records: aborted", 1: "control records: committed"}


def describe_kind(kind: str, record_type: int | None, control_type: int | None) -> str:
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
    return pa.schema([(name, kind) for name, kind, _ in columns])


COMMITS: Columns = (
    Column("log_partition", _INT, "partition of __consumer_offsets"),
    Column("log_offset", _LONG, "offset in that partition"),
    Column("log_timestamp_ms", _LONG, "the record's timestamp"),
    _GROUP,
    *_TOPIC_PARTITION,
    Column("committed_offset", _LONG, "next offset to read; null in a tombstone, as all down to commit_timestamp_ms"),
    *_OF_OFFSET,
    Column("producer_id", _LONG, "-1 outside transactions"),
    Column("transaction", _STRING, "null outside transactions, else committed or open"),
    Column("tombstone", _BOOLEAN, "the offset was deleted, expired, or its group or topic was deleted"),
    Column("size_bytes", _LONG, "size of key and value"),
)
"""One row for each commit and tombstone, without those of aborted transactions."""

CURRENT_OFFSETS: Columns = (
    _GROUP,
    *_TOPIC_PARTITION,
    Column("committed_offset", _LONG, "next offset to read"),
    *_OF_OFFSET,
    *_position(),
)
"""The offsets that a coordinator would answer after loading the log: one per group, topic and partition."""

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
    *_TOPIC_PARTITION,
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
    *_TOPIC_PARTITION,
    Column("committed_offset", _LONG, "offset that a group has committed"),
    Column("record_timestamp_ms", _LONG, "timestamp of the first record at or after it"),
)
"""Timestamps of the next records of lagging groups."""

LAG: Columns = (
    _GROUP,
    *_TOPIC_PARTITION,
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
    Column("member_id", _STRING, "owner of the partition; null, as the next two, if unknown"),
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


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))  # as Spark and Parquet name it


_STRINGS, _INTS = _list(_STRING), _list(_INT)

_PARTITIONS = pa.struct([("topic", _STRING), ("partitions", _INTS)])
_SUBSCRIPTION = pa.struct(
    [
        ("topics", _STRINGS),
        ("topic_regex", _STRING),
        ("owned_partitions", _list(_PARTITIONS)),
        ("generation", _INT),
        ("rack_id", _STRING),
        ("user_data", _BINARY),
        ("raw", _BINARY),
    ]
)
_ASSIGNMENT = pa.struct([("topic", _STRING), ("topic_id", _STRING), ("partitions", _INTS)])

GENERATIONS: Columns = (
    _GROUP,
    Column("generation", _INT, "its number"),
    Column("protocol_type", _STRING, "consumer, connect, ...; null before the first join"),
    Column("protocol", _STRING, "selected assignor; null without members"),
    Column("leader", _STRING, "member id of the leader; null without members"),
    Column("member_count", _INT, "number of members"),
    Column("state_timestamp_ms", _LONG, "end of its join phase, or when the group became empty"),
    *_position(),
    Column("log_timestamp_ms", _LONG, "when the record with the assignments was written"),
)
"""Generations of classic groups in the log; one with a replaced static member is repeated."""

MEMBERS: Columns = (
    _GROUP,
    Column("type", _STRING, "Classic, Consumer, Share or Streams"),
    Column("generation", _INT, "of a classic group, else the group's epoch"),
    Column("member_id", _STRING, "the member"),
    Column("instance_id", _STRING, "of a static member"),
    *_CLIENT,
    Column("session_timeout_ms", _INT, "null: a broker setting"),
    Column("rebalance_timeout_ms", _INT, "time to rejoin or revoke partitions; -1: unknown"),
    Column("subscription", _SUBSCRIPTION, "decoded subscription; raw: the bytes of classic members"),
    Column("assignment", _list(_ASSIGNMENT), "current assignment by topic; tasks of streams groups by subtopology"),
    Column("pending", _list(_ASSIGNMENT), "partitions pending revocation; null in classic and streams groups"),
    Column("target", _list(_ASSIGNMENT), "target assignment; null in classic and streams groups"),
    Column("standby", _list(_ASSIGNMENT), "standby tasks of a streams group's member, by subtopology; else null"),
    Column("warmup", _list(_ASSIGNMENT), "warm-up tasks likewise"),
    Column("assignor", _STRING, "assignor selected by a member of a consumer group; null: none"),
    Column("is_leader", _BOOLEAN, "leader of a classic generation"),
    Column("member_epoch", _INT, "member epoch; null in a classic group"),
    *_position(" of the generation or epoch"),
)
"""Members of every generation; for an epoch, its first members with their assignments at its end."""

GROUPS: Columns = (
    _GROUP,
    Column("type", _STRING, "Classic, Consumer, Share or Streams"),
    Column("state", _STRING, "as Kafka calls it"),
    Column("generation_or_epoch", _INT, "generation of a classic group, epoch of another; 0 if it only has offsets"),
    Column("member_count", _INT, "number of members"),
    Column("last_commit_ms", _LONG, "newest commit; null without offsets"),
    Column("protocol_type", _STRING, "consumer, connect, ...; empty if it only has offsets"),
    Column("protocol", _STRING, "assignor of a stable classic group, or of most members of a consumer group"),
    Column("assignment_epoch", _INT, "of the target assignment; null in a classic group"),
    Column("state_timestamp_ms", _LONG, "start of its generation or epoch; null if unknown"),
    Column("subscribed_topics", _STRINGS, "topics that its members subscribe to; null if unknown"),
    Column("offset_count", _LONG, "number of offsets"),
    Column("log_partition", _INT, "position of its records"),
)
"""Every group as a coordinator that loads the log would describe it."""

REBALANCES: Columns = (
    _GROUP,
    Column("type", _STRING, "Classic, Consumer, Share or Streams, after the rebalance"),
    Column("from_generation", _INT, "or epoch; null: nothing earlier is in the log"),
    Column("to_generation", _INT, "unchanged if a static member was replaced"),
    Column("conversion", _STRING, "upgrade from a classic to a consumer group, or downgrade"),
    Column("started_after_ms", _LONG, "earliest start; null: unknown"),
    Column("started_ms", _LONG, "latest start: end of the join phase, or start of the epoch"),
    Column("target_ms", _LONG, "when its target assignment was written; null: never"),
    Column("ended_ms", _LONG, "when its assignments were complete; null: not in the log"),
    Column("cause", _STRING, "join, leave, expiry or leave, session expiry, metadata change, ..., unknown"),
    Column("causes", _STRINGS, "all causes, the main one first"),
    Column("confidence", _DOUBLE, "confidence in the cause: 1 proven by the records, 0 unknown"),
    Column("joined", _STRINGS, "new member ids"),
    Column("left", _STRINGS, "removed member ids"),
    Column("joined_clients", _STRINGS, "their client ids"),
    Column("left_clients", _STRINGS, "their client ids"),
    Column("member_count", _INT, "number of members after it"),
    Column("partitions_moved", _INT, "number of partitions that changed or lost their owner"),
    Column("missing_generations", _INT, "number of generations in between that are not in the log"),
    Column("evidence", _STRING, "reason as text"),
    *_position(" that shows it"),
)
"""Changes of a generation, an epoch or a static member's id in the log, with their cause."""

EPOCHS: Columns = (
    _GROUP,
    Column("whose", _STRING, "subject of the record's epoch: group, target or member"),
    Column("group_epoch", _INT, "group epoch after the record, as all that follow"),
    Column("target_epoch", _INT, "of the target assignment"),
    Column("member_id", _STRING, "the member; null for other records"),
    Column("member_epoch", _INT, "member epoch; -2: left temporarily; null: removed"),
    Column("previous_member_epoch", _INT, "previous epoch, which the member may still send"),
    Column(
        "state",
        _STRING,
        "Stable, UnrevokedPartitions (revocation pending) or UnreleasedPartitions (waiting for others); "
        "in streams groups UnrevokedTasks and UnreleasedTasks",
    ),
    Column("partitions", _INT, "number of assigned partitions"),
    Column("pending_partitions", _INT, "number of partitions pending revocation"),
    *_position(),
    Column("log_timestamp_ms", _LONG, "when it was written"),
)
"""Every change of a group's, target assignment's or member's epoch in consumer, share and streams groups."""

MEMBERSHIPS: Columns = (
    _GROUP,
    Column("member_id", _STRING, "the member"),
    Column("instance_id", _STRING, "of a static member"),
    *_CLIENT,
    Column("protocol", _STRING, "last protocol: consumer, share, streams, or classic (joins and syncs)"),
    Column("began", _STRING, "join, static replace, or upgrade of the classic group with the member; null: unknown"),
    Column("began_ms", _LONG, "start of the membership; null: before the log"),
    Column("replaced_member", _STRING, "member id that a static member replaced"),
    Column("first_epoch", _INT, "first member epoch"),
    Column("last_epoch", _INT, "last one"),
    Column("away_ms", _LONG, "when a static member left temporarily; null: it has not, or has returned"),
    Column(
        "end",
        _STRING,
        "leave, expiry or leave, session expiry, rebalance time-out, static replace, conversion; null: active",
    ),
    Column("ended_ms", _LONG, "end of the membership; null: active"),
    Column("confidence", _DOUBLE, "confidence in the end: 1 proven by the records; null: unknown"),
    Column("evidence", _STRING, "reason as text"),
    *_position(" that ended it, or began it if active"),
)
"""Memberships in consumer, share and streams groups: how they began and ended."""

MOVES: Columns = (
    _GROUP,
    Column("epoch", _INT, "epoch of the target assignment that moves the partition"),
    Column("assignor", _STRING, "assignor that most members selected; null: the brokers' default"),
    Column("topic", _STRING, "its name, null if no commit of the group has it; for a task the subtopology"),
    Column("topic_id", _STRING, "its id; null for a task"),
    Column("topic_partition", _INT, "goes with it"),
    Column("from_member", _STRING, "previous target owner; null: none"),
    Column("to_member", _STRING, "new target owner; null: none"),
    Column("reason", _STRING, "unassigned, owner gone, subscription, topic gone, balance or swap"),
    Column("is_necessary", _BOOLEAN, "false for a swap: the owner gained one that the new owner could have had"),
    Column("decided_ms", _LONG, "when the target assignment was written"),
    Column("released_ms", _LONG, "when its owner had revoked it; null: not yet, or no owner"),
    Column("assigned_ms", _LONG, "when it was assigned to the new owner; null: never"),
    Column("unowned_ms", _LONG, "time without owner; null: no new or no old owner"),
    Column("had_copy", _BOOLEAN, "the new owner had a standby or warm-up task of it; null for partitions"),
    *_position(" of the target assignment"),
)
"""Partitions and tasks moved by the assignors of consumer and streams groups."""

REVOCATIONS: Columns = (
    _GROUP,
    Column("member_id", _STRING, "member that has to revoke"),
    Column("instance_id", _STRING, "of a static member"),
    Column("client_id", _STRING, "client id"),
    Column("member_epoch", _INT, "its member epoch meanwhile"),
    Column("partitions", _list(_ASSIGNMENT), "partitions by topic"),
    Column("partition_count", _INT, "number of these partitions"),
    Column("rebalance_timeout_ms", _INT, "rebalance timeout"),
    Column("asked_ms", _LONG, "start of the revocation"),
    Column("ended_ms", _LONG, "end of the revocation; null: not yet"),
    Column("took_ms", _LONG, "duration"),
    Column("end", _STRING, "given up; gone: the member was removed; rebalance time-out: it was fenced; null: not yet"),
    *_position(" that starts it"),
)
"""Revocations by members of consumer and streams groups, with their duration."""

ANOMALIES: Columns = (
    _GROUP,
    Column("kind", _STRING, "kind of anomaly"),
    Column("status", _STRING, "Burrow's status: REWIND, STOP or STALL; null if it has none"),
    Column("topic", _STRING, "null if it concerns the whole group"),
    Column("topic_partition", _INT, "goes with topic"),
    Column("client_id", _STRING, "of a flapping, slow or fenced member, or of one that never committed"),
    Column("first_ms", _LONG, "start"),
    Column("last_ms", _LONG, "last occurrence"),
    Column("count", _LONG, "number of occurrences"),
    Column("value", _LONG, "amount: records rewound, milliseconds of a silence or a revocation, commits or rebalances"),
    Column("evidence", _STRING, "reason as text"),
    Column("log_partition", _INT, "position of its records"),
)
"""Anomalies of groups; the kinds are in :mod:`groupcoord.analysis.rules.statuses`."""

STALE_GROUPS: Columns = (
    _GROUP,
    Column("type", _STRING, "Classic, Consumer, Share or Streams"),
    Column("state", _STRING, "as Kafka calls it"),
    Column("offset_count", _LONG, "number of offsets"),
    Column("expiring_offsets", _LONG, "number of offsets that expire without further use"),
    Column("expired_offsets", _LONG, "number of offsets already due"),
    Column("last_commit_ms", _LONG, "newest commit"),
    Column("next_expiry_ms", _LONG, "expiry of the first one; null: none expires"),
    Column("group_expiry_ms", _LONG, "deletion of the group with the last one; null: it is kept"),
    Column("idle_ms", _LONG, "time since the newest commit or change of the group"),
    Column("log_partition", _INT, "position of its records"),
)
"""Groups with offsets that expire without further use (KIP-211); brokers check retention some minutes late."""

OFFSET_EXPIRY: Columns = (
    _GROUP,
    *_TOPIC_PARTITION,
    Column("committed_offset", _LONG, "next offset to read"),
    Column("commit_timestamp_ms", _LONG, "time of the commit"),
    Column("expires_ms", _LONG, "expiry without further use; null: it does not expire, for instance if in use"),
    Column("log_partition", _INT, "position of the record"),
)
"""One row for each current offset (KIP-211); brokers check retention some minutes late."""

SHARE_PARTITIONS: Columns = (
    _GROUP,
    Column("topic", _STRING, "its name; null if the log of groups does not have it"),
    Column("topic_id", _STRING, "its id"),
    Column("topic_partition", _INT, "goes with it"),
    Column("start_offset", _LONG, "all earlier records are finished; null: not yet initialized"),
    Column("delivery_complete_count", _LONG, "finished records from it on; null: unknown"),
    Column("acknowledged", _LONG, "accepted records from it on"),
    Column("archived", _LONG, "archived records from it on: rejected, or delivered too often"),
    Column("released", _LONG, "released or acquired records from it on"),
    Column("delivery_count_max", _LONG, "maximum delivery count of these; null: none"),
    Column("redeliveries", _LONG, "deliveries after the first, as far as the log shows"),
    Column("archived_records", _LONG, "archived records, as far as the log shows"),
    Column("snapshots", _LONG, "snapshot records in the log"),
    Column("updates", _LONG, "update records"),
    Column("state_epoch", _INT, "state epoch, set by the group coordinator"),
    Column("leader_epoch", _INT, "leader epoch of the partition"),
    Column("first_ms", _LONG, "timestamp of the first record about it"),
    Column("last_ms", _LONG, "last one"),
    Column("is_deleted", pa.bool_(), "its last record is a tombstone; the state is the previous one"),
    Column("log_partition", _INT, "of __share_group_state"),
    Column("log_offset", _LONG, "of the last record about it"),
)
"""Progress of share groups in topic partitions; current locks are not in the log."""

DIFFERENCES: Columns = (
    _GROUP,
    Column("topic", _STRING, "topic of an offset; null: about the group"),
    Column("topic_partition", _INT, "goes with topic"),
    Column("field", _STRING, "differing field"),
    Column("coordinator", _STRING, "value of the coordinator; null: none"),
    Column("table", _STRING, "value of the table; null: none"),
    Column("log_partition", _INT, "position of the group's records"),
)
"""Differences between the tables and a coordinator that loads the same records."""
