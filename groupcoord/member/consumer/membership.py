"""A member of a consumer group: its id, its epoch, and as whom it commits."""

from __future__ import annotations

from groupcoord.core.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    UNKNOWN_GENERATION_ID,
    UNKNOWN_MEMBER_ID,
)
from groupcoord.errors import ErrorCode
from groupcoord.member.closing import CloseOperation
from groupcoord.member.membership import CONSUMER_TRANSITIONS, CommitRefusal, MemberIdentity, Membership, MemberState
from groupcoord.member.outputs import CommitFailure, Output
from groupcoord.member.reactions import CONSUMER, Reaction

_IN_GROUP = (MemberState.JOINING, MemberState.RECONCILING, MemberState.ACKNOWLEDGING, MemberState.STABLE)


class ConsumerMembership(Membership):
    """Keeps the state and the epoch.

    Attributes:
        member_id: made by the member, for all its life (KIP-1082).
        epoch: what it sends in heartbeats: 0 joins, -1 and -2 leave.
    """

    __slots__ = ("_group_instance_id", "_was_member", "epoch", "member_id")

    def __init__(self, member_id: str, group_instance_id: str | None, outputs: list[Output]) -> None:
        super().__init__(MemberState.UNSUBSCRIBED, CONSUMER_TRANSITIONS, CONSUMER, outputs)
        self._group_instance_id = group_instance_id
        self._was_member = False
        self.member_id = member_id
        self.epoch = JOIN_GROUP_MEMBER_EPOCH

    @property
    def is_in_group(self) -> bool:
        """Whether it is a member or about to be one, and does not leave."""
        return self.state in _IN_GROUP

    @property
    def has_epoch(self) -> bool:
        """Whether the coordinator counts the member in, as far as it knows."""
        return self.epoch > JOIN_GROUP_MEMBER_EPOCH

    def take_epoch(self, epoch: int) -> None:
        """The coordinator counts the member in, with this epoch."""
        self.epoch = epoch
        self._was_member = self._was_member or self.has_epoch

    def forget_epoch(self) -> None:
        """The next heartbeat joins."""
        self.epoch = JOIN_GROUP_MEMBER_EPOCH

    def begin_leaving(self, operation: CloseOperation) -> None:
        """Take the epoch that says how the member leaves: a static one for a while or for good (KIP-1092)."""
        if self.state is not MemberState.PREPARE_LEAVING:
            self.move(MemberState.PREPARE_LEAVING)
        self.move(MemberState.LEAVING)
        is_for_good = self._group_instance_id is None or operation is CloseOperation.LEAVE_GROUP
        self.epoch = LEAVE_GROUP_MEMBER_EPOCH if is_for_good else LEAVE_GROUP_STATIC_MEMBER_EPOCH

    # ------------------------------------------------------------ commits

    def commit_identity(self, *, is_automatic: bool) -> MemberIdentity | CommitRefusal:
        """See :class:`Membership`: with the epoch of now. Whether that is good is for the coordinator to say."""
        epoch = self.epoch if self.has_epoch else UNKNOWN_GENERATION_ID
        member_id = self.member_id if self._was_member else UNKNOWN_MEMBER_ID
        return MemberIdentity(epoch, member_id, self._group_instance_id)

    def fetch_identity(self) -> MemberIdentity | None:
        """See :class:`Membership`: a member of the group is answered only at its epoch of now (KIP-848)."""
        return MemberIdentity(self.epoch, self.member_id) if self.has_epoch else None

    def has_new_epoch(self) -> bool:
        """See :class:`Membership`: as long as the member is in the group."""
        return self.has_epoch

    def commit_refused(
        self, reaction: Reaction, identity: MemberIdentity, error_code: ErrorCode, message: str, *, is_sync: bool
    ) -> CommitFailure:
        """See :class:`Membership`: what became of the member is told by heartbeats alone."""
        if reaction is Reaction.TAKE_EPOCH and not is_sync:
            return CommitFailure.ERROR
        return CommitFailure.COMMIT_FAILED
