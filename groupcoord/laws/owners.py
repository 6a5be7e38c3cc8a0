"""Law of ownership: of several processes that take over one log from each other, at most one answers at a time."""

from __future__ import annotations

from groupcoord.core.events import Cause, Event, GroupRemoved, OwnershipLost
from groupcoord.core.messages import Response
from groupcoord.errors import ErrorCode
from groupcoord.laws.coordinator import error_codes, require

NOT_AS_OWNER = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        # detected before the group is looked up
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Responses that claim no ownership."""


class OwnerLaws:
    """Watches the looks and responses of owners of a log, and raises at the first breach.

    Owners have numbers that grow with each take-over, as epochs do. Times are true times, whatever the owners believe.

    Args:
        lease_ms: how long an owner may answer after a look.
    """

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._looked_ms: dict[int, int] = {}
        self._newest = 0

    def looked(self, owner: int, began_ms: int) -> None:
        """Record a look or a read, begun at ``began_ms``, that found the log to be this owner's."""
        self._looked_ms[owner] = max(began_ms, self._looked_ms.get(owner, began_ms))

    def told(self, owner: int, said: Response | Event, now_ms: int) -> None:
        """Check a response or event of an owner: its lease lasts, and no later owner has responded.

        Raises:
            LawBrokenError: it breaks the law.
        """
        if _claims_nothing(said):
            return
        looked_ms = self._looked_ms.get(owner)
        require(
            looked_ms is not None and now_ms < looked_ms + self._lease_ms,
            f"owner {owner} says {said!r} at {now_ms}, but its last look began at {looked_ms}: its lease is over",
        )
        require(owner >= self._newest, f"owner {owner} says {said!r}, but owner {self._newest} has answered already")
        self._newest = owner


def _claims_nothing(said: Response | Event) -> bool:
    if isinstance(said, Event):
        return isinstance(said, OwnershipLost) or (isinstance(said, GroupRemoved) and said.cause is Cause.UNLOAD)
    return NOT_AS_OWNER.issuperset(error_codes(said))
