"""Museum: real bugs of group coordination, each described, planted in this package, replayed and searched for.

    from groupcoord.testing.museum import exhibit, hunt_for, play_of

    play_of(exhibit("KAFKA-16147"), is_planted=True).law
    hunt_for(exhibit("KAFKA-16147"), "machine", cpu_s=60)

A *plant* is the same bug as the replacement of one function of this package, in a separate process.
"""

from __future__ import annotations

from groupcoord.testing.museum.exhibit import (
    SEARCHERS,
    Exhibit,
    Hunt,
    Plant,
    TaskFailedError,
    UnknownExhibitError,
    exhibit,
    exhibits,
    hunt_for,
    play_of,
)

__all__ = [
    "SEARCHERS",
    "Exhibit",
    "Hunt",
    "Plant",
    "TaskFailedError",
    "UnknownExhibitError",
    "exhibit",
    "exhibits",
    "hunt_for",
    "play_of",
]
