"""How loaded the log partitions are, by whom, and what compaction would save."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from groupcoord.analysis.columns.commits import OFFSET_TYPES
from groupcoord.analysis.columns.schema import KIND_CONTROL, KIND_CORRUPT, KIND_READ, KIND_RECORD
from groupcoord.spark.schemas import PARTITION_LOAD

_KEY = ("log_partition", "kind", "record_type", "group_id", "topic", "topic_partition", "key")
_SUMS = (
    *("records", "commits", "group_records", "tombstones", "control_records", "unknown_records"),
    *("bytes", "file_bytes", "corrupt_bytes", "live_keys", "superseded_records", "superseded_bytes"),
)


def partition_load(records: DataFrame) -> DataFrame:
    """Return one row a log partition: its load (:data:`groupcoord.spark.schemas.PARTITION_LOAD`).

    A record is superseded if a newer one has its key, as the log cleaner sees it; tombstones and what aborted
    transactions wrote are cleaned away too in the end, but not counted here. Needs ``records`` with the column ``key``.

    Everything is one pass: what belongs to a key is summed up first, then a group's, then the partition's, so that no
    task holds more than one row of each key.
    """
    by_key = (
        records.withColumn("is_unknown", F.col("problem").isNotNull())
        .groupBy(*_KEY, "is_unknown")
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.sum("size_bytes").alias("size_bytes"),
            F.count_if("tombstone").alias("tombstones"),
            F.max_by("size_bytes", "log_offset").alias("last_size_bytes"),
            F.max_by("tombstone", "log_offset").alias("last_is_tombstone"),
            F.min(F.expr("nullif(log_timestamp_ms, -1)")).alias("first_timestamp_ms"),
            F.max(F.expr("nullif(log_timestamp_ms, -1)")).alias("last_timestamp_ms"),
        )
    )
    times = (
        F.min("first_timestamp_ms").alias("first_timestamp_ms"),
        F.max("last_timestamp_ms").alias("last_timestamp_ms"),
    )
    by_group = by_key.groupBy("log_partition", "group_id").agg(
        *[F.sum(F.when(condition, value)).alias(name) for name, (condition, value) in _of_key().items()], *times
    )
    group_records = F.when(F.col("group_id").isNotNull(), F.col("records"))
    return (
        by_group.groupBy("log_partition")
        .agg(
            *[F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _SUMS if name != "file_bytes"],
            F.sum("file_bytes").alias("file_bytes"),
            F.count("group_id").alias("groups"),
            # The name decides between groups of as many records, so that the answer is always the same.
            F.max(F.struct(group_records.alias("records"), F.col("group_id"))).alias("hottest"),
            *times,
        )
        .withColumn("hottest_group", F.col("hottest.group_id"))
        .withColumn("hottest_group_records", F.col("hottest.records"))
        .withColumn("hottest_group_share", F.expr("hottest_group_records / nullif(records, 0)"))
        .select(*PARTITION_LOAD.fieldNames())
    )


def _of_key() -> dict[str, tuple[Column, Column]]:
    """Return what to sum up over keys: which of them count, and how much of each."""
    kind, count = F.col("kind"), F.col("count")
    is_record = kind == KIND_RECORD
    is_offset = F.col("record_type").isin(*OFFSET_TYPES)
    is_known = is_record & ~F.col("is_unknown")
    is_any = kind.isin(KIND_RECORD, KIND_CONTROL)
    return {
        "records": (is_any, count),
        "commits": (is_known & is_offset, count - F.col("tombstones")),
        "group_records": (is_known & ~is_offset, count),
        "tombstones": (is_record, F.col("tombstones")),
        "control_records": (kind == KIND_CONTROL, count),
        "unknown_records": (is_any & F.col("is_unknown"), count),
        "bytes": (is_any, F.col("size_bytes")),
        "file_bytes": (kind == KIND_READ, F.col("size_bytes")),
        "corrupt_bytes": (kind == KIND_CORRUPT, F.col("size_bytes")),
        "live_keys": (is_record & ~F.col("last_is_tombstone"), F.lit(1)),
        "superseded_records": (is_record, count - 1),
        "superseded_bytes": (is_record, F.col("size_bytes") - F.col("last_size_bytes")),
    }
