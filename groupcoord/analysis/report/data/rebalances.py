"""Figures of rebalances, counted while rows of the table ``rebalances`` come: by group, by cause, over time."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from statistics import median_low
from typing import Any

from attrs import define, field

from groupcoord.analysis.fold.history.causes import EXPIRY_OR_LEAVE, REBALANCE_TIMEOUT, SESSION_EXPIRY
from groupcoord.analysis.report.data.model import Bins, CauseCount, bin_width_ms, bins_of
from groupcoord.analysis.report.data.rows import Row, at_ms

EXPIRIES = frozenset({EXPIRY_OR_LEAVE, SESSION_EXPIRY, REBALANCE_TIMEOUT})
"""Causes that count as expiries."""


@define
class RebalancesOfGroup:
    """What a group's rebalances came to, by the names of :class:`groupcoord.analysis.report.data.model.GroupRow`.

    Attributes:
        expiries: how many had one of the causes :data:`EXPIRIES`.
    """

    rebalances: int = 0
    expiries: int = 0
    joined: int = 0
    left: int = 0
    partitions_moved: int = 0
    rebalancing_ms: int = 0
    first_rebalance_ms: int | None = None
    last_rebalance_ms: int | None = None

    def add(self, row: Row) -> None:
        """Count one."""
        self.rebalances += 1
        self.expiries += row["cause"] in EXPIRIES
        self.joined += len(row["joined"])
        self.left += len(row["left"])
        self.partitions_moved += row["partitions_moved"] or 0
        self.rebalancing_ms += max(_span_ms(row) or 0, 0)
        when_ms = moment(row)
        if when_ms is not None:
            first_ms, last_ms = self.first_rebalance_ms, self.last_rebalance_ms
            self.first_rebalance_ms = when_ms if first_ms is None else min(first_ms, when_ms)
            self.last_rebalance_ms = when_ms if last_ms is None else max(last_ms, when_ms)


@define
class _Cause:
    rebalances: int = 0
    proven: int = 0
    confidence: float = 0.0
    groups: set[str] = field(factory=set)
    took_ms: deque[int] = field(factory=deque)


class RebalanceFigures:
    """Counts rebalances.

    Args:
        times_max: of so many rebalances of a cause it is kept how long they took, the newest; None: of all.
    """

    def __init__(self, times_max: int | None = None) -> None:
        self._causes: defaultdict[str, _Cause] = defaultdict(lambda: _Cause(took_ms=deque(maxlen=times_max)))
        self._times: Counter[tuple[str, int]] = Counter()
        self._churn: Counter[tuple[str, int]] = Counter()

    def add(self, row: Row) -> None:
        """Count one."""
        cause = self._causes[row["cause"]]
        cause.rebalances += 1
        cause.proven += row["confidence"] >= 1
        cause.confidence += row["confidence"]
        cause.groups.add(row["group_id"])
        took_ms = _span_ms(row)
        if took_ms is not None and took_ms >= 0:
            cause.took_ms.append(took_ms)
        when_ms = moment(row)
        if when_ms is not None:
            self._times[row["cause"], when_ms] += 1
            for name in ("joined", "left"):
                self._churn[name, when_ms] += len(row[name])

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(one.rebalances for one in self._causes.values())

    def causes(self) -> tuple[CauseCount, ...]:
        """Return how many rebalances had each cause."""
        rows = [
            CauseCount(
                cause,
                one.rebalances,
                one.proven,
                one.confidence / one.rebalances,
                len(one.groups),
                median_low(one.took_ms) if one.took_ms else None,
                max(one.took_ms, default=None),
            )
            for cause, one in self._causes.items()
        ]
        return tuple(sorted(rows, key=lambda row: (-row.rebalances, row.cause)))

    def time_lines(self) -> tuple[Bins, Bins] | None:
        """Return rebalances over time by cause, and members that joined and left; None if there is none with a time."""
        if not self._times:
            return None
        moments = [when_ms for _, when_ms in self._times]
        first_ms, last_ms = min(moments), max(moments)
        width_ms = bin_width_ms(last_ms - first_ms)
        return (
            bins_of(first_ms, last_ms, _in_bins(self._times, width_ms), width_ms),
            bins_of(first_ms, last_ms, _in_bins(self._churn, width_ms), width_ms),
        )


def count_rebalances(rows: Iterable[Row]) -> tuple[RebalanceFigures, Mapping[str, RebalancesOfGroup]]:
    """Return the figures of some rebalances, and those of each group."""
    figures, of_groups = RebalanceFigures(), defaultdict[str, RebalancesOfGroup](RebalancesOfGroup)
    for row in rows:
        figures.add(row)
        of_groups[row["group_id"]].add(row)
    return figures, of_groups


def moment(row: Row) -> int | None:
    """Return when a rebalance happened: its end, its start if the end is not known."""
    ended_ms = at_ms(row["ended_ms"])
    return at_ms(row["started_ms"]) if ended_ms is None else ended_ms


def _span_ms(row: Row) -> int | None:
    started_ms, ended_ms = row["started_ms"], row["ended_ms"]
    return None if started_ms is None or ended_ms is None else int(ended_ms - started_ms)


def _in_bins(counts: Mapping[tuple[str, int], int], width_ms: int) -> dict[str, dict[int, Any]]:
    found: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for (name, when_ms), count in counts.items():
        found[name][when_ms // width_ms] += count
    return {name: dict(one) for name, one in found.items()}
