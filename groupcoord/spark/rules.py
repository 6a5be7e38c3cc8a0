"""Lag, anomalies, expiry of offsets and stale groups, by the functions of :mod:`groupcoord.analysis.rules`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812
)
from pyspark.sql.pandas.types import to_arrow_schema

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
from groupcoord.analysis.rules import anomalies as anomaly_rules, groups as group_rules, lag as lag_rules
from groupcoord.analysis.rules.anomalies import assigned
from groupcoord.analysis.rules.groups import groups, partition_holders
from groupcoord.analysis.rules.lag import Ends
from groupcoord.spark.grouped_udf import Bucket, judged, tagged
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


_LAG_OFFSETS = pa.schema([arrow_schema(CURRENT_OFFSETS).field(name) for name in lag_rules.OFFSET_COLUMNS])
_OF_GROUP = ("group_id", "generation_or_epoch", "type", "state_timestamp_ms", "log_partition", "member_count")
_OF_MEMBER = ("group_id", "generation", "type", *HOLDER, "assignment")
_ENDS, _SAMPLES, _TIMES = "ends", "samples", "times"


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
    tables, topics = [tagged(CURRENT, offsets.select(*_LAG_OFFSETS.names))], offsets.select("group_id", "topic")
    now: DataFrame | int | None = now_ms
    has_commits = commits is not None
    if commits is not None:
        tables.append(facts_of(commits).select("group_id", LAST))
        if now_ms is None and not is_folded(commits):
            now = commits_of(commits).where(COUNTED).agg(F.max("commit_timestamp_ms"))
    if history is not None:
        folded = history_of(history)
        tables.append(tagged(GROUP, folded.rows(GROUP).select(*_OF_GROUP)))
        tables.append(tagged(MEMBER, folded.rows(MEMBER).select(*_OF_MEMBER)))
        topics = topics.union(held_topics(folded))
    tables += _ends_of_groups(topics, end_offsets, end_offset_samples)
    if record_times is not None:
        times = offsets.select("group_id", *_PLACE).join(record_times, list(_PLACE))
        tables.append(tagged(_TIMES, times))

    def rows_of(bucket: Bucket) -> list[Row]:
        found = {kind: bucket.rows(kind) for kind in (GROUP, MEMBER)}
        members = {row["group_id"]: row["member_count"] for row in found[GROUP]}
        return lag_rules.lag(
            bucket.table(CURRENT, _LAG_OFFSETS),
            _known_ends(bucket),
            _known_commits(bucket).counted() if has_commits else None,
            partition_holders(found),
            bucket.now_ms,
            bucket.rows(_TIMES),
            read_ms,
            members,
        )

    return judged(tables, now, rows_of, LAG)


def held_topics(history: History) -> DataFrame:
    """Return the topics of each group's members at the end of the log."""
    now = history.rows(GROUP).where(F.col("type") != STREAMS).select(*_OF_GROUP[:3])
    members = history.rows(MEMBER).withColumnRenamed("generation", "generation_or_epoch")
    assigned = members.join(now, list(_OF_GROUP[:3])).select("group_id", F.explode("assignment").alias("one"))
    return assigned.select("group_id", "one.topic").where("topic is not null")


def _ends_of_groups(topics: DataFrame, end_offsets: DataFrame, samples: DataFrame | None) -> list[DataFrame]:
    """Return the end offsets, and the samples, of each group's topics."""
    given = {_ENDS: end_offsets} if samples is None else {_ENDS: end_offsets, _SAMPLES: samples}
    distinct = topics.distinct()
    return [tagged(name, distinct.join(table, "topic")) for name, table in given.items()]


def _known_ends(bucket: Bucket) -> Ends:
    ends = bucket.tables.get(_ENDS, arrow_schema(END_OFFSETS).empty_table())
    return Ends(ends, bucket.tables.get(_SAMPLES))


def _known_commits(bucket: Bucket) -> CommitFacts:
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
    tables = [facts, *(tagged(kind, folded.rows(kind)) for kind in _JUDGED)]
    has_ends = end_offsets is not None
    if end_offsets is not None:
        topics = facts.select("group_id", f"{LAST}.topic").union(held_topics(folded))
        tables += _ends_of_groups(topics, end_offsets, end_offset_samples)

    def rows_of(bucket: Bucket) -> list[Row]:
        found = {kind: bucket.rows(kind) for kind in _JUDGED}
        ends = _known_ends(bucket) if has_ends else None
        held = assigned(found, limits)
        return anomaly_rules.anomalies(found, _known_commits(bucket), held, ends, bucket.now_ms, limits)

    return judged(tables, now, rows_of, ANOMALIES)


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
        return group_rules.stale_groups(described, expiry, _known_commits(bucket), bucket.now_ms)

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
    tables = [tagged(GROUP, of_groups), tagged(CURRENT, current.select(*_OFFSETS.names))]
    return [*tables, facts.select("group_id", LAST)]


def _expiry(bucket: Bucket, offsets_retention_minutes: int) -> tuple[list[Row], list[Row]]:
    kept = bucket.table(CURRENT, _OFFSETS)
    described = groups({GROUP: bucket.rows(GROUP)}, kept)
    return described, group_rules.offset_expiry(described, kept, _known_commits(bucket), offsets_retention_minutes)
