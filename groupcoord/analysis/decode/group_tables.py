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
    Column("protocol_type", _STRING, "consumer, connect, ...; null before the first member"),
    Column("protocol", _STRING, "the assignor that was chosen; null without members"),
    Column("leader", _STRING, "the member id of the leader; null without members"),
    Column("member_count", _INT, "how many members it has"),
    Column("state_timestamp_ms", _LONG, "when its join phase ended, or the group became empty"),
    Column("log_partition", _INT, "where the record lies"),
    Column("log_offset", _LONG, "where the record lies"),
    Column("log_timestamp_ms", _LONG, "when the record was written: the assignments were there"),
)
"""Every generation of a classic group that the log holds; one whose static member was replaced comes again."""

MEMBERS: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("type", _STRING, "Classic, Consumer, Share or Streams"),
    Column("generation", _INT, "of a classic group, else the group's epoch"),
    Column("member_id", _STRING, "the member"),
    Column("instance_id", _STRING, "of a static member"),
    Column("client_id", _STRING, "what the client calls itself"),
    Column("client_host", _STRING, "where it connects from"),
    Column("session_timeout_ms", _INT, "null: a setting of the broker"),
    Column("rebalance_timeout_ms", _INT, "how long it may take to rejoin or give partitions up; -1: not told"),
    Column("subscription", _SUBSCRIPTION, "what it asks for, decoded; raw: its bytes, of classic members"),
    Column("assignment", _list(_ASSIGNMENT), "what it has, by topic; tasks of streams groups by subtopology"),
    Column(
        "pending",
        _list(_ASSIGNMENT),
        "what it was told to give up and has not yet; null in classic and streams groups",
    ),
    Column("target", _list(_ASSIGNMENT), "what it is to have; null in classic and streams groups"),
    Column("standby", _list(_ASSIGNMENT), "standby tasks of a streams group's member, by subtopology; else null"),
    Column("warmup", _list(_ASSIGNMENT), "likewise, warm-up tasks"),
    Column("assignor", _STRING, "of the coordinator, that a member of a consumer group asks for; null: none"),
    Column("is_leader", _BOOLEAN, "it leads a classic generation"),
    Column("member_epoch", _INT, "its own epoch; null in a classic group"),
    Column("log_partition", _INT, "where the record of the generation or epoch lies"),
    Column("log_offset", _LONG, "where the record of the generation or epoch lies"),
)
"""The members of every generation; of an epoch those that it began with, and what they had when it ended."""

GROUPS: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("type", _STRING, "Classic, Consumer, Share or Streams"),
    Column("state", _STRING, "as Kafka calls it"),
    Column("generation_or_epoch", _INT, "generation of a classic group, epoch of another; 0 if it only has offsets"),
    Column("member_count", _INT, "how many members it has"),
    Column("last_commit_ms", _LONG, "when the newest of its offsets was committed; null without offsets"),
    Column("protocol_type", _STRING, "consumer, connect, ...; empty if it only has offsets"),
    Column(
        "protocol",
        _STRING,
        "the assignor of a classic group that is stable, or that most members of a consumer group ask for",
    ),
    Column("assignment_epoch", _INT, "of the target assignment; null in a classic group"),
    Column("state_timestamp_ms", _LONG, "when it came to its generation or epoch; null if the log does not tell"),
    Column("subscribed_topics", _STRINGS, "what its members subscribe to; null if that can't be known"),
    Column("offset_count", _LONG, "how many offsets it has"),
    Column("log_partition", _INT, "where its records lie"),
)
"""Every group as a coordinator that loads the log would describe it."""

REBALANCES: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("type", _STRING, "Classic, Consumer, Share or Streams; the type after it"),
    Column("from_generation", _INT, "or epoch; null: nothing before is in the log"),
    Column("to_generation", _INT, "the same as before where a static member was replaced"),
    Column(
        "conversion",
        _STRING,
        "upgrade: a classic group became a consumer group with it; downgrade: the other way round",
    ),
    Column("started_after_ms", _LONG, "it can't have begun before this moment; null: not known"),
    Column("started_ms", _LONG, "when it was under way for sure: the join phase was over, or the epoch began"),
    Column("target_ms", _LONG, "when the target assignment for its epoch was there; null: it never was"),
    Column("ended_ms", _LONG, "when its assignments were there; null: not in the log"),
    Column("cause", _STRING, "join, leave, expiry or leave, session expiry, metadata change, ..., unknown"),
    Column("causes", _STRINGS, "all that took part, cause first"),
    Column("confidence", _DOUBLE, "that cause is right: 1 proven by the records, 0 unknown"),
    Column("joined", _STRINGS, "member ids that are new"),
    Column("left", _STRINGS, "member ids that are gone"),
    Column("joined_clients", _STRINGS, "their client ids"),
    Column("left_clients", _STRINGS, "their client ids"),
    Column("member_count", _INT, "members after it"),
    Column("partitions_moved", _INT, "partitions that another member has since, or none"),
    Column("missing_generations", _INT, "numbers between the two that the log does not hold"),
    Column("evidence", _STRING, "in words"),
    Column("log_partition", _INT, "where the record that shows it lies"),
    Column("log_offset", _LONG, "where the record that shows it lies"),
)
"""Every change of a generation, an epoch or a static member's id that the log shows, and why it came."""

EPOCHS: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("whose", _STRING, "whose epoch the record tells: group, target or member"),
    Column("group_epoch", _INT, "the group's, once the record is written, as all that follow"),
    Column("target_epoch", _INT, "of the target assignment"),
    Column("member_id", _STRING, "the member; null unless the record is about one"),
    Column("member_epoch", _INT, "its own; -2: it has left for a while; null: it is gone"),
    Column("previous_member_epoch", _INT, "the one that it may still name"),
    Column(
        "state",
        _STRING,
        "Stable, UnrevokedPartitions (it has something to give up) or UnreleasedPartitions (it waits); "
        "in streams groups UnrevokedTasks and UnreleasedTasks",
    ),
    Column("partitions", _INT, "how many partitions it has"),
    Column("pending_partitions", _INT, "how many it was told to give up and has not yet"),
    Column("log_partition", _INT, "where the record lies"),
    Column("log_offset", _LONG, "where the record lies"),
    Column("log_timestamp_ms", _LONG, "when it was written"),
)
"""Every change of an epoch in a consumer, share or streams group, be it the group's, the target assignment's or a
member's."""

MEMBERSHIPS: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("member_id", _STRING, "the member"),
    Column("instance_id", _STRING, "of a static member"),
    Column("client_id", _STRING, "what the client calls itself"),
    Column("client_host", _STRING, "where it connects from"),
    Column("protocol", _STRING, "consumer, share, streams, or classic if it joins and syncs; as it was last"),
    Column(
        "began",
        _STRING,
        "join, static replace, or upgrade: it was there as the group was a classic one; null: not known",
    ),
    Column("began_ms", _LONG, "when it became a member; null: before the log tells"),
    Column("replaced_member", _STRING, "whose place a static member took"),
    Column("first_epoch", _INT, "the first epoch of its own"),
    Column("last_epoch", _INT, "and the last one"),
    Column("away_ms", _LONG, "since when a static member has left for a while; null: it has not, or is back"),
    Column(
        "end",
        _STRING,
        "leave, expiry or leave, session expiry, rebalance time-out, static replace, conversion; null: it is one",
    ),
    Column("ended_ms", _LONG, "when it was no member any more; null: it still is"),
    Column("confidence", _DOUBLE, "that the end is right: 1 proven by the records; null: not known"),
    Column("evidence", _STRING, "in words"),
    Column("log_partition", _INT, "where the record lies with which it ended, or began if it has not ended"),
    Column("log_offset", _LONG, "where the record lies with which it ended, or began if it has not ended"),
)
"""Each life of a member of a consumer, share or streams group: how it began and ended."""

MOVES: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("epoch", _INT, "of the target assignment that moves the partition"),
    Column("assignor", _STRING, "that most members asked for; null: that was left to the brokers"),
    Column("topic", _STRING, "its name, null if the group has no commit that tells it; of a task its subtopology"),
    Column("topic_id", _STRING, "its id; null of a task"),
    Column("topic_partition", _INT, "goes with it"),
    Column("from_member", _STRING, "who was to have it before; null: nobody"),
    Column("to_member", _STRING, "who is to have it; null: nobody"),
    Column("reason", _STRING, "unassigned, owner gone, subscription, topic gone, balance or swap"),
    Column(
        "is_necessary", _BOOLEAN, "false for a swap: its owner got another one for it that the new owner might have had"
    ),
    Column("decided_ms", _LONG, "when the target assignment was written"),
    Column("released_ms", _LONG, "when its owner had given it up; null: not yet, or there was none"),
    Column("assigned_ms", _LONG, "when its new owner had it; null: never"),
    Column("unowned_ms", _LONG, "how long nobody had it before; null: it has no new owner, or had none"),
    Column(
        "had_copy",
        _BOOLEAN,
        "its new owner had a standby or warm-up task of it when that was decided; null if it is no task",
    ),
    Column("log_partition", _INT, "where the record of the target assignment lies"),
    Column("log_offset", _LONG, "where the record of the target assignment lies"),
)
"""What assignors of consumer and streams groups moved, partition by partition or task by task."""

REVOCATIONS: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("member_id", _STRING, "who has to give up"),
    Column("instance_id", _STRING, "of a static member"),
    Column("client_id", _STRING, "what the client calls itself"),
    Column("member_epoch", _INT, "its epoch meanwhile"),
    Column("partitions", _list(_ASSIGNMENT), "what, by topic"),
    Column("partition_count", _INT, "how many partitions these are"),
    Column("rebalance_timeout_ms", _INT, "how long it may take"),
    Column("asked_ms", _LONG, "when it was told"),
    Column("ended_ms", _LONG, "when that was over; null: it is not"),
    Column("took_ms", _LONG, "how long it took"),
    Column(
        "end",
        _STRING,
        "given up; gone: it is no member any more; rebalance time-out: it was fenced for it; null: not yet",
    ),
    Column("log_partition", _INT, "where the record lies that tells it to"),
    Column("log_offset", _LONG, "where the record lies that tells it to"),
)
"""What members of consumer and streams groups were told to give up, and how long that took."""

ANOMALIES: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("kind", _STRING, "which anomaly"),
    Column("status", _STRING, "Burrow's word for it: REWIND, STOP or STALL; null where it has none"),
    Column("topic", _STRING, "null if it concerns the whole group"),
    Column("topic_partition", _INT, "goes with topic"),
    Column("client_id", _STRING, "of a flapping, slow or fenced member, or of one that never committed"),
    Column("first_ms", _LONG, "when it began"),
    Column("last_ms", _LONG, "when it was seen last"),
    Column("count", _LONG, "how often"),
    Column(
        "value",
        _LONG,
        "how much: records rewound, milliseconds without a commit, with uneven shares or idle members or to give up, "
        "commits or rebalances",
    ),
    Column("evidence", _STRING, "in words"),
    Column("log_partition", _INT, "where its records lie"),
)
"""What is wrong with groups: offset rewind, commits stopped, stalled, commit storm, rebalance storm, flapping member,
duplicate owner, slow revocation, fenced member, never committed, uneven shares, idle members."""

STALE_GROUPS: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("type", _STRING, "Classic, Consumer, Share or Streams"),
    Column("state", _STRING, "as Kafka calls it"),
    Column("offset_count", _LONG, "how many offsets it has"),
    Column("expiring_offsets", _LONG, "how many of them expire if nothing changes"),
    Column("expired_offsets", _LONG, "how many of them are due already"),
    Column("last_commit_ms", _LONG, "when the newest was committed"),
    Column("next_expiry_ms", _LONG, "when the first of them expires; null: none does"),
    Column("group_expiry_ms", _LONG, "when the group is deleted with the last of them; null: something keeps it"),
    Column("idle_ms", _LONG, "from the newest commit, or the last change of the group, to now"),
    Column("log_partition", _INT, "where its records lie"),
)
"""Groups that lose offsets if nobody uses them, by the rules of KIP-211; checks of retention come some minutes late."""

OFFSET_EXPIRY: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("topic", _STRING, "the topic"),
    Column("topic_partition", _INT, "the topic's partition"),
    Column("committed_offset", _LONG, "the next offset to read"),
    Column("commit_timestamp_ms", _LONG, "when it was committed"),
    Column("expires_ms", _LONG, "when it expires if nothing changes; null: it does not, such as one in use"),
    Column("log_partition", _INT, "where the record lies"),
)
"""One row for each current offset, by the rules of KIP-211; checks of retention come some minutes late."""

SHARE_PARTITIONS: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("topic", _STRING, "its name; null if the log of groups does not tell it"),
    Column("topic_id", _STRING, "its id"),
    Column("topic_partition", _INT, "goes with it"),
    Column("start_offset", _LONG, "all before it is finished; null: where the group begins was not decided yet"),
    Column("delivery_complete_count", _LONG, "records at and behind it that are finished; null: not told"),
    Column("acknowledged", _LONG, "records at and behind it that were accepted"),
    Column("archived", _LONG, "likewise, given up: rejected, or delivered too often"),
    Column("released", _LONG, "likewise, delivered and waiting to be again, or acquired by somebody"),
    Column("delivery_count_max", _LONG, "how often one of them was delivered; null: there are none"),
    Column("redeliveries", _LONG, "deliveries that were not the first, as far as the log tells"),
    Column("archived_records", _LONG, "records that were given up, as far as the log tells"),
    Column("snapshots", _LONG, "records of its whole state in the log"),
    Column("updates", _LONG, "and of changes"),
    Column("state_epoch", _INT, "of the group coordinator that has it initialized"),
    Column("leader_epoch", _INT, "of the partition's leader"),
    Column("first_ms", _LONG, "when the first record about it was written"),
    Column("last_ms", _LONG, "and the last one"),
    Column("is_deleted", pa.bool_(), "its last record is a tombstone; the state is the one before"),
    Column("log_partition", _INT, "of __share_group_state"),
    Column("log_offset", _LONG, "of the last record about it"),
)
"""Partitions of topics as share groups see them. Who holds a record for the moment is never written."""

DIFFERENCES: Columns = (
    Column("group_id", _STRING, "the group"),
    Column("topic", _STRING, "of an offset; null: about the group"),
    Column("topic_partition", _INT, "goes with topic"),
    Column("field", _STRING, "what differs"),
    Column("coordinator", _STRING, "what the coordinator answers; null: nothing"),
    Column("table", _STRING, "what the table says; null: nothing"),
    Column("log_partition", _INT, "where the group's records lie"),
)
"""Where the tables differ from the coordinator that loads the same records."""
