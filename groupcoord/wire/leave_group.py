"""LeaveGroup: key 13, versions 0-5, flexible from 4.

0-2: one member, and one error in the answer. 1: throttle time. 3: several members, with instance ids (KIP-345).
5: reasons (KIP-800).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.core.messages import LeaveGroup, LeaveGroupResponse, LeavingMember
from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 13


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> LeaveGroup:
    if header.api_version <= 2:
        return LeaveGroup(values["group_id"], (LeavingMember(values["member_id"]),))
    return LeaveGroup(values["group_id"], tuple(LeavingMember(**member) for member in paced(values["members"])))


def _response(response: LeaveGroupResponse, header: RequestHeader) -> schema.Values:
    error_code = response.error_code
    if header.api_version <= 2 and not error_code and response.members:
        error_code = response.members[0].error_code
    members = [member._asdict() for member in paced(response.members)]
    return {"throttle_time_ms": 0, "error_code": error_code, "members": members}


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "LeaveGroup", VersionRange(0, 5), 4, _decoder, _encoder)
