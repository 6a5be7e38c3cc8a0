"""Rows of groups in a report: trouble, churn, stories, and commits counted from batches of the table ``commits``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from attrs import asdict

from groupcoord.analysis.report.data import model
from groupcoord.analysis.report.data.findings import anomaly_rows
from groupcoord.analysis.report.data.group_status import (
    MEMBERS_TOLD_MAX,
    PARTITIONS_OF_MEMBER_MAX,
    SEVERITIES,
    UNTROUBLED,
    MemberShare,
    PartitionShare,
    Standing,
)
from groupcoord.analysis.report.data.model import (
    ANOMALY_POINTS,
    BINS_OF_GROUP_MAX,
    EXPIRY_POINTS,
    Bins,
    GroupRow,
    GroupStory,
    bin_width_ms,
    bins_of,
)
from groupcoord.analysis.report.data.rebalances import RebalancesOfGroup
from groupcoord.analysis.report.data.rows import Row, at_ms, by_group, cut, known, member_counts
from groupcoord.analysis.report.data.standings import severity_of_status

Place = tuple[str | None, int]
"""A topic and its partition."""

COLUMNS_OF_GROUPS = (
    *("group_id", "topic", "topic_partition", "tombstone"),
    *("log_timestamp_ms", "commit_timestamp_ms"),
)
"""The columns that :class:`CommitsOfGroups` counts."""


class CommitCount(NamedTuple):
    """How much was committed by a group, or of a partition.

    Attributes:
        commits: how many times, each partition counted by itself; tombstones don't count.
        last_commit_ms: when last; None if no commit has a time.
    """

    commits: int = 0
    last_commit_ms: int | None = None


def count_commits(batches: Iterable[pa.RecordBatch]) -> dict[str, CommitCount]:
    """Return how much each group committed.

    Args:
        batches: of the table ``commits``: ``group_id``, ``tombstone`` and ``commit_timestamp_ms``.
    """
    found: dict[str, CommitCount] = {}
    for batch in batches:
        for (group_id,), count in _counts(batch, ["group_id"]):
            found[group_id] = _sum(found.get(group_id), count)
    return found


class CommitsOfGroups:
    """What some groups committed: over a time that they share, and of each partition.

    Args:
        first_ms: when that time begins; None: nobody knows.
        last_ms: when it ends.
    """

    def __init__(self, first_ms: int | None, last_ms: int | None) -> None:
        self._span = None if first_ms is None or last_ms is None else (first_ms, last_ms)
        self._width_ms = bin_width_ms((last_ms or 0) - (first_ms or 0), BINS_OF_GROUP_MAX)
        self._bins: defaultdict[str, dict[str, Counter[int]]] = defaultdict(lambda: {"commits": Counter()})
        self._places: defaultdict[str, dict[Place, CommitCount]] = defaultdict(dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count rows of the table ``commits``: :data:`COLUMNS_OF_GROUPS`."""
        for (group_id, topic, partition), count in _counts(batch, ["group_id", "topic", "topic_partition"]):
            places = self._places[group_id]
            places[topic, partition] = _sum(places.get((topic, partition)), count)
        rows = pa.Table.from_batches([batch]).filter(pc.greater_equal(batch["log_timestamp_ms"], 0))
        rows = rows.append_column("bin", pc.divide(rows["log_timestamp_ms"], self._width_ms))
        for row in rows.group_by(["group_id", "tombstone", "bin"]).aggregate([([], "count_all")]).to_pylist():
            name = "tombstones" if row["tombstone"] else "commits"
            self._bins[row["group_id"]].setdefault(name, Counter())[row["bin"]] += row["count_all"]

    def bins(self, group_id: str) -> Bins | None:
        """Return a group's commits over time; None if it has none, or there is no time."""
        if self._span is None or group_id not in self._bins:
            return None
        return bins_of(*self._span, self._bins[group_id], self._width_ms)

    def places(self, group_id: str) -> Mapping[Place, CommitCount]:
        """Return what a group committed of each partition."""
        return self._places[group_id]


def _counts(batch: pa.RecordBatch, keys: list[str]) -> Iterator[tuple[tuple[Any, ...], CommitCount]]:
    """Yield how many commits a batch has of each key, and when the last was."""
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


NOT_TOLD = "not told"
"""The state of a group that does not tell it to who asks."""


def group_rows(
    groups: Iterable[Row],
    rebalances: Mapping[str, RebalancesOfGroup],
    anomalies: Mapping[str, int],
    commits: Mapping[str, CommitCount],
    types: Mapping[str, str] | None = None,
    standings: Mapping[str, Standing] | None = None,
) -> list[GroupRow]:
    """Return one row a group: the worst first, then by points; between equals commits, then the name decides.

    Groups that are gone but left traces are rows too, without a state.

    Args:
        groups: rows of the table of this name.
        rebalances: what those of each group came to.
        anomalies: how many each group has.
        commits: how much each group committed.
        types: of groups that may be gone, where that is known.
        standings: how groups stand, where that is known.
    """
    types, standings = types or {}, standings or {}
    found: dict[str, Row] = {
        row["group_id"]: {
            "type": row["type"],
            "state": row["state"] or NOT_TOLD,
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
    """Return how many groups stand how, the worst first."""
    counts = Counter(row.standing.severity for row in rows)
    return {severity: counts[severity] for severity in reversed(SEVERITIES)}


def most_churning(rows: Iterable[GroupRow]) -> tuple[GroupRow, ...]:
    """Return the groups with most members that joined and left."""
    churning = [row for row in rows if row.joined + row.left > 0]
    return tuple(sorted(churning, key=lambda row: (-row.joined - row.left, row.group_id))[: model.CHURNING_MAX])


def state_counts(groups: Iterable[Row]) -> tuple[model.StateCount, ...]:
    """Return how many groups are of each type and state."""
    members: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for row in groups:
        members[row["type"], row["state"] or NOT_TOLD].append(row["member_count"] or 0)
    rows = [model.StateCount(*key, len(counts), sum(counts)) for key, counts in members.items()]
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
    """Return what is to be told of some groups.

    Args:
        rows: the groups.
        rebalances: rows of the table, of these groups, as those that follow.
        anomalies: see there.
        commits: what they committed.
        epochs: of those that are consumer groups, how they went on.
        shares: who has what of them.
    """
    happened = by_group(rebalances)
    findings = anomaly_rows(anomalies, model.ANOMALIES_OF_GROUP_MAX, len(rows) * model.ANOMALIES_OF_GROUP_MAX, {})
    told = []
    for row in rows:
        some = sorted(happened.get(row.group_id, ()), key=lambda one: one["log_offset"])
        newest = [(_rebalance_row(one), one["member_count"]) for one in some[-model.REBALANCES_OF_GROUP_MAX :]]
        causes = Counter(one["cause"] for one in some)
        told.append(
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
    return tuple(told)


def _rebalance_row(row: Row) -> model.RebalanceRow:
    names = ("group_id", "from_generation", "to_generation", "cause", "confidence", "partitions_moved")
    return model.RebalanceRow(
        **{name: row[name] for name in names},
        started_ms=at_ms(row["started_ms"]),
        ended_ms=at_ms(row["ended_ms"]),
        joined=len(row["joined"]),
        left=len(row["left"]),
        evidence=cut(row["evidence"]),
    )


def members_now(batches: Iterable[pa.RecordBatch], groups: Mapping[str, int]) -> dict[str, list[Row]]:
    """Return the members of some groups as the log ends.

    Args:
        batches: of the table of members.
        groups: in which generation or epoch each group is.
    """
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for batch in batches:
        for group_id, generation in groups.items():
            is_wanted = pc.and_(pc.equal(batch["group_id"], group_id), pc.equal(batch["generation"], generation))
            found[group_id] += batch.filter(is_wanted).to_pylist()
    # A generation whose static member was replaced comes again.
    lasts = {group_id: max((row["log_offset"] for row in rows), default=0) for group_id, rows in found.items()}
    return {group_id: [row for row in rows if row["log_offset"] == lasts[group_id]] for group_id, rows in found.items()}


def shares(members: Iterable[Row], commits: Mapping[Place, CommitCount], lag: Iterable[Row]) -> tuple[MemberShare, ...]:
    """Return who has what of a group: first what nobody has, then members by how far they are behind.

    Args:
        members: of the group, as the log ends.
        commits: of each of its partitions.
        lag: the group's rows of the table.
    """
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
    return tuple(found[:MEMBERS_TOLD_MAX])


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
