"""The fold of records on Spark, which sorts them by group: histories of groups, and what is to be known of commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from fsspec import AbstractFileSystem
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from groupcoord.analysis.decode.parquet import ABORTED, TableFile
from groupcoord.analysis.decode.schema import CURRENT_OFFSETS, KIND_READ, KIND_RECORD, arrow_schema
from groupcoord.analysis.fold.arrow import every
from groupcoord.analysis.fold.commits import LAST_COMMITS, CommitFold
from groupcoord.analysis.fold.histories import GROUPED_COLUMNS, HistoryRow, folded_histories
from groupcoord.analysis.fold.history.log_history import completeness
from groupcoord.analysis.fold.history.rows import (
    DUPLICATE,
    EPOCH,
    GENERATION,
    GROUP,
    MEMBER,
    MEMBERSHIP,
    MOVE,
    REBALANCE,
    REVOCATION,
)
from groupcoord.records.schemas import RecordType
from groupcoord.spark.decoding import new_file
from groupcoord.spark.grouped_udf import BLOBS, batched, blob_rows, row_batches
from groupcoord.spark.output import task_file
from groupcoord.spark.schemas import (
    EPOCHS,
    GENERATIONS,
    HISTORY,
    MEMBERS,
    MEMBERSHIPS,
    MOVES,
    REBALANCES,
    RECORDS,
    REVOCATIONS,
)
from groupcoord.spark.tables import facts_tables, is_offset_record, with_transactions

_KEY = ("log_partition", "group_id")
_OTHERS = {"complete_from": LongType(), "transaction": StringType()}
FOLDED = StructType(
    [
        StructField(name, _OTHERS[name] if name in _OTHERS else RECORDS[name].dataType)
        for name in dict.fromkeys((*GROUPED_COLUMNS, *LAST_COMMITS.names))
    ]
)
"""What is folded: records of groups and members, committed offsets, and before them the names of their topics."""

_COMPLETE = StructType([RECORDS["log_partition"], RECORDS["complete_from"]])
_NEVER = 2**63 - 1
"""From where on a log partition is complete of which no range that was read is told."""


def is_group_record() -> Column:
    """Return the condition for records of groups and members that were understood."""
    is_known = F.col("problem").isNull() & F.col("group_id").isNotNull()
    return (F.col("kind") == KIND_RECORD) & (F.col("record_type") > int(RecordType.OFFSET_COMMIT)) & is_known


def folded_rows(records: DataFrame, ended: DataFrame) -> DataFrame:
    """Return what is folded (:data:`FOLDED`), in no order.

    Args:
        records: the table of records.
        ended: its committed offsets, with what became of their transactions.
    """
    is_named = is_offset_record() & ~F.col("tombstone") & F.col("topic_id").isNotNull()
    names = records.where(is_named).select(*_KEY, "topic_id", "topic").distinct()
    before = names.withColumn("log_offset", F.lit(-1).cast("long"))
    of_groups = records.where(is_group_record()).drop("complete_from", "topic", "topic_id")
    parts = (of_groups, ended.drop("complete_from"), before)
    return _typed(parts[0]).unionByName(_typed(parts[1])).unionByName(_typed(parts[2]))


def _typed(table: DataFrame) -> DataFrame:
    """Return :data:`FOLDED`; what is not given is null."""
    return table.select(
        *[
            (F.col(column.name) if column.name in table.columns else F.lit(None))
            .cast(column.dataType)
            .alias(column.name)
            for column in FOLDED
        ]
    )


def sorted_rows(records: DataFrame) -> DataFrame:
    """Return what is folded of a table of records, each group's rows together and in the order of the log."""
    rows, complete = folded_rows(records, with_transactions(records)).drop("complete_from"), complete_from(records)
    found = rows.alias("rows").join(
        F.broadcast(complete.alias("complete")),
        F.col("rows.log_partition").eqNullSafe(F.col("complete.log_partition")),
        "left",
    )
    told = F.coalesce("complete.complete_from", F.lit(_NEVER)).alias("complete_from")
    typed = found.select("rows.*", told).select(*FOLDED.fieldNames())
    return typed.repartition(*_KEY).sortWithinPartitions(*_KEY, "log_offset")


def read_spans(records: DataFrame) -> DataFrame:
    """Return of each range that was read its log partition, its offsets, and from which on none of them is missing."""
    if "complete_from" not in records.columns:
        records = records.withColumn("complete_from", F.lit(None).cast("long"))
    return records.where((F.col("kind") == KIND_READ) & F.col("complete_from").isNotNull()).select(
        "log_partition", F.col("log_offset").alias("first"), F.col("end_offset").alias("end"), "complete_from"
    )


def complete_from(records: DataFrame) -> DataFrame:
    """Return for each log partition the offset from which on no record is missing."""

    def tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spans: dict[int | None, list[tuple[int, int, int]]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                spans.setdefault(row["log_partition"], []).append((row["first"], row["end"], row["complete_from"]))
        told = [
            {"log_partition": partition, "complete_from": completeness(found).complete_from}
            for partition, found in spans.items()
        ]
        yield pa.RecordBatch.from_pylist(told, to_arrow_schema(_COMPLETE))

    return read_spans(records).coalesce(1).mapInArrow(tell, _COMPLETE)


# ---------------------------------------------------------------- rows of the history


def history(records: DataFrame, *, session_timeout_ms: int | None = None) -> DataFrame:
    """Return the rows of several tables in one (:data:`groupcoord.spark.schemas.HISTORY`).

    :func:`groupcoord.spark.generations`, ``members``, ``rebalances``, ``groups``, and of consumer groups ``epochs``,
    ``memberships``, ``moves`` and ``revocations``, take this in place of ``records``: cache it if you want more than
    one of them. The groups are spread over tasks by log partition and group, and a task holds the members of one group
    at a time.

    Args:
        records: :data:`groupcoord.spark.schemas.RECORDS`, with ``key`` and ``value``.
        session_timeout_ms: ``group.consumer.session.timeout.ms`` of the brokers, to tell members of KIP-848 groups that
            left from those that expired; the log does not tell it. None: who was there 5 s before is taken to have
            left, with less confidence.
    """

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        return row_batches(map(as_row, folded_histories(tables, session_timeout_ms)), HISTORY)

    return sorted_rows(records).mapInArrow(fold, HISTORY)


def as_row(found: HistoryRow) -> dict[str, Any]:
    """Return a row of the history as it is in :data:`groupcoord.spark.schemas.HISTORY`."""
    (partition, group_id), kind, row = found
    return {"group_id": group_id, "log_partition": partition, "kind": kind, kind: row}


# ---------------------------------------------------------------- tables of their own


def _flat(kind: str) -> StructType:
    rows = HISTORY[kind].dataType
    assert isinstance(rows, StructType)
    return StructType([HISTORY["group_id"], HISTORY["log_partition"], *rows])


UNPACKED: Mapping[str, StructType] = {
    GENERATION: GENERATIONS,
    MEMBER: MEMBERS,
    REBALANCE: REBALANCES,
    EPOCH: EPOCHS,
    MEMBERSHIP: MEMBERSHIPS,
    MOVE: MOVES,
    REVOCATION: REVOCATIONS,
    **{kind: _flat(kind) for kind in (GROUP, DUPLICATE)},
}
"""By kind of rows, the schema of their table."""

OFFSETS, FACTS = "current offsets", "facts"
_SCHEMAS = {kind: to_arrow_schema(schema) for kind, schema in UNPACKED.items()}
_SCHEMAS |= {OFFSETS: arrow_schema(CURRENT_OFFSETS), FACTS: to_arrow_schema(BLOBS)}
WRITTEN = tuple(_SCHEMAS)
"""What :func:`write_fold` writes: the kinds of :data:`UNPACKED`, current offsets, and what is known of commits."""

_ROWS = StructType([StructField("name", StringType()), StructField("rows", LongType())])


def write_fold(records: DataFrame, file_system: AbstractFileSystem, folders: Mapping[str, str]) -> dict[str, int]:
    """Write what is folded of records as Parquet files, and return how many rows there are of each table.

    Args:
        records: the table of records.
        file_system: where to write; workers have to reach it.
        folders: in that file system, by the names of :data:`WRITTEN`.
    """
    counts = dict.fromkeys(WRITTEN, 0)
    for row in sorted_rows(records).mapInArrow(_writer(file_system, folders), _ROWS).collect():
        counts[row["name"]] += row["rows"]
    for name, count in counts.items():
        if not count:
            with new_file(file_system, f"{folders[name]}/part-empty.snappy.parquet", _SCHEMAS[name]):
                pass  # a table without rows is one, too
    return counts


def _writer(
    file_system: AbstractFileSystem, folders: Mapping[str, str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part = task_file()
        files: dict[str, TableFile] = {}
        commits = CommitFold()
        with ExitStack() as stack:
            for name, batch in _made(batches, commits):
                if name not in files:
                    opened = new_file(file_system, f"{folders[name]}/{part}", _SCHEMAS[name])
                    files[name] = stack.enter_context(opened)
                files[name].write(batch)
        found = [{"name": name, "rows": file.rows} for name, file in files.items()]
        yield pa.RecordBatch.from_pylist(found, to_arrow_schema(_ROWS))

    return write


def _made(batches: Iterable[pa.RecordBatch], commits: CommitFold) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield rows of tables by name."""
    for rows in batched(map(as_row, folded_histories(_fed(batches, commits), None))):
        by_kind: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            place = {name: row[name] for name in _KEY}
            by_kind.setdefault(row["kind"], []).append(place | row[row["kind"]])
        for kind, some in by_kind.items():
            yield kind, pa.RecordBatch.from_pylist(some, _SCHEMAS[kind])
    facts = commits.facts()
    for batch in facts.current_offsets().to_batches():
        yield OFFSETS, batch
    for name, table in facts_tables(facts).items():
        yield from ((FACTS, batch) for batch in blob_rows(name, table))


def _fed(batches: Iterable[pa.RecordBatch], commits: CommitFold) -> Iterator[pa.Table]:
    """Yield rows, and give the fold of commits those that count."""
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        is_commit = pc.less_equal(rows["record_type"], int(RecordType.OFFSET_COMMIT))
        is_aborted = pc.fill_null(pc.equal(rows["transaction"], ABORTED), False)
        commits.add(rows.filter(every(is_commit, pc.invert(is_aborted))).cast(_FOLDED))
        yield rows


_FOLDED = to_arrow_schema(FOLDED)
