"""Tables of groups: generations, members, rebalances and the groups themselves; and their comparison with coordinators.

All are rows of one fold over the records of each group, :func:`groupcoord.spark.history`. A task that verifies holds
one group's state and one Arrow batch (:mod:`groupcoord.analysis.fold.replay`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from groupcoord.analysis.decode.schema import CURRENT_OFFSETS, KIND_CONTROL, KIND_RECORD, arrow_schema
from groupcoord.analysis.fold import replay as replaying
from groupcoord.analysis.fold.history.rows import (
    EPOCH,
    GENERATION,
    GROUP,
    MEMBER,
    MEMBERSHIP,
    MOVE,
    REBALANCE,
    REVOCATION,
)
from groupcoord.analysis.fold.replay import NO_PARTITION, REPLAYED, replay_batches
from groupcoord.analysis.rules import groups as judging
from groupcoord.analysis.rules.differences import differences, group_answers, offset_answers, unknown_groups
from groupcoord.spark.folding import history
from groupcoord.spark.grouped_udf import BY_GROUP, Bucket, Row, judged, packed
from groupcoord.spark.schemas import (
    DIFFERENCES,
    EPOCHS,
    GENERATIONS,
    GROUPS,
    HISTORY,
    MEMBERS,
    MEMBERSHIPS,
    MOVES,
    REBALANCES,
    REVOCATIONS,
    declared,
)
from groupcoord.spark.tables import CURRENT, current_offsets, is_offset_record


def _of_kind(name: str, kind: str, schema: StructType, told: str) -> Callable[[DataFrame | History], DataFrame]:
    """Return what makes a table of the rows of one kind, with its name and what it tells."""

    def table(records: DataFrame | History) -> DataFrame:
        return history_of(records).rows(kind).select(*schema.fieldNames())

    table.__name__ = table.__qualname__ = name
    table.__doc__ = f"""Return {told} (:data:`groupcoord.spark.schemas.{name.upper()}`).

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
    """Return every group as a coordinator that loads the log would describe it.

    The schema is :data:`groupcoord.spark.schemas.GROUPS`.

    Args:
        records: the table of records.
        history: what :func:`history` makes of it, if it is there already.
        offsets: what :func:`groupcoord.spark.current_offsets` makes of it, likewise.
    """
    current = current_offsets(records) if offsets is None else offsets
    of_groups = history_of(records if history is None else history).rows(GROUP)
    tables = [packed(GROUP, of_groups, BY_GROUP), packed(CURRENT, current.select(*_COUNTED), BY_GROUP)]

    def tell(bucket: Bucket) -> list[Row]:
        return judging.groups({GROUP: bucket.rows(GROUP)}, bucket.table(CURRENT, _COUNTED_SCHEMA))

    return judged(tables, None, tell, GROUPS)


_COUNTED = ("group_id", "commit_timestamp_ms")
_COUNTED_SCHEMA = pa.schema([("group_id", pa.string()), ("commit_timestamp_ms", pa.int64())])


class History:
    """The rows of a history by kind.

    Args:
        table: :data:`groupcoord.spark.schemas.HISTORY`.
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


_ANSWERS = "answers"
_KEY = ("log_partition", "group_id")
_NEEDED = (*_KEY, *REPLAYED)
_OFFSET_KEY = ("group_id", "topic", "topic_partition", "tombstone")

ANSWERS = declared(replaying.ANSWERS)
"""What :func:`replay` gives."""


def verify(
    records: DataFrame, *, history: DataFrame | History | None = None, offsets: DataFrame | None = None
) -> DataFrame:
    """Return where the tables differ from the coordinator (:data:`groupcoord.spark.schemas.DIFFERENCES`).

    Nothing, that is, unless something is wrong. What is compared :mod:`groupcoord.analysis.rules.differences` says.

    Args:
        records: the table of records.
        history: what :func:`groupcoord.spark.history` makes of it, if it is there already.
        offsets: what :func:`groupcoord.spark.current_offsets` makes of it, likewise.
    """
    folded = history_of(records if history is None else history)
    current = current_offsets(records) if offsets is None else offsets
    tables = [packed(kind, folded.rows(kind), BY_GROUP) for kind in (GROUP, MEMBER)]
    tables.append(packed(GENERATION, folded.rows(GENERATION).select("group_id", "log_offset"), BY_GROUP))
    tables += [packed(CURRENT, current, BY_GROUP), packed(_ANSWERS, replay(records), BY_GROUP)]

    def tell(bucket: Bucket) -> Iterator[Row]:
        found = {kind: bucket.rows(kind) for kind in (GROUP, MEMBER, GENERATION)}
        told = group_answers(found) | offset_answers(bucket.table(CURRENT, arrow_schema(CURRENT_OFFSETS)))
        return differences(bucket.rows(_ANSWERS), told, unknown_groups(found))

    return judged(tables, None, tell, DIFFERENCES)


def replay(records: DataFrame) -> DataFrame:
    """Return what the coordinator answers about each group after loading its records (:data:`ANSWERS`).

    Outside of transactions the last commit and the last tombstone of each partition are replayed: what else was there
    changes no answer, and a group that commits all day has no more to load than one that seldom does. Transaction
    markers have no group; each is given to the groups that its producer wrote to in that log partition.
    """
    is_offset = is_offset_record()
    is_plain = is_offset & ~F.col("is_transactional")
    is_known = (F.col("kind") == KIND_RECORD) & F.col("problem").isNull() & F.col("group_id").isNotNull()
    # Null equals nothing where tables are joined.
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
