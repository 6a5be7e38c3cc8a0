"""Tables of committed offsets, and of what was read: functions from the table of records to a DataFrame.

Each takes :data:`groupcoord.spark.schemas.RECORDS` (the columns that it names are enough) and gives the schema that its
docstring names. None runs anything: that is for the caller's action.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from groupcoord.analysis.decode.parquet import ABORT_TYPE, ABORTED, COMMIT_TYPE, COMMITTED, OFFSET_TYPES
from groupcoord.analysis.decode.schema import KIND_CONTROL, KIND_CORRUPT, KIND_RECORD
from groupcoord.analysis.fold import load
from groupcoord.analysis.fold.commits import LAST_COMMITS, OUTCOME_SQL, CommitFacts, CommitFold
from groupcoord.analysis.fold.load import COUNTED_COLUMNS, KEYS, LoadFold, summed_keys
from groupcoord.analysis.rules.thresholds import Thresholds
from groupcoord.spark.grouped_udf import BLOBS, ROWS_MAX, blob_rows
from groupcoord.spark.schemas import COMMITS, CURRENT_OFFSETS, PARTITION_LOAD, of_arrow

LAST, REWOUND, BUSY, CURRENT = "last", "rewinds", "minutes", "current"
"""Tables of what is known of commits."""

COUNTED = f"transaction is null or transaction = '{COMMITTED}'"
"""The condition for commits that count."""

COMMIT_COLUMNS = (
    *("kind", "record_type", "control_type", "is_transactional", "problem"),
    *[name for name in COMMITS.fieldNames() if name != "transaction"],
)
"""What :func:`commits` and :func:`current_offsets` need of the table of records, for
:func:`groupcoord.spark.read_log`."""


def is_offset_record() -> Column:
    """Return the condition for committed offsets and their tombstones that were understood."""
    return (F.col("kind") == KIND_RECORD) & F.col("record_type").isin(*OFFSET_TYPES) & F.col("problem").isNull()


def with_transactions(records: DataFrame) -> DataFrame:
    """Return offset records with one more column, ``transaction``: null, ``committed``, ``aborted`` or ``open``.

    The rule is :data:`groupcoord.analysis.fold.commits.OUTCOME_SQL`. Only transactional rows are shuffled.
    """
    plain = records.where(is_offset_record() & ~F.col("is_transactional"))
    return plain.withColumn("transaction", F.lit(None).cast("string")).unionByName(_of_transactions(records))


def _of_transactions(records: DataFrame) -> DataFrame:
    is_marker = (F.col("kind") == KIND_CONTROL) & F.col("control_type").isin(ABORT_TYPE, COMMIT_TYPE)
    return (
        records.where(is_marker | (is_offset_record() & F.col("is_transactional")))
        .withColumn("transaction", F.expr(OUTCOME_SQL))
        .where(F.col("kind") == KIND_RECORD)
    )


def commits(records: DataFrame) -> DataFrame:
    """Return every commit and tombstone of an offset (:data:`groupcoord.spark.schemas.COMMITS`).

    Commits of aborted transactions are left out; those of transactions that have no marker yet are ``open``.
    """
    found = with_transactions(records).where(F.col("transaction").isNull() | (F.col("transaction") != ABORTED))
    return found.select(*COMMITS.fieldNames())


def transactional_commits(records: DataFrame) -> DataFrame:
    """Return those of :func:`commits` that were made in transactions."""
    return _of_transactions(records).where(F.col("transaction") != ABORTED).select(*COMMITS.fieldNames())


def commits_of(table: DataFrame) -> DataFrame:
    """Return commits as they are, and those of a table of records."""
    return table if set(COMMITS.fieldNames()) <= set(table.columns) else commits(table)


def fold_commits(commits: DataFrame, limits: Thresholds | None = None) -> DataFrame:
    """Return what is to be known of commits, in blobs: the tables of a :class:`CommitFacts`, by name.

    Args:
        commits: what :func:`commits` gives.
        limits: what is too much, for anomalies.
    """

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for name, table in facts_tables(_folded(batches, limits)).items():
            yield from blob_rows(name, table)

    return _of_groups(commits).mapInArrow(fold, BLOBS)


def facts_of(table: DataFrame, limits: Thresholds | None = None) -> DataFrame:
    """Return what is known of commits as it is, and that of commits, or of a table of records."""
    return table if is_folded(table) else fold_commits(commits_of(table), limits)


def is_folded(table: DataFrame) -> bool:
    """Tell whether a table is what :func:`fold_commits` gives."""
    return table.columns == BLOBS.fieldNames()


def facts_tables(facts: CommitFacts) -> dict[str, pa.Table]:
    """Return the tables of what is known of commits by name."""
    return {LAST: facts.last, REWOUND: facts.rewinds, BUSY: facts.minutes}


def current_offsets(records: DataFrame) -> DataFrame:
    """Return what a coordinator would answer after loading the log (:data:`groupcoord.spark.schemas.CURRENT_OFFSETS`).

    Of each group, topic and partition the commit that lies last in the log counts, whenever its transaction was
    committed, unless a tombstone follows. Open transactions don't count.

    Args:
        records: the table of records, or what :func:`commits` makes of it.
    """

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _folded(batches, None).current_offsets().to_batches(ROWS_MAX)

    return _of_groups(commits_of(records)).mapInArrow(fold, CURRENT_OFFSETS)


def _of_groups(commits: DataFrame) -> DataFrame:
    """Return all commits of each group together, in the order of the log."""
    return commits.select(*LAST_COMMITS.names).repartition("group_id").sortWithinPartitions("log_offset")


def _folded(batches: Iterable[pa.RecordBatch], limits: Thresholds | None) -> CommitFacts:
    found = CommitFold(limits)
    for batch in batches:
        found.add(pa.Table.from_batches([batch]))
    return found.facts()


def last_moment(records: DataFrame) -> DataFrame:
    """Return one row with the last timestamp of the records; null: there are none."""
    return records.where(F.col("kind") == KIND_RECORD).agg(F.max("log_timestamp_ms"))


def corrupt(records: DataFrame) -> DataFrame:
    """Return the bytes that are no sound batch and were passed over (:data:`groupcoord.spark.schemas.CORRUPT`)."""
    return records.where(F.col("kind") == KIND_CORRUPT).select(
        "file",
        "position",
        "size_bytes",
        F.col("problem").alias("reason"),
        "log_partition",
        F.col("log_offset").alias("first_offset"),
        "end_offset",
    )


def read_counts(records: DataFrame) -> DataFrame:
    """Return how much was read and passed over, and why (:data:`groupcoord.spark.schemas.READ_COUNTS`).

    Every row of ``records`` is counted once.
    """
    return records.groupBy("log_partition", "kind", "record_type", "control_type", "problem").agg(
        F.count(F.lit(1)).alias("count"), F.sum("size_bytes").alias("size_bytes")
    )


KEY_COLUMNS = of_arrow(KEYS)
"""Counts of records by key: :data:`groupcoord.analysis.fold.load.KEYS`."""


def partition_load(records: DataFrame) -> DataFrame:
    """Return one row a log partition: its load (:data:`groupcoord.spark.schemas.PARTITION_LOAD`).

    A record is superseded if a newer one has its key, as the log cleaner sees it; tombstones and what aborted
    transactions wrote are cleaned away too in the end, but not counted here. Needs ``records`` with the column ``key``.

    A task holds one row of each key.
    """
    return load_of(records.select(*COUNTED_COLUMNS).mapInArrow(_keys, KEY_COLUMNS))


def load_of(keys: DataFrame) -> DataFrame:
    """Return the same, where records are counted by key already.

    Args:
        keys: :data:`KEY_COLUMNS`.
    """
    return keys.repartition("log_partition").mapInArrow(_load, PARTITION_LOAD)


def _keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    fold = LoadFold()
    for batch in batches:
        fold.add(pa.Table.from_batches([batch]))
    yield from fold.keys().to_batches()


def _load(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    keys = summed_keys([KEYS.empty_table(), *(pa.Table.from_batches([batch]).cast(KEYS) for batch in batches)])
    yield pa.RecordBatch.from_pylist(load.partition_load(keys), to_arrow_schema(PARTITION_LOAD))
