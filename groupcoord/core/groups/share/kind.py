"""Share groups (KIP-932) as a kind of group: who takes what for them, and how a load makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from groupcoord.core.administration import Deletion
from groupcoord.core.groups.base.kind import ModernGroups
from groupcoord.core.groups.base.member_timers import MemberTimers
from groupcoord.core.groups.base.strangers import Strangers
from groupcoord.core.groups.classic.membership import allows_session_timeout
from groupcoord.core.groups.group import Group
from groupcoord.core.groups.pending_groups import Creation
from groupcoord.core.groups.share.descriptions import OffsetsToDescribe, ShareOffsets
from groupcoord.core.groups.share.environment import ShareGroupEnvironment
from groupcoord.core.groups.share.group import ShareGroup
from groupcoord.core.groups.share.membership import ShareMembership, WhenTopicForgotten
from groupcoord.core.groups.share.state import ShareMember
from groupcoord.core.handler_context import Handler, HandlerContext
from groupcoord.core.host_queries import ShareCoordinatorAnswered
from groupcoord.core.messages import (
    AlterShareGroupOffsets,
    DeleteShareGroupOffsets,
    DescribedShareGroup,
    JoinGroup,
    JoinGroupResponse,
    ShareGroupDescribe,
)
from groupcoord.core.messages.share_groups import DescribeOneShareGroup
from groupcoord.core.replies import Reply, Token
from groupcoord.errors import ErrorCode


class ShareGroups(ModernGroups[ShareGroup]):
    """Handlers of share groups; see :class:`~groupcoord.core.groups.group_types.GroupKind`.

    Attributes:
        offsets: tells where groups stand.
    """

    DESCRIBE = ShareGroupDescribe
    DESCRIBED = DescribedShareGroup

    def __init__(self, context: HandlerContext, creation: Creation, environment: ShareGroupEnvironment) -> None:
        self._timers = MemberTimers[ShareGroup, ShareMember](context.timers, environment)
        self.offsets = ShareOffsets(context, environment)
        self._membership = membership = ShareMembership(context, creation, environment, self._timers)
        super().__init__(context, environment, membership)
        self.places = ((self.offsets, ("waiting",)),)
        self.outcomes[WhenTopicForgotten] = membership.outcome_for_each()
        self.handlers |= {
            AlterShareGroupOffsets: membership.alter_offsets,
            DeleteShareGroupOffsets: membership.delete_offsets,
            DescribeOneShareGroup: self.offsets.describe,
        }
        self.guest_handlers: dict[type, Handler] = {
            JoinGroup: self._refuse_join,
            **Strangers(context).handlers,
        }
        self.answers: dict[type, Callable[[Any, int], None]] = {
            ShareCoordinatorAnswered: self._share_coordinator_answered
        }

    def _share_coordinator_answered(self, answer: ShareCoordinatorAnswered, now_ms: int) -> None:
        if isinstance(answer.question.purpose, OffsetsToDescribe):
            self.offsets.answered(answer, now_ms)
        else:
            self._membership.share_coordinator_answered(answer, now_ms)

    def revive(self, group: ShareGroup, now_ms: int) -> None:
        """Start every member's session. What was asked of the share coordinator counts as asked now."""
        group.state_partitions_ms = now_ms
        for member in group.state.members.values():
            self._timers.start_session(group, member, now_ms)

    def topic_deleted(self, topic_id: UUID, now_ms: int) -> None:
        """A topic is gone from the cluster: groups forget that they have states of it."""
        self._membership.topic_deleted(topic_id, now_ms)

    def forget_elsewhere(self, group: Group, deletion: Deletion, now_ms: int) -> bool:
        """Begin to delete what the share coordinator has of a group; return False if that is nothing."""
        return isinstance(group, ShareGroup) and self._membership.forget_elsewhere(group, deletion, now_ms)

    def parked_tokens(self) -> list[Token]:
        """Return the tokens of requests that wait for others, and not in a group."""
        return [purpose.token for purpose in self.offsets.waiting]

    def refuse_waiting(self, error_code: ErrorCode) -> list[Reply]:
        """Return the refusals of these requests, which are not answered any more."""
        return self.offsets.refuse(error_code)

    # ------------------------------------------------------------ requests of the classic protocol

    def _refuse_join(self, request: JoinGroup, token: Token, now_ms: int) -> None:
        response = JoinGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not allows_session_timeout(self._context.config, request.session_timeout_ms):
            response = JoinGroupResponse(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        self._context.effects.reply(token, response)
