"""Rows of finished tables as values of a report, whichever engine wrote the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from groupcoord.analysis.report.data import model
from groupcoord.analysis.report.text import TEXT_LENGTH_MAX

TEXT_MAX = TEXT_LENGTH_MAX + 1
"""So much of a text is kept: one more than a page shows, so that it shows that there is more."""

_NO_PARTITION = -1


class TableRow(Protocol):
    """A row whose values are found by name."""

    def __getitem__(self, name: str, /) -> Any:
        """Return the value of a column."""


def report_title(inputs: Sequence[str]) -> str:
    """Return what a page is called, from what was read."""
    return f"Consumer groups of {inputs[0].rstrip('/').rpartition('/')[2] or inputs[0]}"


def partition_rows(load: Iterable[TableRow]) -> tuple[model.PartitionRow, ...]:
    """Return the load of each log partition, of those with most records if there are very many."""
    found = sorted(load, key=lambda row: (-row["records"], _number(row)))
    rows = [
        model.PartitionRow(
            row["log_partition"],
            row["records"],
            row["commits"],
            row["group_records"],
            row["tombstones"],
            row["bytes"],
            row["file_bytes"],
            row["groups"],
            row["hottest_group"],
            row["hottest_group_share"],
            row["superseded_records"],
            row["superseded_bytes"],
        )
        for row in sorted(found[: model.PARTITIONS_MAX], key=_number)
    ]
    return tuple(rows)


def _number(row: TableRow) -> int:
    partition: int | None = row["log_partition"]
    return _NO_PARTITION if partition is None else partition


def load_totals(load: Sequence[TableRow]) -> dict[str, Any]:
    """Return sums over all log partitions, by the names of :class:`~groupcoord.analysis.report.data.model.Overview`."""
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
    """Return from when on a group had how many members, oldest first.

    Args:
        happened: its rebalances, each with the number of members after it.
    """
    counts = []
    for one, members in happened:
        when_ms = one.ended_ms if one.ended_ms is not None else one.started_ms
        if when_ms is not None and members is not None:
            counts.append((when_ms, members))
    return sorted(counts, key=lambda count: count[0])


def difference_told(row: TableRow) -> str:
    """Return in words where a coordinator and the tables differ.

    Args:
        row: ``group_id``, ``place``, ``field``, ``coordinator`` and ``table``; what there is not is empty.
    """
    place = row["place"] and f", {row['place']}"
    return (
        f"group {row['group_id']}{place}: {row['field']} is {row['coordinator'] or 'nothing'} for the "
        f"coordinator, {row['table'] or 'nothing'} in the table"
    )


Row = dict[str, Any]


def at_ms(value: int | None) -> int | None:
    """Return a time; None where it is Kafka's -1 for none."""
    return None if value is None or value < 0 else value


def cut(value: object) -> str:
    """Return a text that is not longer than a page shows; empty for None."""
    return "" if value is None else str(value)[:TEXT_MAX]


def known(values: Iterable[int | None]) -> list[int]:
    """Return the numbers that are no None."""
    return [value for value in values if value is not None]


def none_first(*values: Any) -> tuple[tuple[bool, Any], ...]:
    """Return a key to sort by in which None comes before everything else."""
    return tuple((value is not None, value) for value in values)


def by_group(rows: Iterable[Row]) -> Mapping[str, list[Row]]:
    """Return rows by their group."""
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["group_id"]].append(row)
    return found
