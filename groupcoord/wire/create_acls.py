"""CreateAcls: key 30, versions 1-3, flexible from 2 (KIP-140). 3: resources of the type ``USER`` (KIP-373)."""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.acl_fields import acl_of
from groupcoord.wire.acl_messages import CreateAcls, CreateAclsResponse
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 30


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> CreateAcls:
    return CreateAcls(tuple(acl_of(creation) for creation in paced(values["creations"])))


def _response(response: CreateAclsResponse, header: RequestHeader) -> schema.Values:
    return {"throttle_time_ms": 0, "results": [result._asdict() for result in paced(response.results)]}


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "CreateAcls", VersionRange(1, 3), 2, _decoder, _encoder)
