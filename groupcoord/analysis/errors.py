"""Errors of an analysis: unusable input, a run that failed, a cluster that can't be read."""

from __future__ import annotations

from groupcoord.errors import ErrorCode, GroupcoordError


class PipelineError(GroupcoordError):
    """The pipeline can't do what it is asked for. The message is one line for the user."""


class InputError(PipelineError, ValueError):
    """The input can't be read as logs: a path does not exist, may not be read or holds none, or an option is wrong."""


class RunFailedError(PipelineError):
    """What was asked for was right, and could not be done all the same. The message is one line for the user."""


def first_line(error: Exception) -> str:
    """Return the line of an exception that says what is wrong: of Java's the innermost cause, else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Py4J's own line before that of a Java exception says only which call it came from.
    of_java = [line.partition(": ")[2] for line in lines if line.startswith((": ", "Caused by: "))]
    return (of_java[-1:] or lines or [type(error).__name__])[0]


class ClusterError(PipelineError):
    """A cluster doesn't answer, or not what it is asked for. The message is one line for the user."""


class TransientClusterError(ClusterError):
    """Something that may be over soon: a leader moves, a broker starts again."""


class AccessError(ClusterError, InputError):
    """The cluster refuses this user: who logs in wrongly, or lacks a permission, which the message names."""


class LogCutError(ClusterError):
    """A log ends before what was read of it, or another topic has its name: what was read is no part of it any more."""


TRANSIENT = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # of a topic that is known: this broker hasn't heard of it as yet
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
"""Errors that end when leaders and what brokers know of them have settled."""


def check_error(number: int, topic: str, permission: str) -> None:
    """Raise what an error code of an answer means."""
    if number == ErrorCode.NONE:
        return
    if number == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise AccessError(f"topic {topic}: this user lacks the permission {permission}")
    raise (TransientClusterError if number in TRANSIENT else ClusterError)(f"topic {topic}: {error_name(number)}")


def error_name(number: int) -> str:
    """Return what Kafka calls an error."""
    return ErrorCode(number).name if number in set(ErrorCode) else f"error {number}"
