"""The coordinator itself loads each group's records, and its answers are held against the tables.

A task holds one group's state and one Arrow batch, however hot the group (:mod:`groupcoord.analysis.folding.replay`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from groupcoord.analysis.columns.schema import KIND_CONTROL, KIND_RECORD
from groupcoord.analysis.folding import replay as replaying
from groupcoord.analysis.folding.replay import RECORDS_FIELD, REPLAYED, replay_batches
from groupcoord.analysis.history.rows import GENERATION, GROUP
from groupcoord.analysis.history.views import CLASSIC, CONSUMER, SHARE, STREAMS
from groupcoord.spark.group_schemas import DIFFERENCES
from groupcoord.spark.groups import NO_PARTITION, History, history_of, known_partition, members
from groupcoord.spark.schemas import declared
from groupcoord.spark.tables import current_offsets, is_offset_record

_KEY = ("log_partition", "group_id")
_NEEDED = (*_KEY, *REPLAYED)
_OFFSET_KEY = ("group_id", "topic", "topic_partition", "tombstone")

ANSWERS = declared(replaying.ANSWERS)
"""What :func:`replay` gives."""


def verify(
    records: DataFrame, *, history: DataFrame | History | None = None, offsets: DataFrame | None = None
) -> DataFrame:
    """Return where the tables differ from the coordinator (:data:`groupcoord.spark.group_schemas.DIFFERENCES`).

    Nothing, that is, unless something is wrong. Compared are the groups there are, of classic and consumer groups
    state, protocol type, protocol, generation or epochs, and members with what they have (in a consumer group also what
    they are to have and to give up, and what they subscribe to), and of all groups their committed offsets with leader
    epoch and metadata. The coordinator does not know the records of share and streams groups: of these only the offsets
    are compared.

    Args:
        records: the table of records.
        history: what :func:`groupcoord.spark.history` makes of it, if it is there already.
        offsets: what :func:`groupcoord.spark.current_offsets` makes of it, likewise.
    """
    folded = history_of(records if history is None else history)
    tables = _table_answers(current_offsets(records) if offsets is None else offsets, folded)
    found = (
        replay(records).where(F.col("field") != RECORDS_FIELD).withColumnRenamed("text", "coordinator").drop("number")
    )
    unknown = folded.rows(GROUP).where(F.col("type").isin(SHARE, STREAMS)).select("group_id")
    # Of a group whose records the coordinator does not know it may still have the offsets.
    key = ["group_id", "topic", "topic_partition", "field"]
    is_same = [F.col(f"one.{name}").eqNullSafe(F.col(f"other.{name}")) for name in key]
    matches = is_same[0] & is_same[1] & is_same[2] & is_same[3]
    one, other = found.alias("one"), tables.alias("other")
    both = one.join(other, matches, "full").where(~F.col("coordinator").eqNullSafe(F.col("table")))
    differences = both.select(
        *[F.coalesce(f"one.{name}", f"other.{name}").alias(name) for name in key],
        "coordinator",
        "table",
        F.expr(f"nullif(coalesce(one.log_partition, other.log_partition), {NO_PARTITION})").alias("log_partition"),
    )
    of_groups = differences.where("topic is null").join(unknown, "group_id", "left_anti")
    return differences.where("topic is not null").unionByName(of_groups).select(*DIFFERENCES.fieldNames())


def replay(records: DataFrame) -> DataFrame:
    """Return what the coordinator answers about each group after loading its records (:data:`ANSWERS`).

    Outside of transactions the last commit and the last tombstone of each partition are replayed: what else was there
    changes no answer, and a group that commits all day has no more to load than one that seldom does. Transaction
    markers have no group; each is given to the groups that its producer wrote to in that log partition.
    """
    is_offset = is_offset_record()
    is_plain = is_offset & ~F.col("is_transactional")
    is_known = (F.col("kind") == KIND_RECORD) & F.col("problem").isNull() & F.col("group_id").isNotNull()
    partition = known_partition()
    of_groups = records.where(is_known & ~is_plain).select(partition, *_NEEDED[1:])
    of_offset = [name for name in REPLAYED if name not in _OFFSET_KEY]
    last_commits = (
        records.where(is_plain)
        .groupBy(partition, *_OFFSET_KEY)
        .agg(F.max_by(F.struct(*of_offset), "log_offset").alias("last"))
        .select("log_partition", *_OFFSET_KEY, "last.*")
        .select(*_NEEDED)
    )
    writers = (
        records.where(is_offset & F.col("is_transactional")).select(partition, "group_id", "producer_id").distinct()
    )
    markers = (
        records.where((F.col("kind") == KIND_CONTROL) & F.col("control_type").isin(0, 1))
        .select(partition, *REPLAYED)
        .join(writers, ["log_partition", "producer_id"])
        .select(*_NEEDED)
    )
    ordered = (
        of_groups.unionByName(last_commits)
        .unionByName(markers)
        .repartition(*_KEY)
        .sortWithinPartitions(*_KEY, "log_offset")
    )
    return ordered.mapInArrow(replay_batches, ANSWERS)


def _table_answers(offsets: DataFrame, folded: History) -> DataFrame:
    """Return what the tables say, in the shape of what the coordinator answers."""
    # What is a table's is in the fold's row already, but for when the group committed.
    of_groups = folded.rows(GROUP).where(F.col("type").isin(CLASSIC, CONSUMER))
    fields = {
        "state": F.col("state"),
        "protocol type": F.col("protocol_type"),
        "protocol": F.coalesce("protocol", F.lit("")),
        "generation": F.col("generation_or_epoch").cast("string"),
        "assignment epoch": F.col("assignment_epoch").cast("string"),
    }
    told = F.map_from_arrays(F.array(*map(F.lit, fields)), F.array(*fields.values()))
    about_groups = of_groups.select(*_place(), F.explode(told).alias("field", "table")).where("table is not null")
    offset = F.concat_ws("|", F.col("committed_offset"), F.col("leader_epoch"), F.col("metadata"))
    about_offsets = offsets.select(
        *_place()[:2], "topic", "topic_partition", F.lit("offset").alias("field"), offset.alias("table")
    )
    found = members(folded)
    return (
        about_groups.unionByName(_classic_members(found, folded, of_groups))
        .unionByName(_consumer_members(found, of_groups))
        .unionByName(about_offsets)
    )


def _place() -> tuple[Column, ...]:
    nothing = (F.lit(None).cast("string").alias("topic"), F.lit(None).cast("int").alias("topic_partition"))
    return F.coalesce("log_partition", F.lit(NO_PARTITION)).alias("log_partition"), F.col("group_id"), *nothing


def _classic_members(found: DataFrame, folded: History, of_groups: DataFrame) -> DataFrame:
    """Return the last members of classic groups."""
    # The last record of a group has its members: a generation comes again when a static member was replaced.
    last = folded.rows(GENERATION).groupBy("group_id").agg(F.max("log_offset").alias("log_offset"))
    parts: list[Column | str] = [
        F.coalesce("instance_id", F.lit("")),
        "client_id",
        "client_host",
        _partitions_told("assignment", "topic"),
    ]
    return _about_members(
        found.where(F.col("type") == CLASSIC)
        .join(last, ["group_id", "log_offset"])
        .join(of_groups.where(F.col("type") == CLASSIC).select("group_id"), "group_id", "left_semi"),
        parts,
    )


def _consumer_members(found: DataFrame, of_groups: DataFrame) -> DataFrame:
    """Return the members of consumer groups as the log ends."""
    now = of_groups.where((F.col("type") == CONSUMER) & (F.col("member_count") > 0)).select(
        "group_id", F.col("generation_or_epoch").alias("generation")
    )
    # A group that was deleted and came back may have had the same epoch before.
    last = Window.partitionBy("group_id")
    at_the_end = (
        found.where(F.col("type") == CONSUMER)
        .join(now, ["group_id", "generation"], "left_semi")
        .withColumn("last_offset", F.max("log_offset").over(last))
        .where("log_offset = last_offset")
    )
    parts: list[Column | str] = [
        *(F.coalesce(F.col(name).cast("string"), F.lit("")) for name in _OF_MEMBERS),
        F.array_join(F.coalesce("subscription.topics", F.array().cast("array<string>")), ","),
        F.coalesce("subscription.topic_regex", F.lit("")),
        F.coalesce("subscription.rack_id", F.lit("")),
        *(_partitions_told(name, "topic_id") for name in ("assignment", "pending", "target")),
    ]
    return _about_members(at_the_end, parts)


_OF_MEMBERS = (
    *("instance_id", "client_id", "client_host", "session_timeout_ms", "rebalance_timeout_ms", "assignor"),
    "member_epoch",
)


def _about_members(found: DataFrame, parts: list[Column | str]) -> DataFrame:
    field = F.concat(F.lit("member "), "member_id").alias("field")
    return found.select(*_place(), field, F.concat_ws("|", *parts).alias("table"))


def _partitions_told(column: str, topic: str) -> Column:
    told = F.transform(column, lambda found: F.concat(found[topic], F.lit(":"), F.array_join(found["partitions"], ",")))
    return F.array_join(told if topic == "topic" else F.array_sort(told), ";")
