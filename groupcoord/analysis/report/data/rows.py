"""Rows of finished tables as values of a report, whichever engine wrote the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from attrs import AttrsInstance, fields

from groupcoord.analysis.decode.schema import describe_kind
from groupcoord.analysis.fold.history.rows import Row, grouped
from groupcoord.analysis.report.data import model
from groupcoord.analysis.report.data.model import BAD, FINE, SEVERITIES, WARNING, ShareGroupRow, Standing
from groupcoord.analysis.report.text import TEXT_LENGTH_MAX
from groupcoord.analysis.rules.statuses import BROKEN_KINDS, KINDS_WORST_FIRST, WORST_FIRST, LagStatus, worst_status

TEXT_MAX = TEXT_LENGTH_MAX + 1
"""Number of kept characters of a text: one more than the page shows, so that it marks the truncation."""

_NO_PARTITION = -1
Made = TypeVar("Made", bound=AttrsInstance)


def report_title(inputs: Sequence[str]) -> str:
    return f"Consumer groups of {inputs[0].rstrip('/').rpartition('/')[2] or inputs[0]}"


def made_of(row: Row, made: type[Made], **others: Any) -> Made:
    """Return an instance with the columns of a row as fields, but for ``others``."""
    return made(**{one.name: row[one.name] for one in fields(made) if one.name not in others}, **others)


def partition_rows(load: Iterable[Row]) -> tuple[model.PartitionRow, ...]:
    found = sorted(load, key=lambda row: (-row["records"], _number(row)))
    rows = sorted(found[: model.PARTITIONS_MAX], key=_number)
    return tuple(made_of(row, model.PartitionRow, size_bytes=row["bytes"]) for row in rows)


def _number(row: Row) -> int:
    partition: int | None = row["log_partition"]
    return _NO_PARTITION if partition is None else partition


def load_totals(load: Sequence[Row]) -> dict[str, Any]:
    first_ms = [row["first_timestamp_ms"] for row in load if row["first_timestamp_ms"] is not None]
    last_ms = [row["last_timestamp_ms"] for row in load if row["last_timestamp_ms"] is not None]
    return {
        "records": sum(row["records"] for row in load),
        "size_bytes": sum(row["bytes"] for row in load),
        "corrupt_bytes": sum(row["corrupt_bytes"] for row in load),
        "log_partitions": sum(row["records"] > 0 for row in load),
        "first_timestamp_ms": min(first_ms, default=None),
        "last_timestamp_ms": max(last_ms, default=None),
    }


def member_counts(happened: Iterable[tuple[model.RebalanceRow, int | None]]) -> list[tuple[int, int]]:
    counts = []
    for one, members in happened:
        when_ms = one.ended_ms if one.ended_ms is not None else one.started_ms
        if when_ms is not None and members is not None:
            counts.append((when_ms, members))
    return sorted(counts, key=lambda count: count[0])


def at_ms(value: int | None) -> int | None:
    """Return a time; None for Kafka's -1."""
    return None if value is None or value < 0 else value


def cut(value: object) -> str:
    return "" if value is None else str(value)[:TEXT_MAX]


def known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]


def none_first(*values: Any) -> tuple[tuple[bool, Any], ...]:
    return tuple((value is not None, value) for value in values)


def by_group(rows: Iterable[Row]) -> Mapping[str, list[Row]]:
    return grouped(rows, itemgetter("group_id"))


_SEVERITIES = {LagStatus.OK: FINE, LagStatus.WARN: WARNING, LagStatus.ERR: BAD}


def severity_of_status(status: str | None) -> str:
    return _SEVERITIES[LagStatus.of(status or None).of_group]


def severity_of_kind(kind: str) -> str:
    return BAD if kind in BROKEN_KINDS else WARNING


def standings(anomalies: Iterable[Row], lag: Iterable[Row]) -> dict[str, Standing]:
    found, behind = by_group(row for row in anomalies if row["group_id"] is not None), by_group(lag)
    return {
        group_id: _standing(found.get(group_id, ()), behind.get(group_id, ())) for group_id in found.keys() | behind
    }


def _standing(anomalies: Sequence[Row], lag: Sequence[Row]) -> Standing:
    lags, ages = known(row.get("lag") for row in lag), known(row.get("lag_ms") for row in lag)
    figures = (sum(lags) if lags else None, max(ages, default=None))
    status = worst_status(row.get("status") for row in lag)
    of_lag, kind = _SEVERITIES[status.of_group], _worst_kind(anomalies)
    if kind is not None and (severity_of_kind(kind) == BAD or of_lag != BAD):
        some = [row for row in anomalies if row["kind"] == kind]
        return Standing(severity_of_kind(kind), some[0].get("status") or kind, _told(kind, some), *figures)
    if of_lag == FINE:
        return Standing(lag=figures[0], lag_ms=figures[1])
    places = [row for row in lag if row.get("status") == status.label]
    sentence = status.sentence.format(_places(places, "lag"))
    return Standing(of_lag, status.label, _sentence(sentence), *figures)


def _worst_kind(anomalies: Sequence[Row]) -> str | None:
    return min((row["kind"] for row in anomalies), key=KINDS_WORST_FIRST.index, default=None)


def _told(kind: str, rows: Sequence[Row]) -> str:
    worst = max(rows, key=_weight)
    where = f" of {_places(rows, 'value')}" if worst.get("topic") is not None else ""
    return _sentence(f"{kind}{where}: {cut(worst['evidence'])}")


def _places(rows: Sequence[Row], by: str) -> str:
    worst, more = max(rows, key=lambda row: _weight(row, by)), len(rows) - 1
    others = f" and {more:,} more {'partition' if more == 1 else 'partitions'}" if more else ""
    return f"{worst['topic']}:{worst['topic_partition']}{others}"


def _weight(row: Row, by: str = "value") -> tuple[int, str, int]:
    return (row.get(by) or 0, row.get("topic") or "", -(row.get("topic_partition") or 0))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


# ---------------------------------------------------------------- what was read


def read_rows(read_counts: Iterable[Row]) -> tuple[model.ReadCount, ...]:
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
    rows = [made_of(row, model.CorruptRange, file=cut(row["file"]), reason=cut(row["reason"])) for row in corrupt]
    return tuple(sorted(rows, key=lambda row: none_first(row.file, row.position))[: model.CORRUPT_MAX])


def lag_rows(lag: Iterable[Row]) -> tuple[model.LagRow, ...]:
    behind = (row for row in lag if row.get("lag") or severity_of_status(row.get("status")) != FINE)
    rows = [_lag_row(*key, some) for key, some in grouped(behind, lambda row: (row["group_id"], row["topic"])).items()]
    return tuple(sorted(rows, key=_distance)[: model.LAGGING_MAX])


def _distance(row: model.LagRow) -> tuple[int, int, str, str]:
    return (WORST_FIRST.index(LagStatus.of(row.status)), -row.lag, row.group_id, row.topic)


def _lag_row(group_id: str, topic: str, rows: Sequence[Row]) -> model.LagRow:
    lags = [row["lag"] or 0 for row in rows]
    lag_ms = max(known(row.get("lag_ms") for row in rows), default=None)
    status = worst_status(row.get("status") for row in rows).label
    return model.LagRow(group_id, topic, len(rows), sum(lags), max(lags), lag_ms, status, severity_of_status(status))


def status_counts(lag: Iterable[Row]) -> tuple[model.StatusCount, ...]:
    found = grouped(lag, lambda row: LagStatus.of(row.get("status")))
    return tuple(
        model.StatusCount(
            status.label, len(found[status]), len(by_group(found[status])), severity_of_status(status.label)
        )
        for status in WORST_FIRST
        if status in found
    )


def share_group_rows(share_partitions: Iterable[Row]) -> tuple[ShareGroupRow, ...]:
    found = (row for row in share_partitions if not row["is_deleted"])
    by_topic = grouped(found, lambda row: (row["group_id"], row["topic"] or row["topic_id"]))
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
    by_kind = grouped(anomalies, lambda row: (row["kind"], row.get("status") or ""))
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
    """Return the first anomalies of each group, the worst groups first."""
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
    return made_of(
        row,
        model.AnomalyRow,
        status=row.get("status") or "",
        subject=subject or row.get("client_id") or "",
        first_ms=at_ms(row["first_ms"]),
        last_ms=at_ms(row["last_ms"]),
        evidence=cut(row["evidence"]),
    )


def stale_rows(stale_groups: Iterable[Row]) -> tuple[model.StaleRow, ...]:
    rows = sorted(stale_groups, key=lambda row: (row["next_expiry_ms"], row["group_id"]))[: model.STALE_MAX]
    return tuple(
        made_of(
            row,
            model.StaleRow,
            offsets=row["offset_count"],
            expiring=row["expiring_offsets"],
            expired=row["expired_offsets"],
            last_commit_ms=at_ms(row["last_commit_ms"]),
            next_ms=row["next_expiry_ms"],
            group_ms=row["group_expiry_ms"],
        )
        for row in rows
    )


def difference_rows(differences: Iterable[Row]) -> tuple[str, ...]:
    rows = sorted(
        differences,
        key=lambda row: none_first(*(row[name] for name in ("group_id", "topic", "topic_partition", "field"))),
    )
    found = []
    for row in rows[: model.DIFFERENCES_MAX]:
        place = ":".join(str(part) for part in (row["topic"], row["topic_partition"]) if part is not None)
        group_id, field, coordinator, table = (cut(row[name]) for name in ("group_id", "field", "coordinator", "table"))
        found.append(
            f"group {group_id}{place and f', {place}'}: {field} is {coordinator or 'nothing'} for the coordinator, "
            f"{table or 'nothing'} in the table"
        )
    return tuple(found)
