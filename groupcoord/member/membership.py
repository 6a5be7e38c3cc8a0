"""Membership states of a member and their transitions, from which the diagrams of the docs are generated."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar, NamedTuple

from attrs import define

from groupcoord.core.messages import UNKNOWN_GENERATION_ID, UNKNOWN_MEMBER_ID
from groupcoord.errors import ErrorCode, GroupcoordError, IllegalTransitionError
from groupcoord.member.error_handling import Reactions
from groupcoord.member.outputs import CommitFailure, Failed, Output


class MemberState(Enum):
    """State of a member. Stable, Failed and Closed belong to both protocols.

    The states before Stable belong to the classic protocol (Java: ``AbstractCoordinator``), those after Closed to
    ``group.protocol=consumer`` (Java: ``MemberState``).
    """

    UNJOINED = "Unjoined"
    """Not in the group. Heartbeats: none. Ways out: the next poll joins."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """A JoinGroup is on its way or waits at the coordinator. Heartbeats: none. Ways out: the join's answer."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Joined; the leader assigns, the others wait for it. Heartbeats: yes. Ways out: the sync's answer."""

    STABLE = "Stable"
    """Has an assignment. Heartbeats: yes. Ways out: a new assignment, leaving, or an error that ends the membership."""
    FAILED = "Failed"
    """Gave up, with a :class:`~groupcoord.member.Failed` event (Java's FATAL). Sends nothing. Ways out: ``close``; in
    the classic protocol also ``recover``.
    """
    CLOSED = "Closed"
    """Final."""

    UNSUBSCRIBED = "Unsubscribed"
    """Not in the group. Heartbeats: none. Ways out: the next poll with a subscription joins."""
    JOINING = "Joining"
    """A heartbeat with epoch 0 and everything about the member is due or on its way. Ways out: its answer."""
    RECONCILING = "Reconciling"
    """Has received another assignment: commits, revokes, assigns. Heartbeats: yes. Ways out: these are done."""
    ACKNOWLEDGING = "Acknowledging"
    """Has applied the assignment; the acknowledging heartbeat is due at once. Ways out: it is sent."""
    FENCED = "Fenced"
    """Fenced by the coordinator. Heartbeats: none. Ways out: its partitions are reported lost; then it joins again."""
    PREPARE_LEAVING = "PrepareLeaving"
    """About to leave; the application gives up its partitions. Heartbeats: yes. Ways out: the application is done."""
    LEAVING = "Leaving"
    """The heartbeat with which it leaves is due at once. Ways out: it is sent, or can't be."""
    STALE = "Stale"
    """Left, because no poll came. Heartbeats: none. Ways out: the next poll, once its partitions are reported lost."""


Transitions = Mapping[MemberState, tuple[MemberState, ...]]

_ENDS = (MemberState.FAILED, MemberState.CLOSED)
_ALWAYS = (MemberState.UNJOINED, *_ENDS)
_OUT = (MemberState.FENCED, MemberState.PREPARE_LEAVING, *_ENDS)

TRANSITIONS: Transitions = {
    MemberState.UNJOINED: (*_ALWAYS, MemberState.PREPARING_REBALANCE),
    MemberState.PREPARING_REBALANCE: (*_ALWAYS, MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE),
    MemberState.COMPLETING_REBALANCE: (*_ALWAYS, MemberState.PREPARING_REBALANCE, MemberState.STABLE),
    MemberState.STABLE: (*_ALWAYS, MemberState.PREPARING_REBALANCE),
    MemberState.FAILED: (MemberState.UNJOINED, MemberState.CLOSED),
    MemberState.CLOSED: (),
}
"""Transitions of the classic protocol."""

CONSUMER_TRANSITIONS: Transitions = {
    MemberState.UNSUBSCRIBED: (MemberState.JOINING, *_ENDS),
    MemberState.JOINING: (MemberState.RECONCILING, *_OUT),
    MemberState.RECONCILING: (MemberState.RECONCILING, MemberState.ACKNOWLEDGING, *_OUT),
    MemberState.ACKNOWLEDGING: (MemberState.RECONCILING, MemberState.STABLE, *_OUT),
    MemberState.STABLE: (MemberState.RECONCILING, *_OUT),
    MemberState.FENCED: (MemberState.JOINING, MemberState.UNSUBSCRIBED, *_ENDS),
    MemberState.PREPARE_LEAVING: (MemberState.LEAVING, *_ENDS),
    MemberState.LEAVING: (MemberState.STALE, MemberState.UNSUBSCRIBED, *_ENDS),
    MemberState.STALE: (MemberState.JOINING, MemberState.UNSUBSCRIBED, *_ENDS),
    MemberState.FAILED: (MemberState.CLOSED,),
    MemberState.CLOSED: (),
}
"""Transitions of ``group.protocol=consumer``."""


class MemberIdentity(NamedTuple):
    """Identity in OffsetCommit and OffsetFetch; ``generation_id`` is the member epoch in a consumer group."""

    generation_id: int = UNKNOWN_GENERATION_ID
    member_id: str = UNKNOWN_MEMBER_ID
    group_instance_id: str | None = None


class CommitRefusal(NamedTuple):
    """Reason for which a commit is not sent."""

    failure: CommitFailure
    message: str


@define(eq=False, repr=False)
class Membership:
    """State of a member, its transitions and failures, in either protocol.

    Attributes:
        transitions: the legal changes of the state.
        reactions: the reaction to each error of each API.
    """

    transitions: ClassVar[Transitions]
    reactions: ClassVar[Reactions]
    _group_instance_id: str | None
    _outputs: list[Output]
    state: MemberState

    @property
    def has_ended(self) -> bool:
        return self.state in _ENDS

    def move(self, state: MemberState) -> None:
        """Change the state.

        Raises:
            IllegalTransitionError: there is no such transition.
        """
        if state not in self.transitions.get(self.state, ()):
            raise IllegalTransitionError(f"a member can't go from {self.state.value} to {state.value}")
        self.state = state

    def fail(self, api: str, error_code: ErrorCode, message: str) -> None:
        """Fail with this error, unless the member has failed before."""
        if not self.has_ended:
            self.move(MemberState.FAILED)
            self._outputs.append(Failed(api, error_code, message))


class IllegalCallError(GroupcoordError):
    """A method was called in a state that does not allow it, such as ``subscribe`` after ``close``."""
