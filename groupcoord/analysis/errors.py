"""Errors of an analysis: unusable input, a run that failed, a cluster that can't be read."""

from __future__ import annotations

from groupcoord.errors import ErrorCode, GroupcoordError


class PipelineError(GroupcoordError):
    """The analysis failed, with a message of one line for the user."""


class InputError(PipelineError, ValueError):
    """The input cannot be read: a missing or unreadable path, a path without logs, or a wrong option."""


class RunFailedError(PipelineError):
    """The run failed although its input and options were valid."""


def first_line(error: Exception) -> str:
    """Return the line of an exception with the reason: Java's innermost cause, else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Py4J's line before that of a Java exception only names the call.
    of_java = [line.partition(": ")[2] for line in lines if line.startswith((": ", "Caused by: "))]
    return (of_java[-1:] or lines or [type(error).__name__])[0]


class ClusterError(PipelineError):
    """The cluster does not respond, or not with the requested data."""


class TransientClusterError(ClusterError):
    """A temporary failure, such as a leader change or a broker restart."""


class AccessError(ClusterError, InputError):
    """The cluster rejects this user: wrong credentials, or a missing permission, which the message names."""


class LogCutError(ClusterError):
    """A log ends before what was read of it, or a new topic has its name."""


TRANSIENT = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # of an existing topic: this broker does not know it yet
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


def check_error(number: int, topic: str, permission: str) -> None:
    if number == ErrorCode.NONE:
        return
    if number == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise AccessError(f"topic {topic}: this user lacks the permission {permission}")
    raise (TransientClusterError if number in TRANSIENT else ClusterError)(f"topic {topic}: {error_name(number)}")


def error_name(number: int) -> str:
    return ErrorCode(number).name if number in set(ErrorCode) else f"error {number}"
