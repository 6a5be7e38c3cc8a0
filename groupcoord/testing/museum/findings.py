"""What comes out of a process of the museum."""

from __future__ import annotations

from attrs import frozen

SEARCHERS = ("explore", "machine", "member", "swarm")
"""The ways of looking for a bug that nobody knows: every history in the scope of the exhibit's, the shortest first; the
published machine; random lives of one member; and the simulator's fleets."""


@frozen
class Hunt:
    """How one way of looking did.

    Attributes:
        searcher: the way of looking, one of :data:`SEARCHERS`.
        found: what was broken, in its words; None if nothing was.
        is_law: it was a law; if not, something failed in another way.
        cpu_s: after so many CPU seconds.
        histories: so many histories were looked at.
    """

    searcher: str
    found: str | None
    is_law: bool
    cpu_s: float
    histories: int
