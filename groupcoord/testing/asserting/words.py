"""Words for what tests are told."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return words that propose the known name nearest to another one; empty if none is near."""
    close = get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def counted(number: int, noun: str) -> str:
    """Return a number of things in words: ``1 member``, ``2 members``."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"
