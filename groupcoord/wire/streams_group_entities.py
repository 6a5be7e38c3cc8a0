"""Schemas of streams groups (KIP-1071) in kio's form, of versions of Kafka 4.4 that kio lacks (KIP-1331).

Parts that are equal in earlier versions are kio's. Importing this module imports kio's schemas, so it is imported on
first use.
"""

# No annotations as text: kio reads them from its entities.

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.streams_group_describe.v0 import response as described
from kio.schema.streams_group_heartbeat.v0 import request as heartbeat_request
from kio.schema.streams_group_heartbeat.v0 import response as heartbeat_response
from kio.schema.types import GroupId
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

_HEARTBEAT, _DESCRIBE, _DESCRIPTION_UPDATE = i16(88), i16(89), i16(93)

_BOOL = {"kafka_type": "bool"}
_ERROR_CODE = {"kafka_type": "error_code"}
_INT32 = {"kafka_type": "int32"}
_INT64 = {"kafka_type": "int64"}
_INT8 = {"kafka_type": "int8"}
_STRING = {"kafka_type": "string"}
_TIMEDELTA_I32 = {"kafka_type": "timedelta_i32"}


class _Request:
    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.request
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class _Response:
    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.response
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


class _OfDescription(_Response):
    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.nested
    __api_key__: ClassVar[i16] = _DESCRIBE


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupHeartbeatRequest(heartbeat_request.StreamsGroupHeartbeatRequest):
    """Version 1, which equals version 0."""

    __version__: ClassVar[i16] = i16(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupHeartbeatResponse(_Response):
    """Version 1: the lag has eight bytes and another place, and the broker may request a
    description of the topology.
    """

    __api_key__: ClassVar[i16] = _HEARTBEAT
    throttle_time: i32Timedelta = field(metadata=_TIMEDELTA_I32)
    error_code: ErrorCode = field(metadata=_ERROR_CODE)
    error_message: str | None = field(metadata=_STRING, default=None)
    member_id: str = field(metadata=_STRING)
    member_epoch: i32 = field(metadata=_INT32)
    heartbeat_interval: i32Timedelta = field(metadata=_TIMEDELTA_I32)
    task_offset_interval: i32Timedelta = field(metadata=_TIMEDELTA_I32)
    acceptable_recovery_lag: i64 = field(metadata=_INT64)
    status: tuple[heartbeat_response.Status, ...] | None
    active_tasks: tuple[heartbeat_response.TaskIds, ...] | None
    standby_tasks: tuple[heartbeat_response.TaskIds, ...] | None
    warmup_tasks: tuple[heartbeat_response.TaskIds, ...] | None
    topology_description_required: bool = field(metadata=_BOOL)
    endpoint_information_epoch: i32 = field(metadata=_INT32)
    partitions_by_user_endpoint: tuple[heartbeat_response.EndpointToPartitions, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupDescribeRequest(_Request):
    """Version 1: the client may request the description of the topology."""

    __api_key__: ClassVar[i16] = _DESCRIBE
    group_ids: tuple[GroupId, ...] = field(metadata=_STRING, default=())
    include_authorized_operations: bool = field(metadata=_BOOL)
    include_topology_description: bool = field(metadata=_BOOL, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescriptionNode(_OfDescription):
    """A node of a topology."""

    name: str = field(metadata=_STRING)
    node_type: i8 = field(metadata=_INT8)
    source_topics: tuple[str, ...] = field(metadata=_STRING)
    sink_topic: str | None = field(metadata=_STRING)
    stores: tuple[str, ...] = field(metadata=_STRING)
    successors: tuple[str, ...] = field(metadata=_STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescriptionSubtopology(_OfDescription):
    """The nodes of a subtopology."""

    subtopology_id: str = field(metadata=_STRING)
    nodes: tuple[TopologyDescriptionNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescriptionGlobalStore(_OfDescription):
    """A global store."""

    source: TopologyDescriptionNode
    processor: TopologyDescriptionNode


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescription(_OfDescription):
    """A topology, as a plugin of the broker stores it."""

    subtopologies: tuple[TopologyDescriptionSubtopology, ...]
    global_stores: tuple[TopologyDescriptionGlobalStore, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup(_OfDescription):
    """Version 1: with the description of the topology, and the name of the assignor (KIP-1357)."""

    error_code: ErrorCode = field(metadata=_ERROR_CODE)
    error_message: str | None = field(metadata=_STRING, default=None)
    group_id: GroupId = field(metadata=_STRING)
    group_state: str = field(metadata=_STRING)
    group_epoch: i32 = field(metadata=_INT32)
    assignment_epoch: i32 = field(metadata=_INT32)
    topology: described.Topology | None = field(default=None)
    members: tuple[described.Member, ...]
    authorized_operations: i32 = field(metadata=_INT32)
    topology_description: TopologyDescription | None = field(default=None)
    topology_description_status: i8 = field(metadata=_INT8)
    assignor_name: str | None = field(metadata=_STRING, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupDescribeResponse(_Response):
    """Version 1 of the groups."""

    __api_key__: ClassVar[i16] = _DESCRIBE
    throttle_time: i32Timedelta = field(metadata=_TIMEDELTA_I32)
    groups: tuple[DescribedGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescriptionUpdateRequest(_Request):
    """A description to store."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = _DESCRIPTION_UPDATE
    group_id: GroupId = field(metadata=_STRING)
    member_id: str = field(metadata=_STRING)
    topology_epoch: i32 = field(metadata=_INT32)
    topology_description: TopologyDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescriptionUpdateResponse(_Response):
    """Result of storing a description."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = _DESCRIPTION_UPDATE
    throttle_time: i32Timedelta = field(metadata=_TIMEDELTA_I32)
    error_code: ErrorCode = field(metadata=_ERROR_CODE)
    error_message: str | None = field(metadata=_STRING)


REQUESTS: Mapping[tuple[int, int], type[Any]] = {
    (_HEARTBEAT, 1): StreamsGroupHeartbeatRequest,
    (_DESCRIBE, 1): StreamsGroupDescribeRequest,
    (_DESCRIPTION_UPDATE, 0): TopologyDescriptionUpdateRequest,
}
RESPONSES: Mapping[tuple[int, int], type[Any]] = {
    (_HEARTBEAT, 1): StreamsGroupHeartbeatResponse,
    (_DESCRIBE, 1): StreamsGroupDescribeResponse,
    (_DESCRIPTION_UPDATE, 0): TopologyDescriptionUpdateResponse,
}
"""By API key and version."""
