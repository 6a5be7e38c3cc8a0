"""What the classic protocol's requests are told by a group that has no members of that protocol: nobody knows them."""

from __future__ import annotations

from groupcoord.core.handler_context import Handler, HandlerContext
from groupcoord.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeftMember,
    SyncGroup,
    SyncGroupResponse,
)
from groupcoord.core.replies import Token
from groupcoord.errors import ErrorCode


class Strangers:
    """Tells members of the classic protocol that nobody knows them. JoinGroup is for each kind to judge.

    Attributes:
        handlers: by request, who takes it.
    """

    def __init__(self, context: HandlerContext) -> None:
        self._effects = context.effects
        self.handlers: dict[type, Handler] = {
            Heartbeat: self._heartbeat,
            SyncGroup: self._sync,
            LeaveGroup: self._leave,
        }

    def _heartbeat(self, request: Heartbeat, token: Token, now_ms: int) -> None:
        self._effects.reply(token, HeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID))

    def _sync(self, request: SyncGroup, token: Token, now_ms: int) -> None:
        self._effects.reply(token, SyncGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID))

    def _leave(self, request: LeaveGroup, token: Token, now_ms: int) -> None:
        left = tuple(
            LeftMember(entry.member_id, entry.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID)
            for entry in request.members
        )
        self._effects.reply(token, LeaveGroupResponse(ErrorCode.NONE, left))
