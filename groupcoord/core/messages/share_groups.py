"""Share groups (KIP-932): heartbeats, descriptions and offsets.

In a heartbeat None means "unchanged", which differs from empty.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from attrs import setters

from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.log.record_keys import TopicPartitions
from groupcoord.core.messages.administration import AUTHORIZED_OPERATIONS_OMITTED
from groupcoord.core.messages.consumer_groups import DescribedPartitions
from groupcoord.core.messages.request import GroupRequest, Request, Response, names_field
from groupcoord.errors import ErrorCode

UNKNOWN_OFFSET = -1
"""Reading of a partition has not begun, or its lag is unknown."""


# ---------------------------------------------------------------- members


@frozen
class ShareGroupHeartbeatResponse(Response):
    """Response to a :class:`ShareGroupHeartbeat`; with an error it holds at most a message.

    A partition is assigned when its state is initialized, usually with the second heartbeat; several members may have
    it.

    Attributes:
        member_id: the member's id; None on errors.
        member_epoch: the epoch to send from now on.
        heartbeat_interval_ms: time until the next heartbeat; 0 for a member that leaves.
        assignment: the partitions with records for the member; None: unchanged.
    """

    error_code: ErrorCode
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[TopicPartitions, ...] | None = None


@define(on_setattr=setters.NO_OP)
class ShareGroupHeartbeat(GroupRequest[ShareGroupHeartbeatResponse]):
    """Join, stay in or leave a share group, or change a subscription (API key 76).

    Attributes:
        member_epoch: the epoch last received; 0 joins; -1 leaves.
        subscribed_topic_names: the topics of the member; None: unchanged.
        client_id, client_host: from the request's header and connection.
    """

    group_id: str
    member_id: str
    member_epoch: int = 0
    rack_id: str | None = None
    subscribed_topic_names: tuple[str, ...] | None = names_field(None)
    client_id: str = ""
    client_host: str = ""


# ---------------------------------------------------------------- descriptions


class DescribedShareMember(NamedTuple):
    """A member of a share group in descriptions."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    assignment: tuple[DescribedPartitions, ...]


class DescribedShareGroup(NamedTuple):
    """One share group; with an error all else is empty, the state too."""

    group_id: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[DescribedShareMember, ...] = ()
    authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED


@frozen
class ShareGroupDescribeResponse(Response):
    """Descriptions of the requested groups, one for each occurrence."""

    groups: tuple[DescribedShareGroup, ...]


@define(on_setattr=setters.NO_OP)
class ShareGroupDescribe(Request[ShareGroupDescribeResponse]):
    """Describe share groups (API key 77); others fail with GROUP_ID_NOT_FOUND."""

    group_ids: tuple[str | None, ...] = names_field()
    include_authorized_operations: bool = False


# ---------------------------------------------------------------- offsets


class ShareTopicToDescribe(NamedTuple):
    """Partitions of a topic with requested offsets."""

    topic_name: str
    partitions: tuple[int, ...]


class ShareGroupToDescribe(NamedTuple):
    """Group with requested offsets; ``topics`` None: all initialized ones."""

    group_id: str
    topics: tuple[ShareTopicToDescribe, ...] | None = None


class DescribedShareOffset(NamedTuple):
    """Offset of a group in a partition.

    Attributes:
        start_offset: first unfinished offset; -1 if reading has not begun.
        leader_epoch: the leader epoch of the last read.
        lag: number of unfinished records; -1 if unknown.
    """

    partition_index: int
    start_offset: int = UNKNOWN_OFFSET
    leader_epoch: int = 0
    lag: int = UNKNOWN_OFFSET
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class DescribedShareTopic(NamedTuple):
    """Offsets of a group in a topic."""

    topic_name: str
    topic_id: UUID
    partitions: tuple[DescribedShareOffset, ...]


class DescribedShareGroupOffsets(NamedTuple):
    """Offsets of a group."""

    group_id: str
    topics: tuple[DescribedShareTopic, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@frozen
class DescribeShareGroupOffsetsResponse(Response):
    """Results of the requested groups."""

    groups: tuple[DescribedShareGroupOffsets, ...]


@define
class DescribeShareGroupOffsets(Request[DescribeShareGroupOffsetsResponse]):
    """Fetch offsets of share groups (API key 90), also of groups that do not exist."""

    groups: tuple[ShareGroupToDescribe, ...]


@frozen
class DescribeOneShareGroupResponse(Response):
    """The part of the answer that is about one group."""

    group: DescribedShareGroupOffsets


@define
class DescribeOneShareGroup(GroupRequest[DescribeOneShareGroupResponse]):
    """The part of a :class:`DescribeShareGroupOffsets` that is about one group: no request of the protocol."""

    group_id: str
    topics: tuple[ShareTopicToDescribe, ...] | None

    def refused(self, error_code: ErrorCode, message: str | None = None) -> DescribeOneShareGroupResponse:
        return DescribeOneShareGroupResponse(DescribedShareGroupOffsets(self.group_id, (), error_code, message))


class ShareOffsetToAlter(NamedTuple):
    """New start offset in a partition; -1: by ``share.auto.offset.reset``."""

    partition_index: int
    start_offset: int


class ShareTopicToAlter(NamedTuple):
    """Partitions of a topic to alter."""

    topic_name: str
    partitions: tuple[ShareOffsetToAlter, ...]


class ShareOffsetResult(NamedTuple):
    """Result of a partition."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class AlteredShareTopic(NamedTuple):
    """Results of the partitions of a topic."""

    topic_name: str
    topic_id: UUID
    partitions: tuple[ShareOffsetResult, ...]


@frozen
class AlterShareGroupOffsetsResponse(Response):
    """A result for each partition, or an error for all of them."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    responses: tuple[AlteredShareTopic, ...] = ()


@define
class AlterShareGroupOffsets(GroupRequest[AlterShareGroupOffsetsResponse]):
    """Set the offsets of a share group without members (API key 91); a missing group is created.

    The response comes after that of the share coordinator.
    """

    group_id: str
    topics: tuple[ShareTopicToAlter, ...]


class ShareTopicToForget(NamedTuple):
    """Topic with offsets to delete."""

    topic_name: str


class ForgottenShareTopic(NamedTuple):
    """Result of a topic."""

    topic_name: str
    topic_id: UUID
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@frozen
class DeleteShareGroupOffsetsResponse(Response):
    """A result for each topic, or an error for all of them."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    responses: tuple[ForgottenShareTopic, ...] = ()


@define
class DeleteShareGroupOffsets(GroupRequest[DeleteShareGroupOffsetsResponse]):
    """Delete the offsets of a share group without members in topics (API key 92).

    The response comes after that of the share coordinator.
    """

    group_id: str
    topics: tuple[ShareTopicToForget, ...]
