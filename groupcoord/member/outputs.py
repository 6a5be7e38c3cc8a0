"""What a member wants done, and what it tells: the values that :meth:`Member.take_outputs` returns."""

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
"""The requests that a member sends."""


@frozen
class OffsetAndMetadata:
    """A position to commit, or one that was committed.

    Attributes:
        offset: the next offset to read.
        leader_epoch: of the last record read, -1 if unknown (KIP-320).
        metadata: the user's own words.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


# ---------------------------------------------------------------- to do for the host


@define(eq=False)
class Send:
    """Send a request and bring its answer to :meth:`~groupcoord.member.Member.receive`.

    Attributes:
        request_id: to name the request by when its answer comes, or none.
        request: what to send. The member may send the same object again; don't change it.
        to: the coordinator; None: any broker.
        deadline_ms: when the member gives up waiting for the answer.
        purpose: the member's own note.
    """

    request_id: int
    request: MemberRequest
    to: Node | None
    deadline_ms: int
    purpose: object = field(default=None, repr=False)


@frozen
class AssignmentNeeded:
    """The member leads this generation: compute everybody's assignment.

    Hand the result of :meth:`compute` to :meth:`~groupcoord.member.Member.assignment_computed`, at once or after the
    time that an assignor takes.

    Attributes:
        generation_id: the generation it is for.
        assignor: the one that the group has chosen.
        cluster: the topics there are.
        subscriptions: by member id.
    """

    generation_id: int
    assignor: Assignor = field(eq=False)
    cluster: Cluster
    subscriptions: Mapping[str, Subscription]

    def compute(self) -> ComputedAssignment:
        """Run the assignor. Whatever it raises becomes the result's ``error``."""
        try:
            assignments = self.assignor.assign(self.cluster, self.subscriptions)
        except Exception as error:  # an assignor may be the user's own code
            return ComputedAssignment(self.generation_id, {}, f"{type(error).__name__}: {error}")
        return ComputedAssignment(self.generation_id, assignments)


@frozen
class ComputedAssignment:
    """What an assignor made: an assignment for each member id, or ``error``, the reason why there is none."""

    generation_id: int
    assignments: Mapping[str, Assignment]
    error: str | None = None


@frozen
class MetadataNeeded:
    """The member must know these topics before it goes on: answer with ``update_metadata``.

    Attributes:
        topics: their names, sorted; None: all topics of the cluster, since the subscription is a pattern.
    """

    topics: tuple[str, ...] | None


# ---------------------------------------------------------------- told


@frozen
class CoordinatorFound:
    """The coordinator is this node: connect to it."""

    node: Node


@frozen
class CoordinatorLost:
    """This node is not the coordinator any more, or can't be reached: close the connection to it.

    Requests that were on their way to it count as failed; late answers are of no use.
    """

    node: Node
    reason: str


@frozen
class RejoinRequested:
    """The member will join again, for this reason (also told to the coordinator: KIP-800)."""

    reason: str


@frozen
class Joined:
    """A rebalance is complete, or a consumer group (KIP-848) has taken the member in. The events of the assignment
    follow in the next poll.

    Attributes:
        generation_id: in a consumer group the member epoch.
        protocol_name: the assignor's; ``consumer`` where the coordinator assigns.
    """

    generation_id: int
    member_id: str
    protocol_name: str
    is_leader: bool


@frozen
class PartitionsRevoked:
    """These partitions are being given up; they are still the member's own, to commit their offsets (sorted)."""

    partitions: tuple[TopicPartition, ...]


@frozen
class PartitionsAssigned:
    """These partitions were added; empty if the rebalance brought nothing new (sorted)."""

    partitions: tuple[TopicPartition, ...]


@frozen
class PartitionsLost:
    """These partitions are gone already: the member was put out of the group, and others may own them (sorted)."""

    partitions: tuple[TopicPartition, ...]


class CommitFailure(Enum):
    """Why a commit failed, as the exceptions of the Java consumer tell it apart."""

    COMMIT_FAILED = "CommitFailedException"
    """The member is out of its group; its partitions may be somebody else's. Don't repeat it."""
    REBALANCE_IN_PROGRESS = "RebalanceInProgressException"
    """A rebalance is under way: poll until it is done, then commit what is still owned."""
    RETRIABLE = "RetriableCommitFailedException"
    """An asynchronous commit met an error that may pass. It is not repeated, so that commits stay in order."""
    TIMED_OUT = "TimeoutException"
    """A synchronous commit was repeated until its time was over."""
    ERROR = "KafkaException"
    """Whatever ``error_code`` says; repeating won't help."""


@frozen
class CommitCompleted:
    """A commit is done. Those of asynchronous commits are told inside of polls and of later commits, in order.

    Attributes:
        commit_id: what ``commit_sync`` or ``commit_async`` returned; 0 for an automatic commit.
        offsets: what was to be committed.
        failure: None if all is committed.
        error_code: the answer's, NONE where there was none.
        message: what happened, in words.
    """

    commit_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    failure: CommitFailure | None = None
    error_code: ErrorCode = ErrorCode.NONE
    message: str = ""


@frozen
class OffsetsFetched:
    """The answer to ``fetch_offsets``: None for a partition without a committed offset.

    ``error_code`` tells why there is no answer: REQUEST_TIMED_OUT if the time was over.
    """

    fetch_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata | None]
    error_code: ErrorCode = ErrorCode.NONE
    message: str = ""


@frozen
class LeftGroup:
    """The member left the group on its own accord, or (a static one) forgot that it was in it."""

    reason: str
    was_sent: bool
    """Whether a request says so: in the classic protocol static members and such without an id send none."""


@frozen
class RequestRefused:
    """The coordinator refused what the Java consumer throws out of ``poll``, and the member goes on by itself.

    Attributes:
        api: the API whose answer it was.
        error_code: the answer's.
        message: what happened, in words.
    """

    api: str
    error_code: ErrorCode
    message: str


@frozen
class Failed:
    """The member can't go on: what the Java consumer throws out of ``poll``.

    Attributes:
        api: the API whose answer it was, such as ``JoinGroup``; empty if it wasn't one.
        error_code: the answer's; UNKNOWN_SERVER_ERROR if what came made no sense.
        message: what happened, in words.
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


class ListenerGate:
    """Holds the member back while the application's listener is busy with an event.

    Attributes:
        is_shut: the listener is busy.
    """

    __slots__ = ("_outputs", "_waits", "is_shut")

    def __init__(self, outputs: list[Output], *, waits: bool) -> None:
        self._outputs = outputs
        self._waits = waits
        self.is_shut = False

    def tell(self, event: Output) -> None:
        """Tell the listener."""
        self._outputs.append(event)
        self.is_shut = self._waits
