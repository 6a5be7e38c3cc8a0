"""Lag, anomalies, expiry of offsets and stale groups, by the functions of :mod:`groupcoord.analysis.rules`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, IntegerType, LongType, StructField, StructType

from groupcoord.analysis.decode.schema import CURRENT_OFFSETS, END_OFFSETS, arrow_schema
from groupcoord.analysis.fold.commits import LAST_COMMITS, MINUTES, REWINDS, CommitFacts
from groupcoord.analysis.fold.history.rows import (
    DUPLICATE,
    GROUP,
    HOLDER,
    MEMBER,
    MEMBERSHIP,
    REBALANCE,
    REVOCATION,
    STREAMS,
    Row,
)
from groupcoord.analysis.live.offsets import record_times
from groupcoord.analysis.live.settings import ClusterAddress, cluster_address
from groupcoord.analysis.options import OFFSETS_RETENTION_MINUTES, Thresholds
from groupcoord.analysis.rules import groups as group_rules, lag as lag_rules
from groupcoord.analysis.rules.anomalies import about_groups, about_offsets, assigned
from groupcoord.analysis.rules.groups import Place, groups, partition_holders
from groupcoord.analysis.rules.lag import Ends
from groupcoord.spark.grouped_udf import (
    BY_GROUP,
    BY_PARTITION,
    Bucket,
    judged,
    packed,
    packed_blobs,
)
from groupcoord.spark.schemas import ANOMALIES, LAG, OFFSET_EXPIRY, RECORD_TIMES, STALE_GROUPS
from groupcoord.spark.tables import (
    BUSY,
    COUNTED,
    CURRENT,
    LAST,
    REWOUND,
    History,
    commits_of,
    current_offsets,
    facts_of,
    history_of,
    is_folded,
    last_moment,
)

_PLACE = ("topic", "topic_partition", "committed_offset")


def read_record_times(
    spark: SparkSession,
    offsets: DataFrame,
    end_offsets: DataFrame,
    bootstrap_servers: str = "",
    *,
    command_config: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """Return the timestamp of the next record of each lagging group (:data:`groupcoord.spark.schemas.RECORD_TIMES`).

    Each action fetches one batch for each. The user needs READ on the topics; others have no rows.

    Args:
        spark: any session.
        offsets: the result of :func:`groupcoord.spark.current_offsets`.
        end_offsets: the result of :func:`groupcoord.spark.read_end_offsets`.
        bootstrap_servers: as for :func:`groupcoord.spark.read_cluster`.
        command_config: as there.

    Raises:
        InputError: a setting is wrong.
    """
    address = cluster_address(bootstrap_servers, command_config)
    address.settings()
    behind = (
        offsets.select(*_PLACE)
        .join(end_offsets.select("topic", "topic_partition", "log_start_offset", "end_offset"), [*_PLACE[:2]])
        .where("committed_offset < end_offset and committed_offset >= log_start_offset")
        .select(*_PLACE, "end_offset")
        .distinct()
        .repartition(spark.sparkContext.defaultParallelism, "topic", "topic_partition")
    )
    return behind.mapInArrow(partial(_asked, address), RECORD_TIMES)


def _asked(address: ClusterAddress, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(RECORD_TIMES)
    for batch in batches:
        if batch.num_rows:
            yield pa.RecordBatch.from_pylist(record_times(address, batch.to_pylist()), schema)


_OF_HOLDER = StructType(
    [
        *(LAG[name] for name in HOLDER),
        *(StructField("since_ms", LongType()), StructField("log_partition", IntegerType()), LAG["members"]),
        StructField("is_shared", BooleanType()),
    ]
)
_HOLDERS = StructType([*(LAG[name] for name in ("group_id", "topic", "topic_partition")), *_OF_HOLDER])
_LAG_OFFSETS = pa.schema([arrow_schema(CURRENT_OFFSETS).field(name) for name in lag_rules.OFFSET_COLUMNS])
_LAG_OFFSETS = _LAG_OFFSETS.append(pa.field("members", pa.int32()))
_OF_GROUP = ("group_id", "generation_or_epoch", "type", "state_timestamp_ms", "log_partition", "member_count")
_ENDS, _SAMPLES, _TIMES, _HELD = "ends", "samples", "times", "holders"


def lag(
    offsets: DataFrame,
    end_offsets: DataFrame,
    *,
    end_offset_samples: DataFrame | None = None,
    commits: DataFrame | None = None,
    history: DataFrame | History | None = None,
    now_ms: int | None = None,
    record_times: DataFrame | None = None,
    read_ms: int | None = None,
) -> DataFrame:
    """Return the lag and status of groups (:data:`groupcoord.spark.schemas.LAG`).

    The rules for ``status`` and ``lag_ms`` are in :mod:`groupcoord.analysis.rules.statuses`.

    Args:
        offsets: the result of :func:`groupcoord.spark.current_offsets`.
        end_offsets: :data:`groupcoord.spark.schemas.END_OFFSETS`, or the result of
            :func:`groupcoord.spark.read_end_offsets`.
        end_offset_samples: the union of several such results over time, for ``lag_ms``. The last 1,000 of each
            partition count.
        commits: the result of :func:`groupcoord.spark.commits`, for ``status`` and ``complete``.
        history: the result of :func:`groupcoord.spark.history`, for owners.
        now_ms: the time of the status without a cluster; the last commit by default.
        record_times: the result of :func:`groupcoord.spark.read_record_times`, for ``lag_ms``.
        read_ms: when the log was read, in milliseconds since 1970, if the end offsets are newer: the status is as of
            then.
    """
    tables = [
        packed(CURRENT, _with_members(offsets, history).select(*_LAG_OFFSETS.names), BY_PARTITION),
        *known_ends(end_offsets, end_offset_samples),
    ]
    now: DataFrame | int | None = now_ms
    has_commits = commits is not None
    if commits is not None:
        tables.append(packed_blobs(facts_of(commits), [LAST], BY_PARTITION))
        if now_ms is None and not is_folded(commits):
            now = commits_of(commits).where(COUNTED).agg(F.max("commit_timestamp_ms"))
    if history is not None:
        tables.append(packed_holders(history))
    if record_times is not None:
        tables.append(packed(_TIMES, record_times, BY_PARTITION))

    def rows_of(bucket: Bucket) -> list[Row]:
        current = bucket.table(CURRENT, _LAG_OFFSETS)
        members = dict(zip(*(current[name].to_pylist() for name in ("group_id", "members")), strict=True))
        counted = known_commits(bucket).counted() if has_commits else None
        held, times = known_holders(bucket), bucket.rows(_TIMES)
        return lag_rules.lag(current, known_end_offsets(bucket), counted, held, bucket.now_ms, times, read_ms, members)

    return judged(tables, now, rows_of, LAG)


def _with_members(offsets: DataFrame, history: DataFrame | History | None) -> DataFrame:
    if history is None:
        return offsets.withColumn("members", F.lit(None).cast(IntegerType()))
    counts = history_of(history).rows(GROUP).groupBy("group_id").agg(F.max("member_count").alias("members"))
    return offsets.join(counts, "group_id", "left")


# ---------------------------------------------------------------- partitions of topics


def packed_holders(history: DataFrame | History) -> DataFrame:
    """Return the owners of partitions at the end of the log, packed by partition."""
    folded = history_of(history)
    of_members = folded.rows(MEMBER).select("group_id", "generation", "type", *HOLDER, "assignment")
    of_groups = folded.rows(GROUP).select(*_OF_GROUP)
    tables = [packed(MEMBER, of_members, BY_GROUP), packed(GROUP, of_groups, BY_GROUP)]

    def rows_of(bucket: Bucket) -> list[Row]:
        held = partition_holders({kind: bucket.rows(kind) for kind in (MEMBER, GROUP)})
        return [dict(zip(_HOLDERS.fieldNames(), place, strict=False)) | holder for place, holder in held.items()]

    return packed(_HELD, judged(tables, None, rows_of, _HOLDERS), BY_PARTITION)


def held_topics(history: History) -> DataFrame:
    now = history.rows(GROUP).where(F.col("type") != STREAMS).select(*_OF_GROUP[:3])
    members = history.rows(MEMBER).withColumnRenamed("generation", "generation_or_epoch")
    assigned = members.join(now, list(_OF_GROUP[:3])).select(F.explode("assignment").alias("one"))
    return assigned.select("one.topic").where("topic is not null")


def known_holders(bucket: Bucket) -> Mapping[Place, Row]:
    return {
        (row["group_id"], row["topic"], row["topic_partition"]): {name: row[name] for name in _OF_HOLDER.fieldNames()}
        for row in bucket.rows(_HELD)
    }


def known_ends(end_offsets: DataFrame, samples: DataFrame | None) -> list[DataFrame]:
    tables = [packed(_ENDS, end_offsets, BY_PARTITION)]
    return tables if samples is None else [*tables, packed(_SAMPLES, samples, BY_PARTITION)]


def known_end_offsets(bucket: Bucket) -> Ends:
    ends = bucket.tables.get(_ENDS, arrow_schema(END_OFFSETS).empty_table())
    return Ends(ends, bucket.tables.get(_SAMPLES))


def known_commits(bucket: Bucket) -> CommitFacts:
    return CommitFacts(bucket.table(LAST, LAST_COMMITS), bucket.table(REWOUND, REWINDS), bucket.table(BUSY, MINUTES))


_OFFSETS = pa.schema([arrow_schema(CURRENT_OFFSETS).field(name) for name in group_rules.OFFSET_COLUMNS])
_JUDGED = (GROUP, MEMBER, REBALANCE, DUPLICATE, REVOCATION, MEMBERSHIP)


def anomalies(
    records: DataFrame,
    *,
    history: DataFrame | History | None = None,
    commits: DataFrame | None = None,
    end_offsets: DataFrame | None = None,
    end_offset_samples: DataFrame | None = None,
    now_ms: int | None = None,
    thresholds: Thresholds | None = None,
) -> DataFrame:
    """Return the anomalies of groups (:data:`groupcoord.spark.schemas.ANOMALIES`).

    The rules are those of :func:`groupcoord.analysis.rules.anomalies.anomalies`.

    Args:
        records: the table of records.
        history: the result of :func:`groupcoord.spark.history`, to avoid computing it again.
        commits: the result of :func:`groupcoord.spark.commits`, likewise.
        end_offsets: :data:`groupcoord.spark.schemas.END_OFFSETS`.
        end_offset_samples: as for :func:`groupcoord.spark.lag`; commits of a group that was recently at the end
            have not stopped.
        now_ms: the time for the rules; the last record timestamp by default.
        thresholds: limits of anomalies.
    """
    limits = thresholds or Thresholds()
    folded = history_of(records if history is None else history)
    facts = facts_of(records if commits is None else commits, limits)
    now = _now(records, now_ms)
    of_groups = [packed(kind, folded.rows(kind), BY_GROUP) for kind in _JUDGED]
    of_groups.append(packed_blobs(facts, [BUSY, LAST], BY_GROUP))
    of_offsets = [packed_blobs(facts, [LAST, REWOUND], BY_PARTITION)]
    of_offsets.append(packed_holders(folded))
    has_ends = end_offsets is not None
    if end_offsets is not None:
        of_offsets += known_ends(end_offsets, end_offset_samples)

    def tell_of_groups(bucket: Bucket) -> list[Row]:
        found = {kind: bucket.rows(kind) for kind in _JUDGED}
        held = assigned(found, limits)
        return about_groups(found, known_commits(bucket), held, bucket.now_ms, limits, has_ends=has_ends)

    def tell_of_offsets(bucket: Bucket) -> Iterator[Row]:
        ends = known_end_offsets(bucket) if has_ends else None
        return about_offsets(known_commits(bucket), known_holders(bucket), ends, bucket.now_ms, limits)

    return judged(of_groups, now, tell_of_groups, ANOMALIES).unionByName(
        judged(of_offsets, now, tell_of_offsets, ANOMALIES)
    )


def _now(records: DataFrame, now_ms: int | None) -> DataFrame | int:
    return last_moment(records) if now_ms is None else now_ms


def stale_groups(
    records: DataFrame,
    *,
    history: DataFrame | History | None = None,
    commits: DataFrame | None = None,
    offsets: DataFrame | None = None,
    now_ms: int | None = None,
    offsets_retention_minutes: int = OFFSETS_RETENTION_MINUTES,
) -> DataFrame:
    """Return groups with offsets that expire without further use (:data:`groupcoord.spark.schemas.STALE_GROUPS`).

    The rules are those of :func:`groupcoord.analysis.rules.groups.stale_groups`.

    Args:
        records: the table of records.
        history: the result of :func:`groupcoord.spark.history`, to avoid computing it again.
        commits: the result of :func:`groupcoord.spark.commits`, likewise.
        offsets: the result of :func:`groupcoord.spark.current_offsets`, likewise.
        now_ms: the time for the rules; the last record timestamp by default.
        offsets_retention_minutes: ``offsets.retention.minutes`` of the brokers.
    """
    tables = _packed_offsets(records, history, commits, offsets)

    def rows_of(bucket: Bucket) -> list[Row]:
        described, expiry = _expiry(bucket, offsets_retention_minutes)
        return group_rules.stale_groups(described, expiry, known_commits(bucket), bucket.now_ms)

    return judged(tables, _now(records, now_ms), rows_of, STALE_GROUPS)


def offset_expiry(
    records: DataFrame,
    *,
    history: DataFrame | History | None = None,
    commits: DataFrame | None = None,
    offsets: DataFrame | None = None,
    offsets_retention_minutes: int = OFFSETS_RETENTION_MINUTES,
) -> DataFrame:
    """Return when each current offset expires (:data:`groupcoord.spark.schemas.OFFSET_EXPIRY`).

    The rules are those of :func:`groupcoord.analysis.rules.groups.offset_expiry`, the arguments those of
    :func:`stale_groups`.
    """

    def rows_of(bucket: Bucket) -> list[Row]:
        return _expiry(bucket, offsets_retention_minutes)[1]

    return judged(_packed_offsets(records, history, commits, offsets), None, rows_of, OFFSET_EXPIRY)


def _packed_offsets(
    records: DataFrame, history: DataFrame | History | None, commits: DataFrame | None, offsets: DataFrame | None
) -> list[DataFrame]:
    facts = facts_of(records if commits is None else commits)
    current = current_offsets(records if commits is None else commits) if offsets is None else offsets
    of_groups = history_of(records if history is None else history).rows(GROUP)
    tables = [packed(GROUP, of_groups, BY_GROUP), packed(CURRENT, current.select(*_OFFSETS.names), BY_GROUP)]
    return [*tables, packed_blobs(facts, [LAST], BY_GROUP)]


def _expiry(bucket: Bucket, offsets_retention_minutes: int) -> tuple[list[Row], list[Row]]:
    kept = bucket.table(CURRENT, _OFFSETS)
    described = groups({GROUP: bucket.rows(GROUP)}, kept)
    return described, group_rules.offset_expiry(described, kept, known_commits(bucket), offsets_retention_minutes)
