"""Streams groups (KIP-1071): heartbeat, description, and topology description.

In a heartbeat None means "unchanged", which differs from empty.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from attrs import setters

from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.groups.streams.records import (
    CopartitionGroup as CopartitionGroup,
    Endpoint as Endpoint,
    KeyValue as KeyValue,
    Subtopology as Subtopology,
    TaskIds as TaskIds,
    TopicInfo as TopicInfo,
)
from groupcoord.core.messages.administration import AUTHORIZED_OPERATIONS_OMITTED
from groupcoord.core.messages.request import GroupRequest, Request, Response, names_field
from groupcoord.errors import ErrorCode


class Topology(NamedTuple):
    """Topology of an application, as a member sends it; ``epoch`` is the version of the application."""

    epoch: int
    subtopologies: tuple[Subtopology, ...] = ()


class TaskOffset(NamedTuple):
    """Offset of a member's copy of a task's state, summed over the changelogs of the task."""

    subtopology_id: str
    partition: int
    offset: int


class StreamsStatusCode(IntEnum):
    """Status of a group in heartbeat responses, by Kafka's numbers."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class StreamsStatus(NamedTuple):
    """Status of a group, with a message."""

    code: StreamsStatusCode
    detail: str


class NamedTopicPartitions(NamedTuple):
    """Partitions of one topic, by its name."""

    topic: str
    partitions: tuple[int, ...]


class EndpointPartitions(NamedTuple):
    """State behind an endpoint for interactive queries.

    Attributes:
        active_partitions: the partitions that the member's active tasks read.
        standby_partitions: those that its standby and warm-up tasks read.
    """

    user_endpoint: Endpoint
    active_partitions: tuple[NamedTopicPartitions, ...]
    standby_partitions: tuple[NamedTopicPartitions, ...]


@frozen
class StreamsGroupHeartbeatResponse(Response):
    """Response to a :class:`StreamsGroupHeartbeat`; with an error it holds at most a message.

    Attributes:
        member_id: the member's id; "" on errors.
        member_epoch: the epoch to send from now on.
        heartbeat_interval_ms: time until the next heartbeat; 0 for a member that leaves.
        acceptable_recovery_lag: lag below which a warm-up task counts as caught up; -1 on errors and for a member that
            leaves, 0 in versions before 1.
        task_offset_interval_ms: interval of reports of task offsets.
        status: statuses for the member; never None, although the schema allows it.
        active_tasks, standby_tasks, warmup_tasks: the tasks that the member has to run; None, all three: unchanged.
        topology_description_required: the coordinator requests the topology's description (KIP-1331).
        endpoint_information_epoch: epoch of the group's endpoints.
        partitions_by_user_endpoint: the endpoints, if the member does not know this epoch; else None.
    """

    error_code: ErrorCode
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    acceptable_recovery_lag: int = -1
    task_offset_interval_ms: int = 0
    status: tuple[StreamsStatus, ...] | None = ()
    active_tasks: tuple[TaskIds, ...] | None = None
    standby_tasks: tuple[TaskIds, ...] | None = None
    warmup_tasks: tuple[TaskIds, ...] | None = None
    topology_description_required: bool = False
    endpoint_information_epoch: int = 0
    partitions_by_user_endpoint: tuple[EndpointPartitions, ...] | None = None


@define
class StreamsGroupHeartbeat(GroupRequest[StreamsGroupHeartbeatResponse]):
    """Join, stay in, or leave a streams group (API key 88, KIP-1071).

    A joining member sends its id, its topology and three empty lists of tasks.

    Attributes:
        member_epoch: the epoch last received; 0 joins; -1 leaves; -2: a static member leaves temporarily.
        endpoint_information_epoch: the epoch of the group's endpoints that the member knows.
        instance_id: the id of a static member (KIP-345).
        rebalance_timeout_ms: time to revoke tasks; -1: unchanged.
        topology: the member's topology, sent only when it joins.
        active_tasks, standby_tasks, warmup_tasks: the tasks that the member runs; None, all three: unchanged.
        process_id: id of the member's process; None: unchanged.
        user_endpoint: address of the process for interactive queries; None: unchanged, or none when joining.
        client_tags: location tags for the assignor; None: unchanged.
        task_offsets, task_end_offsets: offsets that the tasks have reached, and their end offsets; None: unchanged.
        shutdown_application: all members have to stop.
        client_id, client_host: from the request's header and connection.
        principal, permissions: the member's principal and its permissions (None: everything), set by the coordinator.
    """

    group_id: str
    member_id: str
    member_epoch: int = 0
    endpoint_information_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    active_tasks: tuple[TaskIds, ...] | None = None
    standby_tasks: tuple[TaskIds, ...] | None = None
    warmup_tasks: tuple[TaskIds, ...] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: tuple[KeyValue, ...] | None = None
    task_offsets: tuple[TaskOffset, ...] | None = None
    task_end_offsets: tuple[TaskOffset, ...] | None = None
    shutdown_application: bool = False
    client_id: str = ""
    client_host: str = ""
    principal: Any = None
    permissions: Any = None


class TopologyDescriptionStatus(IntEnum):
    """Availability of a topology description (KIP-1331), by Kafka's numbers."""

    NOT_REQUESTED = 0
    NOT_STORED = 1


class DescribedSubtopology(NamedTuple):
    """A subtopology in a description, in Kafka's order of fields; all topics are sorted.

    Attributes:
        state_changelog_topics, repartition_source_topics: with the partitions that they have or need.
    """

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: tuple[TopicInfo, ...]
    repartition_source_topics: tuple[TopicInfo, ...]


class DescribedTopology(NamedTuple):
    """A topology in a description: its epoch, and its subtopologies by id."""

    epoch: int
    subtopologies: tuple[DescribedSubtopology, ...] | None


class DescribedTasks(NamedTuple):
    """Tasks of a member in a description, sorted."""

    active_tasks: tuple[TaskIds, ...] = ()
    standby_tasks: tuple[TaskIds, ...] = ()
    warmup_tasks: tuple[TaskIds, ...] = ()


class DescribedStreamsMember(NamedTuple):
    """A member of a streams group in descriptions; ``is_classic`` is always False."""

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    user_endpoint: Endpoint | None
    client_tags: tuple[KeyValue, ...]
    task_offsets: tuple[TaskOffset, ...]
    task_end_offsets: tuple[TaskOffset, ...]
    assignment: DescribedTasks
    target_assignment: DescribedTasks
    is_classic: bool = False


class DescribedStreamsGroup(NamedTuple):
    """Description of one streams group; empty apart from the error on errors."""

    group_id: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology: DescribedTopology | None = None
    members: tuple[DescribedStreamsMember, ...] = ()
    authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED
    topology_description_status: TopologyDescriptionStatus = TopologyDescriptionStatus.NOT_REQUESTED
    assignor_name: str | None = None


@frozen
class StreamsGroupDescribeResponse(Response):
    """Descriptions of the requested groups, one for each occurrence."""

    groups: tuple[DescribedStreamsGroup, ...]


@define(on_setattr=setters.NO_OP)
class StreamsGroupDescribe(Request[StreamsGroupDescribeResponse]):
    """Describe streams groups (API key 89, KIP-1071); other ids fail with GROUP_ID_NOT_FOUND.

    ``include_topology_description`` (KIP-1331, versions from 1) changes a status only: no plugin stores descriptions.
    """

    group_ids: tuple[str | None, ...] = names_field()
    include_authorized_operations: bool = False
    include_topology_description: bool = False


@frozen
class StreamsGroupTopologyDescriptionUpdateResponse(Response):
    """Result of storing a description."""

    error_code: ErrorCode
    error_message: str | None = None


@define
class StreamsGroupTopologyDescriptionUpdate(Request[StreamsGroupTopologyDescriptionUpdateResponse]):
    """Store the description of a topology (API key 93, KIP-1331).

    It always fails with UNSUPPORTED_VERSION, as on a broker without a plugin.
    """

    group_id: str
    member_id: str
    topology_epoch: int
