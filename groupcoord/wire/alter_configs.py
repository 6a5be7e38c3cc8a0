"""AlterConfigs: key 33, versions 0-2, flexible from 2.

Nothing else changes between the versions.
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.config_messages import (
    AlterConfigs,
    AlterConfigsResponse,
    ConfigToAlter,
    IncrementalAlterConfigsResponse,
    ResourceToAlter,
)
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 33


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> AlterConfigs:
    return AlterConfigs(resources_to_alter(values), values["validate_only"])


def resources_to_alter(values: Mapping[str, Any]) -> tuple[ResourceToAlter, ...]:
    """Return the things of a request that changes settings, whether all of a thing's or some."""
    return tuple(_resource(resource) for resource in paced(values["resources"]))


def _resource(resource: Mapping[str, Any]) -> ResourceToAlter:
    configs = tuple(ConfigToAlter(**config) for config in paced(resource["configs"]))
    return ResourceToAlter(resource["resource_type"], resource["resource_name"], configs)


def altered_resources(
    response: AlterConfigsResponse | IncrementalAlterConfigsResponse, header: RequestHeader
) -> schema.Values:
    """Return the fields of an answer that says what became of each thing."""
    return {"throttle_time_ms": 0, "responses": [resource._asdict() for resource in paced(response.responses)]}


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, altered_resources)


API = Api(_KEY, "AlterConfigs", VersionRange(0, 2), 2, _decoder, _encoder)
