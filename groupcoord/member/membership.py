"""Where a member stands in its group: its state, the moves between states, its generation, whether it must join again.

The first four states are those of Kafka's Java consumer (``AbstractCoordinator.MemberState``); the last two are what
becomes of a consumer object there when it throws, or is closed. From the table of moves the diagram in the docs is
drawn.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from groupcoord.core.messages import UNKNOWN_GENERATION_ID, UNKNOWN_MEMBER_ID
from groupcoord.errors import ErrorCode, GroupcoordError, IllegalTransitionError
from groupcoord.member.outputs import Failed, Output, RejoinRequested


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


class Generation(NamedTuple):
    """What a member is in its group: the three belong together, and change together."""

    generation_id: int = UNKNOWN_GENERATION_ID
    member_id: str = UNKNOWN_MEMBER_ID
    protocol_name: str | None = None


NO_GENERATION = Generation()

_JOINED = (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)
_REBALANCING = (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)
_ENDED = (MemberState.FAILED, MemberState.CLOSED)


class MembershipManager:
    """Keeps the state and the generation, and makes the moves that several parts of a member ask for.

    Attributes:
        state: where the member is in its life.
        generation: what it is in its group.
        rejoin_needed: the next poll shall join.
        rejoin_reason: why, in words for the coordinator.
        needs_prepare: before the next join, what is owned must be committed and revoked.
    """

    __slots__ = ("_outputs", "generation", "needs_prepare", "rejoin_needed", "rejoin_reason", "state")

    def __init__(self, outputs: list[Output]) -> None:
        self._outputs = outputs
        self.state = MemberState.UNJOINED
        self.generation = NO_GENERATION
        self.rejoin_needed = True
        self.rejoin_reason = ""
        self.needs_prepare = True

    @property
    def is_joined(self) -> bool:
        """Whether the coordinator counts the member in, as far as it knows: then it beats."""
        return self.state in _JOINED

    @property
    def is_rebalancing(self) -> bool:
        """Whether a join or sync is under way."""
        return self.state in _REBALANCING

    @property
    def has_ended(self) -> bool:
        """Whether the member has failed or is closed."""
        return self.state in _ENDED

    @property
    def is_reset(self) -> bool:
        """Whether the generation was forgotten. The member id may still be known."""
        return self.generation.generation_id == UNKNOWN_GENERATION_ID and self.generation.protocol_name is None

    @property
    def is_stranger(self) -> bool:
        """Whether what the member owns is lost: it has no generation, or no member id."""
        return self.generation.generation_id == UNKNOWN_GENERATION_ID or not self.generation.member_id

    def is_at(self, state: MemberState, generation_id: int) -> bool:
        """Tell whether the member is in this state of this generation."""
        return self.state is state and self.generation.generation_id == generation_id

    def move(self, state: MemberState) -> None:
        """Go to another state.

        Raises:
            IllegalTransitionError: the table of transitions does not connect the two.
        """
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransitionError(f"a member can't go from {self.state.value} to {state.value}")
        self.state = state

    def request_rejoin(self, reason: str) -> None:
        """Let the next poll join again."""
        if not self.rejoin_needed or self.rejoin_reason != reason:
            self._outputs.append(RejoinRequested(reason))
        self.rejoin_reason = reason
        self.rejoin_needed = True

    def reset(self, reason: str, *, forget_member_id: bool) -> None:
        """Forget the generation, and join again. A member id that may be valid is kept, to save the group a wait."""
        if not self.has_ended:
            self.move(MemberState.UNJOINED)
        self.generation = NO_GENERATION if forget_member_id else Generation(member_id=self.generation.member_id)
        self.request_rejoin(reason)
        self.needs_prepare = True

    def forget(self, reason: str) -> None:
        """Be a stranger to the group; if the application polls on, the member joins as a new one."""
        if not self.has_ended:
            self.move(MemberState.UNJOINED)
        self.generation = NO_GENERATION
        self.rejoin_reason = reason
        self.rejoin_needed = True
        self.needs_prepare = True

    def fail(self, api: str, error_code: ErrorCode, message: str) -> None:
        """Give up, and say why. Only the first failure counts."""
        if not self.has_ended:
            self.move(MemberState.FAILED)
            self._outputs.append(Failed(api, error_code, message))


class IllegalCallError(GroupcoordError):
    """A member was told to do what it can't in its present condition, such as to subscribe after it was closed."""
