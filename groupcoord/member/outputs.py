"""Outputs of a member: requests to send, and events."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from attrs import define, field, frozen

from groupcoord.core.consumer_protocol import Assignment, Subscription, TopicPartition
from groupcoord.core.messages import (
    ConsumerGroupHeartbeat,
    FindCoordinator,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Node,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
from groupcoord.errors import ErrorCode
from groupcoord.member.assignors import Assignor, Cluster

MemberRequest = (
    FindCoordinator
    | JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | ConsumerGroupHeartbeat
    | OffsetCommit
    | OffsetFetch
)


@frozen
class OffsetAndMetadata:
    """A position to commit or a committed one.

    Attributes:
        offset: the next offset to read.
        leader_epoch: of the last record read, or -1 (KIP-320).
        metadata: text of the application.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


# ---------------------------------------------------------------- to do for the host


@define(eq=False)
class Send:
    """Send a request, and pass its response to :meth:`~groupcoord.member.Member.receive`.

    Attributes:
        request: the request. The member may send the same object again; do not change it.
        to: the coordinator, or None for any broker.
        deadline_ms: when the member gives up waiting for the response.
        purpose: private to the member.
    """

    request_id: int
    request: MemberRequest
    to: Node | None
    deadline_ms: int
    purpose: object = field(default=None, repr=False)


@frozen
class AssignmentNeeded:
    """The member leads this generation: compute all assignments.

    Pass the result of :meth:`compute` to :meth:`~groupcoord.member.Member.assignment_computed`, at once or after the
    time that an assignor takes.
    """

    generation_id: int
    assignor: Assignor = field(eq=False)
    cluster: Cluster
    subscriptions: Mapping[str, Subscription]

    def compute(self) -> ComputedAssignment:
        """Run the assignor. An exception becomes the ``error`` of the result."""
        try:
            assignments = self.assignor.assign(self.cluster, self.subscriptions)
        except Exception as error:  # an assignor may be user code
            return ComputedAssignment(self.generation_id, {}, f"{type(error).__name__}: {error}")
        return ComputedAssignment(self.generation_id, assignments)


@frozen
class ComputedAssignment:
    """Result of an assignor: an assignment for each member id, or ``error``."""

    generation_id: int
    assignments: Mapping[str, Assignment]
    error: str | None = None


@frozen
class MetadataNeeded:
    """The member needs the metadata of these topics: call ``update_metadata``.

    Attributes:
        topics: the names, sorted, or None for all topics of the cluster.
    """

    topics: tuple[str, ...] | None


# ---------------------------------------------------------------- events


@frozen
class CoordinatorFound:
    """The coordinator is this node: connect to it."""

    node: Node


@frozen
class CoordinatorLost:
    """This node is not the coordinator any more, or can't be reached: close the connection.

    Requests in flight to it count as failed; late responses are ignored.
    """

    node: Node
    reason: str


@frozen
class RejoinRequested:
    """The member will rejoin. The JoinGroup request holds the reason, too (KIP-800)."""

    reason: str


@frozen
class Joined:
    """A rebalance is complete, or a consumer group (KIP-848) has accepted the member. The events of the assignment
    follow in the next poll.

    Attributes:
        generation_id: the generation, in a consumer group the member epoch.
        protocol_name: the name of the assignor, or ``consumer`` if the coordinator assigns.
    """

    generation_id: int
    member_id: str
    protocol_name: str
    is_leader: bool


@frozen
class PartitionsRevoked:
    """These partitions are being revoked. The member still owns them, so their offsets can be committed (sorted)."""

    partitions: tuple[TopicPartition, ...]


@frozen
class PartitionsAssigned:
    """These partitions were added; empty if the rebalance added none (sorted)."""

    partitions: tuple[TopicPartition, ...]


@frozen
class PartitionsLost:
    """These partitions are lost, and others may own them (sorted): the member was fenced, not polled in time, or has
    failed.
    """

    partitions: tuple[TopicPartition, ...]


class CommitFailure(Enum):
    """Failure of a commit, by the exceptions of the Java consumer."""

    COMMIT_FAILED = "CommitFailedException"
    """The member is not in the group any more, and others may own its partitions. Do not retry."""
    REBALANCE_IN_PROGRESS = "RebalanceInProgressException"
    """A rebalance is in progress: poll until it is complete, then commit what is still owned."""
    RETRIABLE = "RetriableCommitFailedException"
    """An asynchronous commit met a retriable error. It is not retried, so that commits stay in order."""
    TIMED_OUT = "TimeoutException"
    """A synchronous commit was retried until its timeout."""
    ERROR = "KafkaException"
    """The error of ``error_code``, which is not retriable."""


@frozen
class CommitCompleted:
    """A commit has ended. Results of asynchronous commits come during polls and later commits, in order.

    Attributes:
        commit_id: the result of ``commit_sync`` or ``commit_async``, or 0 for an automatic commit.
        offsets: the offsets to commit.
        failure: None if all were committed.
        error_code: the error code of the response, or NONE.
        message: a description for people.
    """

    commit_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    failure: CommitFailure | None = None
    error_code: ErrorCode = ErrorCode.NONE
    message: str = ""


@frozen
class OffsetsFetched:
    """Result of ``fetch_offsets``: None for a partition without a committed offset.

    ``error_code`` holds the reason if there is no result: REQUEST_TIMED_OUT after the timeout.
    """

    fetch_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata | None]
    error_code: ErrorCode = ErrorCode.NONE
    message: str = ""


@frozen
class LeftGroup:
    """The member has left the group by itself, or a static one has forgotten its membership."""

    reason: str
    was_sent: bool
    """True if a request was sent."""


@frozen
class RequestRefused:
    """The coordinator refused a request with an error that the Java consumer raises from ``poll``. The member
    continues.
    """

    api: str
    error_code: ErrorCode
    message: str


@frozen
class Failed:
    """The member can't continue; the Java consumer raises this error from ``poll``.

    Attributes:
        api: the API of the response, such as ``JoinGroup``, or empty.
        error_code: its error code; UNKNOWN_SERVER_ERROR for a malformed response.
    """

    api: str
    error_code: ErrorCode
    message: str


@frozen
class Closed:
    """The member is closed; nothing follows."""


Event = (
    CoordinatorFound
    | CoordinatorLost
    | RejoinRequested
    | Joined
    | PartitionsRevoked
    | PartitionsAssigned
    | PartitionsLost
    | CommitCompleted
    | OffsetsFetched
    | LeftGroup
    | RequestRefused
    | Failed
    | Closed
)
Output = Send | AssignmentNeeded | MetadataNeeded | Event
