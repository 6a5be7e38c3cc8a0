"""Figures of groups: which are in trouble, which lose and gain members, and the stories of a few."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from attrs import asdict

from groupcoord.analysis.report.data import model
from groupcoord.analysis.report.data.commits import CommitCount, CommitsOfGroups
from groupcoord.analysis.report.data.findings import anomaly_rows
from groupcoord.analysis.report.data.group_status import SEVERITIES, UNTROUBLED, MemberShare, Standing
from groupcoord.analysis.report.data.model import ANOMALY_POINTS, EXPIRY_POINTS, GroupRow, GroupStory
from groupcoord.analysis.report.data.rebalances import RebalancesOfGroup
from groupcoord.analysis.report.data.rows import member_counts
from groupcoord.analysis.report.data.values import Row, at_ms, by_group, cut

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
