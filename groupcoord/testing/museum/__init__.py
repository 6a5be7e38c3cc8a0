"""Bugs of group coordination that really happened: told, played on this package, and hunted.

    from groupcoord.testing.museum import exhibit, hunt_for, play_of

    play_of(exhibit("KAFKA-16147"), is_planted=True).law
    hunt_for(exhibit("KAFKA-16147"), "machine", cpu_s=60)

Each exhibit that has a place here has a *plant*: the same bug as the replacement of one function of this package. It
is made in a process of its own, so nothing is written and nothing else is touched.
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
