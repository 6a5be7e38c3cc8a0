"""How much a request says: its sender decides that, and what it costs to keep and to work on."""

from __future__ import annotations

from typing import Any


def says_more(value: tuple[Any, ...], limit: int) -> bool:
    """Tell whether there are more values than this in a tuple and in all tuples in it."""
    left = limit
    tuples: list[tuple[Any, ...]] = [value]
    while tuples and (left := left - sum(map(len, tuples))) >= 0:
        tuples = [entry for entries in tuples for entry in entries if isinstance(entry, tuple)]
    return left < 0
