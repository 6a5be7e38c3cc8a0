"""Carrying groups on from what was kept of them: states and new records in, rows of tables and new states out.

Spark gives a worker all that is new in a bucket of groups, group by group: the names of its topics, then its records
and commits in the order of the log. The worker reads what was kept of the bucket's groups beside it, and writes the
bucket anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, fields, frozen
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructField, StructType

from groupcoord.analysis.columns.commits import ABORTED, OPEN
from groupcoord.analysis.folding.arrow import every, last_rows
from groupcoord.analysis.folding.buckets import BucketFile, BucketFolder, Buckets, BucketWriter, Kept, bucket_name
from groupcoord.analysis.folding.commits import PARTITION
from groupcoord.analysis.folding.grouped import HistoryRow, carried_histories
from groupcoord.analysis.folding.histories import GroupKey
from groupcoord.analysis.folding.replay import NO_PARTITION
from groupcoord.analysis.history.embedded import TopicPartition
from groupcoord.analysis.history.fold import FoldOptions, GroupFold
from groupcoord.analysis.history.state import GroupState, KnownOffset, decode_state, encode_state
from groupcoord.records.schemas import RecordType
from groupcoord.spark.decoding import new_file
from groupcoord.spark.folding import FOLDED, as_row, folded_rows
from groupcoord.spark.group_schemas import HISTORY
from groupcoord.spark.output import task_attempt, task_file
from groupcoord.spark.packing import row_batches
from groupcoord.spark.schemas import CURRENT_OFFSETS
from groupcoord.spark.state_buckets import bucket_column

_CARRIED = StructType([StructField("bucket", IntegerType()), StructField("rows", LongType())])
"""What carrying on gives: how many groups a bucket has now, and without a bucket, how many rows the history got."""

CARRIED_ROWS = StructType([*FOLDED, _CARRIED["bucket"]])
"""What is new of groups: records, committed offsets, and the bucket of the group."""

_BY_TOPIC = ("assignment", "pending", "target", "partitions")
_NAMES = StructType([StructField("group_id", StringType()), StructField("names", MapType(StringType(), StringType()))])
_KNOWN = [one.name for one in fields(KnownOffset)]


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
    ordered = (
        folded_rows(records, committed)
        .withColumn("log_partition", F.coalesce("log_partition", F.lit(NO_PARTITION)))
        .withColumn("bucket", bucket_column(settings.before.count))
        .repartition("bucket")
        # Groups in the order of buckets' files.
        .sortWithinPartitions("bucket", "group_id", "log_partition", "log_offset")
    )
    files, history_rows = dict(settings.before.files), 0
    for row in ordered.mapInArrow(carrier(settings), _CARRIED).collect():
        if row.bucket is None:
            history_rows += row.rows
        else:
            files[row.bucket] = BucketFile(settings.update, row.rows)
    return evolve(settings.before, files=files), history_rows


# ---------------------------------------------------------------- the fold


def carrier(settings: CarrySettings) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what carries on the groups of a task.

    It takes :data:`CARRIED_ROWS` in order of the bucket, and within it in the order of the bucket's groups and of the
    log.
    """

    def carry(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        groups: dict[int, int] = {}
        found = [{"bucket": None, "rows": _write_history(_carried(batches, settings, groups), settings)}]
        found += [{"bucket": bucket, "rows": rows} for bucket, rows in groups.items()]
        yield pa.RecordBatch.from_pylist(found, to_arrow_schema(_CARRIED))

    return carry


def _write_history(rows: Iterable[dict[str, Any]], settings: CarrySettings) -> int:
    """Write what a task adds to the history, and return how many rows that is; no file if there are none."""
    batches = row_batches(rows, HISTORY)
    first = next(batches, None)
    if first is None:
        return 0
    with new_file(settings.folder.file_system, f"{settings.history}/{task_file()}", first.schema) as file:
        for batch in chain([first], batches):
            file.write(batch)
    return file.rows


def _carried(
    batches: Iterable[pa.RecordBatch], settings: CarrySettings, groups: dict[int, int]
) -> Iterator[dict[str, Any]]:
    """Write buckets anew and yield rows of the history; ``groups`` learns how many groups each bucket has."""
    names = settings.before.names()
    for number, parts in groupby((part for batch in batches for part in _by_bucket(batch)), itemgetter(0)):
        old = settings.folder.read(names.get(number))
        name = bucket_name(number, settings.before.count, settings.update)
        with settings.folder.writing(name, task_attempt()) as bucket:
            carrying = _Carrying(old, bucket, settings)
            tables = (carrying.learning(table) for _, table in parts)
            yield from map(history_row, carried_histories(tables, carrying.begin, carrying.end))
            carrying.keep_others()
        groups[number] = bucket.groups


def _by_bucket(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.Table]]:
    start = 0
    for number, some in groupby(batch.column("bucket").to_pylist()):
        count = len(list(some))
        yield number, pa.Table.from_batches([batch.slice(start, count)])
        start += count


class _Carrying:
    """Carries the groups of a bucket on that have new rows, and keeps the others as they are."""

    def __init__(self, old: Iterator[Kept], bucket: BucketWriter, settings: CarrySettings) -> None:
        self._old = old
        self._waiting = next(old, None)
        self._bucket = bucket
        self._settings = settings
        self._state: GroupState | None = None
        self._learned: dict[tuple[int, str], list[tuple[TopicPartition, KnownOffset]]] = {}

    def learning(self, rows: pa.Table) -> pa.Table:
        """Learn the last offsets that count among new rows, and return these."""
        is_offset = pc.less_equal(rows["record_type"], int(RecordType.OFFSET_COMMIT))
        is_kept = pc.is_in(rows["transaction"], pa.array([ABORTED, OPEN]))
        commits = rows.filter(every(is_offset, pc.invert(is_kept)))
        for row in last_rows(commits, PARTITION).to_pylist():
            offset = KnownOffset(*(row[name] for name in _KNOWN))
            place = (row["topic"], row["topic_partition"])
            self._learned.setdefault((row["log_partition"], row["group_id"]), []).append((place, offset))
        return rows

    def begin(self, key: GroupKey) -> GroupFold:
        """Return the fold of the group that comes next."""
        partition, group_id = key
        assert partition is not None
        self._keep(below=(group_id, partition))
        if self._waiting is not None and self._waiting.key == (group_id, partition):
            state, self._waiting = decode_state(self._waiting.blob), next(self._old, None)
        else:
            state = GroupState(GroupFold(group_id, partition))
        complete_from = self._settings.complete_from.get(partition, 0)
        state.fold.options = FoldOptions(self._settings.session_timeout_ms, complete_from)
        self._state = state
        return state.fold

    def end(self, fold: GroupFold) -> None:
        """Write the group that was carried on."""
        state, partition = self._state, fold.log_partition
        assert state is not None
        assert partition is not None
        for place, offset in self._learned.pop((partition, fold.group_id), ()):
            state.learn(place, offset)
        state.forget_tombstones(self._settings.open_from.get(partition))
        self._bucket.add(Kept(partition, fold.group_id, encode_state(state)))

    def keep_others(self) -> None:
        """Write the groups that are left."""
        self._keep(below=None)

    def _keep(self, below: tuple[str, int] | None) -> None:
        while self._waiting is not None and (below is None or self._waiting.key < below):
            self._bucket.add(self._waiting)
            self._waiting = next(self._old, None)


def history_row(found: HistoryRow) -> dict[str, Any]:
    """Return a row of the history, whose log partition may not be known."""
    row = as_row(found)
    return row | {"log_partition": None if row["log_partition"] == NO_PARTITION else row["log_partition"]}


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
        return row_batches((row for blob in blobs for row in tell(decode_state(blob))), schema)

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
                **{name: getattr(known, name) for name in _KNOWN},
            }


def _name_rows(state: GroupState) -> Iterator[dict[str, Any]]:
    if state.fold.topic_names:
        yield {"group_id": state.fold.group_id, "names": list(state.fold.topic_names.items())}


def _end_rows(state: GroupState) -> Iterator[dict[str, Any]]:
    fold = state.fold
    fold.finish()
    key = (fold.log_partition, fold.group_id)
    yield from (history_row((key, kind, row)) for kind, row in fold.take_rows())


def open_commits(with_transactions: DataFrame) -> DataFrame:
    """Return the commits of transactions that have no marker yet."""
    return with_transactions.where(F.col("transaction") == OPEN)


def is_counting() -> Column:
    """Return the condition for commits outside of transactions and of committed ones."""
    outcome = F.coalesce("transaction", F.lit(""))
    return (outcome != OPEN) & (outcome != ABORTED)
