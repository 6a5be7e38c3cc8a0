"""Figures of consumer groups (KIP-848) for a report: what assignors moved, who gave partitions up slowly, epochs."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from groupcoord.analysis.history.causes import REBALANCE_TIMEOUT, SESSION_EXPIRY
from groupcoord.analysis.history.ownership import SWAP
from groupcoord.analysis.report import model, rows
from groupcoord.spark.figures import at_ms, cut


def consumer_rows(
    epochs: DataFrame, memberships: DataFrame, moves: DataFrame, revocations: DataFrame
) -> tuple[model.ConsumerGroupRow, ...]:
    """Return one row a consumer group: those in which members were slowest or fenced first."""
    by_epochs = epochs.groupBy("group_id").agg(
        F.max("group_epoch").alias("epoch"), F.count_if(F.col("whose") == "group").alias("epochs")
    )
    by_members = memberships.groupBy("group_id").agg(
        F.count(F.lit(1)).alias("members_seen"),
        F.count_if(F.col("end").isin(REBALANCE_TIMEOUT, SESSION_EXPIRY)).alias("fenced"),
    )
    by_moves = moves.groupBy("group_id").agg(
        F.count_if(is_move()).alias("moved"),
        F.count_if(F.col("reason") == SWAP).alias("swapped"),
        F.max("unowned_ms").alias("unowned_ms"),
    )
    by_revocations = revocations.groupBy("group_id").agg(
        F.count(F.lit(1)).alias("revocations"),
        F.percentile_approx("took_ms", 0.5).alias("median_ms"),
        F.max("took_ms").alias("slowest_ms"),
    )
    found = by_epochs
    for one in (by_members, by_moves, by_revocations):
        found = found.join(one, "group_id", "left")
    counts = ("members_seen", "fenced", "moved", "swapped", "revocations")
    collected = (
        found.fillna(0, subset=list(counts))
        .orderBy(F.desc("fenced"), F.desc_nulls_last("slowest_ms"), F.desc("moved"), "group_id")
        .limit(model.CONSUMER_GROUPS_MAX)
        .collect()
    )
    return tuple(model.ConsumerGroupRow(**row.asDict()) for row in collected)


def assignor_rows(moves: DataFrame) -> tuple[model.AssignorRow, ...]:
    """Return what each assignor moved, most first."""
    found = (
        moves.withColumn("assignor", F.coalesce("assignor", F.lit("")))
        .groupBy(cut("assignor"))
        .agg(
            F.count_distinct("group_id").alias("groups"),
            F.count_distinct("group_id", "epoch").alias("targets"),
            F.count_if(is_move()).alias("moved"),
            F.count_if(F.col("reason") == SWAP).alias("swapped"),
            F.percentile_approx(F.when(is_move(), F.col("assigned_ms") - F.col("decided_ms")), 0.5).alias("median_ms"),
            F.max("unowned_ms").alias("unowned_ms"),
        )
        .orderBy(F.desc("moved"), "assignor")
        .limit(model.ASSIGNORS_MAX)
        .collect()
    )
    return tuple(model.AssignorRow(**row.asDict()) for row in found)


def slow_rows(revocations: DataFrame) -> tuple[model.SlowMemberRow, ...]:
    """Return the clients that took longest to give partitions up."""
    found = (
        revocations.where("took_ms is not null")
        .groupBy("group_id", "client_id")
        .agg(
            F.count(F.lit(1)).alias("revocations"),
            F.percentile_approx("took_ms", 0.5).alias("median_ms"),
            F.max("took_ms").alias("slowest_ms"),
            # The moment decides between those that took as long, so that the answer is always the same.
            F.max(F.struct("took_ms", "asked_ms", "rebalance_timeout_ms")).alias("slowest"),
            F.count_if(F.col("end") == REBALANCE_TIMEOUT).alias("fenced"),
        )
        .withColumns({name: F.col(f"slowest.{name}") for name in ("asked_ms", "rebalance_timeout_ms")})
        .orderBy(F.desc("slowest_ms"), "group_id", "client_id")
        .limit(model.SLOW_MEMBERS_MAX)
        .select("group_id", cut("client_id"), *_SLOW, at_ms("asked_ms").alias("asked_ms"))
        .collect()
    )
    return tuple(model.SlowMemberRow(**row.asDict()) for row in found)


_SLOW = ("revocations", "median_ms", "slowest_ms", "rebalance_timeout_ms", "fenced")


def is_move() -> Column:
    """Return the condition for partitions that somebody had before."""
    return F.col("from_member").isNotNull()


def epoch_lines(epochs: DataFrame, names: list[str]) -> Mapping[str, tuple[model.EpochPoint, ...]]:
    """Return how the epochs of some groups went on: the newest of each, oldest first."""
    newest = Window.partitionBy("group_id").orderBy(F.desc("log_offset"))
    found = (
        epochs.where(F.col("group_id").isin(names) & (F.col("log_timestamp_ms") >= 0))
        .withColumn("place", F.row_number().over(newest))
        .where(F.col("place") <= model.EPOCHS_OF_GROUP_MAX)
        .orderBy("group_id", F.desc("place"))
        .select("group_id", "log_timestamp_ms", "group_epoch", "target_epoch", "member_id", "member_epoch")
        .collect()
    )
    return rows.epoch_lines(found)
