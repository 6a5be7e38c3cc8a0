"""What requests are answered that the rules of consumer groups refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groupcoord.core.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    Response,
    SyncGroup,
    SyncGroupResponse,
)
from groupcoord.core.messages.request import GroupRequest
from groupcoord.core.modern.refusal import RefusedError


def refused(request: GroupRequest[Any], error: RefusedError) -> Response:
    """Return what a refused request is answered."""
    return REFUSALS[type(request)](error)


REFUSALS: dict[type, Callable[[RefusedError], Response]] = {
    ConsumerGroupHeartbeat: lambda error: ConsumerGroupHeartbeatResponse(error.error_code, error.message),
    JoinGroup: lambda error: JoinGroupResponse(error.error_code),
    SyncGroup: lambda error: SyncGroupResponse(error.error_code),
    Heartbeat: lambda error: HeartbeatResponse(error.error_code),
    LeaveGroup: lambda error: LeaveGroupResponse(error.error_code),
}
