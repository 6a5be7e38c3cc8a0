"""Lag of groups in records and in time, by :func:`groupcoord.analysis.rules.lag.lag`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, IntegerType, LongType, StructField, StructType

from groupcoord.analysis.decode.schema import CURRENT_OFFSETS, END_OFFSETS, arrow_schema
from groupcoord.analysis.fold.commits import LAST_COMMITS, MINUTES, REWINDS, CommitFacts
from groupcoord.analysis.fold.history.rows import GROUP, HOLDER, MEMBER, STREAMS
from groupcoord.analysis.live.fetching import record_times
from groupcoord.analysis.live.settings import ClusterAddress, cluster_address
from groupcoord.analysis.rules import lag as rules
from groupcoord.analysis.rules.groups import Place, partition_holders
from groupcoord.analysis.rules.lag import Ends
from groupcoord.spark.grouped_udf import BY_GROUP, BY_PARTITION, Bucket, Row, judged, packed, packed_blobs
from groupcoord.spark.groups import History, history_of
from groupcoord.spark.schemas import LAG, RECORD_TIMES
from groupcoord.spark.tables import BUSY, COUNTED, CURRENT, LAST, REWOUND, commits_of, facts_of, is_folded

_PLACE = ("topic", "topic_partition", "committed_offset")


def read_record_times(
    spark: SparkSession,
    offsets: DataFrame,
    end_offsets: DataFrame,
    bootstrap_servers: str = "",
    *,
    command_config: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """Return when the next record of each group that is behind was written, so far as the cluster tells.

    One batch is fetched for each of them, at each action on the result. The cluster has to let its user READ the
    topics; of those that it doesn't there are no rows. The schema is :data:`groupcoord.spark.schemas.RECORD_TIMES`.

    Args:
        spark: any session.
        offsets: what :func:`groupcoord.spark.current_offsets` gives.
        end_offsets: what :func:`groupcoord.spark.read_end_offsets` gives.
        bootstrap_servers: as for :func:`groupcoord.spark.read_cluster`.
        command_config: see there.

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
_CURRENT = pa.schema([arrow_schema(CURRENT_OFFSETS).field(name) for name in rules.OFFSET_COLUMNS])
_CURRENT = _CURRENT.append(pa.field("members", pa.int32()))
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
    """Return how far groups are behind, and how well they keep up (:data:`groupcoord.spark.schemas.LAG`).

    The rules for ``status`` and ``lag_ms`` are in :mod:`groupcoord.analysis.rules.lag_status`.

    Args:
        offsets: what :func:`groupcoord.spark.current_offsets` gives.
        end_offsets: :data:`groupcoord.spark.schemas.END_OFFSETS`: where the topics' partitions end, one row each; or
            what :func:`groupcoord.spark.read_end_offsets` gives.
        end_offset_samples: what that gave at several times, one below the other: with two there is a ``lag_ms``. The
            last 1,000 of each partition count.
        commits: what :func:`groupcoord.spark.commits` gives, for ``status`` and ``complete``.
        history: what :func:`groupcoord.spark.history` gives, for who has the partition.
        now_ms: the moment to judge from where the cluster was not asked; the last commit if left out.
        record_times: what :func:`groupcoord.spark.read_record_times` gives: ``lag_ms`` goes by that where it is told.
        read_ms: when the log was read that the commits are from, in milliseconds since 1970, if the cluster was asked
            for the ends later: whoever has not committed since then may well have, so ``status`` goes by this moment.
    """
    tables = [
        packed(CURRENT, _with_members(offsets, history).select(*_CURRENT.names), BY_PARTITION),
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

    def tell(bucket: Bucket) -> list[Row]:
        current = bucket.table(CURRENT, _CURRENT)
        members = dict(zip(*(current[name].to_pylist() for name in ("group_id", "members")), strict=True))
        counted = known_commits(bucket).counted() if has_commits else None
        held, times = known_holders(bucket), bucket.rows(_TIMES)
        return rules.lag(current, known_end_offsets(bucket), counted, held, bucket.now_ms, times, read_ms, members)

    return judged(tables, now, tell, LAG)


def _with_members(offsets: DataFrame, history: DataFrame | History | None) -> DataFrame:
    """Return offsets with the number of members of each group."""
    if history is None:
        return offsets.withColumn("members", F.lit(None).cast(IntegerType()))
    counts = history_of(history).rows(GROUP).groupBy("group_id").agg(F.max("member_count").alias("members"))
    return offsets.join(counts, "group_id", "left")


# ---------------------------------------------------------------- what is known of topics' partitions


def packed_holders(history: DataFrame | History) -> DataFrame:
    """Return who has which partition as the log ends, packed by partition."""
    folded = history_of(history)
    of_members = folded.rows(MEMBER).select("group_id", "generation", "type", *HOLDER, "assignment")
    of_groups = folded.rows(GROUP).select(*_OF_GROUP)
    tables = [packed(MEMBER, of_members, BY_GROUP), packed(GROUP, of_groups, BY_GROUP)]

    def tell(bucket: Bucket) -> list[Row]:
        held = partition_holders({kind: bucket.rows(kind) for kind in (MEMBER, GROUP)})
        return [dict(zip(_HOLDERS.fieldNames(), place, strict=False)) | holder for place, holder in held.items()]

    return packed(_HELD, judged(tables, None, tell, _HOLDERS), BY_PARTITION)


def held_topics(history: History) -> DataFrame:
    """Return the topics of which members have partitions as the log ends, by the name ``topic``."""
    now = history.rows(GROUP).where(F.col("type") != STREAMS).select(*_OF_GROUP[:3])
    members = history.rows(MEMBER).withColumnRenamed("generation", "generation_or_epoch")
    assigned = members.join(now, list(_OF_GROUP[:3])).select(F.explode("assignment").alias("one"))
    return assigned.select("one.topic").where("topic is not null")


def known_holders(bucket: Bucket) -> Mapping[Place, Row]:
    """Return who has which partition of a bucket."""
    return {
        (row["group_id"], row["topic"], row["topic_partition"]): {name: row[name] for name in _OF_HOLDER.fieldNames()}
        for row in bucket.rows(_HELD)
    }


def known_ends(end_offsets: DataFrame, samples: DataFrame | None) -> list[DataFrame]:
    """Return where topics end, packed by partition, to be told by :func:`known_end_offsets`."""
    tables = [packed(_ENDS, end_offsets, BY_PARTITION)]
    return tables if samples is None else [*tables, packed(_SAMPLES, samples, BY_PARTITION)]


def known_end_offsets(bucket: Bucket) -> Ends:
    """Return where the topics' partitions of a bucket end."""
    ends = bucket.tables.get(_ENDS, arrow_schema(END_OFFSETS).empty_table())
    return Ends(ends, bucket.tables.get(_SAMPLES))


def known_commits(bucket: Bucket) -> CommitFacts:
    """Return what is known of the commits of a bucket."""
    return CommitFacts(bucket.table(LAST, LAST_COMMITS), bucket.table(REWOUND, REWINDS), bucket.table(BUSY, MINUTES))
