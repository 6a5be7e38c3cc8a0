"""What :meth:`GroupCoordinator.take_events` gives; see :mod:`groupcoord.core.events`."""

from groupcoord.core.events import (
    Cause,
    Counters,
    Event,
    GroupLoaded,
    GroupRemoved,
    MemberAdded,
    MemberRemoved,
    MemberReplaced,
    RebalanceCompleted,
    RebalanceStarted,
    Trigger,
)

__all__ = [
    "Cause",
    "Counters",
    "Event",
    "GroupLoaded",
    "GroupRemoved",
    "MemberAdded",
    "MemberRemoved",
    "MemberReplaced",
    "RebalanceCompleted",
    "RebalanceStarted",
    "Trigger",
]
