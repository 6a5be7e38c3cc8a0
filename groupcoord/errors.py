"""Kafka's error codes, and the exceptions of this library and of log stores.

An error of a *client* is an :class:`ErrorCode` in a response, one of the *embedding program* or its log store an
exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum

from groupcoord.core.fast_construct import plain_members


@plain_members
class ErrorCode(IntEnum):
    """Kafka's error codes, by the numbers and names of Apache Kafka 4.4."""

    # Python hashes enumeration members by name; codes are looked up for every partition of a response.
    __hash__ = int.__hash__

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136


NO_ERROR = ErrorCode.NONE
"""The usual code, as a constant: Python 3.11 takes 70 ns to look up a member of an enumeration."""


class GroupcoordError(Exception):
    """Base of the exceptions of groupcoord, except those of log stores."""


class UnansweredError(GroupcoordError):
    """Kafka never answers this request, because a newer one of the same member replaces it or the member leaves."""


class ConfigError(GroupcoordError, ValueError):
    """A setting is unknown or its value is invalid."""


class IllegalTransitionError(GroupcoordError):
    """A group was moved between states without a transition in the table (a bug in the core)."""


class StoreContractError(GroupcoordError):
    """A log store broke its contract: an answer out of order, an unknown ticket, a decreasing offset."""


class UnknownNameError(GroupcoordError, ValueError, LookupError):
    """A name does not exist: of an API, error, field, topic, group, member, client or node.

    The message lists the existing names and the nearest one.
    """


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'X'?" for the known name nearest to ``name``; empty if none is near.

    A name with the same parts in another order or case is nearest: ``CommitOffset`` for ``OffsetCommit``.
    """
    from difflib import get_close_matches

    names = sorted(known)
    wanted = _name_parts(name)
    close = [other for other in names if _name_parts(other) == wanted] or get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _name_parts(name: str) -> list[str]:
    return sorted(part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name))


class InvariantError(GroupcoordError, AssertionError):
    """``check()`` found an inconsistent structure; the message names the rule and the place."""


# Errors of log stores; their contract is in :mod:`groupcoord.log_store`.


class LogStoreError(Exception):
    """An append or a read failed.

    ``error_code`` is Kafka's code for it; the coordinator translates it for clients. With ``outcome_unknown`` the
    records may still appear, so the log partition fails.
    """

    error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    outcome_unknown = False


class RecordTooLargeError(LogStoreError):
    """The records exceed the limit of the store; nothing was written. Clients get UNKNOWN_SERVER_ERROR."""

    error_code = ErrorCode.MESSAGE_TOO_LARGE


class NotEnoughReplicasError(LogStoreError):
    """Too few replicas to accept the write; nothing was written. Clients get COORDINATOR_NOT_AVAILABLE and retry."""

    error_code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotLeaderError(LogStoreError):
    """Another process owns the log partition; nothing was written. Clients get NOT_COORDINATOR and look it up again."""

    error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class OwnershipLostError(NotLeaderError):
    """Another process has taken over the whole log; nothing was written.

    Memory can't follow what the new owner writes, so everything that the coordinator served from this log has failed:
    clients get NOT_COORDINATOR. The error is also raised to the embedding program, which must end or stand by.
    """

    outcome_unknown = True  # so that the log partition fails


class StorageError(LogStoreError):
    """The disk failed or is full, and the partial write was undone. Clients get NOT_COORDINATOR."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR


class AppendOutcomeUnknownError(StorageError):
    """The store failed, and the write could neither be undone nor made durable: load the partition again."""

    outcome_unknown = True


class AppendTimedOutError(LogStoreError):
    """No answer in time: the records may still appear, so the log partition must be loaded again."""

    error_code = ErrorCode.REQUEST_TIMED_OUT
    outcome_unknown = True
