"""The declared columns of the tables about groups: their history, what is wrong with them, what expires.

Generations of classic groups and epochs of KIP-848, share and streams groups share their columns.
"""

from __future__ import annotations

import pyarrow as pa

from groupcoord.analysis.decode.schema import Column, Columns

_INT, _LONG, _DOUBLE, _STRING, _BOOLEAN = pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.bool_()
_BINARY = pa.binary()


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
    Column("group_id", _STRING, "the group"),
    Column("generation", _INT, "its number"),
    Column("protocol_type", _STRING, "consumer, connect, ...; null before the first join"),
    Column("protocol", _STRING, "selected assignor; null without members"),
    Column("leader", _STRING, "member id of the leader; null without members"),
    Column("member_count", _INT, "number of members"),
    Column("state_timestamp_ms", _LONG, "end of its join phase, or when the group became empty"),
    Column("log_partition", _INT, "position of the record"),
    Column("log_offset", _LONG, "position of the record"),
    Column("log_timestamp_ms", _LONG, "when the record with the assignments was written"),
)
"""Generations of classic groups in the log; one with a replaced static member is repeated."""

MEMBERS: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("type", _STRING, "Classic, Consumer, Share or Streams"),
    Column("generation", _INT, "of a classic group, else the group's epoch"),
    Column("member_id", _STRING, "the member"),
    Column("instance_id", _STRING, "of a static member"),
    Column("client_id", _STRING, "client id"),
    Column("client_host", _STRING, "host of the client"),
    Column("session_timeout_ms", _INT, "null: a broker setting"),
    Column("rebalance_timeout_ms", _INT, "time to rejoin or revoke partitions; -1: unknown"),
    Column("subscription", _SUBSCRIPTION, "decoded subscription; raw: the bytes of classic members"),
    Column("assignment", _list(_ASSIGNMENT), "current assignment by topic; tasks of streams groups by subtopology"),
    Column(
        "pending",
        _list(_ASSIGNMENT),
        "partitions pending revocation; null in classic and streams groups",
    ),
    Column("target", _list(_ASSIGNMENT), "target assignment; null in classic and streams groups"),
    Column("standby", _list(_ASSIGNMENT), "standby tasks of a streams group's member, by subtopology; else null"),
    Column("warmup", _list(_ASSIGNMENT), "warm-up tasks likewise"),
    Column("assignor", _STRING, "assignor selected by a member of a consumer group; null: none"),
    Column("is_leader", _BOOLEAN, "leader of a classic generation"),
    Column("member_epoch", _INT, "member epoch; null in a classic group"),
    Column("log_partition", _INT, "position of the record of the generation or epoch"),
    Column("log_offset", _LONG, "position of the record of the generation or epoch"),
)
"""The members of every generation; of an epoch those that it began with, and what they had when it ended."""

GROUPS: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("type", _STRING, "Classic, Consumer, Share or Streams"),
    Column("state", _STRING, "as Kafka calls it"),
    Column("generation_or_epoch", _INT, "generation of a classic group, epoch of another; 0 if it only has offsets"),
    Column("member_count", _INT, "number of members"),
    Column("last_commit_ms", _LONG, "newest commit; null without offsets"),
    Column("protocol_type", _STRING, "consumer, connect, ...; empty if it only has offsets"),
    Column(
        "protocol",
        _STRING,
        "assignor of a stable classic group, or the one that most members of a consumer group selected",
    ),
    Column("assignment_epoch", _INT, "of the target assignment; null in a classic group"),
    Column("state_timestamp_ms", _LONG, "start of its generation or epoch; null if unknown"),
    Column("subscribed_topics", _STRINGS, "topics that its members subscribe to; null if unknown"),
    Column("offset_count", _LONG, "number of offsets"),
    Column("log_partition", _INT, "position of its records"),
)
"""Every group as a coordinator that loads the log would describe it."""

REBALANCES: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("type", _STRING, "Classic, Consumer, Share or Streams, after the rebalance"),
    Column("from_generation", _INT, "or epoch; null: nothing earlier is in the log"),
    Column("to_generation", _INT, "unchanged if a static member was replaced"),
    Column(
        "conversion",
        _STRING,
        "upgrade from a classic to a consumer group, or downgrade",
    ),
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
    Column("log_partition", _INT, "position of the record that shows it"),
    Column("log_offset", _LONG, "position of the record that shows it"),
)
"""Changes of a generation, an epoch or a static member's id in the log, with their cause."""

EPOCHS: Columns = (
    Column("group_id", _STRING, "the group"),
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
    Column("log_partition", _INT, "position of the record"),
    Column("log_offset", _LONG, "position of the record"),
    Column("log_timestamp_ms", _LONG, "when it was written"),
)
"""Every change of an epoch in a consumer, share or streams group, be it the group's, the target assignment's or a
member's."""

MEMBERSHIPS: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("member_id", _STRING, "the member"),
    Column("instance_id", _STRING, "of a static member"),
    Column("client_id", _STRING, "client id"),
    Column("client_host", _STRING, "host of the client"),
    Column("protocol", _STRING, "last protocol: consumer, share, streams, or classic (joins and syncs)"),
    Column(
        "began",
        _STRING,
        "join, static replace, or upgrade of the classic group with the member; null: unknown",
    ),
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
    Column("log_partition", _INT, "position of the record that ended it, or began it if active"),
    Column("log_offset", _LONG, "position of the record that ended it, or began it if active"),
)
"""Memberships in consumer, share and streams groups: how they began and ended."""

MOVES: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("epoch", _INT, "epoch of the target assignment that moves the partition"),
    Column("assignor", _STRING, "assignor that most members selected; null: the brokers' default"),
    Column("topic", _STRING, "its name, null if no commit of the group has it; for a task the subtopology"),
    Column("topic_id", _STRING, "its id; null for a task"),
    Column("topic_partition", _INT, "goes with it"),
    Column("from_member", _STRING, "previous target owner; null: none"),
    Column("to_member", _STRING, "new target owner; null: none"),
    Column("reason", _STRING, "unassigned, owner gone, subscription, topic gone, balance or swap"),
    Column(
        "is_necessary", _BOOLEAN, "false for a swap: its owner gained another one that the new owner could have had"
    ),
    Column("decided_ms", _LONG, "when the target assignment was written"),
    Column("released_ms", _LONG, "when its owner had revoked it; null: not yet, or no owner"),
    Column("assigned_ms", _LONG, "when it was assigned to the new owner; null: never"),
    Column("unowned_ms", _LONG, "time without owner; null: no new or no old owner"),
    Column(
        "had_copy",
        _BOOLEAN,
        "the new owner had a standby or warm-up task of it at the decision; null for partitions",
    ),
    Column("log_partition", _INT, "position of the record of the target assignment"),
    Column("log_offset", _LONG, "position of the record of the target assignment"),
)
"""Partitions and tasks moved by the assignors of consumer and streams groups."""

REVOCATIONS: Columns = (
    Column("group_id", _STRING, "the group"),
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
    Column(
        "end",
        _STRING,
        "given up; gone: the member was removed; rebalance time-out: it was fenced; null: not yet",
    ),
    Column("log_partition", _INT, "position of the record that starts it"),
    Column("log_offset", _LONG, "position of the record that starts it"),
)
"""Revocations by members of consumer and streams groups, with their duration."""

ANOMALIES: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("kind", _STRING, "kind of anomaly"),
    Column("status", _STRING, "Burrow's status: REWIND, STOP or STALL; null if it has none"),
    Column("topic", _STRING, "null if it concerns the whole group"),
    Column("topic_partition", _INT, "goes with topic"),
    Column("client_id", _STRING, "of a flapping, slow or fenced member, or of one that never committed"),
    Column("first_ms", _LONG, "start"),
    Column("last_ms", _LONG, "last occurrence"),
    Column("count", _LONG, "number of occurrences"),
    Column(
        "value",
        _LONG,
        "amount: records rewound, milliseconds without a commit, with uneven shares or idle members or of revocation, "
        "commits or rebalances",
    ),
    Column("evidence", _STRING, "reason as text"),
    Column("log_partition", _INT, "position of its records"),
)
"""Anomalies of groups: offset rewind, commits stopped, stalled, commit storm, rebalance storm, flapping member,
duplicate owner, slow revocation, fenced member, never committed, uneven shares, idle members."""

STALE_GROUPS: Columns = (
    Column("group_id", _STRING, "the group"),
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
"""Groups with offsets that expire without further use (KIP-211); retention checks come some minutes late."""

OFFSET_EXPIRY: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("topic", _STRING, "the topic"),
    Column("topic_partition", _INT, "the topic's partition"),
    Column("committed_offset", _LONG, "next offset to read"),
    Column("commit_timestamp_ms", _LONG, "time of the commit"),
    Column("expires_ms", _LONG, "expiry without further use; null: it does not expire, for instance if in use"),
    Column("log_partition", _INT, "position of the record"),
)
"""One row for each current offset, by the rules of KIP-211; checks of retention come some minutes late."""

SHARE_PARTITIONS: Columns = (
    Column("group_id", _STRING, "the group"),
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
    Column("group_id", _STRING, "the group"),
    Column("topic", _STRING, "topic of an offset; null: about the group"),
    Column("topic_partition", _INT, "goes with topic"),
    Column("field", _STRING, "differing field"),
    Column("coordinator", _STRING, "value of the coordinator; null: none"),
    Column("table", _STRING, "value of the table; null: none"),
    Column("log_partition", _INT, "position of the group's records"),
)
"""Differences between the tables and a coordinator that loads the same records."""
