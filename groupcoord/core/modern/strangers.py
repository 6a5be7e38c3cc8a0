"""What the classic protocol's requests are told by a group that has no members of that protocol: nobody knows them."""

from __future__ import annotations

from groupcoord.core.context import Handler, HandlerContext
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


def handlers_of_strangers(context: HandlerContext) -> dict[type, Handler]:
    """Return who takes requests of members of the classic protocol, by request. JoinGroup is for each kind to judge."""

    def heartbeat(request: Heartbeat, token: Token, now_ms: int) -> None:
        context.effects.reply(token, HeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID))

    def sync(request: SyncGroup, token: Token, now_ms: int) -> None:
        context.effects.reply(token, SyncGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID))

    def leave(request: LeaveGroup, token: Token, now_ms: int) -> None:
        left = tuple(
            LeftMember(entry.member_id, entry.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID)
            for entry in request.members
        )
        context.effects.reply(token, LeaveGroupResponse(ErrorCode.NONE, left))

    return {Heartbeat: heartbeat, SyncGroup: sync, LeaveGroup: leave}
