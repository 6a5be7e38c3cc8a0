"""Membership in a classic group: member id, generation, and whether the member must rejoin."""

from __future__ import annotations

from typing import NamedTuple

from groupcoord.core.messages import UNKNOWN_GENERATION_ID, UNKNOWN_MEMBER_ID
from groupcoord.errors import ErrorCode
from groupcoord.member.membership import TRANSITIONS, CommitRefusal, MemberIdentity, Membership, MemberState
from groupcoord.member.outputs import CommitFailure, Output, RejoinRequested
from groupcoord.member.reactions import CLASSIC, Reaction


class Generation(NamedTuple):
    """Member id, generation and protocol of a member, which change together."""

    generation_id: int = UNKNOWN_GENERATION_ID
    member_id: str = UNKNOWN_MEMBER_ID
    protocol_name: str | None = None


NO_GENERATION = Generation()

_JOINED = (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)
_REBALANCING = (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)


class MembershipManager(Membership):
    """State and generation of a member, with the transitions that several parts need.

    Attributes:
        generation: the current generation.
        rejoin_needed: whether the next poll joins.
        rejoin_reason: the reason, which the JoinGroup request holds.
        needs_prepare: whether owned partitions must be committed and revoked before the next join.
    """

    __slots__ = ("_group_instance_id", "generation", "needs_prepare", "rejoin_needed", "rejoin_reason")

    def __init__(self, group_instance_id: str | None, outputs: list[Output]) -> None:
        super().__init__(MemberState.UNJOINED, TRANSITIONS, CLASSIC, outputs)
        self._group_instance_id = group_instance_id
        self.generation = NO_GENERATION
        self.rejoin_needed = True
        self.rejoin_reason = ""
        self.needs_prepare = True

    @property
    def is_joined(self) -> bool:
        """Whether the coordinator knows the member, as far as the member knows, so that it sends heartbeats."""
        return self.state in _JOINED

    @property
    def is_rebalancing(self) -> bool:
        """Whether a JoinGroup or SyncGroup is in flight."""
        return self.state in _REBALANCING

    @property
    def is_reset(self) -> bool:
        """Whether the generation was reset. The member id may be kept."""
        return self.generation.generation_id == UNKNOWN_GENERATION_ID and self.generation.protocol_name is None

    @property
    def is_stranger(self) -> bool:
        """Whether owned partitions are lost, because there is no generation or no member id."""
        return self.generation.generation_id == UNKNOWN_GENERATION_ID or not self.generation.member_id

    def is_at(self, state: MemberState, generation_id: int) -> bool:
        """Return whether the member is in this state of this generation."""
        return self.state is state and self.generation.generation_id == generation_id

    def request_rejoin(self, reason: str) -> None:
        """Join again with the next poll."""
        if not self.rejoin_needed or self.rejoin_reason != reason:
            self._outputs.append(RejoinRequested(reason))
        self.rejoin_reason = reason
        self.rejoin_needed = True

    def reset(self, reason: str, *, forget_member_id: bool) -> None:
        """Reset the generation and rejoin. A member id that may be valid is kept, which saves the group a wait."""
        if not self.has_ended:
            self.move(MemberState.UNJOINED)
        self.generation = NO_GENERATION if forget_member_id else Generation(member_id=self.generation.member_id)
        self.request_rejoin(reason)
        self.needs_prepare = True

    def forget(self, reason: str) -> None:
        """Reset generation and member id; if the application continues to poll, the member joins as a new one."""
        if not self.has_ended:
            self.move(MemberState.UNJOINED)
        self.generation = NO_GENERATION
        self.rejoin_reason = reason
        self.rejoin_needed = True
        self.needs_prepare = True

    # ------------------------------------------------------------ commits

    def commit_identity(self, *, is_automatic: bool) -> MemberIdentity | CommitRefusal:
        """Return the identity for commits, which exists only in the group if the group assigns the partitions."""
        if not is_automatic:
            return MemberIdentity()
        if self.state is MemberState.STABLE:
            return MemberIdentity(self.generation.generation_id, self.generation.member_id, self._group_instance_id)
        if self.is_rebalancing:
            return CommitRefusal(CommitFailure.REBALANCE_IN_PROGRESS, "the member is in a rebalance")
        return CommitRefusal(CommitFailure.COMMIT_FAILED, "the member is not in the group")

    def fetch_identity(self) -> MemberIdentity | None:
        """Return None: OffsetFetch needs no member."""
        return None

    def has_new_epoch(self) -> bool:
        """Return False: there are no epochs."""
        return False

    def commit_refused(
        self, reaction: Reaction, identity: MemberIdentity, error_code: ErrorCode, message: str, *, is_sync: bool
    ) -> CommitFailure:
        """Apply the error of a commit. An error for an earlier generation does not affect this one."""
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
