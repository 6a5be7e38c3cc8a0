"""Heartbeats and membership of the classic protocol: member id, generation, and deadlines.

The Java consumer has a thread for them. It sends heartbeats independently of polls, looks for a lost coordinator, and
leaves the group when the application has not polled for too long.
"""

from __future__ import annotations

from typing import NamedTuple

from attrs import define, field

from groupcoord.core.messages import UNKNOWN_GENERATION_ID, UNKNOWN_MEMBER_ID, Heartbeat, HeartbeatResponse, Response
from groupcoord.errors import ErrorCode
from groupcoord.member.coordinator_link import NEVER_MS
from groupcoord.member.error_handling import CLASSIC, Reaction, reaction_to
from groupcoord.member.membership import TRANSITIONS, CommitRefusal, MemberIdentity, Membership, MemberState
from groupcoord.member.outputs import CommitFailure, RejoinRequested, Send
from groupcoord.member.parts import Parts


class Generation(NamedTuple):
    """Member id, generation and protocol of a member, which change together."""

    generation_id: int = UNKNOWN_GENERATION_ID
    member_id: str = UNKNOWN_MEMBER_ID
    protocol_name: str | None = None


NO_GENERATION = Generation()

_JOINED = (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)
_REBALANCING = (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)


@define(eq=False, repr=False)
class MembershipManager(Membership):
    """State and generation of a member.

    Attributes:
        rejoin_reason: the reason in the next JoinGroup request.
        needs_prepare: whether owned partitions must be committed and revoked before the next join.
    """

    transitions = TRANSITIONS
    reactions = CLASSIC
    state: MemberState = MemberState.UNJOINED
    generation: Generation = NO_GENERATION
    rejoin_needed: bool = True
    rejoin_reason: str = ""
    needs_prepare: bool = True

    @property
    def member_id(self) -> str:
        return self.generation.member_id

    @property
    def generation_id(self) -> int:
        return self.generation.generation_id

    @property
    def is_joined(self) -> bool:
        """True if the coordinator knows the member, as far as the member knows."""
        return self.state in _JOINED

    @property
    def is_rebalancing(self) -> bool:
        return self.state in _REBALANCING

    @property
    def is_reset(self) -> bool:
        """True if the generation was reset. The member id may be kept."""
        return self.generation_id == UNKNOWN_GENERATION_ID and self.generation.protocol_name is None

    @property
    def is_stranger(self) -> bool:
        """True if owned partitions are lost, because there is no generation or no member id."""
        return self.generation_id == UNKNOWN_GENERATION_ID or not self.generation.member_id

    def is_at(self, state: MemberState, generation_id: int) -> bool:
        return self.state is state and self.generation_id == generation_id

    def request_rejoin(self, reason: str) -> None:
        """Join again with the next poll (KIP-568)."""
        if not self.rejoin_needed or self.rejoin_reason != reason:
            self._outputs.append(RejoinRequested(reason))
        self.rejoin_reason = reason
        self.rejoin_needed = True

    def reset(self, reason: str, *, forget_member_id: bool, has_left: bool = False) -> None:
        """Reset the generation and rejoin. A member id that may be valid is kept. One that has left reports nothing."""
        if not self.has_ended:
            self.move(MemberState.UNJOINED)
        self.generation = NO_GENERATION if forget_member_id else Generation(member_id=self.member_id)
        if has_left:
            self.rejoin_reason, self.rejoin_needed = reason, True
        else:
            self.request_rejoin(reason)
        self.needs_prepare = True

    # ------------------------------------------------------------ commits

    def commit_identity(self, *, is_auto_assigned: bool) -> MemberIdentity | CommitRefusal:
        """Return the identity for a commit now."""
        if not is_auto_assigned:
            return MemberIdentity()
        if self.state is MemberState.STABLE:
            return MemberIdentity(self.generation.generation_id, self.generation.member_id, self._group_instance_id)
        if self.is_rebalancing:
            return CommitRefusal(CommitFailure.REBALANCE_IN_PROGRESS, "the member is in a rebalance")
        return CommitRefusal(CommitFailure.COMMIT_FAILED, "the member is not in the group")

    def epoch_identity(self) -> MemberIdentity | None:
        """Return None: there is no member epoch."""
        return None

    def commit_refused(
        self, reaction: Reaction, identity: MemberIdentity, error_code: ErrorCode, message: str, *, is_sync: bool
    ) -> CommitFailure:
        """Apply the error of a commit to the membership, and return how the commit has failed.

        An error for an earlier generation never fails the member, and does not reset a member that is joining.
        """
        is_current = (identity.generation_id, identity.member_id) == self.generation[:2]
        is_preparing = self.state is MemberState.PREPARING_REBALANCE
        if reaction is Reaction.REJOIN:
            self.request_rejoin("offset commit failed since group is already rebalancing")
            return CommitFailure.REBALANCE_IN_PROGRESS
        if not is_current and is_preparing:
            return CommitFailure.REBALANCE_IN_PROGRESS
        if reaction is not Reaction.FAIL:
            reason = f"encountered {error_code.name} from OFFSET_COMMIT response"
            self.reset(reason, forget_member_id=reaction is Reaction.RESET_MEMBER_ID)
        elif is_current:
            self.fail("OffsetCommit", error_code, message)
            return CommitFailure.ERROR
        return CommitFailure.COMMIT_FAILED


@define(eq=False, repr=False)
class Heartbeats:
    """Heartbeats of a joined member.

    Attributes:
        next_ms: when the next heartbeat is due.
        session_deadline_ms: without a response to a heartbeat until then, the coordinator counts as lost.
        poll_deadline_ms: without a poll until then, the member leaves.
        is_enabled: True from the JoinGroup response until the member is not joined any more.
    """

    _parts: Parts
    _membership: MembershipManager
    _attempts: int = field(default=0, init=False)
    _request: Heartbeat | None = field(default=None, init=False)
    _request_generation: Generation | None = field(default=None, init=False)
    is_enabled: bool = field(default=False, init=False)
    next_ms: int = field(default=0, init=False)
    session_deadline_ms: int = field(default=0, init=False)
    poll_deadline_ms: int = field(default=0, init=False)

    def enable(self, now_ms: int) -> None:
        """Start heartbeats and restart all deadlines after a join."""
        self.is_enabled = True
        self.next_ms = now_ms + self._parts.config.heartbeat_interval_ms
        self.restart_session(now_ms)
        # A poll that has not ended has the later deadline.
        self.poll_deadline_ms = max(self.poll_deadline_ms, now_ms + self._parts.config.max_poll_interval_ms)

    def restart_session(self, now_ms: int) -> None:
        self.session_deadline_ms = now_ms + self._parts.config.session_timeout_ms

    def polled(self, until_ms: int) -> None:
        self.poll_deadline_ms = until_ms + self._parts.config.max_poll_interval_ms

    def tick(self, now_ms: int) -> bool:
        """Send a due heartbeat; return whether the poll deadline has passed."""
        if not self.is_enabled:
            return False
        if not self._membership.is_joined:
            self.is_enabled = False
            return False
        if self._parts.link.node is not None and now_ms >= self.session_deadline_ms:
            self._parts.link.lose("session timed out without receiving a heartbeat response")
        if self._parts.link.node is None:
            self._parts.link.find(now_ms)
            return False
        return not self.beat_on(now_ms)

    def _make_request(self) -> Heartbeat:
        generation = self._membership.generation
        if self._request is None or self._request_generation is not generation:
            config = self._parts.config
            self._request = Heartbeat(
                config.group_id or "", generation.generation_id, generation.member_id, config.group_instance_id
            )
            self._request_generation = generation
        return self._request

    def receive(self, send: Send, response: Response, now_ms: int) -> None:
        if not isinstance(response, HeartbeatResponse):
            self._membership.fail(
                "Heartbeat", ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(response).__name__} is no answer to it"
            )
        elif response.error_code is ErrorCode.NONE:
            self.answered(now_ms)
        else:
            self._react(send, response.error_code, now_ms)

    def _react(self, send: Send, error_code: ErrorCode, now_ms: int) -> None:
        membership = self._membership
        reaction = reaction_to(Heartbeat, error_code)
        reason = f"encountered {error_code.name} from HEARTBEAT response"
        if reaction is Reaction.REJOIN:
            # The coordinator keeps the member during the rebalance.
            if membership.state is MemberState.STABLE:
                membership.request_rejoin("group is already rebalancing")
            self._attempts = 0
            self.restart_session(now_ms)
        elif reaction is Reaction.FIND_COORDINATOR:
            self._parts.link.lose(f"error response {error_code.name}")
            self.failed(now_ms)
        elif reaction is Reaction.RETRY:
            self.failed(now_ms)
        elif send.purpose != membership.generation:
            self.restart_session(now_ms)  # a response for an earlier generation does not concern this one
        elif reaction is Reaction.FAIL:
            membership.reset(reason, forget_member_id=True)
            membership.fail(
                "Heartbeat", error_code, f"the instance id {self._parts.config.group_instance_id!r} is fenced"
            )
        else:
            membership.reset(reason, forget_member_id=reaction is Reaction.RESET_MEMBER_ID)
            self.failed(now_ms)

    def failed(self, now_ms: int) -> None:
        self.next_ms = now_ms + self._parts.backoff.wait_ms(self._attempts)
        self._attempts += 1

    def beat_on(self, now_ms: int) -> bool:
        """Send a due heartbeat, or return False after the session or poll deadline. This is the most frequent path."""
        if now_ms >= self.session_deadline_ms or now_ms >= self.poll_deadline_ms:
            return False
        if now_ms >= self.next_ms:
            self.next_ms = now_ms + self._parts.config.heartbeat_interval_ms
            self._parts.link.send(self._make_request(), now_ms, self._request_generation)
        return True

    def answered(self, now_ms: int) -> None:
        self._attempts = 0
        self.session_deadline_ms = now_ms + self._parts.config.session_timeout_ms

    def deadline_ms(self) -> int:
        """Return when :meth:`tick` is due, except for the lookup of the coordinator."""
        if not self.is_enabled or self._parts.link.node is None or not self._membership.is_joined:
            return NEVER_MS
        return min(self.next_ms, self.session_deadline_ms, self.poll_deadline_ms)
