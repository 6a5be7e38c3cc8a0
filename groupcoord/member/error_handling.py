"""Reaction of a member to each error by API and protocol, as in the Java consumer of Kafka 4.4.

Source: the response handlers of ``AbstractCoordinator`` and ``ConsumerCoordinator`` (classic), and of
``AbstractHeartbeatRequestManager``, ``ConsumerHeartbeatRequestManager``, ``CommitRequestManager`` and
``CoordinatorRequestManager`` (``group.protocol=consumer``).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from groupcoord.core.messages import (
    ConsumerGroupHeartbeat,
    FindCoordinator,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
from groupcoord.errors import ErrorCode


class Reaction(Enum):
    """Reaction to an error, in addition to the result of the commit or fetch."""

    RETRY = "repeat after a pause"
    FIND_COORDINATOR = "find the coordinator again, then repeat"
    REJOIN = "join again"
    RESET_GENERATION = "join again with the same member id; what it owns is lost"
    RESET_MEMBER_ID = "join again as a new member; what it owns is lost"
    TAKE_MEMBER_ID = "join again with the member id that came with the error (KIP-394)"
    TAKE_EPOCH = "repeat with the member's new epoch; without one, report the error"
    OUT_OF_GROUP = "report that the member is out of its group"
    REPORT = "report the error; the member continues"
    IGNORE = "nothing"
    FAIL = "fail"


RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
"""Errors that are a ``RetriableException`` in the Java client."""

_COORDINATOR_LOST = dict.fromkeys(
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR), Reaction.FIND_COORDINATOR
)
_OUT_OF_GENERATION = {
    ErrorCode.ILLEGAL_GENERATION: Reaction.RESET_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RESET_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
}

REACTIONS: dict[type, dict[ErrorCode, Reaction]] = {
    FindCoordinator: dict.fromkeys(sorted(RETRIABLE), Reaction.RETRY),
    JoinGroup: {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        **_COORDINATOR_LOST,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RESET_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
        ErrorCode.MEMBER_ID_REQUIRED: Reaction.TAKE_MEMBER_ID,
    },
    SyncGroup: {
        **_COORDINATOR_LOST,
        **_OUT_OF_GENERATION,
    },
    Heartbeat: {
        **_COORDINATOR_LOST,
        **_OUT_OF_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID: Reaction.FAIL,
    },
    OffsetCommit: {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.RETRY,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        ErrorCode.REQUEST_TIMED_OUT: Reaction.FIND_COORDINATOR,
        **_COORDINATOR_LOST,
        **_OUT_OF_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID: Reaction.FAIL,
    },
    OffsetFetch: {
        **dict.fromkeys(sorted(RETRIABLE), Reaction.RETRY),
        **_COORDINATOR_LOST,
    },
    LeaveGroup: {},
}
"""Classic protocol: reactions by API and error."""

OTHERWISE: dict[type, Reaction] = {
    FindCoordinator: Reaction.FAIL,
    JoinGroup: Reaction.FAIL,
    SyncGroup: Reaction.FAIL,
    Heartbeat: Reaction.RETRY,
    OffsetCommit: Reaction.REPORT,
    OffsetFetch: Reaction.REPORT,
    LeaveGroup: Reaction.IGNORE,
}
"""Classic protocol: reactions to other errors. A heartbeat is retried until the session expires."""


CONSUMER_REACTIONS: dict[type, dict[ErrorCode, Reaction]] = {
    FindCoordinator: REACTIONS[FindCoordinator],
    ConsumerGroupHeartbeat: {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        **_COORDINATOR_LOST,
        ErrorCode.FENCED_MEMBER_EPOCH: Reaction.RESET_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RESET_GENERATION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reaction.REPORT,
    },
    OffsetCommit: {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.RETRY,
        ErrorCode.UNKNOWN_TOPIC_ID: Reaction.RETRY,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        ErrorCode.REQUEST_TIMED_OUT: Reaction.FIND_COORDINATOR,
        **_COORDINATOR_LOST,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.OUT_OF_GROUP,
        ErrorCode.STALE_MEMBER_EPOCH: Reaction.TAKE_EPOCH,
    },
    OffsetFetch: {**REACTIONS[OffsetFetch], ErrorCode.STALE_MEMBER_EPOCH: Reaction.TAKE_EPOCH},
}
"""``group.protocol=consumer``: reactions by API and error."""

CONSUMER_OTHERWISE: dict[type, Reaction] = {
    FindCoordinator: Reaction.REPORT,
    ConsumerGroupHeartbeat: Reaction.FAIL,
    OffsetCommit: Reaction.REPORT,
    OffsetFetch: Reaction.REPORT,
}
"""``group.protocol=consumer``: reactions to other errors."""


class Reactions(NamedTuple):
    """Reactions by API and error, and by API for other errors."""

    by_error: Mapping[type, Mapping[ErrorCode, Reaction]]
    otherwise: Mapping[type, Reaction]

    def to(self, api: type, error_code: ErrorCode) -> Reaction:
        return self.by_error[api].get(error_code, self.otherwise[api])


CLASSIC = Reactions(REACTIONS, OTHERWISE)
CONSUMER = Reactions(CONSUMER_REACTIONS, CONSUMER_OTHERWISE)


def reaction_to(api: type, error_code: ErrorCode, group_protocol: str = "classic") -> Reaction:
    return (CLASSIC if group_protocol == "classic" else CONSUMER).to(api, error_code)
