"""Interface of a client library for the chaos run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

ANSWER_S = 3.0


class Library(Protocol):
    """A library, used for one group."""

    def commit(self, shard: int, position: int) -> bool:
        """Commit, and return whether that was acknowledged; if it wasn't, it may be written at any time later."""

    def position(self, shard: int) -> int | None:
        """Return what is committed, -1 if nothing is; None: no answer counts."""


Open = Callable[[str, dict[int, int], Callable[[int], None]], Library]
"""Takes a group, the ways to nodes by their ports, and what is told each refusal's number; returns a library."""
