"""What a client is told when a write that its answer depends on has failed."""

from __future__ import annotations

from groupcoord.errors import ErrorCode

_TRANSLATION = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def for_client(error_code: ErrorCode) -> ErrorCode:
    """Return the error that clients of Kafka 4 see for a failed append.

    Retriable trouble of the log becomes retriable trouble of the coordinator (KAFKA-3590); what is not in the table
    stays as it is.
    """
    return _TRANSLATION.get(error_code, error_code)


_OF_THE_COORDINATOR = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


def for_transaction_coordinator(error_code: ErrorCode) -> ErrorCode:
    """Return the error that a transaction coordinator sees for a marker that was not written.

    It knows partitions and their leaders, not group coordinators; the log's own trouble is passed on as it is.
    """
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error_code in _OF_THE_COORDINATOR else error_code
