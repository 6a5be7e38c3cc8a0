"""From tables to the rows of a report, by the rules of :mod:`groupcoord.spark.figures`.

Points of trouble are those of :mod:`groupcoord.analysis.report.model`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median_low
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.columns.kind_names import describe_kind
from groupcoord.analysis.history.causes import EXPIRY_OR_LEAVE, REBALANCE_TIMEOUT, SESSION_EXPIRY
from groupcoord.analysis.history.lag import LagStatus
from groupcoord.analysis.local.arrow import every, known, none_first
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
from groupcoord.analysis.report.rows import TEXT_MAX, difference_told, member_counts

Row = dict[str, Any]


def at_ms(value: int | None) -> int | None:
    """Return a time; None where it is Kafka's -1 for none."""
    return None if value is None or value < 0 else value


def cut(value: object) -> str:
    """Return a text that is not longer than a page shows; empty for None."""
    return "" if value is None else str(value)[:TEXT_MAX]


def moment(row: Row) -> int | None:
    """Return when a rebalance happened: its end, its start if the end is not known."""
    ended_ms = at_ms(row["ended_ms"])
    return at_ms(row["started_ms"]) if ended_ms is None else ended_ms


def by_group(rows: Iterable[Row]) -> Mapping[str, list[Row]]:
    """Return rows by their group."""
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["group_id"]].append(row)
    return found


# ---------------------------------------------------------------- groups


def group_figures(
    groups: Iterable[Row], rebalances: Iterable[Row], anomalies: Iterable[Row], commits: pa.Table
) -> list[GroupRow]:
    """Return one row a group: first those with most trouble; between equals commits, then the name decides.

    Groups that are gone but left traces are rows too, without a state.
    """
    happened, found = by_group(rebalances), Counter(row["group_id"] for row in anomalies)
    committed = _commits_by_group(commits)
    known_groups = [
        (
            row["group_id"],
            {name: row[of] for name, of in (("type", "type"), ("state", "state"))}
            | {"generation": row["generation_or_epoch"], "members": row["member_count"]},
        )
        for row in groups
    ]
    gone = (happened.keys() | found.keys() | committed.keys()) - {group_id for group_id, _ in known_groups}
    rows = []
    for group_id, told in [*known_groups, *((group_id, {}) for group_id in gone)]:
        told |= _of_rebalances(happened.get(group_id, ())) | committed.get(group_id, {})
        told["anomalies"] = found[group_id]
        expiries = told.pop("expiries")
        trouble = found[group_id] * ANOMALY_POINTS + told["rebalances"] + expiries * (EXPIRY_POINTS - 1)
        rows.append(GroupRow(group_id=group_id, trouble=trouble, **told))
    return sorted(rows, key=lambda row: (-row.trouble, -row.commits, row.group_id))


def _commits_by_group(commits: pa.Table) -> dict[str, Row]:
    found = commits.filter(pc.invert(commits["tombstone"]))
    times = found["commit_timestamp_ms"]
    found = found.append_column("at_ms", pc.if_else(pc.greater_equal(times, 0), times, None))
    counts = found.group_by("group_id").aggregate([([], "count_all"), ("at_ms", "max")])
    return {
        row["group_id"]: {"commits": row["count_all"], "last_commit_ms": row["at_ms_max"]} for row in counts.to_pylist()
    }


def _of_rebalances(happened: Sequence[Row]) -> Row:
    moments = known(moment(row) for row in happened)
    return {
        "rebalances": len(happened),
        "expiries": sum(row["cause"] in (EXPIRY_OR_LEAVE, SESSION_EXPIRY, REBALANCE_TIMEOUT) for row in happened),
        "joined": sum(len(row["joined"]) for row in happened),
        "left": sum(len(row["left"]) for row in happened),
        "partitions_moved": sum(row["partitions_moved"] or 0 for row in happened),
        "rebalancing_ms": sum(_rebalancing_ms(row) for row in happened),
        "first_rebalance_ms": min(moments, default=None),
        "last_rebalance_ms": max(moments, default=None),
    }


def _rebalancing_ms(row: Row) -> int:
    started_ms, ended_ms = row["started_ms"], row["ended_ms"]
    return 0 if started_ms is None or ended_ms is None else max(ended_ms - started_ms, 0)


def most_churning(rows: Iterable[GroupRow]) -> tuple[GroupRow, ...]:
    """Return the groups with most members that joined and left."""
    churning = [row for row in rows if row.joined + row.left > 0]
    return tuple(sorted(churning, key=lambda row: (-row.joined - row.left, row.group_id))[: model.CHURNING_MAX])


def state_counts(groups: Iterable[Row]) -> tuple[model.StateCount, ...]:
    """Return how many groups are of each type and state."""
    members: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for row in groups:
        members[row["type"], row["state"]].append(row["member_count"] or 0)
    rows = [model.StateCount(*key, len(counts), sum(counts)) for key, counts in members.items()]
    return tuple(sorted(rows, key=lambda row: (-row.groups, row.type, row.state)))


# ---------------------------------------------------------------- rebalances


def cause_counts(rebalances: Iterable[Row]) -> tuple[model.CauseCount, ...]:
    """Return how many rebalances had each cause."""
    by_cause: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rebalances:
        by_cause[row["cause"]].append(row)
    rows = []
    for cause, some in by_cause.items():
        took_ms = known(_took_ms(row) for row in some)
        rows.append(
            model.CauseCount(
                cause,
                len(some),
                sum(row["confidence"] >= 1 for row in some),
                fmean(row["confidence"] for row in some),
                len({row["group_id"] for row in some}),
                median_low(took_ms) if took_ms else None,
                max(took_ms, default=None),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.rebalances, row.cause)))


def _took_ms(row: Row) -> int | None:
    started_ms, ended_ms = row["started_ms"], row["ended_ms"]
    if started_ms is None or ended_ms is None or ended_ms < started_ms:
        return None
    took_ms: int = ended_ms - started_ms
    return took_ms


def time_lines(rebalances: Iterable[Row]) -> tuple[Bins, Bins] | None:
    """Return rebalances over time by cause, and members that joined and left; None if there is none with a time."""
    times = [(when_ms, row) for row in rebalances if (when_ms := moment(row)) is not None]
    if not times:
        return None
    first_ms, last_ms = min(when_ms for when_ms, _ in times), max(when_ms for when_ms, _ in times)
    width_ms = bin_width_ms(last_ms - first_ms)
    causes: defaultdict[str, Counter[int]] = defaultdict(Counter)
    churn: dict[str, Counter[int]] = {"joined": Counter(), "left": Counter()}
    for when_ms, row in times:
        causes[row["cause"]][when_ms // width_ms] += 1
        for name, counts in churn.items():
            counts[when_ms // width_ms] += len(row[name])
    return bins_of(first_ms, last_ms, causes, width_ms), bins_of(first_ms, last_ms, churn, width_ms)


# ---------------------------------------------------------------- the most troubled groups


def stories(
    rows: Sequence[GroupRow],
    rebalances: Iterable[Row],
    anomalies: Iterable[Row],
    commits: pa.Table,
    epochs: Mapping[str, tuple[model.EpochPoint, ...]],
) -> tuple[GroupStory, ...]:
    """Return what is to be told of some groups.

    Args:
        rows: the groups.
        rebalances: the table, as the two that follow.
        anomalies: see there.
        commits: see there.
        epochs: of those that are consumer groups, how they went on.
    """
    names = {row.group_id for row in rows}
    happened = by_group(row for row in rebalances if row["group_id"] in names)
    of_names = [row for row in anomalies if row["group_id"] in names]
    findings = anomaly_rows(of_names, model.ANOMALIES_OF_GROUP_MAX, len(names) * model.ANOMALIES_OF_GROUP_MAX)
    commit_bins = _commits_of(commits, names)
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


def _commits_of(commits: pa.Table, names: Iterable[str]) -> dict[str, Bins]:
    """Return commits over time, in bins that fit each group."""
    is_wanted = every(
        pc.is_in(commits["group_id"], pa.array(sorted(names), pa.string())),
        pc.greater_equal(commits["log_timestamp_ms"], 0),
    )
    found = commits.filter(is_wanted).select(["group_id", "log_timestamp_ms", "tombstone"])
    bins = {}
    for group_id in pc.unique(found["group_id"]).to_pylist():
        some = found.filter(pc.equal(found["group_id"], group_id))
        bounds = pc.min_max(some["log_timestamp_ms"]).as_py()
        first_ms, last_ms = bounds["min"], bounds["max"]
        width_ms = bin_width_ms(last_ms - first_ms, model.BINS_OF_GROUP_MAX)
        counts: dict[str, Counter[int]] = {"commits": Counter()}
        for when_ms, is_tombstone in zip(
            some["log_timestamp_ms"].to_pylist(), some["tombstone"].to_pylist(), strict=True
        ):
            counts.setdefault("tombstones" if is_tombstone else "commits", Counter())[when_ms // width_ms] += 1
        bins[group_id] = bins_of(first_ms, last_ms, counts, width_ms)
    return bins


# ---------------------------------------------------------------- what was read


def read_rows(read_counts: pa.Table) -> tuple[model.ReadCount, ...]:
    """Return what was read, over all log partitions, most first."""
    counts: defaultdict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
    for row in read_counts.to_pylist():
        found = counts[row["kind"], row["record_type"], row["control_type"], cut(row["problem"])]
        found[0] += row["count"]
        found[1] += row["size_bytes"] or 0
    rows = sorted(counts.items(), key=lambda one: (-one[1][0], none_first(*one[0])))[: model.READ_COUNTS_MAX]
    return tuple(
        model.ReadCount(describe_kind(kind, record_type, control_type), problem, count, size_bytes)
        for (kind, record_type, control_type, problem), (count, size_bytes) in rows
    )


def corrupt_rows(corrupt: pa.Table) -> tuple[model.CorruptRange, ...]:
    """Return the first byte ranges that could not be read."""
    names = ["position", "size_bytes", "first_offset", "end_offset"]
    rows = [
        model.CorruptRange(file=cut(row["file"]), reason=cut(row["reason"]), **{name: row[name] for name in names})
        for row in corrupt.to_pylist()
    ]
    return tuple(sorted(rows, key=lambda row: none_first(row.file, row.position))[: model.CORRUPT_MAX])


def lag_rows(lag: Iterable[Row]) -> tuple[model.LagRow, ...]:
    """Return the groups and topics that are furthest behind."""
    behind: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in lag:
        if row["lag"]:
            behind[row["group_id"], row["topic"]].append(row)
    rows = [_lag_row(*key, some) for key, some in behind.items()]
    return tuple(sorted(rows, key=lambda row: (-row.lag, row.group_id, row.topic))[: model.LAGGING_MAX])


def _lag_row(group_id: str, topic: str, rows: Sequence[Row]) -> model.LagRow:
    lags = [row["lag"] for row in rows]
    lag_ms = max(known(row.get("lag_ms") for row in rows), default=None)
    status = max(_statuses(rows), default=None)
    return model.LagRow(group_id, topic, len(rows), sum(lags), max(lags), lag_ms, "" if status is None else status.name)


def status_counts(lag: Iterable[Row]) -> tuple[model.StatusCount, ...]:
    """Return how many partitions have each status, the worst first."""
    groups: defaultdict[LagStatus, list[str]] = defaultdict(list)
    for row in lag:
        for status in _statuses([row]):
            groups[status].append(row["group_id"])
    return tuple(
        model.StatusCount(status.name, len(some), len(set(some)))
        for status, some in sorted(groups.items(), reverse=True)
    )


def _statuses(rows: Iterable[Row]) -> list[LagStatus]:
    return [LagStatus[row["status"]] for row in rows if row.get("status") is not None]


# ---------------------------------------------------------------- anomalies and forecasts


def anomaly_counts(anomalies: Iterable[Row]) -> tuple[model.AnomalyCount, ...]:
    """Return how many anomalies of each kind there are."""
    by_kind: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in anomalies:
        by_kind[row["kind"], row.get("status") or ""].append(row)
    rows = [
        model.AnomalyCount(
            *key,
            len(some),
            len({row["group_id"] for row in some}),
            min(known(at_ms(row["first_ms"]) for row in some), default=None),
            max(known(at_ms(row["last_ms"]) for row in some), default=None),
        )
        for key, some in by_kind.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.count, row.kind, row.status)))


def anomaly_rows(anomalies: Iterable[Row], of_group_max: int, limit: int) -> list[model.AnomalyRow]:
    """Return the first anomalies of each group, oldest first, those of the groups with most of them in front.

    Args:
        anomalies: the table.
        of_group_max: how many of one group.
        limit: how many in all.
    """
    ordered = sorted(by_group(anomalies).items(), key=lambda one: (-len(one[1]), one[0]))
    found = []
    for _, some in ordered:
        some = sorted(some, key=_place)
        found += [_anomaly_row(row) for row in some[:of_group_max]]
    return found[:limit]


def _place(row: Row) -> tuple[tuple[bool, Any], ...]:
    return none_first(*(row.get(name) for name in ("first_ms", "kind", "topic", "topic_partition", "client_id")))


def _anomaly_row(row: Row) -> model.AnomalyRow:
    parts = (row.get("topic"), row.get("topic_partition"))
    subject = ":".join(str(part) for part in parts if part is not None)
    return model.AnomalyRow(
        row["group_id"],
        row["kind"],
        row.get("status") or "",
        subject or row.get("client_id") or "",
        at_ms(row["first_ms"]),
        at_ms(row["last_ms"]),
        row["count"],
        cut(row["evidence"]),
    )


def stale_rows(stale_groups: Iterable[Row]) -> tuple[model.StaleRow, ...]:
    """Return the groups that lose offsets next."""
    rows = sorted(stale_groups, key=lambda row: (row["next_expiry_ms"], row["group_id"]))[: model.STALE_MAX]
    return tuple(
        model.StaleRow(
            row["group_id"],
            row["type"],
            row["state"],
            row["offset_count"],
            row["expiring_offsets"],
            row["expired_offsets"],
            at_ms(row["last_commit_ms"]),
            row["next_expiry_ms"],
            row["group_expiry_ms"],
        )
        for row in rows
    )


def difference_rows(differences: Iterable[Row]) -> tuple[str, ...]:
    """Return the first places where coordinators and tables differ, in words."""
    rows = sorted(
        differences,
        key=lambda row: none_first(*(row[name] for name in ("group_id", "topic", "topic_partition", "field"))),
    )
    told = []
    for row in rows[: model.DIFFERENCES_MAX]:
        place = ":".join(str(part) for part in (row["topic"], row["topic_partition"]) if part is not None)
        texts = {name: cut(row[name]) for name in ("group_id", "field", "coordinator", "table")}
        told.append(difference_told(texts | {"place": place}))
    return tuple(told)
