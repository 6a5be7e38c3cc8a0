"""From tables of any size to the rows of a report: aggregates and first places alone ever reach this process.

Points of trouble are those of :mod:`groupcoord.analysis.report.model`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812

from groupcoord.analysis.columns.kind_names import describe_kind
from groupcoord.analysis.history.causes import EXPIRY_OR_LEAVE, REBALANCE_TIMEOUT, SESSION_EXPIRY
from groupcoord.analysis.history.lag import LagStatus
from groupcoord.analysis.report import model
from groupcoord.analysis.report.model import (
    ANOMALY_POINTS,
    EXPIRY_POINTS,
    Bins,
    GroupRow,
    GroupStory,
    bin_width_ms,
    bins_of,
)
from groupcoord.analysis.report.rows import TEXT_MAX, difference_told, member_counts


def at_ms(name: str) -> Column:
    """Return a column of times, null where it holds Kafka's -1 for none."""
    return F.when(F.col(name) >= 0, F.col(name))


def cut(name: str) -> Column:
    """Return a column of text that is not longer than a page shows, and never null."""
    return F.substring(F.coalesce(F.col(name).cast("string"), F.lit("")), 1, TEXT_MAX).alias(name)


# ---------------------------------------------------------------- groups


def group_figures(groups: DataFrame, rebalances: DataFrame, anomalies: DataFrame, commits: DataFrame) -> DataFrame:
    """Return one row a group with the fields of :class:`groupcoord.analysis.report.model.GroupRow`.

    Groups that are gone but left traces are rows too, without a state.
    """
    took_ms = F.greatest(F.col("ended_ms") - F.col("started_ms"), F.lit(0))
    by_rebalances = rebalances.groupBy("group_id").agg(
        F.count(F.lit(1)).alias("rebalances"),
        F.count_if(F.col("cause").isin(EXPIRY_OR_LEAVE, SESSION_EXPIRY, REBALANCE_TIMEOUT)).alias("expiries"),
        F.sum(F.size("joined")).alias("joined"),
        F.sum(F.size("left")).alias("left"),
        F.sum("partitions_moved").alias("partitions_moved"),
        F.sum(F.when(F.col("started_ms").isNotNull(), took_ms)).alias("rebalancing_ms"),
        F.min(moment()).alias("first_rebalance_ms"),
        F.max(moment()).alias("last_rebalance_ms"),
    )
    by_anomalies = (
        anomalies.where(F.col("group_id").isNotNull()).groupBy("group_id").agg(F.count(F.lit(1)).alias("anomalies"))
    )
    by_commits = (
        commits.where(~F.col("tombstone"))
        .groupBy("group_id")
        .agg(F.count(F.lit(1)).alias("commits"), F.max(at_ms("commit_timestamp_ms")).alias("last_commit_ms"))
    )
    known = groups.select(
        "group_id",
        "type",
        "state",
        F.col("generation_or_epoch").alias("generation"),
        F.col("member_count").alias("members"),
    )
    joined = known
    for one in (by_rebalances, by_anomalies, by_commits):
        joined = joined.join(one, "group_id", "full_outer")
    counts = ("rebalances", "joined", "left", "partitions_moved", "rebalancing_ms", "anomalies", "commits", "expiries")
    joined = joined.fillna(0, subset=list(counts))
    trouble = F.col("anomalies") * ANOMALY_POINTS + F.col("rebalances") + F.col("expiries") * (EXPIRY_POINTS - 1)
    return joined.withColumn("trouble", trouble)


def moment() -> Column:
    """Return when a rebalance happened: its end, its start if the end is not known."""
    return F.coalesce(at_ms("ended_ms"), at_ms("started_ms"))


def most_troubled(figures: DataFrame) -> tuple[GroupRow, ...]:
    """Return the groups with most trouble; between equals those with more commits, then the name decides."""
    found = figures.orderBy(F.desc("trouble"), F.desc("commits"), "group_id").limit(model.GROUPS_MAX)
    return tuple(_group_row(row) for row in found.collect())


def most_churning(figures: DataFrame) -> tuple[GroupRow, ...]:
    """Return the groups with most members that joined and left."""
    churn = F.col("joined") + F.col("left")
    found = figures.where(churn > 0).orderBy(churn.desc(), "group_id").limit(model.CHURNING_MAX)
    return tuple(_group_row(row) for row in found.collect())


def _group_row(row: Row) -> GroupRow:
    return GroupRow(**{name: value for name, value in row.asDict().items() if name != "expiries"})


def state_counts(groups: DataFrame) -> tuple[model.StateCount, ...]:
    """Return how many groups are of each type and state."""
    found = groups.groupBy("type", "state").agg(
        F.count(F.lit(1)).alias("groups"), F.sum("member_count").alias("members")
    )
    rows = [model.StateCount(row.type, row.state, row.groups, row.members or 0) for row in found.collect()]
    return tuple(sorted(rows, key=lambda row: (-row.groups, row.type, row.state)))


# ---------------------------------------------------------------- rebalances


def cause_counts(rebalances: DataFrame) -> tuple[model.CauseCount, ...]:
    """Return how many rebalances had each cause."""
    took_ms = F.when(F.col("ended_ms") >= F.col("started_ms"), F.col("ended_ms") - F.col("started_ms"))
    found = rebalances.groupBy("cause").agg(
        F.count(F.lit(1)).alias("rebalances"),
        F.count_if(F.col("confidence") >= 1).alias("proven"),
        F.avg("confidence").alias("confidence"),
        F.count_distinct("group_id").alias("groups"),
        F.percentile_approx(took_ms, 0.5).alias("median_ms"),
        F.max(took_ms).alias("longest_ms"),
    )
    rows = [model.CauseCount(**row.asDict()) for row in found.collect()]
    return tuple(sorted(rows, key=lambda row: (-row.rebalances, row.cause)))


def time_lines(rebalances: DataFrame) -> tuple[Bins, Bins] | None:
    """Return rebalances over time by cause, and members that joined and left; None if there is none with a time."""
    times = rebalances.withColumn("at_ms", moment())
    (span,) = times.agg(F.min("at_ms").alias("first_ms"), F.max("at_ms").alias("last_ms")).collect()
    if span.first_ms is None:
        return None
    width_ms = bin_width_ms(span.last_ms - span.first_ms)
    place = F.floor(F.col("at_ms") / width_ms).alias("place")
    found = (
        times.where(F.col("at_ms").isNotNull())
        .groupBy(place, "cause")
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.sum(F.size("joined")).alias("joined"),
            F.sum(F.size("left")).alias("left"),
        )
        .collect()
    )
    causes: dict[str, dict[int, int]] = {}
    churn: dict[str, dict[int, int]] = {"joined": {}, "left": {}}
    for row in found:
        causes.setdefault(row.cause, {})[row.place] = row["count"]
        for name, counts in churn.items():
            counts[row.place] = counts.get(row.place, 0) + row[name]
    bounds = (span.first_ms, span.last_ms)
    return bins_of(*bounds, causes, width_ms), bins_of(*bounds, churn, width_ms)


# ---------------------------------------------------------------- the most troubled groups


def stories(
    rows: Sequence[GroupRow],
    rebalances: DataFrame,
    anomalies: DataFrame,
    commits: DataFrame,
    epochs: Mapping[str, tuple[model.EpochPoint, ...]],
) -> tuple[GroupStory, ...]:
    """Return what is to be told of some groups: a few, since they are looked up by name.

    Args:
        rows: the groups.
        rebalances: the table, as the two that follow.
        anomalies: see there.
        commits: see there.
        epochs: of those that are consumer groups, how they went on.
    """
    names = [row.group_id for row in rows]
    if not names:
        return ()
    happened = _rebalances_of(rebalances, names)
    causes = _causes_of(rebalances, names)
    of_names = anomalies.where(F.col("group_id").isin(names))
    findings = anomaly_rows(of_names, model.ANOMALIES_OF_GROUP_MAX, len(names) * model.ANOMALIES_OF_GROUP_MAX)
    commit_bins = _commits_of(commits, names)
    return tuple(
        GroupStory(
            row,
            causes.get(row.group_id, {}),
            tuple(one for one, _ in happened.get(row.group_id, ())),
            tuple(member_counts(happened.get(row.group_id, ()))),
            tuple(one for one in findings if one.group_id == row.group_id),
            commit_bins.get(row.group_id),
            epochs.get(row.group_id, ()),
        )
        for row in rows
    )


def _rebalances_of(rebalances: DataFrame, names: list[str]) -> dict[str, list[tuple[model.RebalanceRow, int | None]]]:
    """Return the newest rebalances of each group, oldest first, with the number of members after it."""
    newest = Window.partitionBy("group_id").orderBy(F.desc("log_offset"))
    found = (
        rebalances.where(F.col("group_id").isin(names))
        .withColumn("place", F.row_number().over(newest))
        .where(F.col("place") <= model.REBALANCES_OF_GROUP_MAX)
        .orderBy("group_id", F.desc("place"))
        .select(
            *("group_id", "from_generation", "to_generation", at_ms("started_ms").alias("started_ms")),
            *(at_ms("ended_ms").alias("ended_ms"), "cause", "confidence", F.size("joined").alias("joined")),
            *(F.size("left").alias("left"), "partitions_moved", cut("evidence"), "member_count"),
        )
        .collect()
    )
    by_group: dict[str, list[tuple[model.RebalanceRow, int | None]]] = {}
    for row in found:
        fields = row.asDict()
        member_count = fields.pop("member_count")
        by_group.setdefault(row.group_id, []).append((model.RebalanceRow(**fields), member_count))
    return by_group


def _causes_of(rebalances: DataFrame, names: list[str]) -> dict[str, dict[str, int]]:
    found = rebalances.where(F.col("group_id").isin(names)).groupBy("group_id", "cause").count().collect()
    causes: dict[str, dict[str, int]] = {}
    for row in sorted(found, key=lambda row: (row.group_id, row.cause)):
        causes.setdefault(row.group_id, {})[row.cause] = row["count"]
    return causes


def _commits_of(commits: DataFrame, names: list[str]) -> dict[str, Bins]:
    """Return commits over time, in bins that fit each group."""
    found = commits.where(F.col("group_id").isin(names) & (F.col("log_timestamp_ms") >= 0))
    spans = (
        found.groupBy("group_id")
        .agg(F.min("log_timestamp_ms").alias("first_ms"), F.max("log_timestamp_ms").alias("last_ms"))
        .collect()
    )
    if not spans:
        return {}
    widths = {row.group_id: bin_width_ms(row.last_ms - row.first_ms, model.BINS_OF_GROUP_MAX) for row in spans}
    width = F.create_map(*[F.lit(part) for pair in sorted(widths.items()) for part in pair])[F.col("group_id")]
    place = F.floor(F.col("log_timestamp_ms") / width).alias("place")
    name = F.when(F.col("tombstone"), "tombstones").otherwise("commits").alias("name")
    counts: dict[str, dict[str, dict[int, int]]] = {}
    for row in found.groupBy("group_id", place, name).count().collect():
        counts.setdefault(row.group_id, {"commits": {}}).setdefault(row.name, {})[row.place] = row["count"]
    return {
        row.group_id: bins_of(row.first_ms, row.last_ms, counts[row.group_id], widths[row.group_id]) for row in spans
    }


# ---------------------------------------------------------------- what was read


def read_rows(read_counts: DataFrame) -> tuple[model.ReadCount, ...]:
    """Return what was read, over all log partitions, most first."""
    found = (
        read_counts.withColumn("problem", cut("problem"))
        .groupBy("kind", "record_type", "control_type", "problem")
        .agg(F.sum("count").alias("count"), F.sum("size_bytes").alias("size_bytes"))
        .orderBy(F.desc("count"), "kind", "record_type", "control_type", "problem")
        .limit(model.READ_COUNTS_MAX)
        .collect()
    )
    return tuple(
        model.ReadCount(
            describe_kind(row.kind, row.record_type, row.control_type), row.problem, row["count"], row.size_bytes or 0
        )
        for row in found
    )


def corrupt_rows(corrupt: DataFrame) -> tuple[model.CorruptRange, ...]:
    """Return the first byte ranges that could not be read."""
    found = (
        corrupt.select(cut("file"), "position", "size_bytes", cut("reason"), "first_offset", "end_offset")
        .orderBy("file", "position")
        .limit(model.CORRUPT_MAX)
    )
    return tuple(model.CorruptRange(**row.asDict()) for row in found.collect())


def lag_rows(lag: DataFrame) -> tuple[model.LagRow, ...]:
    """Return the groups and topics that are furthest behind."""
    found = (
        lag.where(F.col("lag") > 0)
        .groupBy("group_id", "topic")
        .agg(
            F.count(F.lit(1)).alias("partitions"),
            F.sum("lag").alias("lag"),
            F.max("lag").alias("worst"),
            F.max("lag_ms").alias("lag_ms"),
            F.coalesce(F.max_by("status", _severity()), F.lit("")).alias("status"),
        )
        .orderBy(F.desc("lag"), "group_id", "topic")
        .limit(model.LAGGING_MAX)
    )
    return tuple(model.LagRow(**row.asDict()) for row in found.collect())


def status_counts(lag: DataFrame) -> tuple[model.StatusCount, ...]:
    """Return how many partitions have each status, the worst first."""
    found = (
        lag.where("status is not null")
        .groupBy("status")
        .agg(F.count(F.lit(1)).alias("partitions"), F.count_distinct("group_id").alias("groups"))
        .orderBy(F.desc(_severity()))
    )
    return tuple(model.StatusCount(**row.asDict()) for row in found.collect())


def _severity() -> Column:
    """Return how bad a status is, from 1."""
    return F.array_position(F.array(*[F.lit(status.name) for status in LagStatus]), F.col("status"))


# ---------------------------------------------------------------- anomalies and forecasts


def anomaly_counts(anomalies: DataFrame) -> tuple[model.AnomalyCount, ...]:
    """Return how many anomalies of each kind there are."""
    found = anomalies.groupBy("kind", F.coalesce("status", F.lit("")).alias("status")).agg(
        F.count(F.lit(1)).alias("count"),
        F.count_distinct("group_id").alias("groups"),
        F.min(at_ms("first_ms")).alias("first_ms"),
        F.max(at_ms("last_ms")).alias("last_ms"),
    )
    rows = [model.AnomalyCount(**row.asDict()) for row in found.collect()]
    return tuple(sorted(rows, key=lambda row: (-row.count, row.kind, row.status)))


def anomaly_rows(anomalies: DataFrame, of_group_max: int, limit: int) -> list[model.AnomalyRow]:
    """Return the first anomalies of each group, oldest first, those of the groups with most of them in front.

    Args:
        anomalies: the table.
        of_group_max: how many of one group.
        limit: how many in all.
    """
    of_group = Window.partitionBy("group_id").orderBy("first_ms", "kind", "topic", "topic_partition", "client_id")
    subject = F.coalesce(F.concat_ws(":", "topic", "topic_partition"), F.lit(""))
    found = (
        anomalies.withColumn("place", F.row_number().over(of_group))
        .withColumn("of_group", F.count(F.lit(1)).over(Window.partitionBy("group_id")))
        .where(F.col("place") <= of_group_max)
        .orderBy(F.desc("of_group"), "group_id", "place")
        .limit(limit)
        .select(
            *("group_id", "kind", F.coalesce("status", F.lit("")).alias("status")),
            F.when(subject != "", subject).otherwise(F.coalesce("client_id", F.lit(""))).alias("subject"),
            *(at_ms("first_ms").alias("first_ms"), at_ms("last_ms").alias("last_ms"), "count", cut("evidence")),
        )
    )
    return [model.AnomalyRow(**row.asDict()) for row in found.collect()]


def stale_rows(stale_groups: DataFrame) -> tuple[model.StaleRow, ...]:
    """Return the groups that lose offsets next."""
    found = (
        stale_groups.where(F.col("next_expiry_ms").isNotNull())
        .orderBy("next_expiry_ms", "group_id")
        .limit(model.STALE_MAX)
        .select(
            *("group_id", "type", "state", F.col("offset_count").alias("offsets")),
            *(F.col("expiring_offsets").alias("expiring"), F.col("expired_offsets").alias("expired")),
            at_ms("last_commit_ms").alias("last_commit_ms"),
            *(F.col("next_expiry_ms").alias("next_ms"), F.col("group_expiry_ms").alias("group_ms")),
        )
    )
    return tuple(model.StaleRow(**row.asDict()) for row in found.collect())


def difference_rows(differences: DataFrame) -> tuple[str, ...]:
    """Return the first places where coordinators and tables differ, in words."""
    place = F.concat_ws(":", "topic", "topic_partition").alias("place")
    found = (
        differences.orderBy("group_id", "topic", "topic_partition", "field")
        .limit(model.DIFFERENCES_MAX)
        .select(cut("group_id"), place, cut("field"), cut("coordinator"), cut("table"))
    )
    return tuple(difference_told(row) for row in found.collect())
