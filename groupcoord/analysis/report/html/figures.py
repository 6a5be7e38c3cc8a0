"""Figures that the sections of a report compute from its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from groupcoord.analysis.report.data.model import (
    STATES,
    MemberShare,
    PartitionRow,
    PartitionShare,
    RebalanceRow,
    StateCount,
)
from groupcoord.analysis.report.html.pictures import in_order

_OFTEN_MS = 300_000


def durations(rebalances: Iterable[RebalanceRow]) -> list[tuple[int, RebalanceRow]]:
    """Return the durations of rebalances as far as the log shows them: joining leaves no trace."""
    return [
        (one.ended_ms - one.started_ms, one)
        for one in rebalances
        if one.started_ms is not None and one.ended_ms is not None and one.ended_ms >= one.started_ms
    ]


def worst_five_minutes(rebalances: Iterable[RebalanceRow]) -> tuple[int, float, int] | None:
    """Return how many rebalances fall into the worst five minutes, their share, and the start.

    None if that is at most half of them.
    """
    times = sorted(one.ended_ms for one in rebalances if one.ended_ms is not None)
    most, start, first = 0, 0, 0
    for place, at_ms in enumerate(times):
        while times[first] <= at_ms - _OFTEN_MS:
            first += 1
        if place - first + 1 > most:
            most, start = place - first + 1, first
    if most < 3 or most * 2 <= len(times) or times[-1] - times[0] <= _OFTEN_MS:
        return None
    return most, most / len(times), times[start]


def member_rows(shares: Iterable[MemberShare]) -> Iterator[tuple[MemberShare | None, PartitionShare | None, str]]:
    """Yield the member (in its first row), the partition, and otherwise the number of partitions that are left out."""
    for share in shares:
        more = share.partition_count - len(share.partitions)
        rows: list[tuple[PartitionShare | None, str]] = [(one, "") for one in share.partitions]
        if more or not rows:
            rows.append((None, f"{more:,} more" if more else "nothing"))
        yield from ((member, *row) for member, row in zip_longest([share], rows))


def hottest(partitions: Sequence[PartitionRow]) -> PartitionRow:
    """Return the log partition of the group with the most records."""
    return max(partitions, key=lambda row: row.records * (row.hottest_group_share or 0.0))


def groups_by_state(rows: Iterable[StateCount]) -> dict[str, int]:
    """Return the number of groups of all types in each state, in drawing order."""
    counts = Counter[str]()
    for row in rows:
        counts[row.state] += row.groups
    return {state: counts[state] for state in in_order(counts, STATES)}
