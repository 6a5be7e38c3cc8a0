"""Schemas of streams groups (KIP-1071) that Kafka 4.4 has and kio does not: versions with descriptions (KIP-1331)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar


def _of(kafka_type: str) -> Any:
    return field(metadata={"kafka_type": kafka_type})


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What an application should know."""

    __flexible__: ClassVar[bool] = True
    status_code: int = _of("int8")
    status_detail: str = _of("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIds:
    """Tasks of one subtopology."""

    __flexible__: ClassVar[bool] = True
    subtopology_id: str = _of("string")
    partitions: tuple[int, ...] = _of("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a member answers."""

    __flexible__: ClassVar[bool] = True
    host: str = _of("string")
    port: int = _of("uint16")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartition:
    """Partitions of one topic."""

    __flexible__: ClassVar[bool] = True
    topic: str = _of("string")
    partitions: tuple[int, ...] = _of("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointToPartitions:
    """What is found at an endpoint."""

    __flexible__: ClassVar[bool] = True
    user_endpoint: Endpoint
    active_partitions: tuple[TopicPartition, ...]
    standby_partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupHeartbeatResponseV1:
    """The lag is an int64 behind the interval, and a description may be wanted."""

    __flexible__: ClassVar[bool] = True
    throttle_time: int = _of("timedelta_i32")
    error_code: int = _of("error_code")
    error_message: str | None = _of("string")
    member_id: str = _of("string")
    member_epoch: int = _of("int32")
    heartbeat_interval: int = _of("timedelta_i32")
    task_offset_interval: int = _of("timedelta_i32")
    acceptable_recovery_lag: int = _of("int64")
    status: tuple[Status, ...] | None
    active_tasks: tuple[TaskIds, ...] | None
    standby_tasks: tuple[TaskIds, ...] | None
    warmup_tasks: tuple[TaskIds, ...] | None
    topology_description_required: bool = _of("bool")
    endpoint_information_epoch: int = _of("int32")
    partitions_by_user_endpoint: tuple[EndpointToPartitions, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupDescribeRequestV1:
    """Which groups, and what of them."""

    __flexible__: ClassVar[bool] = True
    group_ids: tuple[str, ...] = _of("string")
    include_authorized_operations: bool = _of("bool")
    include_topology_description: bool = _of("bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    """A setting or a tag."""

    __flexible__: ClassVar[bool] = True
    key: str = _of("string")
    value: str = _of("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """An internal topic."""

    __flexible__: ClassVar[bool] = True
    name: str = _of("string")
    partitions: int = _of("int32")
    replication_factor: int = _of("int16")
    topic_configs: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology:
    """A part of a topology."""

    __flexible__: ClassVar[bool] = True
    subtopology_id: str = _of("string")
    source_topics: tuple[str, ...] = _of("string")
    repartition_sink_topics: tuple[str, ...] = _of("string")
    state_changelog_topics: tuple[TopicInfo, ...]
    repartition_source_topics: tuple[TopicInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A topology."""

    __flexible__: ClassVar[bool] = True
    epoch: int = _of("int32")
    subtopologies: tuple[Subtopology, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOffset:
    """How far a task is."""

    __flexible__: ClassVar[bool] = True
    subtopology_id: str = _of("string")
    partition: int = _of("int32")
    offset: int = _of("int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Tasks of a member."""

    __flexible__: ClassVar[bool] = True
    active_tasks: tuple[TaskIds, ...]
    standby_tasks: tuple[TaskIds, ...]
    warmup_tasks: tuple[TaskIds, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member."""

    __flexible__: ClassVar[bool] = True
    member_id: str = _of("string")
    member_epoch: int = _of("int32")
    instance_id: str | None = _of("string")
    rack_id: str | None = _of("string")
    client_id: str = _of("string")
    client_host: str = _of("string")
    topology_epoch: int = _of("int32")
    process_id: str = _of("string")
    user_endpoint: Endpoint | None
    client_tags: tuple[KeyValue, ...]
    task_offsets: tuple[TaskOffset, ...]
    task_end_offsets: tuple[TaskOffset, ...]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: bool = _of("bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescriptionNode:
    """A node of a topology."""

    __flexible__: ClassVar[bool] = True
    name: str = _of("string")
    node_type: int = _of("int8")
    source_topics: tuple[str, ...] = _of("string")
    sink_topic: str | None = _of("string")
    stores: tuple[str, ...] = _of("string")
    successors: tuple[str, ...] = _of("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescriptionSubtopology:
    """The nodes of a subtopology."""

    __flexible__: ClassVar[bool] = True
    subtopology_id: str = _of("string")
    nodes: tuple[TopologyDescriptionNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescriptionGlobalStore:
    """A global store."""

    __flexible__: ClassVar[bool] = True
    source: TopologyDescriptionNode
    processor: TopologyDescriptionNode


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescription:
    """What a topology looks like."""

    __flexible__: ClassVar[bool] = True
    subtopologies: tuple[TopologyDescriptionSubtopology, ...]
    global_stores: tuple[TopologyDescriptionGlobalStore, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """A group."""

    __flexible__: ClassVar[bool] = True
    error_code: int = _of("error_code")
    error_message: str | None = _of("string")
    group_id: str = _of("string")
    group_state: str = _of("string")
    group_epoch: int = _of("int32")
    assignment_epoch: int = _of("int32")
    topology: Topology | None
    members: tuple[Member, ...]
    authorized_operations: int = _of("int32")
    topology_description: TopologyDescription | None
    topology_description_status: int = _of("int8")
    assignor_name: str | None = _of("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupDescribeResponseV1:
    """Groups, with the description of their topology and the name of the assignor (KIP-1357)."""

    __flexible__: ClassVar[bool] = True
    throttle_time: int = _of("timedelta_i32")
    groups: tuple[DescribedGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescriptionUpdateRequestV0:
    """A description to store."""

    __flexible__: ClassVar[bool] = True
    group_id: str = _of("string")
    member_id: str = _of("string")
    topology_epoch: int = _of("int32")
    topology_description: TopologyDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescriptionUpdateResponseV0:
    """Whether it was stored."""

    __flexible__: ClassVar[bool] = True
    throttle_time: int = _of("timedelta_i32")
    error_code: int = _of("error_code")
    error_message: str | None = _of("string")
