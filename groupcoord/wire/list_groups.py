"""ListGroups: key 16, versions 0-5, flexible from 3.

1: throttle time. 4: filter by state, and states in the answer (KIP-518). 5: the same for types (KIP-848).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.core.messages import ListGroups, ListGroupsResponse
from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 16


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> ListGroups:
    return ListGroups(**values)


def _response(response: ListGroupsResponse, header: RequestHeader) -> schema.Values:
    groups = [group._asdict() for group in paced(response.groups)]
    return {"throttle_time_ms": 0, "error_code": response.error_code, "groups": groups}


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "ListGroups", VersionRange(0, 5), 3, _decoder, _encoder)
