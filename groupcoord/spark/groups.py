"""Tables about groups: generations, members, the groups themselves and their rebalances.

All are rows of one fold over the records of each group, :func:`groupcoord.spark.history`.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from groupcoord.analysis.history.rows import (
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
from groupcoord.spark.folding import history
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
from groupcoord.spark.packing import BY_GROUP, Known, Row, judged, packed
from groupcoord.spark.tables import CURRENT, current_offsets


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
    """Return every change of an epoch in consumer, share and streams groups
    (:data:`groupcoord.spark.group_schemas.EPOCHS`).

    Args:
        records: the table of records, or what :func:`history` makes of it.
    """
    return _of_kind(records, EPOCH, EPOCHS.fieldNames())


def memberships(records: DataFrame | History) -> DataFrame:
    """Return the lives of members of consumer, share and streams groups
    (:data:`groupcoord.spark.group_schemas.MEMBERSHIPS`).

    Args:
        records: the table of records, or what :func:`history` makes of it.
    """
    return _of_kind(records, MEMBERSHIP, MEMBERSHIPS.fieldNames())


def moves(records: DataFrame | History) -> DataFrame:
    """Return what assignors of consumer and streams groups moved
    (:data:`groupcoord.spark.group_schemas.MOVES`).

    Args:
        records: the table of records, or what :func:`history` makes of it.
    """
    return _of_kind(records, MOVE, MOVES.fieldNames())


def revocations(records: DataFrame | History) -> DataFrame:
    """Return what members of consumer and streams groups had to give up
    (:data:`groupcoord.spark.group_schemas.REVOCATIONS`).

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
