"""Rows of groups in a report: trouble, churn, stories, and commits by group."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from statistics import median_low
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from attrs import asdict, define, evolve, field

from groupcoord.analysis.fold.history.causes import EXPIRY_OR_LEAVE, REBALANCE_TIMEOUT, SESSION_EXPIRY
from groupcoord.analysis.fold.history.ownership import SWAP
from groupcoord.analysis.fold.history.rows import Row, grouped
from groupcoord.analysis.report.data import model
from groupcoord.analysis.report.data.model import (
    ANOMALY_POINTS,
    BINS_OF_GROUP_MAX,
    EXPIRY_POINTS,
    MEMBERS_SHOWN_MAX,
    PARTITIONS_OF_MEMBER_MAX,
    SEVERITIES,
    UNTROUBLED,
    Bins,
    CauseCount,
    GroupRow,
    GroupStory,
    MemberShare,
    PartitionShare,
    Standing,
    bin_width_ms,
    bins_of,
)
from groupcoord.analysis.report.data.rows import (
    anomaly_rows,
    at_ms,
    by_group,
    cut,
    known,
    made_of,
    member_counts,
    none_first,
    severity_of_status,
)

Place = tuple[str | None, int]
COLUMNS_OF_GROUPS = (
    *("group_id", "topic", "topic_partition", "tombstone"),
    *("log_timestamp_ms", "commit_timestamp_ms"),
)


class CommitCount(NamedTuple):
    """Number of commits, without tombstones, and the time of the last one; None without a time."""

    commits: int = 0
    last_commit_ms: int | None = None


def count_commits(batches: Iterable[pa.RecordBatch]) -> dict[str, CommitCount]:
    found: dict[str, CommitCount] = {}
    for batch in batches:
        for (group_id,), count in _counts(batch, ["group_id"]):
            found[group_id] = _sum(found.get(group_id), count)
    return found


class CommitsOfGroups:
    """Commits of some groups, over a common time span and by partition."""

    def __init__(self, first_ms: int | None, last_ms: int | None) -> None:
        self._span = None if first_ms is None or last_ms is None else (first_ms, last_ms)
        self._width_ms = bin_width_ms((last_ms or 0) - (first_ms or 0), BINS_OF_GROUP_MAX)
        self._bins: defaultdict[str, dict[str, Counter[int]]] = defaultdict(lambda: {"commits": Counter()})
        self._places: defaultdict[str, dict[Place, CommitCount]] = defaultdict(dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count rows with :data:`COLUMNS_OF_GROUPS`."""
        for (group_id, topic, partition), count in _counts(batch, ["group_id", "topic", "topic_partition"]):
            places = self._places[group_id]
            places[topic, partition] = _sum(places.get((topic, partition)), count)
        rows = pa.Table.from_batches([batch]).filter(pc.greater_equal(batch["log_timestamp_ms"], 0))
        rows = rows.append_column("bin", pc.divide(rows["log_timestamp_ms"], self._width_ms))
        for row in rows.group_by(["group_id", "tombstone", "bin"]).aggregate([([], "count_all")]).to_pylist():
            name = "tombstones" if row["tombstone"] else "commits"
            self._bins[row["group_id"]].setdefault(name, Counter())[row["bin"]] += row["count_all"]

    def bins(self, group_id: str) -> Bins | None:
        if self._span is None or group_id not in self._bins:
            return None
        return bins_of(*self._span, self._bins[group_id], self._width_ms)

    def places(self, group_id: str) -> Mapping[Place, CommitCount]:
        return self._places[group_id]


def _counts(batch: pa.RecordBatch, keys: list[str]) -> Iterator[tuple[tuple[Any, ...], CommitCount]]:
    rows = pa.Table.from_batches([batch]).filter(pc.invert(batch["tombstone"]))
    times = rows["commit_timestamp_ms"]
    rows = rows.append_column("at_ms", pc.if_else(pc.greater_equal(times, 0), times, None))
    for row in rows.group_by(keys).aggregate([([], "count_all"), ("at_ms", "max")]).to_pylist():
        yield tuple(row[key] for key in keys), CommitCount(row["count_all"], row["at_ms_max"])


def _sum(before: CommitCount | None, more: CommitCount) -> CommitCount:
    if before is None:
        return more
    last_ms = known((before.last_commit_ms, more.last_commit_ms))
    return CommitCount(before.commits + more.commits, max(last_ms, default=None))


UNKNOWN_STATE = "unknown"


def group_rows(
    groups: Iterable[Row],
    rebalances: Mapping[str, RebalancesOfGroup],
    anomalies: Mapping[str, int],
    commits: Mapping[str, CommitCount],
    types: Mapping[str, str] | None = None,
    standings: Mapping[str, Standing] | None = None,
) -> list[GroupRow]:
    """Return one row per group, by severity, points, commits and name; also of deleted groups that left traces."""
    types, standings = types or {}, standings or {}
    found: dict[str, Row] = {
        row["group_id"]: {
            "type": row["type"],
            "state": row["state"] or UNKNOWN_STATE,
            "generation": row["generation_or_epoch"],
            "members": row["member_count"],
        }
        for row in groups
    }
    rows = []
    for group_id in found.keys() | rebalances.keys() | anomalies.keys() | commits.keys():
        figures = asdict(rebalances.get(group_id) or RebalancesOfGroup())
        expiries, anomaly_count = figures.pop("expiries"), anomalies.get(group_id, 0)
        trouble = anomaly_count * ANOMALY_POINTS + figures["rebalances"] + expiries * (EXPIRY_POINTS - 1)
        figures |= commits.get(group_id, CommitCount())._asdict()
        rows.append(
            GroupRow(
                group_id,
                trouble,
                anomalies=anomaly_count,
                standing=standings.get(group_id, UNTROUBLED),
                **found.get(group_id, {"type": types.get(group_id)}),
                **figures,
            )
        )
    return sorted(rows, key=_badness)


def _badness(row: GroupRow) -> tuple[int, int, int, str]:
    return (-SEVERITIES.index(row.standing.severity), -row.trouble, -row.commits, row.group_id)


def severities(rows: Iterable[GroupRow]) -> Mapping[str, int]:
    counts = Counter(row.standing.severity for row in rows)
    return {severity: counts[severity] for severity in reversed(SEVERITIES)}


def most_churning(rows: Iterable[GroupRow]) -> tuple[GroupRow, ...]:
    churning = [row for row in rows if row.joined + row.left > 0]
    return tuple(sorted(churning, key=lambda row: (-row.joined - row.left, row.group_id))[: model.CHURNING_MAX])


def state_counts(groups: Iterable[Row]) -> tuple[model.StateCount, ...]:
    found = grouped(groups, lambda row: (row["type"], row["state"] or UNKNOWN_STATE))
    rows = [
        model.StateCount(*key, len(some), sum(row["member_count"] or 0 for row in some)) for key, some in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.groups, row.type, row.state)))


# ---------------------------------------------------------------- the most troubled groups


def stories(
    rows: Sequence[GroupRow],
    rebalances: Iterable[Row],
    anomalies: Sequence[Row],
    commits: CommitsOfGroups,
    epochs: Mapping[str, tuple[model.EpochPoint, ...]],
    shares: Mapping[str, tuple[MemberShare, ...]],
) -> tuple[GroupStory, ...]:
    happened = by_group(rebalances)
    findings = anomaly_rows(anomalies, model.ANOMALIES_OF_GROUP_MAX, len(rows) * model.ANOMALIES_OF_GROUP_MAX, {})
    found = []
    for row in rows:
        some = sorted(happened.get(row.group_id, ()), key=lambda one: one["log_offset"])
        newest = [(_rebalance_row(one), one["member_count"]) for one in some[-model.REBALANCES_OF_GROUP_MAX :]]
        causes = Counter(one["cause"] for one in some)
        found.append(
            GroupStory(
                row,
                dict(sorted(causes.items())),
                tuple(one for one, _ in newest),
                tuple(member_counts(newest)),
                tuple(one for one in findings if one.group_id == row.group_id),
                commits.bins(row.group_id),
                epochs.get(row.group_id, ()),
                shares.get(row.group_id, ()),
            )
        )
    return tuple(found)


def _rebalance_row(row: Row) -> model.RebalanceRow:
    return made_of(
        row,
        model.RebalanceRow,
        started_ms=at_ms(row["started_ms"]),
        ended_ms=at_ms(row["ended_ms"]),
        joined=len(row["joined"]),
        left=len(row["left"]),
        evidence=cut(row["evidence"]),
    )


def members_now(batches: Iterable[pa.RecordBatch], groups: Mapping[str, int]) -> dict[str, list[Row]]:
    """Return the members of groups in their last generation."""
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for batch in batches:
        for group_id, generation in groups.items():
            is_wanted = pc.and_(pc.equal(batch["group_id"], group_id), pc.equal(batch["generation"], generation))
            found[group_id] += batch.filter(is_wanted).to_pylist()
    # The replacement of a static member repeats a generation.
    lasts = {group_id: max((row["log_offset"] for row in rows), default=0) for group_id, rows in found.items()}
    return {group_id: [row for row in rows if row["log_offset"] == lasts[group_id]] for group_id, rows in found.items()}


def shares(members: Iterable[Row], commits: Mapping[Place, CommitCount], lag: Iterable[Row]) -> tuple[MemberShare, ...]:
    """Return the partitions of a group's members by lag, after those without an owner."""
    behind = {(row["topic"], row["topic_partition"]): row for row in lag}
    left = dict.fromkeys([*behind, *commits])
    found = []
    for member in members:
        places = [(one["topic"] or one["topic_id"], part) for one in member["assignment"] for part in one["partitions"]]
        for place in places:
            left.pop(place, None)
        found.append(_share(member["client_id"], member["client_host"], places, commits, behind))
    found.sort(key=lambda share: (-(share.lag or 0), share.partition_count, share.client_id or ""))
    nobodys = [place for place in left if (behind.get(place) or {}).get("lag")]
    if nobodys and found:
        found.insert(0, _share(None, None, nobodys, commits, behind))
    return tuple(found[:MEMBERS_SHOWN_MAX])


def _share(
    client_id: str | None,
    client_host: str | None,
    places: Sequence[Any],
    commits: Mapping[Place, CommitCount],
    behind: Mapping[Any, Row],
) -> MemberShare:
    partitions = []
    for place in places:
        counted, row = commits.get(place, CommitCount()), behind.get(place, {})
        lag, lag_ms, status = row.get("lag"), row.get("lag_ms"), row.get("status") or ""
        topic, number = place
        partitions.append(PartitionShare(topic, number, *counted, lag, lag_ms, status, severity_of_status(status)))
    lags = known(one.lag for one in partitions)
    partitions.sort(key=lambda one: (-(one.lag or 0), one.topic, one.partition))
    return MemberShare(
        client_id,
        client_host,
        len(partitions),
        sum(one.commits for one in partitions),
        sum(lags) if lags else None,
        tuple(partitions[:PARTITIONS_OF_MEMBER_MAX]),
    )


EXPIRIES = frozenset({EXPIRY_OR_LEAVE, SESSION_EXPIRY, REBALANCE_TIMEOUT})


@define
class RebalancesOfGroup:
    """Totals of a group's rebalances; ``expiries`` counts those with a cause of :data:`EXPIRIES`."""

    rebalances: int = 0
    expiries: int = 0
    joined: int = 0
    left: int = 0
    partitions_moved: int = 0
    rebalancing_ms: int = 0
    first_rebalance_ms: int | None = None
    last_rebalance_ms: int | None = None

    def add(self, row: Row) -> None:
        self.rebalances += 1
        self.expiries += row["cause"] in EXPIRIES
        self.joined += len(row["joined"])
        self.left += len(row["left"])
        self.partitions_moved += row["partitions_moved"] or 0
        self.rebalancing_ms += max(_span_ms(row) or 0, 0)
        times_ms = known((self.first_rebalance_ms, self.last_rebalance_ms, moment(row)))
        self.first_rebalance_ms, self.last_rebalance_ms = min(times_ms, default=None), max(times_ms, default=None)


@define
class _Cause:
    rebalances: int = 0
    proven: int = 0
    confidence: float = 0.0
    groups: set[str] = field(factory=set)
    took_ms: deque[int] = field(factory=deque)


class RebalanceFigures:
    """Counts of rebalances; the last ``times_max`` durations of each cause are kept."""

    def __init__(self, times_max: int | None = None) -> None:
        self._causes: defaultdict[str, _Cause] = defaultdict(lambda: _Cause(took_ms=deque(maxlen=times_max)))
        self._times: Counter[tuple[str, int]] = Counter()
        self._churn: Counter[tuple[str, int]] = Counter()

    def add(self, row: Row) -> None:
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
        return sum(one.rebalances for one in self._causes.values())

    def causes(self) -> tuple[CauseCount, ...]:
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
        """Return rebalances by cause, and joined and left members, over time; None without times."""
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
    """Return the totals of all rebalances, and of each group."""
    figures, of_groups = RebalanceFigures(), defaultdict[str, RebalancesOfGroup](RebalancesOfGroup)
    for row in rows:
        figures.add(row)
        of_groups[row["group_id"]].add(row)
    return figures, of_groups


def moment(row: Row) -> int | None:
    """Return the end of a rebalance, or its start if the end is unknown."""
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


def consumer_rows(
    epochs: Iterable[Row], memberships: Iterable[Row], moves: Iterable[Row], revocations: Iterable[Row]
) -> tuple[model.ConsumerGroupRow, ...]:
    lives, moved, revoked = by_group(memberships), by_group(moves), by_group(revocations)
    found = []
    for group_id, some in by_group(epochs).items():
        of_moves, took_ms = moved.get(group_id, []), known(row["took_ms"] for row in revoked.get(group_id, ()))
        found.append(
            model.ConsumerGroupRow(
                group_id,
                max(known(row["group_epoch"] for row in some)),
                sum(row["whose"] == "group" for row in some),
                len(lives.get(group_id, ())),
                sum(row["end"] in (REBALANCE_TIMEOUT, SESSION_EXPIRY) for row in lives.get(group_id, ())),
                *_moved(of_moves),
                max(known(row["unowned_ms"] for row in of_moves), default=None),
                len(revoked.get(group_id, ())),
                median_low(took_ms) if took_ms else None,
                max(took_ms, default=None),
            )
        )
    found.sort(key=lambda row: (-row.fenced, row.slowest_ms is None, -(row.slowest_ms or 0), -row.moved, row.group_id))
    return tuple(found[: model.CONSUMER_GROUPS_MAX])


def _moved(moves: Iterable[Row]) -> tuple[int, int]:
    moves = list(moves)
    return sum(_is_move(row) for row in moves), sum(row["reason"] == SWAP for row in moves)


def _is_move(row: Row) -> bool:
    return row["from_member"] is not None


def assignor_rows(moves: Iterable[Row]) -> tuple[model.AssignorRow, ...]:
    found = []
    for assignor, some in grouped(moves, lambda row: cut(row["assignor"])).items():
        took_ms = [
            row["assigned_ms"] - row["decided_ms"]
            for row in some
            if _is_move(row) and row["assigned_ms"] is not None and row["decided_ms"] is not None
        ]
        found.append(
            model.AssignorRow(
                assignor,
                len({row["group_id"] for row in some}),
                len({(row["group_id"], row["epoch"]) for row in some}),
                *_moved(some),
                median_low(took_ms) if took_ms else None,
                max(known(row["unowned_ms"] for row in some), default=None),
            )
        )
    found.sort(key=lambda row: (-row.moved, row.assignor))
    return tuple(found[: model.ASSIGNORS_MAX])


def slow_rows(revocations: Iterable[Row]) -> tuple[model.SlowMemberRow, ...]:
    ended = (row for row in revocations if row["took_ms"] is not None)
    found = []
    for (group_id, client_id), some in grouped(ended, itemgetter("group_id", "client_id")).items():
        slowest = max(some, key=_slowness)
        found.append(
            model.SlowMemberRow(
                group_id,
                client_id,
                len(some),
                median_low([row["took_ms"] for row in some]),
                slowest["took_ms"],
                at_ms(slowest["asked_ms"]),
                slowest["rebalance_timeout_ms"],
                sum(row["end"] == REBALANCE_TIMEOUT for row in some),
            )
        )
    found.sort(key=lambda row: (-row.slowest_ms, *none_first(row.group_id, row.client_id)))
    return tuple(evolve(row, client_id=cut(row.client_id)) for row in found[: model.SLOW_MEMBERS_MAX])


def _slowness(row: Row) -> tuple[tuple[bool, object], ...]:
    # The time decides between equal durations, so that the result is deterministic.
    return none_first(row["took_ms"], row["asked_ms"], row["rebalance_timeout_ms"])


def epoch_lines(epochs: Iterable[Row], names: Collection[str]) -> Mapping[str, tuple[model.EpochPoint, ...]]:
    """Return the epochs of groups over time, thinned out to ``EPOCHS_OF_GROUP_MAX`` points."""
    wanted = (row for row in epochs if row["group_id"] in names and at_ms(row["log_timestamp_ms"]) is not None)
    return {group_id: _some(_epoch_points(rows)) for group_id, rows in sorted(by_group(wanted).items())}


def _epoch_points(rows: list[Row]) -> list[model.EpochPoint]:
    """Return the last epochs of each moment."""
    points: dict[int, model.EpochPoint] = {}
    members: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row["log_offset"]):
        if row["member_id"] is not None and (row["member_epoch"] or 0) > 0:
            members[row["member_id"]] = row["member_epoch"]
        elif row["member_id"] is not None:
            members.pop(row["member_id"], None)
        lowest, moment_ms = min(members.values(), default=None), row["log_timestamp_ms"]
        points[moment_ms] = model.EpochPoint(moment_ms, row["group_epoch"], row["target_epoch"], lowest)
    return list(points.values())


def _some(points: list[model.EpochPoint]) -> tuple[model.EpochPoint, ...]:
    count = min(len(points), model.EPOCHS_OF_GROUP_MAX)
    return tuple(points[(number + 1) * len(points) // count - 1] for number in range(count))
