"""Entities in kio's form, of versions that Kafka 4.4 has and kio does not: those that transcripts have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.streams_group_describe.v0 import response as described
from kio.schema.streams_group_heartbeat.v0 import request as heartbeat_request
from kio.schema.streams_group_heartbeat.v0 import response as heartbeat_response
from kio.schema.types import GroupId
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

_HEARTBEAT, _DESCRIBE = i16(88), i16(89)
_FIRST = i16(1)


_BOOL = {"kafka_type": "bool"}
_ERROR_CODE = {"kafka_type": "error_code"}
_INT32 = {"kafka_type": "int32"}
_INT64 = {"kafka_type": "int64"}
_INT8 = {"kafka_type": "int8"}
_STRING = {"kafka_type": "string"}
_TIMEDELTA_I32 = {"kafka_type": "timedelta_i32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupHeartbeatRequest(heartbeat_request.StreamsGroupHeartbeatRequest):
    """Version 1 differs in its number alone."""

    __version__: ClassVar[i16] = _FIRST


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupHeartbeatResponse:
    """Version 1: the lag has eight bytes and another place, and a description may be asked for."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = _FIRST
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = _HEARTBEAT
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
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
class StreamsGroupDescribeRequest:
    """Version 1: the description of the topology may be asked for."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = _FIRST
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = _DESCRIBE
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    group_ids: tuple[GroupId, ...] = field(metadata=_STRING, default=())
    include_authorized_operations: bool = field(metadata=_BOOL)
    include_topology_description: bool = field(metadata=_BOOL, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescription:
    """What a plugin has stored: nothing that could be read here, since there are none."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = _FIRST
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = _DESCRIBE
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """Version 1: with the description of the topology, and the name of the assignor."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = _FIRST
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = _DESCRIBE
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
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
class StreamsGroupDescribeResponse:
    """Version 1 of the groups."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = _FIRST
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = _DESCRIBE
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32Timedelta = field(metadata=_TIMEDELTA_I32)
    groups: tuple[DescribedGroup, ...]


_REQUESTS: Mapping[tuple[int, int], type] = {
    (_HEARTBEAT, _FIRST): StreamsGroupHeartbeatRequest,
    (_DESCRIBE, _FIRST): StreamsGroupDescribeRequest,
}
_RESPONSES: Mapping[tuple[int, int], type] = {
    (_HEARTBEAT, _FIRST): StreamsGroupHeartbeatResponse,
    (_DESCRIBE, _FIRST): StreamsGroupDescribeResponse,
}

Loader = Callable[[int, int], Any]
"""Returns the class of an API's version; raises ``kio.index.UnknownEntity`` if there is none."""


def request_entity(api_key: int, version: int) -> Any:
    """Return the class of a request."""
    return _REQUESTS.get((api_key, version)) or load_request_schema(api_key, version)


def response_entity(api_key: int, version: int) -> Any:
    """Return the class of a response."""
    return _RESPONSES.get((api_key, version)) or load_response_schema(api_key, version)
