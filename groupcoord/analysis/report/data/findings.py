"""Figures of what was read and found: byte ranges, lag, anomalies, forecasts, differences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from groupcoord.analysis.decode.schema import describe_kind
from groupcoord.analysis.report.data import model
from groupcoord.analysis.report.data.group_status import FINE, SEVERITIES, ShareGroupRow
from groupcoord.analysis.report.data.rows import Row, at_ms, by_group, cut, difference_told, known, none_first
from groupcoord.analysis.report.data.standings import severity_of_kind, severity_of_status
from groupcoord.analysis.rules.statuses import WORST_FIRST, LagStatus, worst_status

# ---------------------------------------------------------------- what was read


def read_rows(read_counts: Iterable[Row]) -> tuple[model.ReadCount, ...]:
    """Return what was read, over all log partitions, most first."""
    counts: defaultdict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
    for row in read_counts:
        found = counts[row["kind"], row["record_type"], row["control_type"], cut(row["problem"])]
        found[0] += row["count"]
        found[1] += row["size_bytes"] or 0
    rows = sorted(counts.items(), key=lambda one: (-one[1][0], none_first(*one[0])))[: model.READ_COUNTS_MAX]
    return tuple(
        model.ReadCount(describe_kind(kind, record_type, control_type), problem, count, size_bytes)
        for (kind, record_type, control_type, problem), (count, size_bytes) in rows
    )


def corrupt_rows(corrupt: Iterable[Row]) -> tuple[model.CorruptRange, ...]:
    """Return the first byte ranges that could not be read."""
    names = ["position", "size_bytes", "first_offset", "end_offset"]
    rows = [
        model.CorruptRange(file=cut(row["file"]), reason=cut(row["reason"]), **{name: row[name] for name in names})
        for row in corrupt
    ]
    return tuple(sorted(rows, key=lambda row: none_first(row.file, row.position))[: model.CORRUPT_MAX])


def lag_rows(lag: Iterable[Row]) -> tuple[model.LagRow, ...]:
    """Return the groups and topics that are behind, or in trouble: of the worst status, and furthest behind, first."""
    behind: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in lag:
        if row.get("lag") or severity_of_status(row.get("status")) != FINE:
            behind[row["group_id"], row["topic"]].append(row)
    rows = [_lag_row(*key, some) for key, some in behind.items()]
    return tuple(sorted(rows, key=_distance)[: model.LAGGING_MAX])


def _distance(row: model.LagRow) -> tuple[int, int, str, str]:
    return (WORST_FIRST.index(LagStatus.of(row.status)), -row.lag, row.group_id, row.topic)


def _lag_row(group_id: str, topic: str, rows: Sequence[Row]) -> model.LagRow:
    lags = [row["lag"] or 0 for row in rows]
    lag_ms = max(known(row.get("lag_ms") for row in rows), default=None)
    status = worst_status(row.get("status") for row in rows).label
    return model.LagRow(group_id, topic, len(rows), sum(lags), max(lags), lag_ms, status, severity_of_status(status))


def status_counts(lag: Iterable[Row]) -> tuple[model.StatusCount, ...]:
    """Return how many partitions have each status, the worst first."""
    groups: defaultdict[LagStatus, list[str]] = defaultdict(list)
    for row in lag:
        groups[LagStatus.of(row.get("status"))].append(row["group_id"])
    return tuple(
        model.StatusCount(status.label, len(groups[status]), len(set(groups[status])), severity_of_status(status.label))
        for status in WORST_FIRST
        if status in groups
    )


def share_group_rows(share_partitions: Iterable[Row]) -> tuple[ShareGroupRow, ...]:
    """Return how records were delivered to share groups, the most troubled first; what was deleted is left out."""
    by_topic: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in share_partitions:
        if not row["is_deleted"]:
            by_topic[row["group_id"], row["topic"] or row["topic_id"]].append(row)
    rows = [
        ShareGroupRow(
            *place,
            len(some),
            sum(row["released"] for row in some),
            max(known(row["delivery_count_max"] for row in some), default=None),
            sum(row["redeliveries"] for row in some),
            sum(row["archived_records"] for row in some),
            max(known(at_ms(row["last_ms"]) for row in some), default=None),
        )
        for place, some in by_topic.items()
    ]
    rows.sort(key=lambda row: (-row.given_up, -row.redeliveries, row.group_id, row.topic))
    return tuple(rows[: model.SHARE_GROUPS_MAX])


# ---------------------------------------------------------------- anomalies and forecasts


def anomaly_counts(anomalies: Iterable[Row]) -> tuple[model.AnomalyCount, ...]:
    """Return how many anomalies of each kind there are, the worst kinds first."""
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
            severity_of_kind(key[0]),
        )
        for key, some in by_kind.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-SEVERITIES.index(row.severity), -row.count, row.kind, row.status)))


def anomaly_rows(
    anomalies: Iterable[Row], of_group_max: int, limit: int, ranks: Mapping[str, int]
) -> list[model.AnomalyRow]:
    """Return the first anomalies of each group, oldest first, those of the worst groups in front.

    Args:
        anomalies: the table.
        of_group_max: how many of one group.
        limit: how many in all.
        ranks: of the groups, the worst's is the lowest.
    """
    ordered = sorted(by_group(anomalies).items(), key=lambda one: (ranks.get(one[0], len(ranks)), one[0]))
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
    due = (row for row in stale_groups if row["next_expiry_ms"] is not None)
    rows = sorted(due, key=lambda row: (row["next_expiry_ms"], row["group_id"]))[: model.STALE_MAX]
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
