"""The states of a member and the moves between them: one table, from which the diagram in the docs is drawn.

The first four are those of Kafka's Java consumer (``AbstractCoordinator.MemberState``); the last two are what becomes
of a consumer object there when it throws, or is closed.
"""

from __future__ import annotations

from enum import Enum


class MemberState(Enum):
    """Where a member is in its life."""

    UNJOINED = "Unjoined"
    """Not in the group. Heartbeats: none. Ways out: the next poll joins."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """A JoinGroup is on its way or waits at the coordinator. Heartbeats: none. Ways out: the join's answer."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Joined; the leader assigns, the others wait for it. Heartbeats: yes. Ways out: the sync's answer."""
    STABLE = "Stable"
    """Has an assignment. Heartbeats: yes. Ways out: a rejoin, leaving, or the word that it is no member any more."""
    FAILED = "Failed"
    """Gave up, with a :class:`~groupcoord.member.Failed` event. Sends nothing. Ways out: ``recover`` or ``close``."""
    CLOSED = "Closed"
    """Final."""


_ALWAYS = (MemberState.UNJOINED, MemberState.FAILED, MemberState.CLOSED)

TRANSITIONS: dict[MemberState, tuple[MemberState, ...]] = {
    MemberState.UNJOINED: (*_ALWAYS, MemberState.PREPARING_REBALANCE),
    MemberState.PREPARING_REBALANCE: (*_ALWAYS, MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE),
    MemberState.COMPLETING_REBALANCE: (*_ALWAYS, MemberState.PREPARING_REBALANCE, MemberState.STABLE),
    MemberState.STABLE: (*_ALWAYS, MemberState.PREPARING_REBALANCE),
    MemberState.FAILED: (MemberState.UNJOINED, MemberState.CLOSED),
    MemberState.CLOSED: (),
}
"""From each state, the states that may follow."""
