"""DeleteAcls: key 31, versions 1-3, flexible from 2 (KIP-140). 3: resources of the type ``USER`` (KIP-373)."""

from collections.abc import Mapping
from typing import Any

from groupcoord.errors import ErrorCode
from groupcoord.wire import schema
from groupcoord.wire.acl_fields import filter_of
from groupcoord.wire.acl_messages import DeleteAcls, DeleteAclsResponse, DeletedAcls
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 31


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> DeleteAcls:
    return DeleteAcls(tuple(filter_of(wanted) for wanted in paced(values["filters"])))


def _response(response: DeleteAclsResponse, header: RequestHeader) -> schema.Values:
    return {"throttle_time_ms": 0, "filter_results": [_result(result) for result in paced(response.results)]}


def _result(result: DeletedAcls) -> schema.Values:
    return {
        "error_code": result.error_code,
        "error_message": result.error_message,
        "matching_acls": [
            {"error_code": ErrorCode.NONE, "error_message": None} | acl._asdict() for acl in paced(result.acls)
        ],
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "DeleteAcls", VersionRange(1, 3), 2, _decoder, _encoder)
