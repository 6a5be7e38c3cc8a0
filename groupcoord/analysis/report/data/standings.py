"""How each group stands, from what was found and how far it is behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from groupcoord.analysis.report.data.group_status import BAD, FINE, WARNING, Standing
from groupcoord.analysis.report.data.rows import Row, by_group, cut, known
from groupcoord.analysis.rules.statuses import BROKEN_KINDS, KINDS_WORST_FIRST, LagStatus, worst_status

_SEVERITIES = {LagStatus.OK: FINE, LagStatus.WARN: WARNING, LagStatus.ERR: BAD}


def severity_of_status(status: str | None) -> str:
    """Return the severity of a status as tables have it; of none it is fine."""
    return _SEVERITIES[LagStatus.of(status or None).of_group]


def severity_of_kind(kind: str) -> str:
    """Return how bad an anomaly of a kind is."""
    return BAD if kind in BROKEN_KINDS else WARNING


def standings(anomalies: Iterable[Row], lag: Iterable[Row]) -> dict[str, Standing]:
    """Return how groups stand; of those that are not there, nothing is known.

    Args:
        anomalies: rows of the table.
        lag: rows of the table.
    """
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
    told = status.sentence.format(_places(places, "lag"))
    return Standing(of_lag, status.label, _sentence(told), *figures)


def _worst_kind(anomalies: Sequence[Row]) -> str | None:
    return min((row["kind"] for row in anomalies), key=KINDS_WORST_FIRST.index, default=None)


def _told(kind: str, rows: Sequence[Row]) -> str:
    worst = max(rows, key=_weight)
    where = f" of {_places(rows, 'value')}" if worst.get("topic") is not None else ""
    return _sentence(f"{kind}{where}: {cut(worst['evidence'])}")


def _places(rows: Sequence[Row], by: str) -> str:
    """Return the worst partition, and how many more there are."""
    worst, more = max(rows, key=lambda row: _weight(row, by)), len(rows) - 1
    others = f" and {more:,} more {'partition' if more == 1 else 'partitions'}" if more else ""
    return f"{worst['topic']}:{worst['topic_partition']}{others}"


def _weight(row: Row, by: str = "value") -> tuple[int, str, int]:
    """Return by what the worst of some rows is found; names decide between equals."""
    return (row.get(by) or 0, row.get("topic") or "", -(row.get("topic_partition") or 0))


def _sentence(told: str) -> str:
    return f"{told[:1].upper()}{told[1:]}."
