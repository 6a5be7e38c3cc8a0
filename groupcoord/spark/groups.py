"""Tables about groups: generations, members, the groups themselves and their rebalances.

All are rows of one fold over the records of each group, :func:`groupcoord.spark.history`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

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
from groupcoord.analysis.rules import groups as judging
from groupcoord.spark.folding import history
from groupcoord.spark.packing import BY_GROUP, Bucket, Row, judged, packed
from groupcoord.spark.schemas import (
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
from groupcoord.spark.tables import CURRENT, current_offsets


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
