"""Error responses in place of others: for failed appends, and for log partitions not (or no longer) served."""

from __future__ import annotations

from groupcoord.config import Config
from groupcoord.core.groups.group import session_timeouts_ms
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
from groupcoord.core.messages.commits import PartitionResults, partition_results, refused_partitions
from groupcoord.core.messages.request import GroupRequest, failed
from groupcoord.core.messages.share_groups import DescribeOneShareGroupResponse
from groupcoord.core.messages.share_state import ReadStateResult, StateResult, StateSummary, state_message
from groupcoord.errors import ErrorCode

_TRANSLATION = {
    # Retriable errors of the log stay retriable for clients (KAFKA-3590).
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # Kafka 3 passed a timeout through to the sender of a commit.
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    # Commits of Kafka 3 failed with INVALID_COMMIT_OFFSET_SIZE here.
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def for_client(error_code: ErrorCode) -> ErrorCode:
    """Return the error that clients of Kafka 4 see for a failed append."""
    # NOT_ENOUGH_REPLICAS_AFTER_APPEND stays, too: Kafka 4 does not expect it here.
    return _TRANSLATION.get(error_code, error_code)


_OF_THE_GROUP = (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)
"""Results of a partition that the group decided, unlike errors of earlier checks."""

_OF_THE_COORDINATOR = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


def for_transaction_coordinator(error_code: ErrorCode) -> ErrorCode:
    """Return the error that a transaction coordinator sees for a marker that was not written."""
    # Transaction coordinators handle errors of partitions and leaders, so errors of the log stay.
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error_code in _OF_THE_COORDINATOR else error_code


def refused(held: Reply, append_error: ErrorCode) -> Reply:
    """Return the reply that takes the place of one that waited for an append."""
    token, response = held
    match response:
        case OffsetCommitResponse() | TxnOffsetCommitResponse():
            # No version has a top-level error, so each partition fails.
            topics = tuple(_refused_topic(topic, for_client(append_error)) for topic in response.topics)
            return Reply(token, type(response)(topics))
        case CompleteTransactionResponse():
            return Reply(token, CompleteTransactionResponse(for_transaction_coordinator(append_error)))
        case StateResult() | ReadStateResult() | StateSummary():
            error_code = for_client(append_error)
            return Reply(token, type(response)(response.partition, error_code, state_message(error_code)))
    # Kafka's error responses have neither member id nor epoch (KIP-848), and no topics. A new member id is not written.
    # Members that left are gone all the same; a restart would restore the last durable generation.
    return Reply(token, failed(response, for_client(append_error)))


def _refused_topic(topic: TopicResult, error_code: ErrorCode) -> TopicResult:
    # Errors of earlier checks stay.
    results = partition_results(topic.partitions)
    if results.error_codes is None:
        return topic._replace(partitions=refused_partitions(results.partition_indexes, error_code))
    error_codes = tuple([error_code if earlier in _OF_THE_GROUP else earlier for earlier in results.error_codes])
    return topic._replace(partitions=PartitionResults(results.partition_indexes, error_codes))


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
    if isinstance(request, JoinGroup) and request.session_timeout_ms not in session_timeouts_ms(config):
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
            topics = [
                topic._replace(partitions=refused_partitions(indexes, ErrorCode.NOT_COORDINATOR))
                for topic in response.topics
                for indexes in [partition_results(topic.partitions).partition_indexes]
            ]
            return Reply(token, type(response)(tuple(topics)))
        case DescribeOneShareGroupResponse():
            group = response.group._replace(topics=(), error_code=ErrorCode.NOT_COORDINATOR)
            return Reply(token, DescribeOneShareGroupResponse(group))
        case CompleteTransactionResponse():
            return Reply(token, CompleteTransactionResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    return Reply(token, failed(response, ErrorCode.NOT_COORDINATOR))
