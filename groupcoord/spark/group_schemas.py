"""The declared schemas of the tables about groups: their history, what is wrong with them, what expires.

Like those of :mod:`groupcoord.spark.schemas`: numbers are as Kafka writes them, and what does not apply is null.
Generations of classic groups and epochs of KIP-848, share and streams groups share their columns.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

from groupcoord.spark.schemas import table_schema

_INT, _LONG, _DOUBLE, _STRING, _BOOLEAN = IntegerType(), LongType(), DoubleType(), StringType(), BooleanType()
_STRINGS = ArrayType(_STRING)

_PARTITIONS = StructType().add("topic", _STRING).add("partitions", ArrayType(_INT))
_SUBSCRIPTION = (
    StructType()
    .add("topics", _STRINGS)
    .add("topic_regex", _STRING)
    .add("owned_partitions", ArrayType(_PARTITIONS))
    .add("generation", _INT)
    .add("rack_id", _STRING)
    .add("user_data", BinaryType())
    .add("raw", BinaryType())
)
_ASSIGNMENT = StructType().add("topic", _STRING).add("topic_id", _STRING).add("partitions", ArrayType(_INT))

GENERATIONS = table_schema(
    ("group_id", _STRING, "the group"),
    ("generation", _INT, "its number"),
    ("protocol_type", _STRING, "consumer, connect, ...; null before the first member"),
    ("protocol", _STRING, "the assignor that was chosen; null without members"),
    ("leader", _STRING, "the member id of the leader; null without members"),
    ("member_count", _INT, "how many members it has"),
    ("state_timestamp_ms", _LONG, "when its join phase ended, or the group became empty"),
    ("log_partition", _INT, "where the record lies"),
    ("log_offset", _LONG, "where the record lies"),
    ("log_timestamp_ms", _LONG, "when the record was written: the assignments were there"),
)
"""Every generation of a classic group that the log holds; one whose static member was replaced comes again."""

MEMBERS = table_schema(
    ("group_id", _STRING, "the group"),
    ("type", _STRING, "Classic, Consumer, Share or Streams"),
    ("generation", _INT, "of a classic group, else the group's epoch"),
    ("member_id", _STRING, "the member"),
    ("instance_id", _STRING, "of a static member"),
    ("client_id", _STRING, "what the client calls itself"),
    ("client_host", _STRING, "where it connects from"),
    ("session_timeout_ms", _INT, "null: a setting of the broker"),
    ("rebalance_timeout_ms", _INT, "how long it may take to rejoin or give partitions up; -1: not told"),
    ("subscription", _SUBSCRIPTION, "what it asks for, decoded; raw: its bytes, of classic members"),
    ("assignment", ArrayType(_ASSIGNMENT), "what it has, by topic; tasks of streams groups by subtopology"),
    (
        "pending",
        ArrayType(_ASSIGNMENT),
        "what it was told to give up and has not yet; null in classic and streams groups",
    ),
    ("target", ArrayType(_ASSIGNMENT), "what it is to have; null in classic and streams groups"),
    ("assignor", _STRING, "of the coordinator, that a member of a consumer group asks for; null: none"),
    ("is_leader", _BOOLEAN, "it leads a classic generation"),
    ("member_epoch", _INT, "its own epoch; null in a classic group"),
    ("log_partition", _INT, "where the record of the generation or epoch lies"),
    ("log_offset", _LONG, "where the record of the generation or epoch lies"),
)
"""The members of every generation; of an epoch those that it began with, and what they had when it ended."""

GROUPS = table_schema(
    ("group_id", _STRING, "the group"),
    ("type", _STRING, "Classic, Consumer, Share or Streams"),
    ("state", _STRING, "as Kafka calls it"),
    ("generation_or_epoch", _INT, "generation of a classic group, epoch of another; 0 if it only has offsets"),
    ("member_count", _INT, "how many members it has"),
    ("last_commit_ms", _LONG, "when the newest of its offsets was committed; null without offsets"),
    ("protocol_type", _STRING, "consumer, connect, ...; empty if it only has offsets"),
    (
        "protocol",
        _STRING,
        "the assignor of a classic group that is stable, or that most members of a consumer group ask for",
    ),
    ("assignment_epoch", _INT, "of the target assignment; null in a classic group"),
    ("state_timestamp_ms", _LONG, "when it came to its generation or epoch; null if the log does not tell"),
    ("subscribed_topics", _STRINGS, "what its members subscribe to; null if that can't be known"),
    ("offset_count", _LONG, "how many offsets it has"),
    ("log_partition", _INT, "where its records lie"),
)
"""Every group as a coordinator that loads the log would describe it."""

REBALANCES = table_schema(
    ("group_id", _STRING, "the group"),
    ("type", _STRING, "Classic, Consumer, Share or Streams; the type after it"),
    ("from_generation", _INT, "or epoch; null: nothing before is in the log"),
    ("to_generation", _INT, "the same as before where a static member was replaced"),
    ("conversion", _STRING, "upgrade: a classic group became a consumer group with it; downgrade: the other way round"),
    ("started_after_ms", _LONG, "it can't have begun before this moment; null: not known"),
    ("started_ms", _LONG, "when it was under way for sure: the join phase was over, or the epoch began"),
    ("target_ms", _LONG, "when the target assignment for the epoch of a consumer group was there; null: it never was"),
    ("ended_ms", _LONG, "when its assignments were there; null: not in the log"),
    ("cause", _STRING, "join, leave, expiry or leave, session expiry, metadata change, ..., unknown"),
    ("causes", _STRINGS, "all that took part, cause first"),
    ("confidence", _DOUBLE, "that cause is right: 1 proven by the records, 0 unknown"),
    ("joined", _STRINGS, "member ids that are new"),
    ("left", _STRINGS, "member ids that are gone"),
    ("joined_clients", _STRINGS, "their client ids"),
    ("left_clients", _STRINGS, "their client ids"),
    ("member_count", _INT, "members after it"),
    ("partitions_moved", _INT, "partitions that another member has since, or none"),
    ("missing_generations", _INT, "numbers between the two that the log does not hold"),
    ("evidence", _STRING, "in words"),
    ("log_partition", _INT, "where the record that shows it lies"),
    ("log_offset", _LONG, "where the record that shows it lies"),
)
"""Every change of a generation, an epoch or a static member's id that the log shows, and why it came."""

EPOCHS = table_schema(
    ("group_id", _STRING, "the group"),
    ("whose", _STRING, "whose epoch the record tells: group, target or member"),
    ("group_epoch", _INT, "the group's, once the record is written, as all that follow"),
    ("target_epoch", _INT, "of the target assignment"),
    ("member_id", _STRING, "the member; null unless the record is about one"),
    ("member_epoch", _INT, "its own; -2: it has left for a while; null: it is gone"),
    ("previous_member_epoch", _INT, "the one that it may still name"),
    ("state", _STRING, "Stable, UnrevokedPartitions (it has something to give up) or UnreleasedPartitions (it waits)"),
    ("partitions", _INT, "how many partitions it has"),
    ("pending_partitions", _INT, "how many it was told to give up and has not yet"),
    ("log_partition", _INT, "where the record lies"),
    ("log_offset", _LONG, "where the record lies"),
    ("log_timestamp_ms", _LONG, "when it was written"),
)
"""Every change of an epoch in a consumer group, be it the group's, the target assignment's or a member's."""

MEMBERSHIPS = table_schema(
    ("group_id", _STRING, "the group"),
    ("member_id", _STRING, "the member"),
    ("instance_id", _STRING, "of a static member"),
    ("client_id", _STRING, "what the client calls itself"),
    ("client_host", _STRING, "where it connects from"),
    ("protocol", _STRING, "consumer, or classic for a member that joins and syncs; as it was last"),
    (
        "began",
        _STRING,
        "join, static replace, or upgrade: it was there as the group was a classic one; null: not known",
    ),
    ("began_ms", _LONG, "when it became a member; null: before the log tells"),
    ("replaced_member", _STRING, "whose place a static member took"),
    ("first_epoch", _INT, "the first epoch of its own"),
    ("last_epoch", _INT, "and the last one"),
    ("away_ms", _LONG, "since when a static member has left for a while; null: it has not, or is back"),
    (
        "end",
        _STRING,
        "leave, expiry or leave, session expiry, rebalance time-out, static replace, conversion; null: it is one",
    ),
    ("ended_ms", _LONG, "when it was no member any more; null: it still is"),
    ("confidence", _DOUBLE, "that the end is right: 1 proven by the records; null: not known"),
    ("evidence", _STRING, "in words"),
    ("log_partition", _INT, "where the record lies with which it ended, or began if it has not ended"),
    ("log_offset", _LONG, "where the record lies with which it ended, or began if it has not ended"),
)
"""Each life of a member of a consumer group: how it began and ended."""

MOVES = table_schema(
    ("group_id", _STRING, "the group"),
    ("epoch", _INT, "of the target assignment that moves the partition"),
    ("assignor", _STRING, "that most members asked for; null: that was left to the brokers"),
    ("topic", _STRING, "its name; null if the group has no commit that tells it"),
    ("topic_id", _STRING, "its id"),
    ("topic_partition", _INT, "goes with it"),
    ("from_member", _STRING, "who was to have it before; null: nobody"),
    ("to_member", _STRING, "who is to have it; null: nobody"),
    ("reason", _STRING, "unassigned, owner gone, subscription, topic gone, balance or swap"),
    ("is_necessary", _BOOLEAN, "false for a swap: its owner got another one for it that the new owner might have had"),
    ("decided_ms", _LONG, "when the target assignment was written"),
    ("released_ms", _LONG, "when its owner had given it up; null: not yet, or there was none"),
    ("assigned_ms", _LONG, "when its new owner had it; null: never"),
    ("unowned_ms", _LONG, "how long nobody had it before; null: it has no new owner, or had none"),
    ("log_partition", _INT, "where the record of the target assignment lies"),
    ("log_offset", _LONG, "where the record of the target assignment lies"),
)
"""What assignors of consumer groups moved, partition by partition."""

REVOCATIONS = table_schema(
    ("group_id", _STRING, "the group"),
    ("member_id", _STRING, "who has to give up"),
    ("instance_id", _STRING, "of a static member"),
    ("client_id", _STRING, "what the client calls itself"),
    ("member_epoch", _INT, "its epoch meanwhile"),
    ("partitions", ArrayType(_ASSIGNMENT), "what, by topic"),
    ("partition_count", _INT, "how many partitions these are"),
    ("rebalance_timeout_ms", _INT, "how long it may take"),
    ("asked_ms", _LONG, "when it was told"),
    ("ended_ms", _LONG, "when that was over; null: it is not"),
    ("took_ms", _LONG, "how long it took"),
    (
        "end",
        _STRING,
        "given up; gone: it is no member any more; rebalance time-out: it was fenced for it; null: not yet",
    ),
    ("log_partition", _INT, "where the record lies that tells it to"),
    ("log_offset", _LONG, "where the record lies that tells it to"),
)
"""What members of consumer groups were told to give up, and how long that took."""

_DUPLICATE = (
    StructType()
    .add("generation", _INT)
    .add("topic", _STRING)
    .add("topic_partition", _INT)
    .add("member_ids", _STRINGS)
    .add("log_offset", _LONG)
    .add("log_timestamp_ms", _LONG)
)
_DEPARTURE = (
    StructType().add("topic", _STRING).add("topic_partition", _INT).add("from_offset", _LONG).add("to_offset", _LONG)
)


def _without(schema: StructType, *names: str) -> StructType:
    return StructType([column for column in schema if column.name not in names])


_PLACE = ("group_id", "log_partition")

HISTORY = table_schema(
    ("group_id", _STRING, "the group"),
    ("log_partition", _INT, "where its records lie"),
    ("kind", _STRING, "which of the other columns is set"),
    ("generation", _without(GENERATIONS, *_PLACE), "a row of generations"),
    ("member", _without(MEMBERS, *_PLACE), "a row of members"),
    ("rebalance", _without(REBALANCES, *_PLACE), "a row of rebalances"),
    ("epoch", _without(EPOCHS, *_PLACE), "a row of epochs"),
    ("membership", _without(MEMBERSHIPS, *_PLACE), "a row of memberships"),
    ("move", _without(MOVES, *_PLACE), "a row of moves"),
    ("revocation", _without(REVOCATIONS, *_PLACE), "a row of revocations"),
    ("group", _without(GROUPS, *_PLACE, "last_commit_ms", "offset_count"), "a row of groups, but for its offsets"),
    ("duplicate", _DUPLICATE, "a partition that several members have at a time"),
    ("departure", _DEPARTURE, "a range of the log in which a commit would show that a member left"),
)
"""What the fold of each group gives: the rows of several tables in one."""

ANOMALIES = table_schema(
    ("group_id", _STRING, "the group"),
    ("kind", _STRING, "which anomaly"),
    ("status", _STRING, "Burrow's word for it: REWIND, STOP or STALL; null where it has none"),
    ("topic", _STRING, "null if it concerns the whole group"),
    ("topic_partition", _INT, "goes with topic"),
    ("client_id", _STRING, "of a flapping, slow or fenced member"),
    ("first_ms", _LONG, "when it began"),
    ("last_ms", _LONG, "when it was seen last"),
    ("count", _LONG, "how often"),
    (
        "value",
        _LONG,
        "how much: records rewound, milliseconds without a commit or to give up, commits or rebalances",
    ),
    ("evidence", _STRING, "in words"),
    ("log_partition", _INT, "where its records lie"),
)
"""What is wrong with groups: offset rewind, commits stopped, stalled, commit storm, rebalance storm, flapping member,
duplicate owner, slow revocation, fenced member."""

STALE_GROUPS = table_schema(
    ("group_id", _STRING, "the group"),
    ("type", _STRING, "Classic, Consumer, Share or Streams"),
    ("state", _STRING, "as Kafka calls it"),
    ("offset_count", _LONG, "how many offsets it has"),
    ("expiring_offsets", _LONG, "how many of them expire if nothing changes"),
    ("expired_offsets", _LONG, "how many of them are due already"),
    ("last_commit_ms", _LONG, "when the newest was committed"),
    ("next_expiry_ms", _LONG, "when the first of them expires; null: none does"),
    ("group_expiry_ms", _LONG, "when the group is deleted with the last of them; null: something keeps it"),
    ("idle_ms", _LONG, "from the newest commit, or the last change of the group, to now"),
    ("log_partition", _INT, "where its records lie"),
)
"""Groups that lose offsets if nobody uses them, by the rules of KIP-211; checks of retention come some minutes late."""

DIFFERENCES = table_schema(
    ("group_id", _STRING, "the group"),
    ("topic", _STRING, "of an offset; null: about the group"),
    ("topic_partition", _INT, "goes with topic"),
    ("field", _STRING, "what differs"),
    ("coordinator", _STRING, "what the coordinator answers; null: nothing"),
    ("table", _STRING, "what the table says; null: nothing"),
    ("log_partition", _INT, "where the group's records lie"),
)
"""Where the tables differ from the coordinator that loads the same records."""
