"""What metrics show: figures of groups out of the tables of a run that follows logs, or of a poll."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, field, frozen

from groupcoord.analysis.tables import FinishedTables

ROWS_MAX = 100_000
"""Partitions of groups that are shown; if there are more, those with the greatest lag."""

_OF_LAG = (
    *("group_id", "topic", "topic_partition", "committed_offset", "end_offset", "lag", "lag_ms", "status"),
    *("member_id", "client_id", "client_host"),
)

Row = Mapping[str, Any]
RebalanceCounts = Mapping[tuple[str, str], int]
"""By group and cause, how many rebalances there were."""


@frozen
class Figures:
    """What there is to show.

    Attributes:
        seen_ms: when the input was looked at, in milliseconds since 1970.
        rows: how many rows of the log were read; None: none are.
        lag: rows of the table of this name.
        groups: rows of the table of this name.
        rebalances: how many each group had.
        anomalies: by group and kind, how many there are.
    """

    seen_ms: int
    rows: int | None = None
    lag: Sequence[Row] | None = None
    groups: Sequence[Row] = ()
    rebalances: RebalanceCounts = field(factory=dict)
    anomalies: Mapping[tuple[str, str], int] = field(factory=dict)


def figures_of(
    before: Figures | None, tables: FinishedTables, seen_ms: int, rows: int, earlier: RebalanceCounts | None = None
) -> Figures:
    """Return what tables tell.

    Args:
        before: what was shown before; what these tables don't tell stays.
        tables: those that were made anew.
        seen_ms: when the input was looked at, in milliseconds since 1970.
        rows: how many rows of the log were read.
        earlier: rebalances that are in no table any more.
    """
    found = evolve(before or Figures(seen_ms), seen_ms=seen_ms, rows=rows)
    if tables.has("lag"):
        found = evolve(
            found, lag=heapq.nlargest(ROWS_MAX, tables.rows("lag", _OF_LAG), key=lambda row: row["lag"] or 0)
        )
    if tables.has("groups"):
        counts = Counter(earlier or {})
        counts.update((row["group_id"], row["cause"]) for row in tables.rows("rebalances", ("group_id", "cause")))
        kinds = Counter((row["group_id"], row["kind"]) for row in tables.rows("anomalies", ("group_id", "kind")))
        described = list(tables.rows("groups", ("group_id", "type", "state", "member_count")))
        found = evolve(found, groups=described[:ROWS_MAX], rebalances=counts, anomalies=kinds)
    return found
