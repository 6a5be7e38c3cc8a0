"""Words for what tests are told."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return words that propose the known name nearest to another one; empty if none is near.

    A name whose parts are the same is nearest, whatever their order and form: ``CommitOffset`` means ``OffsetCommit``,
    ``NotCoordinator`` means ``NOT_COORDINATOR``.
    """
    names = sorted(known)
    wanted = _parts(name)
    close = [other for other in names if _parts(other) == wanted] or get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _parts(name: str) -> list[str]:
    return sorted(part.lower() for part in _PARTS.findall(name))


def counted(number: int, noun: str) -> str:
    """Return a number of things in words: ``1 member``, ``2 members``."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"
