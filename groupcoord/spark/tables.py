"""Tables of commits, groups and their history, load and damage: functions from ``records`` to a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, reduce
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import (
    Column,
    DataFrame,
    functions as F,  # noqa: N812
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from groupcoord.analysis.decode.parquet import ABORT_TYPE, ABORTED, COMMIT_TYPE, COMMITTED, OFFSET_TYPES
from groupcoord.analysis.decode.schema import (
    CURRENT_OFFSETS as _CURRENT_COLUMNS,
    KIND_CONTROL,
    KIND_CORRUPT,
    KIND_READ,
    KIND_RECORD,
    arrow_schema,
)
from groupcoord.analysis.fold import replay as replaying
from groupcoord.analysis.fold.commits import LAST_COMMITS, MINUTES, OUTCOME_SQL, REWINDS, CommitFacts, CommitFold
from groupcoord.analysis.fold.histories import GROUPED_COLUMNS, HistoryRow, folded_histories
from groupcoord.analysis.fold.history.log_history import completeness
from groupcoord.analysis.fold.history.rows import (
    EPOCH,
    GENERATION,
    GROUP,
    MEMBER,
    MEMBERSHIP,
    MOVE,
    REBALANCE,
    REVOCATION,
    Row,
)
from groupcoord.analysis.fold.records import COUNTED_COLUMNS, KEYS, LoadFold, partition_load as load_rows, summed_keys
from groupcoord.analysis.fold.replay import NO_PARTITION, REPLAYED, replay_batches
from groupcoord.analysis.options import Thresholds
from groupcoord.analysis.rules import groups as judging
from groupcoord.analysis.rules.groups import differences, group_answers, offset_answers, unknown_groups
from groupcoord.records.schemas import RecordType
from groupcoord.spark.grouped_udf import ROWS_MAX, Bucket, judged, row_batches, tagged
from groupcoord.spark.schemas import (
    COMMITS,
    CURRENT_OFFSETS,
    DIFFERENCES,
    EPOCHS,
    GENERATIONS,
    GROUPS,
    HISTORY,
    MEMBERS,
    MEMBERSHIPS,
    MOVES,
    PARTITION_LOAD,
    REBALANCES,
    RECORDS,
    REVOCATIONS,
    declared,
    of_arrow,
)

LAST, REWOUND, BUSY, CURRENT = "last", "rewinds", "minutes", "current"
"""Names of the tables of commit facts, and of current offsets."""

FACTS = StructType(
    [
        COMMITS["group_id"],
        *(
            StructField(name, of_arrow(schema))
            for name, schema in ((LAST, LAST_COMMITS), (REWOUND, REWINDS), (BUSY, MINUTES))
        ),
    ]
)
"""Facts of commits: a row of one of the tables of :class:`CommitFacts`."""

COUNTED = f"transaction is null or transaction = '{COMMITTED}'"
COMMIT_COLUMNS = (
    *("kind", "record_type", "control_type", "is_transactional", "problem"),
    *[name for name in COMMITS.fieldNames() if name != "transaction"],
)
"""Columns for :func:`commits` and :func:`current_offsets`, to pass to :func:`groupcoord.spark.read_log`."""


def is_offset_record() -> Column:
    """Return the condition for committed offsets and their tombstones that were understood."""
    return (F.col("kind") == KIND_RECORD) & F.col("record_type").isin(*OFFSET_TYPES) & F.col("problem").isNull()


def with_transactions(records: DataFrame) -> DataFrame:
    """Return offset records with one more column, ``transaction``. Only transactional rows are shuffled."""
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
    """Return every commit and tombstone (:data:`groupcoord.spark.schemas.COMMITS`).

    Commits of aborted transactions are omitted; transactions without a marker are ``open``.
    """
    found = with_transactions(records).where(F.col("transaction").isNull() | (F.col("transaction") != ABORTED))
    return found.select(*COMMITS.fieldNames())


def transactional_commits(records: DataFrame) -> DataFrame:
    return _of_transactions(records).where(F.col("transaction") != ABORTED).select(*COMMITS.fieldNames())


def commits_of(table: DataFrame) -> DataFrame:
    return table if set(COMMITS.fieldNames()) <= set(table.columns) else commits(table)


def fold_commits(commits: DataFrame, limits: Thresholds | None = None) -> DataFrame:
    """Return the facts of commits (:data:`FACTS`)."""

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return facts_rows(_folded(batches, limits))

    return _of_groups(commits).mapInArrow(fold, FACTS)


def facts_of(table: DataFrame, limits: Thresholds | None = None) -> DataFrame:
    return table if is_folded(table) else fold_commits(commits_of(table), limits)


def is_folded(table: DataFrame) -> bool:
    return table.columns == FACTS.fieldNames()


def facts_rows(facts: CommitFacts) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(FACTS)
    for name, table in ((LAST, facts.last), (REWOUND, facts.rewinds), (BUSY, facts.minutes)):
        for batch in table.to_batches(ROWS_MAX):
            found = {"group_id": batch["group_id"], name: batch.to_struct_array()}
            columns = [found.get(one.name, pa.nulls(batch.num_rows, one.type)) for one in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def current_offsets(records: DataFrame) -> DataFrame:
    """Return the offsets that a coordinator returns after loading the log
    (:data:`groupcoord.spark.schemas.CURRENT_OFFSETS`).

    The last commit of a partition in the log counts, whenever its transaction was committed, unless a tombstone
    follows. Open transactions do not count.

    Args:
        records: the table of records, or the result of :func:`commits`.
    """

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _folded(batches, None).current_offsets().to_batches(ROWS_MAX)

    return _of_groups(commits_of(records)).mapInArrow(fold, CURRENT_OFFSETS)


def _of_groups(commits: DataFrame) -> DataFrame:
    """Return all commits of each group in one task, in log order."""
    return commits.select(*LAST_COMMITS.names).repartition("group_id").sortWithinPartitions("log_offset")


def _folded(batches: Iterable[pa.RecordBatch], limits: Thresholds | None) -> CommitFacts:
    found = CommitFold(limits)
    for batch in batches:
        found.add(pa.Table.from_batches([batch]))
    return found.facts()


def last_moment(records: DataFrame) -> DataFrame:
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


def partition_load(records: DataFrame) -> DataFrame:
    """Return the load of each log partition (:data:`groupcoord.spark.schemas.PARTITION_LOAD`).

    A record is superseded by a newer one with its key; tombstones and aborted records, which compaction removes later,
    do not count. ``records`` needs the column ``key``. A task holds one row of each key.
    """
    return load_of(records.select(*COUNTED_COLUMNS).mapInArrow(_keys, KEY_COLUMNS))


def load_of(keys: DataFrame) -> DataFrame:
    return keys.repartition("log_partition").mapInArrow(_load, PARTITION_LOAD)


def _keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    fold = LoadFold()
    for batch in batches:
        fold.add(pa.Table.from_batches([batch]))
    yield from fold.keys().to_batches()


def _load(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    keys = summed_keys([KEYS.empty_table(), *(pa.Table.from_batches([batch]).cast(KEYS) for batch in batches)])
    yield pa.RecordBatch.from_pylist(load_rows(keys), to_arrow_schema(PARTITION_LOAD))


def _of_kind(name: str, kind: str, schema: StructType, description: str) -> Callable[[DataFrame | History], DataFrame]:
    def table(records: DataFrame | History) -> DataFrame:
        return history_of(records).rows(kind).select(*schema.fieldNames())

    table.__name__ = table.__qualname__ = name
    table.__doc__ = f"""Return {description} (:data:`groupcoord.spark.schemas.{name.upper()}`).

    Args:
        records: the table of records, or what :func:`history` makes of it.
    """
    return table


generations = _of_kind("generations", GENERATION, GENERATIONS, "every generation of classic groups")
members = _of_kind("members", MEMBER, MEMBERS, "the members of every generation and epoch")
rebalances = _of_kind(
    "rebalances",
    REBALANCE,
    REBALANCES,
    "the rebalances, each with the cause that :mod:`groupcoord.analysis.fold.history.causes` infers, and how surely",
)
epochs = _of_kind("epochs", EPOCH, EPOCHS, "every change of an epoch in consumer, share and streams groups")
memberships = _of_kind(
    "memberships", MEMBERSHIP, MEMBERSHIPS, "the lives of members of consumer, share and streams groups"
)
moves = _of_kind("moves", MOVE, MOVES, "what assignors of consumer and streams groups moved")
revocations = _of_kind(
    "revocations", REVOCATION, REVOCATIONS, "what members of consumer and streams groups had to give up"
)


def groups(
    records: DataFrame, *, history: DataFrame | History | None = None, offsets: DataFrame | None = None
) -> DataFrame:
    """Return every group as a coordinator describes it after loading the log (:data:`groupcoord.spark.schemas.GROUPS`).

    Args:
        records: the table of records.
        history: the result of :func:`history`, to avoid computing it again.
        offsets: the result of :func:`groupcoord.spark.current_offsets`, likewise.
    """
    current = current_offsets(records) if offsets is None else offsets
    of_groups = history_of(records if history is None else history).rows(GROUP)
    tables = [tagged(GROUP, of_groups), tagged(CURRENT, current.select(*_COUNTED))]

    def rows_of(bucket: Bucket) -> list[Row]:
        return judging.groups({GROUP: bucket.rows(GROUP)}, bucket.table(CURRENT, _COUNTED_SCHEMA))

    return judged(tables, None, rows_of, GROUPS)


_COUNTED = ("group_id", "commit_timestamp_ms")
_COUNTED_SCHEMA = pa.schema([("group_id", pa.string()), ("commit_timestamp_ms", pa.int64())])


class History:
    """The rows of a history by kind."""

    def __init__(self, table: DataFrame | None = None, unpacked: Mapping[str, DataFrame] | None = None) -> None:
        self._table = table
        self._unpacked = unpacked or {}

    def rows(self, kind: str) -> DataFrame:
        """Return the rows of one kind, with the group and its log partition."""
        if self._table is None:
            return self._unpacked[kind]
        return self._table.where(F.col("kind") == kind).select("group_id", "log_partition", f"{kind}.*")


def history_of(table: DataFrame | History) -> History:
    if isinstance(table, History):
        return table
    return History(table if set(HISTORY.fieldNames()) <= set(table.columns) else history(table))


_ANSWERS = "answers"
_KEY = ("log_partition", "group_id")
_NEEDED = (*_KEY, *REPLAYED)
_OFFSET_KEY = ("group_id", "topic", "topic_partition", "tombstone")
ANSWERS = declared(replaying.ANSWERS)


def verify(
    records: DataFrame, *, history: DataFrame | History | None = None, offsets: DataFrame | None = None
) -> DataFrame:
    """Return differences between the tables and the coordinator (:data:`groupcoord.spark.schemas.DIFFERENCES`).

    Every row is a bug. The comparison is :mod:`groupcoord.analysis.rules.groups`.

    Args:
        records: the table of records.
        history: the result of :func:`groupcoord.spark.history`, to avoid computing it again.
        offsets: the result of :func:`groupcoord.spark.current_offsets`, likewise.
    """
    folded = history_of(records if history is None else history)
    current = current_offsets(records) if offsets is None else offsets
    tables = [tagged(kind, folded.rows(kind)) for kind in (GROUP, MEMBER)]
    tables.append(tagged(GENERATION, folded.rows(GENERATION).select("group_id", "log_offset")))
    tables += [tagged(CURRENT, current), tagged(_ANSWERS, replay(records))]

    def rows_of(bucket: Bucket) -> Iterator[Row]:
        found = {kind: bucket.rows(kind) for kind in (GROUP, MEMBER, GENERATION)}
        answers = group_answers(found) | offset_answers(bucket.table(CURRENT, arrow_schema(_CURRENT_COLUMNS)))
        return differences(bucket.rows(_ANSWERS), answers, unknown_groups(found))

    return judged(tables, None, rows_of, DIFFERENCES)


def replay(records: DataFrame) -> DataFrame:
    """Return the coordinator's responses about each group after loading its records (:data:`ANSWERS`), as
    :mod:`groupcoord.analysis.fold.replay` does.
    """
    is_offset = is_offset_record()
    is_plain = is_offset & ~F.col("is_transactional")
    is_known = (F.col("kind") == KIND_RECORD) & F.col("problem").isNull() & F.col("group_id").isNotNull()
    # Null does not equal null in a join.
    partition = F.coalesce("log_partition", F.lit(NO_PARTITION)).alias("log_partition")
    of_groups = records.where(is_known & ~is_plain).select(partition, *_NEEDED[1:])
    of_offset = [name for name in REPLAYED if name not in _OFFSET_KEY]
    last_commits = (
        records.where(is_plain)
        .groupBy(partition, *_OFFSET_KEY)
        .agg(F.max_by(F.struct(*of_offset), "log_offset").alias("last"))
        .select("log_partition", *_OFFSET_KEY, "last.*")
        .select(*_NEEDED)
    )
    writers = (
        records.where(is_offset & F.col("is_transactional")).select(partition, "group_id", "producer_id").distinct()
    )
    markers = (
        records.where((F.col("kind") == KIND_CONTROL) & F.col("control_type").isin(0, 1))
        .select(partition, *REPLAYED)
        .join(writers, ["log_partition", "producer_id"])
        .select(*_NEEDED)
    )
    ordered = (
        of_groups.unionByName(last_commits)
        .unionByName(markers)
        .repartition(*_KEY)
        .sortWithinPartitions(*_KEY, "log_offset")
    )
    return ordered.mapInArrow(replay_batches, ANSWERS)


_OTHERS = {"complete_from": LongType(), "transaction": StringType()}
FOLDED = StructType(
    [
        StructField(name, _OTHERS[name] if name in _OTHERS else RECORDS[name].dataType)
        for name in dict.fromkeys((*GROUPED_COLUMNS, *LAST_COMMITS.names))
    ]
)
"""Rows of the fold: group and member records, committed offsets, and before them the names of their topics."""

_SPAN = ("log_offset", "end_offset", "complete_from")
_COMPLETE = StructType([RECORDS["log_partition"], RECORDS["complete_from"]])
_NEVER = 2**63 - 1
"""``complete_from`` of a log partition without spans."""


def is_group_record() -> Column:
    """Return the condition for records of groups and members that were understood."""
    is_known = F.col("problem").isNull() & F.col("group_id").isNotNull()
    return (F.col("kind") == KIND_RECORD) & (F.col("record_type") > int(RecordType.OFFSET_COMMIT)) & is_known


def sorted_rows(records: DataFrame) -> DataFrame:
    """Return the rows of the fold (:data:`FOLDED`), by group and in log order."""
    is_named = is_offset_record() & ~F.col("tombstone") & F.col("topic_id").isNotNull()
    names = records.where(is_named).select(*_KEY, "topic_id", "topic").distinct()
    before = names.withColumn("log_offset", F.lit(-1).cast("long"))
    of_groups = records.where(is_group_record()).drop("topic", "topic_id")
    typed = records.sparkSession.createDataFrame([], FOLDED)
    union = partial(DataFrame.unionByName, allowMissingColumns=True)
    rows = reduce(union, (typed, of_groups, with_transactions(records), before)).drop("complete_from")
    found = rows.alias("rows").join(
        F.broadcast(complete_from(records).alias("complete")),
        F.col("rows.log_partition").eqNullSafe(F.col("complete.log_partition")),
        "left",
    )
    from_offset = F.coalesce("complete.complete_from", F.lit(_NEVER)).alias("complete_from")
    complete = found.select("rows.*", from_offset).select(*FOLDED.fieldNames())
    return complete.repartition(*_KEY).sortWithinPartitions(*_KEY, "log_offset")


def complete_from(records: DataFrame) -> DataFrame:
    """Return for each log partition the offset from which on no record is missing."""

    def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spans: dict[int | None, list[tuple[int, int, int]]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                spans.setdefault(row["log_partition"], []).append(itemgetter(*_SPAN)(row))
        rows = [
            {"log_partition": partition, "complete_from": completeness(found).complete_from}
            for partition, found in spans.items()
        ]
        yield pa.RecordBatch.from_pylist(rows, to_arrow_schema(_COMPLETE))

    if "complete_from" not in records.columns:
        records = records.withColumn("complete_from", F.lit(None).cast("long"))
    spans = records.where((F.col("kind") == KIND_READ) & F.col("complete_from").isNotNull())
    return spans.select("log_partition", *_SPAN).coalesce(1).mapInArrow(rows_of, _COMPLETE)


def history(records: DataFrame, *, session_timeout_ms: int | None = None) -> DataFrame:
    """Return the rows of several tables in one (:data:`groupcoord.spark.schemas.HISTORY`).

    :func:`groupcoord.spark.generations`, ``members``, ``rebalances``, ``groups``, ``epochs``, ``memberships``,
    ``moves`` and ``revocations`` take this in place of ``records``: cache it for several of them. Tasks are split by
    log partition and group, and a task holds the members of one group at a time.

    Args:
        records: :data:`groupcoord.spark.schemas.RECORDS`, with ``key`` and ``value``.
        session_timeout_ms: ``group.consumer.session.timeout.ms`` of the brokers, which distinguishes leaving from
            expiry in KIP-848 groups. By default a member seen 5 s earlier is assumed to have left, with less
            confidence.
    """

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        return row_batches(map(as_row, folded_histories(tables, session_timeout_ms)), HISTORY)

    return sorted_rows(records).mapInArrow(fold, HISTORY)


def as_row(found: HistoryRow) -> dict[str, Any]:
    (partition, group_id), kind, row = found
    return {"group_id": group_id, "log_partition": partition, "kind": kind, kind: row}
