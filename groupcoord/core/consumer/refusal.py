"""How the rules of consumer groups say no."""

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
from groupcoord.errors import ErrorCode


class RefusedError(Exception):
    """A request can't be granted. Nothing of it has any effect.

    Args:
        error_code: for the client.
        message: for whoever reads the client's log; None where Kafka sends none.
    """

    def __init__(self, error_code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or error_code.name)
        self.error_code = error_code
        self.message = message


def refused(request: GroupRequest[Any], error: RefusedError) -> Response:
    """Return what a refused request is answered."""
    return _RESPONSES[type(request)](error)


_RESPONSES: dict[type, Callable[[RefusedError], Response]] = {
    ConsumerGroupHeartbeat: lambda error: ConsumerGroupHeartbeatResponse(error.error_code, error.message),
    JoinGroup: lambda error: JoinGroupResponse(error.error_code),
    SyncGroup: lambda error: SyncGroupResponse(error.error_code),
    Heartbeat: lambda error: HeartbeatResponse(error.error_code),
    LeaveGroup: lambda error: LeaveGroupResponse(error.error_code),
}
