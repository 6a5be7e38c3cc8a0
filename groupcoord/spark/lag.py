"""How far groups are behind, in records and in time, and how well they keep up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from groupcoord.analysis.columns.commits import COMMITTED
from groupcoord.analysis.history.lag import LOOKS_MAX, WINDOW_COMMITS, judged
from groupcoord.spark.groups import HOLDER, History, partition_holders
from groupcoord.spark.schemas import LAG
from groupcoord.spark.tables import commits_of

_ASKED = ("at_ms", "log_start_offset", "last_stable_offset")
"""What a cluster tells besides the ends of its logs."""

_PARTITION = ("topic", "topic_partition")
_KEY = ("group_id", *_PARTITION)
_EVIDENCE = ("first", "last", "before", "was_at_end", "window", "now_ms", "record_timestamp_ms")
_JUDGED = ("lag_ms", "lag_ms_method", "status", "complete")


def lag(
    offsets: DataFrame,
    end_offsets: DataFrame,
    *,
    looks: DataFrame | None = None,
    commits: DataFrame | None = None,
    history: DataFrame | History | None = None,
    now_ms: int | None = None,
    record_times: DataFrame | None = None,
    read_ms: int | None = None,
) -> DataFrame:
    """Return how far groups are behind, and how well they keep up (:data:`groupcoord.spark.schemas.LAG`).

    The rules for ``status`` and ``lag_ms`` are in :mod:`groupcoord.analysis.history.lag`.

    Args:
        offsets: what :func:`groupcoord.spark.current_offsets` gives.
        end_offsets: :data:`groupcoord.spark.schemas.END_OFFSETS`: where the topics' partitions end, one row each; or
            what :func:`groupcoord.spark.read_end_offsets` gives.
        looks: what that gave at several times, one below the other: with two there is a ``lag_ms``. The last 1,000 of
            each partition count.
        commits: what :func:`groupcoord.spark.commits` gives, for ``status`` and ``complete``.
        history: what :func:`groupcoord.spark.history` gives, for who has the partition.
        now_ms: the moment to judge from where the cluster was not asked; the last commit if left out.
        record_times: what :func:`groupcoord.spark.read_record_times` gives: ``lag_ms`` goes by that where it is told.
        read_ms: when the log was read that the commits are from, in milliseconds since 1970, if the cluster was asked
            for the ends later: whoever has not committed since then may well have, so ``status`` goes by this moment.
    """
    found = with_ends(offsets, end_offsets, looks)
    found = found.withColumn("is_lost", F.col("committed_offset") < F.col("log_start_offset"))
    found = _with_windows(found, commits, _looks(end_offsets, looks), now_ms, read_ms)
    if history is None:
        found = found.withColumns({name: F.lit(None).cast("string") for name in HOLDER})
    else:
        found = found.join(partition_holders(history), [*_KEY], "left")
    if record_times is None:
        found = found.withColumn("record_timestamp_ms", F.lit(None).cast("long"))
    else:
        found = found.join(record_times, [*_PARTITION, "committed_offset"], "left")
    for name in _JUDGED:
        found = found.withColumn(name, F.lit(None).cast(LAG[name].dataType))
    return found.select(*LAG.fieldNames(), *_EVIDENCE).mapInArrow(_judge, LAG)


def with_ends(offsets: DataFrame, end_offsets: DataFrame, looks: DataFrame | None = None) -> DataFrame:
    """Return committed offsets with where their partitions end, and what looks at these ends tell of them.

    The columns are those of the ends, ``lag``, ``lag_stable``, ``was_at_end`` (at one of the last looks the log ended
    where the group had committed), ``first`` and ``last`` (looks), and ``before``: the last look at which the next
    record to read was not there yet, with the one that followed.

    Args:
        offsets: a table with ``topic``, ``topic_partition`` and ``committed_offset``.
        end_offsets: as for :func:`lag`.
        looks: as for :func:`lag`.
    """
    asked = [_given(end_offsets, name) for name in _ASKED]
    ends = end_offsets.select(*_PARTITION, F.col("end_offset").cast("long").alias("end_offset"), *asked)
    all_looks = _looks(end_offsets, looks)
    spans = all_looks.groupBy(*_PARTITION).agg(F.min("look").alias("first"), F.max("look").alias("last"))
    found = (
        _up_to(offsets, "committed_offset", all_looks, "end_offset")
        .withColumn("was_at_end", F.coalesce(F.col("least_rank") <= WINDOW_COMMITS, F.lit(False)))
        .withColumnRenamed("latest", "before")
        .drop("least_rank")
        .join(ends, [*_PARTITION], "left")
        .join(spans, [*_PARTITION], "left")
    )
    return found.withColumns({"lag": _behind("end_offset"), "lag_stable": _behind("last_stable_offset")})


def _given(end_offsets: DataFrame, name: str) -> Column:
    """Return what a cluster tells, and a file does not."""
    column = F.col(name) if name in end_offsets.columns else F.lit(None)
    return column.cast("long").alias(name)


def _behind(end: str) -> Column:
    # greatest() passes over nulls; without an end there is no lag to tell.
    distance = F.greatest(F.col(end) - F.col("committed_offset"), F.lit(0))
    return F.when(F.col(end).isNotNull(), distance)


def _looks(end_offsets: DataFrame, looks: DataFrame | None) -> DataFrame:
    """Return the last looks at each partition's end: as ``look``, with the one that followed."""
    given = (end_offsets if looks is None else looks).withColumn("at_ms", _given(end_offsets, "at_ms"))
    newest_first = Window.partitionBy(*_PARTITION).orderBy(F.desc("at_ms"))
    return (
        given.where("at_ms is not null and topic_partition is not null and end_offset is not null")
        .select(*_PARTITION, "at_ms", F.col("end_offset").cast("long").alias("end_offset"))
        .dropDuplicates([*_PARTITION, "at_ms"])
        .withColumn("next", F.lag(F.struct("at_ms", "end_offset")).over(newest_first))
        .withColumn("rank", F.row_number().over(newest_first))
        .where(F.col("rank") <= LOOKS_MAX)
        .withColumn("look", F.struct("at_ms", "end_offset", "next", "rank"))
    )


def _up_to(table: DataFrame, key: str, looks: DataFrame, look_key: str) -> DataFrame:
    """Return a table with what looks tell of each row: ``latest`` and ``least_rank`` of those up to its ``key``."""
    both = table.withColumns({"key": F.col(key), "is_look": F.lit(False)}).unionByName(
        looks.select(*_PARTITION, "look", F.col(look_key).alias("key"), F.lit(True).alias("is_look")),
        allowMissingColumns=True,
    )
    # Peers are in the frame, so a look counts for a row of the same key. Unlike a join, this takes linear time.
    so_far = Window.partitionBy(*_PARTITION).orderBy("key")
    return (
        both.withColumn("latest", F.max("look").over(so_far))
        .withColumn("least_rank", F.min("look.rank").over(so_far))
        .where("not is_look")
        .drop("key", "is_look", "look")
    )


def _with_windows(
    found: DataFrame, commits: DataFrame | None, looks: DataFrame, now_ms: int | None, read_ms: int | None
) -> DataFrame:
    """Return the table with ``window``, the last commits of each row, and ``now_ms``."""
    if commits is None:
        return found.withColumns({"window": F.lit(None).cast(_WINDOW), "now_ms": F.col("at_ms")})
    counted = commits_of(commits).where(F.col("transaction").isNull() | (F.col("transaction") == COMMITTED))
    newest_first = Window.partitionBy(*_KEY).orderBy(F.desc("log_offset"))
    last = (
        counted.select(*_KEY, "log_offset", "commit_timestamp_ms", "committed_offset", "tombstone")
        .withColumn("rank", F.row_number().over(newest_first))
        .where(F.col("rank") <= WINDOW_COMMITS)
        .drop("rank")
    )
    commit = F.struct(
        "log_offset",
        "tombstone",
        F.col("commit_timestamp_ms").alias("at_ms"),
        "committed_offset",
        _behind("latest.end_offset").alias("lag"),
    )
    windows = (
        _up_to(last, "commit_timestamp_ms", looks, "at_ms")
        .groupBy(*_KEY)
        .agg(F.sort_array(F.collect_list(commit)).alias("window"))
    )
    moment = F.max("commit_timestamp_ms") if now_ms is None else F.lit(now_ms).cast("long")
    # least() passes over nulls: without a cluster's answer it is not this.
    asked = F.when(F.col("at_ms").isNotNull(), F.least("at_ms", F.lit(read_ms).cast("long")))
    return (
        found.join(windows, [*_KEY], "left")
        .crossJoin(F.broadcast(counted.agg(moment.alias("moment_ms"))))
        .withColumn("now_ms", F.coalesce(asked, "moment_ms"))
    )


_WINDOW = "array<struct<log_offset:bigint,tombstone:boolean,at_ms:bigint,committed_offset:bigint,lag:bigint>>"


def _judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the table, judged."""
    schema = to_arrow_schema(LAG)
    for batch in batches:
        rows = batch.to_pylist()
        for row in rows:
            row.update(judged(row))
        yield pa.RecordBatch.from_pylist(rows, schema)
