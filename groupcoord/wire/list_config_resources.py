"""ListConfigResources: key 74, versions 0-1, flexible (KIP-714, KIP-1142).

0: the client metrics only. 1: types can be named, and are told in the answer.
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.config_messages import ConfigResourceType, ListConfigResources, ListConfigResourcesResponse
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 74


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> ListConfigResources:
    if header.api_version == 0:
        return ListConfigResources((ConfigResourceType.CLIENT_METRICS,))
    return ListConfigResources(values["resource_types"])


def _response(response: ListConfigResourcesResponse, header: RequestHeader) -> schema.Values:
    return {
        "throttle_time_ms": 0,
        "error_code": response.error_code,
        "config_resources": [resource._asdict() for resource in paced(response.resources)],
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "ListConfigResources", VersionRange(0, 1), 0, _decoder, _encoder)
