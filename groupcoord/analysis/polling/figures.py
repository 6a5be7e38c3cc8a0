"""The page of a cluster that is polled: its rows out of what polls have told so far."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from statistics import median

from attrs import asdict, define, field

from groupcoord.analysis.live.snapshots import Snapshot
from groupcoord.analysis.polling.groups import Changes, GroupFigures, PolledGroups
from groupcoord.analysis.polling.rows import Row
from groupcoord.analysis.report import model
from groupcoord.analysis.report.model import Bins, GroupRow, bin_width_ms, bins_of

_NOT_OF_ROWS = frozenset({"expiries"})


@define
class _Cause:
    rebalances: int = 0
    confidence: float = 0.0
    groups: set[str] = field(factory=set)


class PolledFigures:
    """What the page says, kept up to date with each poll.

    Args:
        inputs: what is polled, for people.
        groups: its groups.
    """

    def __init__(self, inputs: tuple[str, ...], groups: PolledGroups) -> None:
        self._inputs = inputs
        self._groups = groups
        self._polls = 0
        self._first_ms = 0
        self._causes: defaultdict[str, _Cause] = defaultdict(_Cause)
        self._times: Counter[tuple[str, int]] = Counter()
        self._churn: Counter[tuple[str, int]] = Counter()

    def take(self, snapshot: Snapshot, changes: Changes) -> None:
        """Count what the next poll shows."""
        self._first_ms = self._first_ms or snapshot.at_ms
        self._polls += 1
        for row in changes.rebalances:
            cause = self._causes[row["cause"]]
            cause.rebalances += 1
            cause.confidence += row["confidence"]
            cause.groups.add(row["group_id"])
            self._times[row["cause"], row["ended_ms"]] += 1
            for name in ("joined", "left"):
                self._churn[name, row["ended_ms"]] += len(row[name])

    def report(
        self, snapshot: Snapshot, groups: Iterable[Row], lag: Iterable[Row], tables: Mapping[str, int], made_ms: int
    ) -> model.Report:
        """Return what the page says.

        Args:
            snapshot: the last poll.
            groups: its rows of this table.
            lag: its rows of this table.
            tables: how many rows each table has.
            made_ms: when this is.
        """
        now = {row["group_id"]: row for row in groups}
        rows = self._group_rows(now)
        problems = tuple(f"{one.subject}: {one.text}" for one in snapshot.problems[: model.PROBLEMS_MAX])
        lines = self._time_lines()
        return model.Report(
            title=f"Consumer groups of {self._inputs[0]}",
            inputs=self._inputs,
            made_ms=made_ms,
            version=version("groupcoord"),
            overview=self._overview(snapshot, now),
            states=_states(now.values()),
            causes=self._cause_counts(),
            rebalances=lines and lines[0],
            churn=lines and lines[1],
            churning=tuple(
                sorted((row for row in rows if row.joined + row.left), key=lambda row: -row.joined - row.left)
            )[: model.CHURNING_MAX],
            groups=tuple(rows[: model.GROUPS_MAX]),
            lag=_lag_rows(lag),
            tables=tables,
            polls=model.Polls(self._polls, self._first_ms, snapshot.at_ms, len(snapshot.problems), problems),
        )

    def _overview(self, snapshot: Snapshot, now: Mapping[str, Row]) -> model.Overview:
        return model.Overview(
            first_timestamp_ms=self._first_ms,
            last_timestamp_ms=snapshot.at_ms,
            records=0,
            size_bytes=0,
            log_partitions=0,
            groups=len(now),
            members=sum(row["member_count"] or 0 for row in now.values()),
            current_offsets=sum(row["offset_count"] or 0 for row in now.values()),
            rebalances=sum(one.rebalances for one in self._causes.values()),
            anomalies=0,
            corrupt_ranges=0,
            corrupt_bytes=0,
        )

    def _group_rows(self, now: Mapping[str, Row]) -> list[GroupRow]:
        """Return the groups that there are, and those that are gone and left traces, most troubled first."""
        figures = self._groups.figures()
        found = [_group_row(group_id, now.get(group_id), figures.get(group_id)) for group_id in now.keys() | figures]
        return sorted(found, key=lambda row: (-row.trouble, -row.commits, row.group_id))

    def _cause_counts(self) -> tuple[model.CauseCount, ...]:
        rows = []
        for cause, one in self._causes.items():
            times = self._groups.times_ms.get(cause)
            middle = int(median(times)) if times else None
            rows.append(
                model.CauseCount(
                    cause,
                    one.rebalances,
                    0,
                    one.confidence / one.rebalances,
                    len(one.groups),
                    middle,
                    max(times) if times else None,
                )
            )
        return tuple(sorted(rows, key=lambda row: (-row.rebalances, row.cause)))

    def _time_lines(self) -> tuple[Bins, Bins] | None:
        if not self._times:
            return None
        moments = [at_ms for _, at_ms in self._times]
        first_ms, last_ms = min(moments), max(moments)
        width_ms = bin_width_ms(last_ms - first_ms)
        return (
            bins_of(first_ms, last_ms, _in_bins(self._times, width_ms), width_ms),
            bins_of(first_ms, last_ms, _in_bins(self._churn, width_ms), width_ms),
        )


def _in_bins(counts: Mapping[tuple[str, int], int], width_ms: int) -> dict[str, dict[int, int]]:
    found: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for (name, at_ms), count in counts.items():
        found[name][at_ms // width_ms] += count
    return {name: dict(one) for name, one in found.items()}


def _group_row(group_id: str, now: Row | None, figures: GroupFigures | None) -> GroupRow:
    seen = {} if figures is None else asdict(figures, filter=lambda one, _: one.name not in _NOT_OF_ROWS)
    trouble = 0 if figures is None else figures.rebalances + figures.expiries * (model.EXPIRY_POINTS - 1)
    told = {} if now is None else {"type": now["type"], "state": now["state"] or "not told"}
    if now is not None:
        told |= {"generation": now["generation_or_epoch"], "members": now["member_count"]}
    return GroupRow(group_id, trouble, **(seen | told))


def _states(groups: Iterable[Row]) -> tuple[model.StateCount, ...]:
    counts: Counter[tuple[str, str]] = Counter()
    members: Counter[tuple[str, str]] = Counter()
    for row in groups:
        key = (row["type"], row["state"] or "not told")
        counts[key] += 1
        members[key] += row["member_count"] or 0
    rows = [model.StateCount(*key, count, members[key]) for key, count in counts.items()]
    return tuple(sorted(rows, key=lambda row: (-row.groups, row.type, row.state)))


def _lag_rows(lag: Iterable[Row]) -> tuple[model.LagRow, ...]:
    behind: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for row in lag:
        if row.get("lag"):
            behind[row["group_id"], row["topic"]].append(row["lag"])
    rows = [model.LagRow(*key, len(some), sum(some), max(some)) for key, some in behind.items()]
    return tuple(sorted(rows, key=lambda row: (-row.lag, row.group_id, row.topic)))[: model.LAGGING_MAX]
