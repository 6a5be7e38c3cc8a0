"""What is wrong with groups, from their commits and their history; and which lose their offsets for want of use."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from groupcoord.analysis.columns.schema import KIND_RECORD
from groupcoord.analysis.history.anomalies import (
    COMMIT_STORM,
    COMMITS_STOPPED,
    DUPLICATE_OWNER,
    FENCED_MEMBER,
    FLAPPING_MEMBER,
    OFFSET_REWIND,
    OFFSETS_RETENTION_MINUTES,
    REBALANCE_STORM,
    REWIND,
    SLOW_REVOCATION,
    STALL,
    STALLED,
    STOP,
    Thresholds,
)
from groupcoord.analysis.history.causes import REBALANCE_TIMEOUT
from groupcoord.analysis.history.lag import has_stopped, stands_still
from groupcoord.analysis.history.rows import DUPLICATE
from groupcoord.analysis.history.views import CLASSIC
from groupcoord.analysis.report.text import format_limit
from groupcoord.core.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from groupcoord.core.offsets.retention import MS_PER_MINUTE
from groupcoord.spark.group_schemas import ANOMALIES, STALE_GROUPS
from groupcoord.spark.groups import (
    History,
    groups,
    history_of,
    memberships,
    partition_holders,
    rebalances,
    revocations,
)
from groupcoord.spark.lag import with_ends
from groupcoord.spark.tables import commits_of, current_offsets


def anomalies(
    records: DataFrame,
    *,
    history: DataFrame | History | None = None,
    commits: DataFrame | None = None,
    end_offsets: DataFrame | None = None,
    looks: DataFrame | None = None,
    now_ms: int | None = None,
    thresholds: Thresholds | None = None,
) -> DataFrame:
    """Return what is wrong with groups (:data:`groupcoord.spark.group_schemas.ANOMALIES`).

    The status is Burrow's word for such a thing. What Burrow would say now of each partition is in
    :func:`groupcoord.spark.lag`: here are all rewinds of the log, and silences only beyond the thresholds. With
    ``end_offsets`` a partition whose commits stopped, or go on at the same offset, is one only if it has a lag, as
    there; without them nothing is said about partitions that stall, and commits have stopped only where a member still
    has the partition.

    Args:
        records: the table of records.
        history: what :func:`groupcoord.spark.history` makes of it, if it is there already.
        commits: what :func:`groupcoord.spark.commits` makes of it, likewise.
        end_offsets: :data:`groupcoord.spark.schemas.END_OFFSETS`.
        looks: as for :func:`groupcoord.spark.lag`: commits have not stopped where the group was at the end of late.
        now_ms: the moment to judge from; the last timestamp of the records if left out.
        thresholds: what is too much.
    """
    limits = thresholds or Thresholds()
    folded = history_of(records if history is None else history)
    found = commits_of(records if commits is None else commits)
    parts = [
        _about_offsets(found, folded, end_offsets, looks, _now(records, now_ms), limits),
        _commit_storms(found, limits),
        _rebalance_storms(folded, limits),
        _flapping_members(folded, limits),
        _duplicate_owners(folded),
        _slow_revocations(records, folded, now_ms, limits),
        _fenced_members(folded),
    ]
    together = parts[0]
    for part in parts[1:]:
        together = together.unionByName(part)
    return together


def _anomaly(table: DataFrame, kind: str, status: str | None = None, **columns: Column) -> DataFrame:
    """Return rows of the table of anomalies; what is not given is null or a column of ``table`` by that name."""
    return _as_anomalies(table.withColumns({"kind": F.lit(kind), "status": F.lit(status)} | columns))


def _as_anomalies(table: DataFrame) -> DataFrame:
    return table.select(
        *[
            (F.col(column.name) if column.name in table.columns else F.lit(None))
            .cast(column.dataType)
            .alias(column.name)
            for column in ANOMALIES
        ]
    )


def _about_offsets(
    found: DataFrame,
    folded: History,
    end_offsets: DataFrame | None,
    looks: DataFrame | None,
    now: DataFrame,
    limits: Thresholds,
) -> DataFrame:
    """Return what the commits of partitions tell, each alone: offsets that went back, and silences."""
    by_partition = _by_partition(found, limits).crossJoin(F.broadcast(now))
    by_partition = by_partition.withColumn("silent_ms", F.col("now_ms") - F.col("last_ms")).join(
        partition_holders(folded), ["group_id", "topic", "topic_partition"], "left"
    )
    if end_offsets is None:
        by_partition = by_partition.withColumn("lag", F.lit(None).cast("long"))
        is_wanted = F.col("member_id").isNotNull()
    else:
        by_partition = with_ends(by_partition, end_offsets, looks)
        is_wanted = (F.col("lag") > 0) & ~F.col("was_at_end")
    each = F.array(_rewind(), *_silences(is_wanted, limits))
    told = F.explode(F.filter(each, lambda one: one.isNotNull())).alias("told")
    return _as_anomalies(by_partition.select(*_PARTITION, told).select(*_PARTITION, "told.*"))


_PARTITION = ("log_partition", "group_id", "topic", "topic_partition")


def _by_partition(found: DataFrame, limits: Thresholds) -> DataFrame:
    """Return what is to be known of each partition's commits, and of the last ones: all in one pass.

    ``rewinds`` and what begins with ``rewound`` are about commits that went back, a tombstone between starts anew; the
    others are about the last commits.
    """
    newest_first = Window.partitionBy(*_PARTITION).orderBy(F.desc("log_offset"))
    commits = (
        found.select(*_PARTITION, "log_offset", "log_timestamp_ms", "committed_offset", "tombstone")
        .withColumn("rank", F.row_number().over(newest_first))
        .withColumn("rewound", F.lead("committed_offset").over(newest_first) - F.col("committed_offset"))
    )
    is_back, is_new = F.col("rewound") > 0, F.col("rank") <= limits.window_commits
    rewound_ms, new_ms = F.when(is_back, F.col("log_timestamp_ms")), F.when(is_new, F.col("log_timestamp_ms"))
    return (
        commits.groupBy(*_PARTITION)
        .agg(
            F.count_if(is_back).alias("rewinds"),
            F.min(rewound_ms).alias("rewound_first_ms"),
            F.max(rewound_ms).alias("rewound_last_ms"),
            F.max(F.when(is_back, F.struct("rewound", "log_offset", "committed_offset"))).alias("rewound_most"),
            F.min(new_ms).alias("first_ms"),
            F.max(new_ms).alias("last_ms"),
            F.count_if(is_new).alias("count"),
            F.min(F.when(is_new, F.col("committed_offset"))).alias("lowest"),
            F.max(F.when(is_new, F.col("committed_offset"))).alias("committed_offset"),
            F.count_if(is_new & F.col("tombstone")).alias("tombstones"),
        )
        .where("rewinds > 0 or tombstones = 0")
    )


def _told(condition: Column, kind: str, status: str, first: str, last: str, count: str, *words: Column) -> Column:
    """Return an anomaly as one value, null unless the condition holds; ``words`` are its value and evidence."""
    value, evidence = words
    return F.when(
        condition,
        F.struct(
            F.lit(kind).alias("kind"),
            F.lit(status).alias("status"),
            F.col(first).alias("first_ms"),
            F.col(last).alias("last_ms"),
            F.col(count).alias("count"),
            value.alias("value"),
            evidence.alias("evidence"),
        ),
    )


def _rewind() -> Column:
    """Return that a partition's committed offset went back."""
    by, to = F.col("rewound_most.rewound"), F.col("rewound_most.committed_offset")
    words = by, F.format_string("back by %,d to %,d", by, to)
    times = ("rewound_first_ms", "rewound_last_ms")
    return _told(F.col("rewinds") > 0, OFFSET_REWIND, REWIND, *times, "rewinds", *words)


def _silences(is_wanted: Column, limits: Thresholds) -> tuple[Column, Column]:
    """Return that a partition's commits stopped, and that they go on at the same offset in spite of a lag."""
    silent_ms, count, behind = F.col("silent_ms"), F.col("count"), F.col("lag")
    is_there = F.col("tombstones") == 0
    has_gone_silent = has_stopped(F.col("first_ms"), F.col("last_ms"), F.col("now_ms"))
    is_silent = has_gone_silent & (silent_ms >= limits.stopped_ms)
    is_same = stands_still(F.col("lowest"), F.col("committed_offset")) & (count >= limits.window_commits)
    told_lag = F.when(behind.isNull(), "").otherwise(F.format_string(", %,d records behind", behind))
    silent = F.concat(F.format_string("no commit for %,d s", F.floor(silent_ms / 1_000)), told_lag)
    same = F.format_string("%,d commits of offset %,d, %,d records behind", "count", "committed_offset", "lag")
    figures = ("first_ms", "last_ms", "count")
    is_stopped = is_there & is_silent & is_wanted & (count > 1)
    return (
        _told(is_stopped, COMMITS_STOPPED, STOP, *figures, silent_ms, silent),
        _told(is_there & is_same & (behind > 0) & ~is_silent, STALLED, STALL, *figures, behind, same),
    )


def _commit_storms(found: DataFrame, limits: Thresholds) -> DataFrame:
    """Return groups that commit too often."""
    minute = F.floor(F.col("log_timestamp_ms") / MS_PER_MINUTE)
    by_minute = (
        found.where(~F.col("tombstone"))
        .groupBy("log_partition", "group_id", minute.alias("minute"), "topic", "topic_partition")
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.min("log_timestamp_ms").alias("first_ms"),
            F.max("log_timestamp_ms").alias("last_ms"),
        )
        .groupBy("log_partition", "group_id", "minute")
        .agg(
            F.sum("count").alias("count"),
            F.count(F.lit(1)).alias("partitions"),
            F.min("first_ms").alias("first_ms"),
            F.max("last_ms").alias("last_ms"),
        )
        .where(
            (F.col("count") > limits.commits_per_minute * F.col("partitions")) & (F.col("count") > limits.storm_commits)
        )
    )
    table = by_minute.groupBy("log_partition", "group_id").agg(
        F.min("first_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
        F.count(F.lit(1)).alias("count"),
        # More partitions decide between minutes of as many commits, so that the answer is always the same.
        F.max(F.struct(F.col("count").alias("value"), "partitions")).alias("most"),
    )
    table = table.select("*", "most.*")
    worst = F.format_string("%,d commits of %,d partitions in a minute", F.col("value"), F.col("partitions"))
    return _anomaly(table, COMMIT_STORM, evidence=worst)


def _rebalance_storms(folded: History, limits: Thresholds) -> DataFrame:
    """Return groups that rebalance too often."""
    at_ms = F.coalesce("ended_ms", "started_ms")
    # A static member that comes back stops nobody.
    found = rebalances(folded).where("from_generation is null or from_generation < to_generation")
    window = (
        Window.partitionBy("group_id").orderBy("at_ms").rangeBetween(-limits.rebalance_window_ms, Window.currentRow)
    )
    table = (
        found.withColumn("at_ms", at_ms)
        .where("at_ms is not null")
        .withColumn("value", F.count(F.lit(1)).over(window))
        .withColumn("began_ms", F.min("at_ms").over(window))
        .where(F.col("value") >= limits.rebalances)
        .groupBy("log_partition", "group_id")
        .agg(
            F.min("began_ms").alias("first_ms"),
            F.max("at_ms").alias("last_ms"),
            F.max("value").alias("value"),
            F.count(F.lit(1)).alias("count"),
        )
    )
    worst = F.format_string(f"%,d rebalances within {format_limit(limits.rebalance_window_ms)}", F.col("value"))
    return _anomaly(table, REBALANCE_STORM, evidence=worst)


def _flapping_members(folded: History, limits: Thresholds) -> DataFrame:
    """Return clients that leave and join again and again: as often as they are gone they were back."""
    found = rebalances(folded).withColumn("at_ms", F.coalesce("ended_ms", "started_ms")).where("at_ms is not null")
    moves = found.select(
        "log_partition", "group_id", "at_ms", F.explode("joined_clients").alias("client_id"), F.lit(1).alias("joined")
    ).unionByName(
        found.select(
            "log_partition", "group_id", "at_ms", F.explode("left_clients").alias("client_id"), F.lit(0).alias("joined")
        )
    )
    window = (
        Window.partitionBy("group_id", "client_id")
        .orderBy("at_ms")
        .rangeBetween(-limits.rebalance_window_ms, Window.currentRow)
    )
    table = (
        moves.withColumn("value", F.least(F.sum("joined").over(window), F.sum(1 - F.col("joined")).over(window)))
        .withColumn("began_ms", F.min("at_ms").over(window))
        .where(F.col("value") >= limits.comebacks)
        .groupBy("log_partition", "group_id", "client_id")
        .agg(
            F.min("began_ms").alias("first_ms"),
            F.max("at_ms").alias("last_ms"),
            F.max("value").alias("value"),
            F.count(F.lit(1)).alias("count"),
        )
    )
    worst = F.format_string(
        f"%s left and joined %,d times within {format_limit(limits.rebalance_window_ms)}",
        *(F.col("client_id"), F.col("value")),
    )
    return _anomaly(table, FLAPPING_MEMBER, evidence=worst)


def _duplicate_owners(folded: History) -> DataFrame:
    """Return partitions that several members had at a time."""
    table = (
        folded.rows(DUPLICATE)
        .groupBy("log_partition", "group_id", "topic", "topic_partition")
        .agg(
            F.min("log_timestamp_ms").alias("first_ms"),
            F.max("log_timestamp_ms").alias("last_ms"),
            F.count(F.lit(1)).alias("count"),
            F.max(F.size("member_ids")).alias("value"),
            F.min_by(F.struct("generation", "member_ids"), "log_offset").alias("first"),
        )
    )
    first = F.format_string("in generation %d by %s", F.col("first.generation"), F.array_join("first.member_ids", ", "))
    return _anomaly(table, DUPLICATE_OWNER, evidence=first)


def _slow_revocations(records: DataFrame, folded: History, now_ms: int | None, limits: Thresholds) -> DataFrame:
    """Return clients of consumer groups that made others wait; who was fenced for it is told as that."""
    found = revocations(folded).where(~F.col("end").eqNullSafe(REBALANCE_TIMEOUT))
    table = (
        found.crossJoin(F.broadcast(_now(records, now_ms)))
        .withColumn("until_ms", F.coalesce("ended_ms", "now_ms"))
        .withColumn("value", F.col("until_ms") - F.col("asked_ms"))
        .where(F.col("value") >= limits.revocation_ms)
        .groupBy("log_partition", "group_id", "client_id")
        .agg(
            F.min("asked_ms").alias("first_ms"),
            F.max("until_ms").alias("last_ms"),
            F.count(F.lit(1)).alias("count"),
            F.max(F.struct("value", F.col("partition_count").alias("partitions"))).alias("most"),
        )
        .select("log_partition", "group_id", "client_id", "first_ms", "last_ms", "count", "most.*")
    )
    worst = F.format_string(
        "%s took %,d s to give up %,d partitions", "client_id", F.floor(F.col("value") / 1_000), "partitions"
    )
    return _anomaly(table, SLOW_REVOCATION, evidence=worst)


def _fenced_members(folded: History) -> DataFrame:
    """Return clients of consumer groups that did not give partitions up in the time that they had."""
    table = (
        memberships(folded)
        .where(F.col("end") == REBALANCE_TIMEOUT)
        .groupBy("log_partition", "group_id", "client_id")
        .agg(
            F.min("ended_ms").alias("first_ms"),
            F.max("ended_ms").alias("last_ms"),
            F.count(F.lit(1)).alias("count"),
            F.max(F.struct("ended_ms", "evidence")).alias("last"),
        )
        .withColumn("evidence", F.col("last.evidence"))
    )
    return _anomaly(table, FENCED_MEMBER)


def _now(records: DataFrame, now_ms: int | None) -> DataFrame:
    """Return one row with the moment to judge from."""
    last = F.max("log_timestamp_ms") if now_ms is None else F.lit(now_ms).cast("long")
    return records.where(F.col("kind") == KIND_RECORD).agg(last.alias("now_ms"))


def stale_groups(
    records: DataFrame,
    *,
    history: DataFrame | History | None = None,
    commits: DataFrame | None = None,
    offsets: DataFrame | None = None,
    now_ms: int | None = None,
    offsets_retention_minutes: int = OFFSETS_RETENTION_MINUTES,
) -> DataFrame:
    """Return groups whose offsets expire if nobody uses them (:data:`groupcoord.spark.group_schemas.STALE_GROUPS`).

    The rules are Kafka's (KIP-211, and ``isSubscribedToTopic`` of each type of group). An offset's age counts from its
    commit; in a classic group that became empty from then. Offsets of topics that a live group subscribes to don't
    expire, nor do those of a live group whose subscriptions a coordinator can't read. An offset that carries its own
    expiry keeps to it. An empty group goes with its last offset.

    Args:
        records: the table of records.
        history: what :func:`groupcoord.spark.history` makes of it, if it is there already.
        commits: what :func:`groupcoord.spark.commits` makes of it, likewise.
        offsets: what :func:`groupcoord.spark.current_offsets` makes of it, likewise.
        now_ms: the moment to judge from; the last timestamp of the records if left out.
        offsets_retention_minutes: ``offsets.retention.minutes`` of the brokers.
    """
    found = commits_of(records if commits is None else commits)
    current = current_offsets(found) if offsets is None else offsets
    of_groups = groups(records, history=history, offsets=current)
    retention_ms = offsets_retention_minutes * MS_PER_MINUTE
    # Offsets of open transactions keep those that they will replace, and the group.
    pending = found.where("transaction = 'open'").select("group_id", "topic", "topic_partition").distinct()
    by_partition = current.select(
        "group_id", "topic", "topic_partition", "commit_timestamp_ms", "expire_timestamp_ms"
    ).join(pending.withColumn("is_pending", F.lit(True)), ["group_id", "topic", "topic_partition"], "full")
    now = F.broadcast(_now(records, now_ms))
    return (
        of_groups.join(by_partition, "group_id", "left")
        .crossJoin(now)
        .withColumn("expiry_ms", F.when(F.col("topic").isNotNull(), _expiry_ms(retention_ms)))
        .groupBy("group_id")
        .agg(
            *[F.any_value(name).alias(name) for name in ("type", "state", "offset_count", "last_commit_ms")],
            F.any_value("log_partition").alias("log_partition"),
            F.any_value("state_timestamp_ms").alias("state_timestamp_ms"),
            F.count("expiry_ms").alias("expiring_offsets"),
            F.count("is_pending").alias("pending_offsets"),
            F.count_if(F.col("expiry_ms") <= F.col("now_ms")).alias("expired_offsets"),
            F.min("expiry_ms").alias("next_expiry_ms"),
            F.max("expiry_ms").alias("last_expiry_ms"),
            F.any_value("now_ms").alias("now_ms"),
        )
        .where("expiring_offsets > 0")
        .withColumn(
            "group_expiry_ms",
            F.when(
                (F.col("state") == "Empty")
                & (F.col("expiring_offsets") == F.col("offset_count"))
                & (F.col("pending_offsets") == 0),
                F.col("last_expiry_ms"),
            ),
        )
        .withColumn("idle_ms", F.col("now_ms") - F.greatest("last_commit_ms", "state_timestamp_ms"))
        .select(*STALE_GROUPS.fieldNames())
    )


def _expiry_ms(retention_ms: int) -> Column:
    """Return when an offset expires; null: it does not."""
    is_classic = F.col("type") == CLASSIC
    is_empty = F.col("state") == "Empty"
    is_simple = F.col("protocol_type") == ""
    emptied_ms = F.when(is_classic & ~is_simple & is_empty, F.col("state_timestamp_ms"))
    base_ms = F.coalesce(emptied_ms, F.col("commit_timestamp_ms"))
    is_unused = F.col("subscribed_topics").isNotNull() & ~F.array_contains("subscribed_topics", F.col("topic"))
    # A live classic group keeps offsets unless it is a stable one of consumers, which is what a load finds.
    is_free = is_simple | is_empty | (is_unused & (~is_classic | (F.col("protocol_type") == CONSUMER_PROTOCOL_TYPE)))
    own_ms = F.when(F.col("expire_timestamp_ms") >= 0, F.col("expire_timestamp_ms"))
    return F.when(is_free & F.col("is_pending").isNull(), F.coalesce(own_ms, base_ms + F.lit(retention_ms)))
