"""Answers of a coordinator that does not serve a group: closed, loading, not the owner, or not allowed."""

from __future__ import annotations

from typing import assert_never

from groupcoord.config import Config
from groupcoord.core.context import GroupRequest
from groupcoord.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    Response,
    SyncGroup,
    SyncGroupResponse,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.core.offsets.commits import refused_topics
from groupcoord.errors import ErrorCode

_STATES_OF_A_PARTITION = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


def allows_session_timeout(config: Config, session_timeout_ms: int) -> bool:
    """Tell whether a join may bring this session time-out; both bounds are allowed."""
    return config.group_min_session_timeout_ms <= session_timeout_ms <= config.group_max_session_timeout_ms


def refuse(request: GroupRequest, error_code: ErrorCode, config: Config) -> Response:
    """Return the answer that carries ``error_code``.

    What is wrong with the request itself comes before the state of the log partition, though not before permissions
    and "closed". While a partition loads, heartbeats are answered NONE: the member would only start looking for
    another coordinator.
    """
    is_about_partition = error_code in _STATES_OF_A_PARTITION
    if is_about_partition and not request.group_id and not isinstance(request, OffsetCommit):
        error_code = ErrorCode.INVALID_GROUP_ID
    match request:
        case JoinGroup():
            if error_code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.INVALID_GROUP_ID):
                return JoinGroupResponse(error_code, request.member_id)
            if is_about_partition and not allows_session_timeout(config, request.session_timeout_ms):
                return JoinGroupResponse(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
            return JoinGroupResponse(error_code)
        case SyncGroup():
            return SyncGroupResponse(error_code)
        case Heartbeat():
            is_loading = error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(ErrorCode.NONE if is_loading else error_code)
        case LeaveGroup():
            return LeaveGroupResponse(error_code)
        case OffsetCommit():
            return OffsetCommitResponse(refused_topics(request.topics, error_code))
        case TxnOffsetCommit():
            return TxnOffsetCommitResponse(refused_topics(request.topics, error_code))
        case OffsetDelete():
            return OffsetDeleteResponse(error_code)
        case _:
            assert_never(request)
