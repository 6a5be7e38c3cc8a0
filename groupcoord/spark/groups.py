"""Tables about groups: generations, members, the groups themselves and their rebalances.

All come of one fold over the records of each group, :func:`history`. Committed offsets stay in Spark: what the fold
needs of them is one row a group, and one for each member whose last commit matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from groupcoord.analysis.columns.schema import KIND_READ, KIND_RECORD
from groupcoord.analysis.history.fold import FoldOptions, GroupFold
from groupcoord.analysis.history.rows import (
    DEPARTURE,
    EPOCH,
    GENERATION,
    GROUP,
    MEMBER,
    MEMBERSHIP,
    MOVE,
    REBALANCE,
    REVOCATION,
)
from groupcoord.analysis.judging import groups as judging
from groupcoord.records.schemas import RecordType
from groupcoord.records.structures import uuid_text
from groupcoord.records.typed import parse_record
from groupcoord.spark.group_schemas import (
    EPOCHS,
    GENERATIONS,
    GROUPS,
    HISTORY,
    MEMBERS,
    MEMBERSHIPS,
    MOVES,
    REBALANCES,
    REVOCATIONS,
)
from groupcoord.spark.packing import BY_GROUP, ROWS_MAX, Known, Row, judged, packed
from groupcoord.spark.tables import CURRENT, current_offsets, is_offset_record

NO_PARTITION = -1
"""Stands for a log partition that is not known while tables are joined: null equals nothing."""

_KEY = ("log_partition", "group_id")
_INPUT = "log_partition int, group_id string, log_offset long, log_timestamp_ms long, key binary, value binary, "
_INPUT += "topic string, topic_partition int, names array<struct<topic_id:binary,topic:string>>, complete_from long, "
_INPUT += "partition_leader_epoch int"


def history(records: DataFrame, *, session_timeout_ms: int | None = None) -> DataFrame:
    """Return the rows of several tables in one (:data:`groupcoord.spark.group_schemas.HISTORY`).

    :func:`generations`, :func:`members`, :func:`rebalances`, :func:`groups`, and of consumer groups :func:`epochs`,
    :func:`memberships`, :func:`moves` and :func:`revocations`, take this in place of ``records``: cache it if you want
    more than one of them. The groups are spread over tasks by log partition and group, and a task holds
    the members of one group at a time.

    Args:
        records: :data:`groupcoord.spark.schemas.RECORDS`, with ``key`` and ``value``.
        session_timeout_ms: ``group.consumer.session.timeout.ms`` of the brokers, to tell members of KIP-848 groups that
            left from those that expired; the log does not tell it. None: who was there 5 s before is taken to have
            left, with less confidence.
    """
    inputs = with_signs_of_life(fold_inputs(records), records, session_timeout_ms)
    return inputs.mapInArrow(_folder(session_timeout_ms), HISTORY)


def generations(records: DataFrame | History) -> DataFrame:
    """Return every generation of classic groups (:data:`groupcoord.spark.group_schemas.GENERATIONS`).

    Args:
        records: the table of records, or what :func:`history` makes of it.
    """
    return _of_kind(records, GENERATION, GENERATIONS.fieldNames())


def members(records: DataFrame | History) -> DataFrame:
    """Return the members of every generation and epoch (:data:`groupcoord.spark.group_schemas.MEMBERS`).

    Args:
        records: the table of records, or what :func:`history` makes of it.
    """
    return _of_kind(records, MEMBER, MEMBERS.fieldNames())


def rebalances(records: DataFrame | History) -> DataFrame:
    """Return the rebalances and why they came (:data:`groupcoord.spark.group_schemas.REBALANCES`).

    Heartbeats are not in the log, and compaction hides generations: a cause is inferred, with how sure it is and why,
    and what can't be known is ``unknown``. See :mod:`groupcoord.analysis.history.causes`.

    Args:
        records: the table of records, or what :func:`history` makes of it.
    """
    return _of_kind(records, REBALANCE, REBALANCES.fieldNames())


def epochs(records: DataFrame | History) -> DataFrame:
    """Return every change of an epoch in consumer groups (:data:`groupcoord.spark.group_schemas.EPOCHS`).

    Args:
        records: the table of records, or what :func:`history` makes of it.
    """
    return _of_kind(records, EPOCH, EPOCHS.fieldNames())


def memberships(records: DataFrame | History) -> DataFrame:
    """Return the lives of members of consumer groups (:data:`groupcoord.spark.group_schemas.MEMBERSHIPS`).

    Args:
        records: the table of records, or what :func:`history` makes of it.
    """
    return _of_kind(records, MEMBERSHIP, MEMBERSHIPS.fieldNames())


def moves(records: DataFrame | History) -> DataFrame:
    """Return what assignors of consumer groups moved (:data:`groupcoord.spark.group_schemas.MOVES`).

    Args:
        records: the table of records, or what :func:`history` makes of it.
    """
    return _of_kind(records, MOVE, MOVES.fieldNames())


def revocations(records: DataFrame | History) -> DataFrame:
    """Return what members of consumer groups had to give up (:data:`groupcoord.spark.group_schemas.REVOCATIONS`).

    Args:
        records: the table of records, or what :func:`history` makes of it.
    """
    return _of_kind(records, REVOCATION, REVOCATIONS.fieldNames())


def groups(
    records: DataFrame, *, history: DataFrame | History | None = None, offsets: DataFrame | None = None
) -> DataFrame:
    """Return every group as a coordinator that loads the log would describe it.

    The schema is :data:`groupcoord.spark.group_schemas.GROUPS`.

    Args:
        records: the table of records.
        history: what :func:`history` makes of it, if it is there already.
        offsets: what :func:`groupcoord.spark.current_offsets` makes of it, likewise.
    """
    current = current_offsets(records) if offsets is None else offsets
    of_groups = history_of(records if history is None else history).rows(GROUP)
    tables = [packed(GROUP, of_groups, BY_GROUP), packed(CURRENT, current.select(*_COUNTED), BY_GROUP)]

    def tell(known: Known) -> list[Row]:
        return judging.groups({GROUP: known.rows(GROUP)}, known.table(CURRENT, _COUNTED_SCHEMA))

    return judged(tables, None, tell, GROUPS)


_COUNTED = ("group_id", "commit_timestamp_ms")
_COUNTED_SCHEMA = pa.schema([("group_id", pa.string()), ("commit_timestamp_ms", pa.int64())])


class History:
    """The rows of a history by kind.

    Args:
        table: :data:`groupcoord.spark.group_schemas.HISTORY`.
        unpacked: in its place, tables of rows by kind.
    """

    def __init__(self, table: DataFrame | None = None, unpacked: Mapping[str, DataFrame] | None = None) -> None:
        self._table = table
        self._unpacked = unpacked or {}

    def rows(self, kind: str) -> DataFrame:
        """Return the rows of one kind, with the group and its log partition."""
        if self._table is None:
            return self._unpacked[kind]
        return self._table.where(F.col("kind") == kind).select("group_id", "log_partition", f"{kind}.*")


def history_of(table: DataFrame | History) -> History:
    """Return a history as it is, and that of a table of records."""
    if isinstance(table, History):
        return table
    return History(table if set(HISTORY.fieldNames()) <= set(table.columns) else history(table))


def _of_kind(table: DataFrame | History, kind: str, names: list[str]) -> DataFrame:
    return history_of(table).rows(kind).select(*names)


# ---------------------------------------------------------------- what the fold takes


def known_partition() -> Column:
    """Return the log partition in a form that can be joined."""
    return F.coalesce("log_partition", F.lit(NO_PARTITION)).alias("log_partition")


def is_group_record() -> Column:
    """Return the condition for records of groups and members that were understood."""
    is_known = F.col("problem").isNull() & F.col("group_id").isNotNull()
    return (F.col("kind") == KIND_RECORD) & (F.col("record_type") > int(RecordType.OFFSET_COMMIT)) & is_known


def fold_inputs(records: DataFrame) -> DataFrame:
    """Return the records of groups, and for each group that has committed where it last did and its topics' names."""
    is_told = "partition_leader_epoch" in records.columns
    epoch = F.expr("nullif(partition_leader_epoch, -1)") if is_told else F.lit(None)
    of_groups = (
        records.where(is_group_record())
        .select(known_partition(), "group_id", "log_offset", "log_timestamp_ms", "key", "value", epoch.alias("epoch"))
        .join(F.broadcast(complete_from(records)), "log_partition", "left")
        .selectExpr(
            *("log_partition", "group_id", "log_offset", "log_timestamp_ms", "key", "value"),
            *(
                "null as topic",
                "null as topic_partition",
                "null as names",
                f"coalesce(complete_from, {_NEVER}L) as complete_from",
            ),
            "epoch as partition_leader_epoch",
        )
    )
    of_topics = (
        records.where(is_offset_record() & ~F.col("tombstone"))
        .groupBy(known_partition(), "group_id", "topic", "topic_id")
        .agg(
            # Two numbers, since Spark would sort all commits for a struct of them.
            F.max("log_offset").alias("log_offset"),
            F.max_by("log_timestamp_ms", "log_offset").alias("log_timestamp_ms"),
        )
        .groupBy(*_KEY)
        .agg(
            F.max(F.struct("log_offset", "log_timestamp_ms")).alias("last"),
            F.collect_list(F.when(F.col("topic_id").isNotNull(), F.struct("topic_id", "topic"))).alias("names"),
        )
    )
    no_bytes = ("null as key", "null as value")
    names = of_topics.where(F.size("names") > 0).selectExpr(
        *_KEY, "-1L as log_offset", "-1L as log_timestamp_ms", *no_bytes, "null as topic", "null as topic_partition",
        "names", "null as complete_from", "null as partition_leader_epoch",
    )  # fmt: skip
    commits = of_topics.selectExpr(*_KEY, "last.*", *no_bytes, "null as topic", "null as topic_partition", *_NO_MORE)
    return _typed(of_groups).unionByName(_typed(names)).unionByName(_typed(commits))


_NEVER = 2**63 - 1
"""From where on a log partition is complete of which no range that was read is told."""

_NO_MORE = ("null as names", "null as complete_from", "null as partition_leader_epoch")


def _typed(table: DataFrame) -> DataFrame:
    """Return the columns of the fold's input with their types."""
    wanted = [column.strip().rsplit(" ", 1) for column in _INPUT.split(", ")]
    return table.select(*[F.col(name).cast(kind).alias(name) for name, kind in wanted])


def complete_from(records: DataFrame) -> DataFrame:
    """Return for each log partition the offset from which on no record is missing.

    Compaction works from the start of a log, and leaves gaps. Bytes that can't be read leave a gap too.
    """
    spans = F.sort_array(F.collect_list(F.struct("first", "end", "complete_from")))
    return (
        read_spans(records)
        .groupBy("log_partition")
        .agg(spans.alias("spans"))
        .select(
            "log_partition",
            F.aggregate(
                "spans",
                F.struct(F.lit(0).cast("long").alias("from"), F.lit(0).cast("long").alias("end")),
                lambda so_far, span: F.struct(
                    F.when(span["complete_from"] != span["first"], span["complete_from"])
                    .when(span["first"] != so_far["end"], span["first"])
                    .otherwise(so_far["from"])
                    .alias("from"),
                    span["end"].alias("end"),
                ),
                lambda so_far: so_far["from"],
            ).alias("complete_from"),
        )
    )


def read_spans(records: DataFrame) -> DataFrame:
    """Return of each range that was read its log partition, its offsets, and from which on none of them is missing."""
    if "complete_from" not in records.columns:
        records = records.withColumn("complete_from", F.lit(None).cast("long"))
    return records.where((F.col("kind") == KIND_READ) & F.col("complete_from").isNotNull()).select(
        known_partition(), F.col("log_offset").alias("first"), F.col("end_offset").alias("end"), "complete_from"
    )


def _signs_of_life(records: DataFrame, departures: DataFrame) -> DataFrame:
    """Return the last commits of partitions whose members are gone, in the ranges of the log asked for."""
    commits = records.where(is_offset_record() & ~F.col("tombstone") & ~F.col("is_transactional")).select(
        known_partition(), "group_id", "topic", "topic_partition", "log_offset", "log_timestamp_ms"
    )
    key = [*_KEY, "topic", "topic_partition"]
    found = (
        commits.join(F.broadcast(departures), key)
        .where((F.col("log_offset") > F.col("from_offset")) & (F.col("log_offset") < F.col("to_offset")))
        .groupBy(*key, "to_offset")
        .agg(F.max(F.struct("log_offset", "log_timestamp_ms")).alias("last"))
    )
    return _typed(found.selectExpr(*key, "last.*", "null as key", "null as value", *_NO_MORE))


# ---------------------------------------------------------------- the fold


def with_signs_of_life(inputs: DataFrame, records: DataFrame, session_timeout_ms: int | None) -> DataFrame:
    """Return what the fold takes, in order: the commits, too, that show how members ended.

    Args:
        inputs: what :func:`fold_inputs` gives.
        records: the table of records.
        session_timeout_ms: see :func:`history`.
    """
    departures = _ordered(inputs).mapInArrow(_folder(session_timeout_ms, only_departures=True), HISTORY)
    return _ordered(inputs.unionByName(_signs_of_life(records, departures.select(*_KEY, "departure.*"))))


def _ordered(inputs: DataFrame) -> DataFrame:
    """Return each group's rows in the order of the log."""
    return inputs.repartition(*_KEY).sortWithinPartitions(*_KEY, "log_offset")


def _folder(
    session_timeout_ms: int | None, *, only_departures: bool = False
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(HISTORY)
        for rows in batched(history_rows(batches, session_timeout_ms, only_departures=only_departures)):
            yield pa.RecordBatch.from_pylist(rows, schema)

    return fold


def batched(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield rows together, so that there are enough for an Arrow batch."""
    while some := list(islice(rows, ROWS_MAX)):
        yield some


def history_rows(
    batches: Iterable[pa.RecordBatch], session_timeout_ms: int | None, *, only_departures: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the history of groups: all but departures, or these alone.

    Args:
        batches: what :func:`with_signs_of_life` gives.
        session_timeout_ms: see :func:`history`.
        only_departures: see above.
    """
    fold: GroupFold | None = None
    for batch in batches:
        for row in batch.to_pylist():
            if fold is None or (fold.log_partition, fold.group_id) != (row["log_partition"], row["group_id"]):
                if fold is not None:
                    fold.finish()
                    yield from taken_rows(fold, only_departures=only_departures)
                fold = GroupFold(row["group_id"], row["log_partition"], FoldOptions(session_timeout_ms))
            if row["names"] is not None:
                for name in row["names"]:
                    fold.name_topic(uuid_text(name["topic_id"]), name["topic"])
            else:
                fold.options.complete_from = row["complete_from"] or fold.options.complete_from
                fold_record(fold, row)
            yield from taken_rows(fold, only_departures=only_departures)
    if fold is not None:
        fold.finish()
        yield from taken_rows(fold, only_departures=only_departures)


def fold_record(fold: GroupFold, row: dict[str, Any]) -> None:
    """Give a fold one row of its input: a record of a group, a commit with its topic, or where a commit lies."""
    if row["key"] is None and row["topic"] is None:
        fold.exists(row["log_offset"])
    elif row["key"] is None:
        fold.committed(row["log_offset"], row["log_timestamp_ms"], row["topic"], row["topic_partition"])
    elif row["log_offset"] > fold.last_offset:  # damaged logs may hold a record twice
        record = parse_record(row["key"], row["value"])
        if record is not None:
            fold.apply(row["log_offset"], row["log_timestamp_ms"], record, row["partition_leader_epoch"])


def taken_rows(fold: GroupFold, *, only_departures: bool = False) -> list[dict[str, Any]]:
    """Return the fold's new rows as rows of the history: all but departures, or these alone."""
    known = None if fold.log_partition == NO_PARTITION else fold.log_partition
    place = {"group_id": fold.group_id, "log_partition": fold.log_partition if only_departures else known}
    return [
        place | {"kind": kind, kind: row} for kind, row in fold.take_rows() if (kind == DEPARTURE) == only_departures
    ]
