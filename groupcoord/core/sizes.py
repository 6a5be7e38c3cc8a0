"""How much a request says: its sender decides that, and what it costs to keep and to work on."""

from __future__ import annotations

from typing import Any


def says_more(value: tuple[Any, ...], limit: int) -> bool:
    """Tell whether there are more values than this in a tuple and in all tuples in it."""
    left = limit
    tuples = [value]
    while tuples:
        entries = tuples.pop()
        left -= len(entries)
        if left < 0:
            return True
        tuples += (entry for entry in entries if isinstance(entry, tuple))
    return False
