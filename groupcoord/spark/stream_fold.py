"""Carrying groups on from what was kept of them: states and new records in, rows of tables and new states out.

Spark gives a worker all that is new in a bucket of groups, group by group: the names of its topics, then its records
in the order of the log, and between two of them one row for each partition that was committed there. The worker reads
what was kept of the bucket's groups beside it, and writes the bucket anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from attrs import evolve, frozen
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from groupcoord.analysis.columns.commits import ABORTED, OPEN
from groupcoord.analysis.history.fold import FoldOptions, GroupFold
from groupcoord.analysis.history.state import GroupState, KnownOffset, decode_state, encode_state
from groupcoord.records.structures import uuid_text
from groupcoord.spark.decoding import new_file
from groupcoord.spark.group_schemas import HISTORY
from groupcoord.spark.groups import NO_PARTITION, fold_record, is_group_record, known_partition, taken_rows
from groupcoord.spark.packing import ROWS_MAX
from groupcoord.spark.schemas import CURRENT_OFFSETS
from groupcoord.spark.state_buckets import (
    BucketFile,
    BucketFolder,
    Buckets,
    BucketWriter,
    Kept,
    bucket_column,
    bucket_name,
)

_CARRIED = StructType([StructField("bucket", IntegerType()), StructField("rows", LongType())])
"""What carrying on gives: how many groups a bucket has now, and without a bucket, how many rows the history got."""

_KEY = ("log_partition", "group_id")
_OFFSET = StructType(
    [
        CURRENT_OFFSETS[name]
        for name in (
            *("topic", "topic_partition", "log_offset", "committed_offset", "leader_epoch", "metadata"),
            *("commit_timestamp_ms", "expire_timestamp_ms", "topic_id"),
        )
    ]
)
_PLACE = StructType([StructField("log_offset", LongType()), StructField("log_timestamp_ms", LongType())])
NEW_ROWS = StructType(
    [
        StructField("log_partition", IntegerType()),
        StructField("group_id", StringType()),
        StructField("log_offset", LongType()),
        StructField("log_timestamp_ms", LongType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("topic_partition", IntegerType()),
        StructField("topic_id", BinaryType()),
        StructField("offset", _OFFSET),
        StructField("alive", _PLACE),
        StructField("is_commit", BooleanType()),
        StructField("partition_leader_epoch", IntegerType()),
    ]
)
"""What is new of groups: their records, and commits in short."""

_BY_TOPIC = ("assignment", "pending", "target", "partitions")
_NAMES = StructType([StructField("group_id", StringType()), StructField("names", MapType(StringType(), StringType()))])


@frozen
class CarrySettings:
    """What holds for all groups of an update. Workers get it pickled.

    Attributes:
        session_timeout_ms: see :func:`groupcoord.spark.history`.
        complete_from: by log partition, the offset from which on no record is missing.
        open_from: by log partition, the offset of the first commit of a transaction that is open.
        folder: where buckets are read and written.
        before: the buckets as they were.
        update: the number of the update.
        history: the folder in the same file system where rows of the history go, empty as yet.
    """

    session_timeout_ms: int | None
    complete_from: Mapping[int, int]
    open_from: Mapping[int, int]
    folder: BucketFolder
    before: Buckets
    update: int
    history: str


def carry_on(records: DataFrame, committed: DataFrame, settings: CarrySettings) -> tuple[Buckets, int]:
    """Carry groups on by new records; return the buckets as they are now, and how many rows the history got.

    Args:
        records: the new ones, of the table of records.
        committed: the commits and tombstones among them, and older ones of transactions that were open, with
            ``transaction``.
        settings: what holds for all of them.
    """
    committed = committed.withColumn("log_partition", known_partition())
    of_groups = records.where(is_group_record()).withColumn("log_partition", known_partition())
    if "partition_leader_epoch" in records.columns:
        of_groups = of_groups.withColumn("partition_leader_epoch", F.expr("nullif(partition_leader_epoch, -1)"))
    names = committed.where(F.col("topic_id").isNotNull()).select(*_KEY, "topic", "topic_id").distinct()
    ordered = (
        _typed(names)
        .unionByName(_typed(of_groups.drop("topic", "topic_partition", "topic_id")))
        .unionByName(_typed(_last_commits(committed, of_groups)))
        .withColumn("bucket", bucket_column(settings.before.count))
        .repartition("bucket")
        # Groups in the order of buckets' files.
        .sortWithinPartitions("bucket", "group_id", "log_partition", F.asc_nulls_first("log_offset"))
    )
    files, history_rows = dict(settings.before.files), 0
    for row in ordered.mapInArrow(carrier(settings), _CARRIED).collect():
        if row.bucket is None:
            history_rows += row.rows
        else:
            files[row.bucket] = BucketFile(settings.update, row.rows)
    return evolve(settings.before, files=files), history_rows


def _typed(table: DataFrame) -> DataFrame:
    """Return the columns of the input with their types; what is not given is null."""
    return table.select(
        *[
            (F.col(column.name) if column.name in table.columns else F.lit(None))
            .cast(column.dataType)
            .alias(column.name)
            for column in NEW_ROWS
        ]
    )


def _last_commits(committed: DataFrame, of_groups: DataFrame) -> DataFrame:
    """Return one row for each partition that was committed between two records of its group.

    ``offset`` is the last commit or tombstone that counts, ``alive`` the last commit that a member may have made.
    ``log_offset`` is null if all are tombstones, and otherwise the last commit's, whatever became of it.
    """
    rebalanced = F.broadcast(of_groups.select(*_KEY).distinct().withColumn("is_busy", F.lit(True)))
    marked = committed.join(rebalanced, [*_KEY], "left").withColumn("is_mark", F.lit(0))
    marks = of_groups.select(*_KEY, "log_offset", F.lit(1).alias("is_mark"))
    so_far = Window.partitionBy(*_KEY).orderBy("log_offset").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    busy = (
        marked.where("is_busy")
        .unionByName(marks, allowMissingColumns=True)
        .withColumn("stretch", F.sum("is_mark").over(so_far))
        .where("is_mark = 0")
    )
    every = marked.where("is_busy is null").withColumn("stretch", F.lit(0).cast("long")).unionByName(busy)
    counts = is_counting()
    is_alive = ~F.col("tombstone") & ~F.col("is_transactional")
    return every.groupBy(*_KEY, "topic", "topic_partition", "stretch").agg(
        F.max(F.when(~F.col("tombstone"), F.col("log_offset"))).alias("log_offset"),
        F.max_by(F.struct(*_OFFSET.fieldNames()), F.when(counts, F.col("log_offset"))).alias("offset"),
        F.max(F.when(is_alive, F.struct(*_PLACE.fieldNames()))).alias("alive"),
        F.lit(True).alias("is_commit"),
    )


# ---------------------------------------------------------------- the fold


def carrier(settings: CarrySettings) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what carries on the groups of a task.

    It takes :data:`NEW_ROWS` with their ``bucket``, in order of that, and within it in the order of the bucket's groups
    and of the log.
    """

    def carry(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        groups: dict[int, int] = {}
        found = [{"bucket": None, "rows": _write_history(_carried(batches, settings, groups), settings)}]
        found += [{"bucket": bucket, "rows": rows} for bucket, rows in groups.items()]
        yield pa.RecordBatch.from_pylist(found, to_arrow_schema(_CARRIED))

    return carry


def _write_history(rows: Iterable[dict[str, Any]], settings: CarrySettings) -> int:
    """Write what a task adds to the history, and return how many rows that is; no file if there are none."""
    batches = _in_batches(rows, HISTORY)
    first = next(batches, None)
    if first is None:
        return 0
    context = TaskContext.get()
    name = f"part-{0 if context is None else context.partitionId():05d}.snappy.parquet"
    with new_file(settings.folder.file_system, f"{settings.history}/{name}", first.schema) as file:
        for batch in chain([first], batches):
            file.write(batch)
    return file.rows


def _carried(
    batches: Iterable[pa.RecordBatch], settings: CarrySettings, groups: dict[int, int]
) -> Iterator[dict[str, Any]]:
    """Write buckets anew and yield rows of the history; ``groups`` learns how many groups each bucket has."""
    names = settings.before.names()
    of_task = (row for batch in batches for row in batch.to_pylist())
    for number, rows in groupby(of_task, itemgetter("bucket")):
        old = settings.folder.read(names.get(number))
        with settings.folder.writing(bucket_name(number, settings.before.count, settings.update)) as bucket:
            yield from _carry_bucket(rows, old, bucket, settings)
        groups[number] = bucket.groups


def _carry_bucket(
    rows: Iterable[dict[str, Any]], old: Iterator[Kept], bucket: BucketWriter, settings: CarrySettings
) -> Iterator[dict[str, Any]]:
    """Carry the groups on that have new rows, keep the others as they are, and yield rows of the history."""
    waiting = next(old, None)
    for key, of_group in groupby(rows, itemgetter("group_id", "log_partition")):
        while waiting is not None and waiting.key < key:
            bucket.add(waiting)
            waiting = next(old, None)
        if waiting is not None and waiting.key == key:
            state, waiting = decode_state(waiting.blob), next(old, None)
        else:
            state = GroupState(GroupFold(*key))
        state.fold.options = FoldOptions(settings.session_timeout_ms, settings.complete_from.get(key[1], 0))
        for row in of_group:
            _feed(state, row)
            yield from taken_rows(state.fold)
        state.forget_tombstones(settings.open_from.get(key[1]))
        bucket.add(Kept(key[1], key[0], encode_state(state)))
    while waiting is not None:
        bucket.add(waiting)
        waiting = next(old, None)


def _feed(state: GroupState, row: dict[str, Any]) -> None:
    fold = state.fold
    if row["is_commit"]:
        offset, alive = row["offset"], row["alive"]
        partition = row["topic"], row["topic_partition"]
        if offset is not None:
            state.learn(partition, KnownOffset(*(offset[name] for name in _OFFSET.fieldNames()[2:])))
        if alive is not None:
            fold.committed(alive["log_offset"], alive["log_timestamp_ms"], *partition)
        if row["log_offset"] is not None:
            fold.exists(row["log_offset"])
    elif row["topic_id"] is not None:
        fold.name_topic(uuid_text(row["topic_id"]), row["topic"])
    else:
        fold_record(fold, row)


def _in_batches(rows: Iterable[dict[str, Any]], schema: StructType) -> Iterator[pa.RecordBatch]:
    made = to_arrow_schema(schema)
    some: list[dict[str, Any]] = []
    for row in rows:
        some.append(row)
        if len(some) >= ROWS_MAX:
            yield pa.RecordBatch.from_pylist(some, made)
            some = []
    if some:
        yield pa.RecordBatch.from_pylist(some, made)


# ---------------------------------------------------------------- what states tell


def offsets_of(states: DataFrame) -> DataFrame:
    """Return the current offsets that states hold (:data:`groupcoord.spark.schemas.CURRENT_OFFSETS`)."""
    return states.mapInArrow(_told(_offset_rows, CURRENT_OFFSETS), CURRENT_OFFSETS)


def ends_of(states: DataFrame) -> DataFrame:
    """Return the rows of the history that hold as long as nothing follows: the groups, and what is under way."""
    return states.mapInArrow(_told(_end_rows, HISTORY), HISTORY)


def with_names(table: DataFrame, states: DataFrame) -> DataFrame:
    """Return a table with the names of topics that a group committed for the first time later.

    Args:
        table: with ``group_id``; its columns of partitions by topic, or else ``topic`` and ``topic_id``, are named.
        states: :data:`STATES`.
    """
    names = states.mapInArrow(_told(_name_rows, _NAMES), _NAMES)
    named = {column: F.array_sort(F.transform(column, _with_name)) for column in _BY_TOPIC if column in table.columns}
    if "topic_id" in table.columns:
        named["topic"] = F.coalesce("topic", F.col("names")[F.col("topic_id")])
    has_all = F.col("names").isNull()
    changed = {column: F.when(has_all, F.col(column)).otherwise(value) for column, value in named.items()}
    return table.join(names, "group_id", "left").withColumns(changed).select(*table.columns)


def _with_name(one: Column) -> Column:
    return F.struct(
        F.coalesce(one["topic"], F.col("names")[one["topic_id"]]).alias("topic"),
        one["topic_id"].alias("topic_id"),
        one["partitions"].alias("partitions"),
    )


def _told(
    tell: Callable[[GroupState], Iterable[dict[str, Any]]], schema: StructType
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def told(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blobs = (blob for batch in batches for blob in batch.column("blob").to_pylist())
        return _in_batches((row for blob in blobs for row in tell(decode_state(blob))), schema)

    return told


def _offset_rows(state: GroupState) -> Iterator[dict[str, Any]]:
    fold = state.fold
    for (topic, partition), known in state.offsets.items():
        if known.committed_offset is not None:
            yield {
                "group_id": fold.group_id,
                "log_partition": None if fold.log_partition == NO_PARTITION else fold.log_partition,
                "topic": topic,
                "topic_partition": partition,
                **{name: getattr(known, name) for name in _OFFSET.fieldNames()[2:]},
            }


def _name_rows(state: GroupState) -> Iterator[dict[str, Any]]:
    if state.fold.topic_names:
        yield {"group_id": state.fold.group_id, "names": list(state.fold.topic_names.items())}


def _end_rows(state: GroupState) -> Iterator[dict[str, Any]]:
    state.fold.finish()
    yield from taken_rows(state.fold)


def open_commits(with_transactions: DataFrame) -> DataFrame:
    """Return the commits of transactions that have no marker yet."""
    return with_transactions.where(F.col("transaction") == OPEN)


def is_counting() -> Column:
    """Return the condition for commits outside of transactions and of committed ones."""
    outcome = F.coalesce("transaction", F.lit(""))
    return (outcome != OPEN) & (outcome != ABORTED)
