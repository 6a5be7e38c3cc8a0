"""Messages of consumer groups (KIP-848): the heartbeat, by which members also join and leave, and the description.

In a heartbeat None means "unchanged", which differs from empty.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple
from uuid import UUID

from attrs import setters

from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.log.record_keys import TopicPartitions as TopicPartitions
from groupcoord.core.messages.administration import AUTHORIZED_OPERATIONS_OMITTED
from groupcoord.core.messages.request import GroupRequest, Request, Response, names_field
from groupcoord.errors import ErrorCode

JOIN_GROUP_MEMBER_EPOCH = 0
LEAVE_GROUP_MEMBER_EPOCH = -1
LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2


@define(unsafe_hash=True)
class ConsumerGroupHeartbeatResponse(Response):
    """Response to a :class:`ConsumerGroupHeartbeat`; with an error it holds at most a message.

    Attributes:
        member_id: the member's id, created by the coordinator if the request has none; None on errors.
        member_epoch: the epoch to send from now on.
        heartbeat_interval_ms: time until the next heartbeat; 0 for a member that leaves.
        assignment: the partitions that the member may use; None: unchanged.
    """

    error_code: ErrorCode
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[TopicPartitions, ...] | None = None


@define(on_setattr=setters.NO_OP)
class ConsumerGroupHeartbeat(GroupRequest[ConsumerGroupHeartbeatResponse]):
    """Join, stay in or leave a consumer group, or change a subscription (API key 68, KIP-848).

    It fails with UNSUPPORTED_VERSION if ``group.coordinator.rebalance.protocols`` lacks ``consumer``.

    Attributes:
        member_epoch: the epoch last received; 0 joins, and converts a classic group if
            ``group.consumer.migration.policy`` allows it; -1 leaves; -2: a static member leaves temporarily.
        instance_id: the id of a static member (KIP-345).
        rebalance_timeout_ms: time to revoke partitions; -1: unchanged.
        subscribed_topic_names: the topics that the member names; None: unchanged.
        subscribed_topic_regex: a regular expression in RE2 syntax for more topics (request versions from 1); None:
            unchanged; "": none.
        server_assignor: the assignor that the member selects; None: unchanged.
        topic_partitions: the partitions that the member owns; None: unchanged.
        client_id, client_host: from the request's header and connection.
        requires_member_id: a joining member has to send an id (KIP-1082; request versions from 1). In version 0 the
            coordinator creates a missing one.
        principal: the principal of the member, set by the coordinator.
    """

    group_id: str
    member_id: str
    member_epoch: int = JOIN_GROUP_MEMBER_EPOCH
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = names_field(None)
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: tuple[TopicPartitions, ...] | None = None
    client_id: str = ""
    client_host: str = ""
    requires_member_id: bool = True
    principal: Any = None


class MemberType(IntEnum):
    """Protocol of a member of a consumer group (:class:`ConsumerGroupDescribe`, version 1)."""

    UNKNOWN = -1
    CLASSIC = 0
    CONSUMER = 1


class DescribedPartitions(NamedTuple):
    """Partitions of one topic, in a description."""

    topic_id: UUID
    topic_name: str
    partitions: tuple[int, ...]


class DescribedConsumerMember(NamedTuple):
    """A member of a consumer group in descriptions.

    Attributes:
        subscribed_topic_regex: "" without one.
        assignment: its partitions, including those to revoke.
    """

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    assignment: tuple[DescribedPartitions, ...]
    target_assignment: tuple[DescribedPartitions, ...]
    member_type: MemberType = MemberType.CONSUMER


class DescribedConsumerGroup(NamedTuple):
    """One consumer group; with an error all else is empty, the state too."""

    group_id: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[DescribedConsumerMember, ...] = ()
    authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED


@frozen
class ConsumerGroupDescribeResponse(Response):
    """Descriptions of the requested groups, one for each occurrence."""

    groups: tuple[DescribedConsumerGroup, ...]


@define(on_setattr=setters.NO_OP)
class ConsumerGroupDescribe(Request[ConsumerGroupDescribeResponse]):
    """Describe consumer groups (API key 69, KIP-848); other ids fail with GROUP_ID_NOT_FOUND."""

    group_ids: tuple[str | None, ...] = names_field()
    include_authorized_operations: bool = False
