"""Error responses of a coordinator that is closed, loading, or not (or no longer) the owner of a log partition."""

from __future__ import annotations

from groupcoord.config import Config
from groupcoord.core.groups.group import allows_session_timeout
from groupcoord.core.messages import (
    NO_NODE,
    CompleteTransactionResponse,
    FindCoordinatorResponse,
    FoundCoordinator,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    OffsetCommit,
    OffsetCommitResponse,
    Reply,
    Response,
    TopicResult,
    TxnOffsetCommitResponse,
)
from groupcoord.core.messages.commits import partition_results, refused_partitions
from groupcoord.core.messages.request import GroupRequest, failed
from groupcoord.core.messages.share_groups import DescribeOneShareGroupResponse
from groupcoord.errors import ErrorCode

_STATES_OF_A_PARTITION = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
_WITH_MEMBER_ID = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.INVALID_SESSION_TIMEOUT,
)
"""Errors with which a JoinGroup response holds the member id of the request, as in Kafka."""


def unserved(request: GroupRequest, error_code: ErrorCode, config: Config) -> Response:
    """Return the response to a request that fails with the error of its log partition, or with its own error."""
    error_code = _unserved_error(request, error_code, config)
    if isinstance(request, JoinGroup) and error_code in _WITH_MEMBER_ID:
        return JoinGroupResponse(error_code, request.member_id)
    if isinstance(request, Heartbeat) and error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # Kafka's GroupCoordinatorService: an error would only make the member look for another coordinator.
        return HeartbeatResponse(ErrorCode.NONE)
    response: Response = request.refused(error_code)
    return response


def _unserved_error(request: GroupRequest, error_code: ErrorCode, config: Config) -> ErrorCode:
    # An invalid request takes precedence over the state of a log partition, but not over a closed coordinator.
    if error_code not in _STATES_OF_A_PARTITION:
        return error_code
    if not request.group_id and not isinstance(request, OffsetCommit):  # Kafka allows commits of the empty group id
        return ErrorCode.INVALID_GROUP_ID
    # Kafka checks the group id before the session timeout.
    if isinstance(request, JoinGroup) and not allows_session_timeout(config, request.session_timeout_ms):
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return error_code


def disowned(reply: Reply) -> Reply:
    """Return the error response of a coordinator that may have lost its log, so that the client
    looks for another one.
    """
    token, response = reply
    # The request may have been executed, as after a broken connection.
    match response:
        # Kafka never answers it, so there is nothing to replace.
        case None:
            return reply
        case FindCoordinatorResponse():
            # Without the lease the owner is unknown, so the client tries again.
            unknown = ErrorCode.COORDINATOR_NOT_AVAILABLE
            found = [FoundCoordinator(each.key, NO_NODE, unknown) for each in response.coordinators]
            return Reply(token, FindCoordinatorResponse(tuple(found)))
        case OffsetCommitResponse() | TxnOffsetCommitResponse():
            # Errors of partitions are replaced, too: another coordinator may return none.
            return Reply(token, type(response)(tuple(_disowned_topic(topic) for topic in response.topics)))
        case DescribeOneShareGroupResponse():
            group = response.group._replace(topics=(), error_code=ErrorCode.NOT_COORDINATOR)
            return Reply(token, DescribeOneShareGroupResponse(group))
        case CompleteTransactionResponse():
            return Reply(token, CompleteTransactionResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    return Reply(token, failed(response, ErrorCode.NOT_COORDINATOR))


def _disowned_topic(topic: TopicResult) -> TopicResult:
    indexes = partition_results(topic.partitions).partition_indexes
    return topic._replace(partitions=refused_partitions(indexes, ErrorCode.NOT_COORDINATOR))
