"""Schemas by API and version: kio's, and those of Kafka 4.4 that kio lacks, as a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, make_dataclass
from functools import cache
from importlib import import_module
from typing import Any

_API_VERSIONS, _DELETE_GROUPS, _UNREGISTER_CONTROLLER = 18, 42, 94
_STREAMS_GROUP_HEARTBEAT, _STREAMS_GROUP_DESCRIBE, _TOPOLOGY_DESCRIPTION_UPDATE = 88, 89, 93

_EQUAL_VERSIONS = {
    ("response", _API_VERSIONS, 5): 4,
    ("request", _DELETE_GROUPS, 3): 2,
    ("request", _STREAMS_GROUP_HEARTBEAT, 1): 0,
}
"""Versions in kio that newer ones equal."""

_MESSAGES = {
    ("request", _API_VERSIONS, 5): "ApiVersionsRequest",  # with the expected node (KIP-1242)
    ("response", _DELETE_GROUPS, 3): "DeleteGroupsResponse",  # a 4.4 broker leaves the messages null
    ("request", _UNREGISTER_CONTROLLER, 0): "UnregisterControllerRequest",
    ("response", _UNREGISTER_CONTROLLER, 0): "UnregisterControllerResponse",
    # The lag has eight bytes and another place; the broker may request the topology's description (KIP-1331).
    ("response", _STREAMS_GROUP_HEARTBEAT, 1): "StreamsGroupHeartbeatResponse",
    ("request", _STREAMS_GROUP_DESCRIBE, 1): "StreamsGroupDescribeRequest",
    # With the topology's description and the assignor's name (KIP-1357).
    ("response", _STREAMS_GROUP_DESCRIBE, 1): "StreamsGroupDescribeResponse",
    ("request", _TOPOLOGY_DESCRIPTION_UPDATE, 0): "TopologyDescriptionUpdateRequest",
    ("response", _TOPOLOGY_DESCRIPTION_UPDATE, 0): "TopologyDescriptionUpdateResponse",
}

_FIELDS = {
    "ApiVersionsRequest": "client_software_name string, client_software_version string, cluster_id string?, "
    "node_id int32",
    "DeleteGroupsResponse": "throttle_time timedelta_i32, results DeletableGroupResult[]",
    "DeletableGroupResult": "group_id string, error_code error_code, error_message string?",
    "UnregisterControllerRequest": "controller_id int32",
    "UnregisterControllerResponse": "throttle_time timedelta_i32, error_code error_code, error_message string?",
    "StreamsGroupHeartbeatResponse": "throttle_time timedelta_i32, error_code error_code, error_message string?, "
    "member_id string, member_epoch int32, heartbeat_interval timedelta_i32, task_offset_interval timedelta_i32, "
    "acceptable_recovery_lag int64, status Status[]?, active_tasks TaskIds[]?, standby_tasks TaskIds[]?, "
    "warmup_tasks TaskIds[]?, topology_description_required bool, endpoint_information_epoch int32, "
    "partitions_by_user_endpoint EndpointToPartitions[]?",
    "StreamsGroupDescribeRequest": "group_ids string[], include_authorized_operations bool, "
    "include_topology_description bool",
    "StreamsGroupDescribeResponse": "throttle_time timedelta_i32, groups DescribedGroup[]",
    "DescribedGroup": "error_code error_code, error_message string?, group_id string, group_state string, "
    "group_epoch int32, assignment_epoch int32, topology Topology?, members Member[], authorized_operations int32, "
    "topology_description TopologyDescription?, topology_description_status int8, assignor_name string?",
    "TopologyDescriptionUpdateRequest": "group_id string, member_id string, topology_epoch int32, "
    "topology_description TopologyDescription",
    "TopologyDescriptionUpdateResponse": "throttle_time timedelta_i32, error_code error_code, error_message string?",
    "TopologyDescription": "subtopologies TopologyDescriptionSubtopology[], "
    "global_stores TopologyDescriptionGlobalStore[]",
    "TopologyDescriptionSubtopology": "subtopology_id string, nodes TopologyDescriptionNode[]",
    "TopologyDescriptionGlobalStore": "source TopologyDescriptionNode, processor TopologyDescriptionNode",
    "TopologyDescriptionNode": "name string, node_type int8, source_topics string[], sink_topic string?, "
    "stores string[], successors string[]",
}
"""Fields of messages and structures: ``?`` marks nullable ones, ``[]`` arrays. All versions are flexible."""

_OF_KIO = {
    **dict.fromkeys(("Status", "TaskIds", "EndpointToPartitions"), "kio.schema.streams_group_heartbeat.v0.response"),
    **dict.fromkeys(("Topology", "Member"), "kio.schema.streams_group_describe.v0.response"),
}
"""Structures that are equal in a version that kio has, with their modules."""


def request_schema(api_key: int, version: int) -> type[Any]:
    return _schema("request", api_key, version)


def response_schema(api_key: int, version: int) -> type[Any]:
    return _schema("response", api_key, version)


@cache
def _schema(kind: str, api_key: int, version: int) -> type[Any]:
    own = _MESSAGES.get((kind, api_key, version))
    if own is not None:
        return _structure(own)
    from kio.index import load_request_schema, load_response_schema

    load = load_request_schema if kind == "request" else load_response_schema
    return load(api_key, _EQUAL_VERSIONS.get((kind, api_key, version), version))


@cache
def _structure(name: str) -> type[Any]:
    """Return a dataclass like kio's. Nullable fields, arrays and booleans have defaults."""
    if name in _OF_KIO:
        structure: type[Any] = getattr(import_module(_OF_KIO[name]), name)
        return structure
    from kio.schema.errors import ErrorCode
    from kio.schema.request_header.v2.header import RequestHeader
    from kio.schema.response_header.v1.header import ResponseHeader
    from kio.static import primitive

    scalars: Mapping[str, type[Any]] = {
        "bool": bool,
        "string": str,
        "error_code": ErrorCode,
        "int8": primitive.i8,
        "int32": primitive.i32,
        "int64": primitive.i64,
        "timedelta_i32": primitive.i32Timedelta,
    }
    fields = []
    for field_name, type_name, array, nullable in re.findall(r"(\w+) (\w+)(\[\])?(\?)?", _FIELDS[name]):
        kind: Any = scalars.get(type_name) or _structure(type_name)
        options: dict[str, Any] = {"metadata": {"kafka_type": type_name} if type_name in scalars else {}}
        if array or nullable or kind is bool:
            options["default"] = None if nullable else () if array else False
        kind = tuple[kind, ...] if array else kind
        fields.append((field_name, kind | None if nullable else kind, field(**options)))
    header = RequestHeader if name.endswith("Request") else ResponseHeader
    namespace = {"__flexible__": True, "__header_schema__": header}
    return make_dataclass(name, fields, namespace=namespace, frozen=True, slots=True, kw_only=True)
