"""Events of a coordinator, which :meth:`GroupCoordinator.take_events` returns."""

from groupcoord.core.events import (
    AppendFailures as AppendFailures,
    Cause as Cause,
    Counters as Counters,
    Event as Event,
    GroupLoaded as GroupLoaded,
    GroupRemoved as GroupRemoved,
    MemberAdded as MemberAdded,
    MemberAssigned as MemberAssigned,
    MemberRemoved as MemberRemoved,
    MemberReplaced as MemberReplaced,
    OwnershipLost as OwnershipLost,
    RebalanceCompleted as RebalanceCompleted,
    RebalanceStarted as RebalanceStarted,
    Trigger as Trigger,
)
