"""What the values of tables are for figures: times that may not be set, texts that are cut, rows by group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from groupcoord.analysis.report.data.rows import TEXT_MAX

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
