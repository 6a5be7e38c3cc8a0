"""DescribeAcls: key 29, versions 1-3, flexible from 2 (KIP-140). 3: resources of the type ``USER`` (KIP-373)."""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.acl_fields import filter_of
from groupcoord.wire.acl_messages import DescribeAcls, DescribeAclsResponse
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 29


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> DescribeAcls:
    return DescribeAcls(filter_of(values))


def _response(response: DescribeAclsResponse, header: RequestHeader) -> schema.Values:
    resources: dict[tuple[int, str, int], list[schema.Values]] = {}
    for acl in paced(response.acls):
        resources.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(acl._asdict())
    return {
        "throttle_time_ms": 0,
        "error_code": response.error_code,
        "error_message": response.error_message,
        "resources": [
            {"resource_type": resource_type, "resource_name": name, "pattern_type": pattern_type, "acls": acls}
            for (resource_type, name, pattern_type), acls in resources.items()
        ],
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "DescribeAcls", VersionRange(1, 3), 2, _decoder, _encoder)
