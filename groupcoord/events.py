"""Events of a coordinator, which :meth:`GroupCoordinator.take_events` returns."""

from groupcoord.core.events import (
    AppendFailures,
    Cause,
    Counters,
    Event,
    GroupLoaded,
    GroupRemoved,
    MemberAdded,
    MemberAssigned,
    MemberRemoved,
    MemberReplaced,
    OwnershipLost,
    RebalanceCompleted,
    RebalanceStarted,
    Trigger,
)

__all__ = [
    "AppendFailures",
    "Cause",
    "Counters",
    "Event",
    "GroupLoaded",
    "GroupRemoved",
    "MemberAdded",
    "MemberAssigned",
    "MemberRemoved",
    "MemberReplaced",
    "OwnershipLost",
    "RebalanceCompleted",
    "RebalanceStarted",
    "Trigger",
]
