"""Figures of groups: which are in trouble, which lose and gain members, and the stories of a few."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from attrs import asdict

from groupcoord.analysis.figures.findings import anomaly_rows
from groupcoord.analysis.figures.rebalances import RebalancesOfGroup
from groupcoord.analysis.figures.values import Row, at_ms, by_group, cut
from groupcoord.analysis.report import model
from groupcoord.analysis.report.model import (
    ANOMALY_POINTS,
    EXPIRY_POINTS,
    Bins,
    GroupRow,
    GroupStory,
    bin_width_ms,
    bins_of,
)
from groupcoord.analysis.report.rows import member_counts

NOT_TOLD = "not told"
"""The state of a group that does not tell it to who asks."""


class CommitCount(NamedTuple):
    """How much a group committed.

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
        rows = pa.Table.from_batches([batch]).filter(pc.invert(batch["tombstone"]))
        times = rows["commit_timestamp_ms"]
        rows = rows.append_column("at_ms", pc.if_else(pc.greater_equal(times, 0), times, None))
        for row in rows.group_by("group_id").aggregate([([], "count_all"), ("at_ms", "max")]).to_pylist():
            known = found.get(row["group_id"], CommitCount())
            last_ms = [ms for ms in (known.last_commit_ms, row["at_ms_max"]) if ms is not None]
            found[row["group_id"]] = CommitCount(known.commits + row["count_all"], max(last_ms, default=None))
    return found


def group_rows(
    groups: Iterable[Row],
    rebalances: Mapping[str, RebalancesOfGroup],
    anomalies: Mapping[str, int],
    commits: Mapping[str, CommitCount],
    types: Mapping[str, str] | None = None,
) -> list[GroupRow]:
    """Return one row a group: first those with most trouble; between equals commits, then the name decides.

    Groups that are gone but left traces are rows too, without a state.

    Args:
        groups: rows of the table of this name.
        rebalances: what those of each group came to.
        anomalies: how many each group has.
        commits: how much each group committed.
        types: of groups that may be gone, where that is known.
    """
    types = types or {}
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
                **found.get(group_id, {"type": types.get(group_id)}),
                **figures,
            )
        )
    return sorted(rows, key=lambda row: (-row.trouble, -row.commits, row.group_id))


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
    commits: Iterable[pa.RecordBatch],
    epochs: Mapping[str, tuple[model.EpochPoint, ...]],
) -> tuple[GroupStory, ...]:
    """Return what is to be told of some groups.

    Args:
        rows: the groups.
        rebalances: rows of the table, of these groups, as those that follow.
        anomalies: see there.
        commits: see there: ``group_id``, ``log_timestamp_ms`` and ``tombstone``.
        epochs: of those that are consumer groups, how they went on.
    """
    happened = by_group(rebalances)
    findings = anomaly_rows(anomalies, model.ANOMALIES_OF_GROUP_MAX, len(rows) * model.ANOMALIES_OF_GROUP_MAX)
    commit_bins = _commits_of(commits)
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
                commit_bins.get(row.group_id),
                epochs.get(row.group_id, ()),
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


def _commits_of(batches: Iterable[pa.RecordBatch]) -> dict[str, Bins]:
    """Return commits over time, in bins that fit each group."""
    counts: defaultdict[str, dict[str, Counter[int]]] = defaultdict(lambda: {"commits": Counter()})
    for batch in batches:
        rows = pa.Table.from_batches([batch]).filter(pc.greater_equal(batch["log_timestamp_ms"], 0))
        keys = ["group_id", "tombstone", "log_timestamp_ms"]
        for row in rows.group_by(keys).aggregate([([], "count_all")]).to_pylist():
            name = "tombstones" if row["tombstone"] else "commits"
            counts[row["group_id"]].setdefault(name, Counter())[row["log_timestamp_ms"]] += row["count_all"]
    return {group_id: _bins(series) for group_id, series in counts.items()}


def _bins(series: Mapping[str, Counter[int]]) -> Bins:
    moments = [when_ms for counts in series.values() for when_ms in counts]
    first_ms, last_ms = min(moments), max(moments)
    width_ms = bin_width_ms(last_ms - first_ms, model.BINS_OF_GROUP_MAX)
    binned: dict[str, Any] = {}
    for name, counts in series.items():
        binned[name] = Counter[int]()
        for when_ms, count in counts.items():
            binned[name][when_ms // width_ms] += count
    return bins_of(first_ms, last_ms, binned, width_ms)
