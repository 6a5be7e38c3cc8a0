"""Schemas by API and version: kio's, and those of Kafka 4.4 that kio lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequestV5:
    """ApiVersions request with the expected node (KIP-1242)."""

    __flexible__: ClassVar[bool] = True
    client_software_name: str = field(metadata={"kafka_type": "string"})
    client_software_version: str = field(metadata={"kafka_type": "string"})
    cluster_id: str | None = field(metadata={"kafka_type": "string"})
    node_id: int = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableGroupResultV3:
    """Result for one group, with a message."""

    __flexible__: ClassVar[bool] = True
    group_id: str = field(metadata={"kafka_type": "string"})
    error_code: int = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponseV3:
    """Results for groups; a 4.4 broker sends no message for the group types of this library."""

    __flexible__: ClassVar[bool] = True
    throttle_time: int = field(metadata={"kafka_type": "timedelta_i32"})
    results: tuple[DeletableGroupResultV3, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterControllerRequestV0:
    """Request of an API that kio lacks."""

    __flexible__: ClassVar[bool] = True
    controller_id: int = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterControllerResponseV0:
    """Response of an API that kio lacks."""

    __flexible__: ClassVar[bool] = True
    throttle_time: int = field(metadata={"kafka_type": "timedelta_i32"})
    error_code: int = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})


_API_VERSIONS, _DELETE_GROUPS, _UNREGISTER_CONTROLLER = 18, 42, 94
_STREAMS_GROUP_HEARTBEAT, _STREAMS_GROUP_DESCRIBE, _TOPOLOGY_DESCRIPTION_UPDATE = 88, 89, 93
_REQUESTS: Mapping[tuple[int, int], type] = {
    (_API_VERSIONS, 5): ApiVersionsRequestV5,
    (_UNREGISTER_CONTROLLER, 0): UnregisterControllerRequestV0,
}
_RESPONSES: Mapping[tuple[int, int], type] = {
    (_DELETE_GROUPS, 3): DeleteGroupsResponseV3,
    (_UNREGISTER_CONTROLLER, 0): UnregisterControllerResponseV0,
}
_OF_STREAMS_GROUPS = {(_STREAMS_GROUP_HEARTBEAT, 1), (_STREAMS_GROUP_DESCRIBE, 1), (_TOPOLOGY_DESCRIPTION_UPDATE, 0)}
_NEWEST_KNOWN = {_API_VERSIONS: 4, _DELETE_GROUPS: 2}
"""Newest versions in kio; newer ones equal them except for the schemas above."""


def request_schema(api_key: int, version: int) -> type:
    if (api_key, version) in _OF_STREAMS_GROUPS:
        from groupcoord.wire.streams_group_entities import REQUESTS

        return REQUESTS[api_key, version]
    from kio.index import load_request_schema

    own = _REQUESTS.get((api_key, version))
    return own or load_request_schema(api_key, min(version, _NEWEST_KNOWN.get(api_key, version)))


def response_schema(api_key: int, version: int) -> type:
    if (api_key, version) in _OF_STREAMS_GROUPS:
        from groupcoord.wire.streams_group_entities import RESPONSES

        return RESPONSES[api_key, version]
    from kio.index import load_response_schema

    own = _RESPONSES.get((api_key, version))
    return own or load_response_schema(api_key, min(version, _NEWEST_KNOWN.get(api_key, version)))
