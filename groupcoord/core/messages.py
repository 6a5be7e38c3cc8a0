"""Requests and responses of the coordinator as values: no bytes, no versions.

A field has the meaning of its newest version in Kafka 4.4; what an older request version lacks is the field's
default, and what an older version does differently is a named flag. Times are milliseconds. Names are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import repeat
from typing import NamedTuple, TypeVar
from uuid import UUID

from attrs import define, frozen

from groupcoord.core.lazy_sequence import LazySequence
from groupcoord.core.records import ZERO_UUID
from groupcoord.errors import ErrorCode

T = TypeVar("T")

UNKNOWN_MEMBER_ID = ""
UNKNOWN_GENERATION_ID = -1
AUTHORIZED_OPERATIONS_OMITTED = -(2**31)


# ---------------------------------------------------------------- membership


class JoinProtocol(NamedTuple):
    """One protocol that a member supports: an assignor's name and the member's metadata for it."""

    name: str
    metadata: bytes


@define
class JoinGroup:
    """Ask to be a member of the next generation (API key 11).

    Attributes:
        client_id, client_host: who asks, from the request's header and connection (``/127.0.0.1`` is Kafka's form).
        group_instance_id: the id of a static member (KIP-345); None for a dynamic one.
        requires_known_member_id: a dynamic newcomer is first given an id (KIP-394; request versions from 4).
        supports_skip_assignment: a returning static leader can be told to skip assigning (KIP-814; from 9).
    """

    group_id: str
    member_id: str = UNKNOWN_MEMBER_ID
    protocol_type: str = "consumer"
    protocols: tuple[JoinProtocol, ...] = ()
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    reason: str | None = None
    requires_known_member_id: bool = True
    supports_skip_assignment: bool = True


class JoinedMember(NamedTuple):
    """A member as the leader sees it when it assigns."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@frozen
class JoinGroupResponse:
    """``members`` is filled for the leader only; ``protocol_name`` is None where there is none."""

    error_code: ErrorCode
    member_id: str = UNKNOWN_MEMBER_ID
    generation_id: int = UNKNOWN_GENERATION_ID
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = UNKNOWN_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncAssignment(NamedTuple):
    """What the leader gives one member."""

    member_id: str
    assignment: bytes


@define
class SyncGroup:
    """Fetch one's assignment; the leader brings everybody's (API key 14).

    ``protocol_type`` and ``protocol_name`` are None where the request's version has no such field (below 5): not
    checked.
    """

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[SyncAssignment, ...] = ()


@frozen
class SyncGroupResponse:
    """The assignment is empty on errors, and for a member that the leader gave nothing."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@define
class Heartbeat:
    """Say that a member is alive (API key 12)."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@frozen
class HeartbeatResponse:
    """REBALANCE_IN_PROGRESS tells the member to rejoin."""

    error_code: ErrorCode


class LeavingMember(NamedTuple):
    """A member to remove: by its id, or by its instance id alone (``member_id`` empty)."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@define
class LeaveGroup:
    """Remove members (API key 13; batches and instance ids: KIP-345)."""

    group_id: str
    members: tuple[LeavingMember, ...]


class LeftMember(NamedTuple):
    """What became of one entry of a :class:`LeaveGroup`; the ids are echoed as sent."""

    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


@frozen
class LeaveGroupResponse:
    """A top-level error comes without members."""

    error_code: ErrorCode
    members: tuple[LeftMember, ...] = ()


# ---------------------------------------------------------------- administration


@define
class DescribeGroups:
    """Describe classic groups (API key 15)."""

    group_ids: tuple[str | None, ...]
    include_authorized_operations: bool = False


class DescribedMember(NamedTuple):
    """A member as administrators see it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


@frozen
class DescribedGroup:
    """One group; an absent one is GROUP_ID_NOT_FOUND and ``Dead`` (request versions below 6 see error NONE)."""

    group_id: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()
    authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED


@frozen
class DescribeGroupsResponse:
    """One entry for each group asked for."""

    groups: tuple[DescribedGroup, ...]


@define
class ListGroups:
    """List groups by state (KIP-518) and type (KIP-848); empty filters let all pass (API key 16)."""

    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


class ListedGroup(NamedTuple):
    """One line of the list."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


@frozen
class ListGroupsResponse:
    """While a log partition loads, the whole list is refused."""

    error_code: ErrorCode
    groups: tuple[ListedGroup, ...] = ()


@define
class DeleteGroups:
    """Delete empty groups and their offsets (API key 42)."""

    group_ids: tuple[str | None, ...]


class DeletedGroup(NamedTuple):
    """What became of one group; a name sent twice is answered once."""

    group_id: str
    error_code: ErrorCode


@frozen
class DeleteGroupsResponse:
    """One entry for each distinct group."""

    results: tuple[DeletedGroup, ...]


class CoordinatorType(IntEnum):
    """What a :class:`FindCoordinator` key names."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


@define
class FindCoordinator:
    """Ask which node coordinates (API key 10). ``key_type`` is a :class:`CoordinatorType` or an unknown number."""

    key_type: int
    keys: tuple[str, ...]
    supports_share_keys: bool = True


class Node(NamedTuple):
    """A node that clients can connect to."""

    node_id: int
    host: str
    port: int


NO_NODE = Node(-1, "", -1)


class FoundCoordinator(NamedTuple):
    """The answer for one key; on errors the node is :data:`NO_NODE`."""

    key: str
    node: Node
    error_code: ErrorCode


@frozen
class FindCoordinatorResponse:
    """One entry for each key, a key named twice twice."""

    coordinators: tuple[FoundCoordinator, ...]


# ---------------------------------------------------------------- offsets


@define
class OffsetToCommit:
    """One partition of an :class:`OffsetCommit`."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""


class _OffsetColumns(LazySequence[T]):
    """Offsets without metadata, kept as columns, whatever one of them is when somebody looks.

    Attributes:
        partition_indexes: the partitions, in the request's order.
        offsets: of each.
        leader_epochs: of each offset; -1 where it is unknown.
    """

    __slots__ = ("leader_epochs", "offsets", "partition_indexes")

    def __init__(
        self, partition_indexes: tuple[int, ...], offsets: tuple[int, ...], leader_epochs: tuple[int, ...]
    ) -> None:
        self.partition_indexes = partition_indexes
        self.offsets = offsets
        self.leader_epochs = leader_epochs

    def __len__(self) -> int:
        return len(self.partition_indexes)


class OffsetColumns(_OffsetColumns[OffsetToCommit]):
    """Offsets to commit without metadata: what nearly every commit of a consumer is."""

    __slots__ = ()

    def __iter__(self) -> Iterator[OffsetToCommit]:
        return map(OffsetToCommit, self.partition_indexes, self.offsets, self.leader_epochs)


@define
class TopicToCommit:
    """One topic of a commit: by name, or (``name`` None, request version 10) by topic id."""

    name: str | None
    partitions: Sequence[OffsetToCommit]
    topic_id: UUID = ZERO_UUID


@define
class OffsetCommit:
    """Commit offsets (API key 8).

    ``generation_id`` is negative for a consumer outside of group management. ``retention_time_ms`` -1: the broker's
    retention (a request of version 2 to 4 may bring its own).
    """

    group_id: str | None
    topics: tuple[TopicToCommit, ...]
    generation_id: int = UNKNOWN_GENERATION_ID
    member_id: str = UNKNOWN_MEMBER_ID
    group_instance_id: str | None = None
    retention_time_ms: int = -1


class PartitionResult(NamedTuple):
    """What became of one partition of a commit or a deletion."""

    partition_index: int
    error_code: ErrorCode


class AllAccepted(LazySequence[PartitionResult]):
    """The results of partitions that were all accepted: one is made only when it is looked at.

    Attributes:
        partition_indexes: the partitions, in the request's order.
    """

    __slots__ = ("partition_indexes",)

    def __init__(self, partition_indexes: tuple[int, ...]) -> None:
        self.partition_indexes = partition_indexes

    def __len__(self) -> int:
        return len(self.partition_indexes)

    def __iter__(self) -> Iterator[PartitionResult]:
        return map(PartitionResult, self.partition_indexes, repeat(ErrorCode.NONE))


class TopicResult(NamedTuple):
    """What became of one topic of a commit or a deletion; named as the request named it."""

    name: str | None
    topic_id: UUID
    partitions: Sequence[PartitionResult]


@frozen
class OffsetCommitResponse:
    """There is no top-level error: a refused request has its error on every partition."""

    topics: tuple[TopicResult, ...]


@define
class TxnOffsetCommit:
    """Commit offsets as part of a producer's transaction (API key 28, KIP-98; member fields: KIP-447).

    Whether the producer may do so is for the coordinator's ``verify_transaction`` to say. The offsets stay invisible
    until :class:`CompleteTransaction` commits them. ``adds_group``: the group need not be in the transaction yet
    (KIP-890, request versions from 5).
    """

    group_id: str
    topics: tuple[TopicToCommit, ...]
    producer_id: int
    producer_epoch: int
    transactional_id: str = ""
    generation_id: int = UNKNOWN_GENERATION_ID
    member_id: str = UNKNOWN_MEMBER_ID
    group_instance_id: str | None = None
    adds_group: bool = True


@frozen
class TxnOffsetCommitResponse:
    """There is no top-level error: a refused request has its error on every partition."""

    topics: tuple[TopicResult, ...]


@define
class CompleteTransaction:
    """End a producer's transaction on one log partition: its offsets appear there, or vanish (KIP-98)."""

    partition: int
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int = 0


@frozen
class CompleteTransactionResponse:
    """NOT_LEADER_OR_FOLLOWER tells the transaction coordinator to look for the partition elsewhere."""

    error_code: ErrorCode


@define
class TopicToDelete:
    """One topic of an :class:`OffsetDelete`."""

    name: str
    partition_indexes: tuple[int, ...]


@define
class OffsetDelete:
    """Delete committed offsets of topics that the group does not subscribe to (API key 47, KIP-496)."""

    group_id: str
    topics: tuple[TopicToDelete, ...]


@frozen
class OffsetDeleteResponse:
    """A top-level error comes without topics."""

    error_code: ErrorCode
    topics: tuple[TopicResult, ...] = ()


@define
class TopicToFetch:
    """One topic whose offsets are wanted: by name, or (``name`` None, request version 10) by topic id."""

    name: str | None
    partition_indexes: tuple[int, ...]
    topic_id: UUID = ZERO_UUID


@define
class GroupToFetch:
    """One group whose offsets are wanted; ``topics`` None: all it has. The member fields are KIP-848's."""

    group_id: str | None
    topics: tuple[TopicToFetch, ...] | None = None
    member_id: str | None = None
    member_epoch: int = -1


@define
class OffsetFetch:
    """Read committed offsets (API key 9).

    ``require_stable`` (KIP-447): answer UNSTABLE_OFFSET_COMMIT where a transaction is open. ``uses_topic_ids``:
    answer with ids.
    """

    groups: tuple[GroupToFetch, ...]
    require_stable: bool = False
    uses_topic_ids: bool = False


class FetchedOffset(NamedTuple):
    """The committed offset of one partition; offset -1: there is none."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str
    error_code: ErrorCode


class FetchedColumns(_OffsetColumns[FetchedOffset]):
    """Committed offsets without metadata, and -1 for those that there are not: what consumers mostly fetch."""

    __slots__ = ()

    def __iter__(self) -> Iterator[FetchedOffset]:
        return map(
            FetchedOffset,
            self.partition_indexes,
            self.offsets,
            self.leader_epochs,
            repeat(""),
            repeat(ErrorCode.NONE),
        )


class FetchedTopic(NamedTuple):
    """The committed offsets of one topic."""

    name: str | None
    topic_id: UUID
    partitions: Sequence[FetchedOffset]


class FetchedGroup(NamedTuple):
    """The committed offsets of one group; a group-level error comes without topics."""

    group_id: str
    error_code: ErrorCode
    topics: tuple[FetchedTopic, ...]


@frozen
class OffsetFetchResponse:
    """One entry for each group asked for, a group named twice twice."""

    groups: tuple[FetchedGroup, ...]


Request = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | DescribeGroups
    | ListGroups
    | DeleteGroups
    | FindCoordinator
    | OffsetCommit
    | OffsetFetch
    | OffsetDelete
    | TxnOffsetCommit
    | CompleteTransaction
)

Response = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | DescribeGroupsResponse
    | ListGroupsResponse
    | DeleteGroupsResponse
    | FindCoordinatorResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | OffsetDeleteResponse
    | TxnOffsetCommitResponse
    | CompleteTransactionResponse
)
