"""Museum: real bugs of group coordination, each described, planted in this package, replayed and searched for.

    from groupcoord.testing.museum import exhibit, hunt_for, play_of

    play_of(exhibit("KAFKA-16147"), is_planted=True).law
    hunt_for(exhibit("KAFKA-16147"), "machine", cpu_s=60)

A *plant* is the same bug as the replacement of one function of this package, in a separate process.
"""

from __future__ import annotations

from groupcoord.testing.museum.exhibit import (
    SEARCHERS as SEARCHERS,
    Exhibit as Exhibit,
    Hunt as Hunt,
    Plant as Plant,
    TaskFailedError as TaskFailedError,
    UnknownExhibitError as UnknownExhibitError,
    exhibit as exhibit,
    exhibits as exhibits,
    hunt_for as hunt_for,
    play_of as play_of,
)
