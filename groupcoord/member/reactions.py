"""What a member does about each error, by API: a table for each protocol, as the Java consumer of Kafka 4.4 reacts.

Source: the response handlers of its ``AbstractCoordinator`` and ``ConsumerCoordinator`` (classic), and of its
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
    """What to do about an error. The commit or fetch that met it is told besides."""

    RETRY = "repeat after a pause"
    FIND_COORDINATOR = "find the coordinator again, then repeat"
    REJOIN = "join again"
    RESET_GENERATION = "join again with the same member id; what it owns is lost"
    RESET_MEMBER_ID = "join again as a new member; what it owns is lost"
    TAKE_MEMBER_ID = "join again with the member id that came with the error (KIP-394)"
    TAKE_EPOCH = "repeat with the member's new epoch; without one, tell the error"
    OUT_OF_GROUP = "tell that the member is out of its group"
    REPORT = "tell the error; the member goes on"
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
"""The errors whose exception is a ``RetriableException`` in the Java client."""

REACTIONS: dict[type, dict[ErrorCode, Reaction]] = {
    FindCoordinator: dict.fromkeys(sorted(RETRIABLE), Reaction.RETRY),
    JoinGroup: {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
        ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RESET_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
        ErrorCode.MEMBER_ID_REQUIRED: Reaction.TAKE_MEMBER_ID,
    },
    SyncGroup: {
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
        ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
        ErrorCode.ILLEGAL_GENERATION: Reaction.RESET_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RESET_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    },
    Heartbeat: {
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
        ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
        ErrorCode.ILLEGAL_GENERATION: Reaction.RESET_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RESET_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
        ErrorCode.FENCED_INSTANCE_ID: Reaction.FAIL,
    },
    OffsetCommit: {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.RETRY,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        ErrorCode.REQUEST_TIMED_OUT: Reaction.FIND_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
        ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
        ErrorCode.ILLEGAL_GENERATION: Reaction.RESET_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RESET_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
        ErrorCode.FENCED_INSTANCE_ID: Reaction.FAIL,
    },
    OffsetFetch: {
        **dict.fromkeys(sorted(RETRIABLE), Reaction.RETRY),
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
        ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
    },
    LeaveGroup: {},
}
"""The reaction to each error that an API may answer."""

OTHERWISE: dict[type, Reaction] = {
    FindCoordinator: Reaction.FAIL,
    JoinGroup: Reaction.FAIL,
    SyncGroup: Reaction.FAIL,
    Heartbeat: Reaction.RETRY,
    OffsetCommit: Reaction.REPORT,
    OffsetFetch: Reaction.REPORT,
    LeaveGroup: Reaction.IGNORE,
}
"""The reaction to every other error. That of a heartbeat is repeated until the session's time is over."""


CONSUMER_REACTIONS: dict[type, dict[ErrorCode, Reaction]] = {
    FindCoordinator: REACTIONS[FindCoordinator],
    ConsumerGroupHeartbeat: {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
        ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
        ErrorCode.FENCED_MEMBER_EPOCH: Reaction.RESET_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RESET_GENERATION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reaction.REPORT,
    },
    OffsetCommit: {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.RETRY,
        ErrorCode.UNKNOWN_TOPIC_ID: Reaction.RETRY,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        ErrorCode.REQUEST_TIMED_OUT: Reaction.FIND_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
        ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.OUT_OF_GROUP,
        ErrorCode.STALE_MEMBER_EPOCH: Reaction.TAKE_EPOCH,
    },
    OffsetFetch: {**REACTIONS[OffsetFetch], ErrorCode.STALE_MEMBER_EPOCH: Reaction.TAKE_EPOCH},
}
"""With ``group.protocol=consumer``: the reaction to each error that an API may answer."""

CONSUMER_OTHERWISE: dict[type, Reaction] = {
    FindCoordinator: Reaction.REPORT,
    ConsumerGroupHeartbeat: Reaction.FAIL,
    OffsetCommit: Reaction.REPORT,
    OffsetFetch: Reaction.REPORT,
}
"""With ``group.protocol=consumer``: the reaction to every other error. What FindCoordinator or a heartbeat reports does
not end the member: it asks again after a pause."""


class Reactions(NamedTuple):
    """What a member does about each error: by API, and for all other errors."""

    by_error: Mapping[type, Mapping[ErrorCode, Reaction]]
    otherwise: Mapping[type, Reaction]

    def to(self, api: type, error_code: ErrorCode) -> Reaction:
        """Return what the member does when this API answers with this error."""
        return self.by_error[api].get(error_code, self.otherwise[api])


CLASSIC = Reactions(REACTIONS, OTHERWISE)
CONSUMER = Reactions(CONSUMER_REACTIONS, CONSUMER_OTHERWISE)


def reaction_to(api: type, error_code: ErrorCode, group_protocol: str = "classic") -> Reaction:
    """Return what a member does when this API answers with this error."""
    return (CLASSIC if group_protocol == "classic" else CONSUMER).to(api, error_code)
