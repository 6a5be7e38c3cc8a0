"""SyncGroup: key 14, versions 0-5, flexible from 4.

1: throttle time in the answer. 3: the member's instance id (KIP-345). 5: protocol type and name on both ways (KIP-559);
a request of version 5 without either is INCONSISTENT_GROUP_PROTOCOL before anything else, so it is answered here.

The answer is written by hand: there is one for every member in every round.
"""

from groupcoord.core.messages import SyncAssignment, SyncGroup, SyncGroupResponse
from groupcoord.errors import ErrorCode
from groupcoord.wire import primitives
from groupcoord.wire.api import Answered, Api, Decoder, Encoder, RequestHeader, VersionRange
from groupcoord.wire.by_schema import decoder_of
from groupcoord.wire.newer_schemas import request_schema
from groupcoord.wire.primitives import INT16
from groupcoord.wire.schema import Values

_KEY = 14
_INCONSISTENT = Answered(SyncGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))


def _request(values: Values, header: RequestHeader, client_host: str) -> SyncGroup | Answered:
    protocol_type, protocol_name = values.get("protocol_type"), values.get("protocol_name")
    if header.api_version >= 5 and (protocol_type is None or protocol_name is None):
        return _INCONSISTENT
    return SyncGroup(
        group_id=values["group_id"],
        generation_id=values["generation_id"],
        member_id=values["member_id"],
        group_instance_id=values.get("group_instance_id"),
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=tuple(SyncAssignment(given["member_id"], given["assignment"]) for given in values["assignments"]),
    )


def _decoder(version: int) -> Decoder:
    return decoder_of(request_schema(_KEY, version), _request)


def _encoder(version: int) -> Encoder:
    throttle_time = bytes(4) if version >= 1 else b""
    write_nullable_string = primitives.write_compact_nullable_string

    def encode_plain(response: SyncGroupResponse, header: RequestHeader) -> bytes:
        return throttle_time + INT16.pack(response.error_code) + primitives.write_bytes(response.assignment)

    def encode_flexible(response: SyncGroupResponse, header: RequestHeader) -> bytes:
        protocol = b""
        if version >= 5:
            protocol = write_nullable_string(response.protocol_type) + write_nullable_string(response.protocol_name)
        assignment = primitives.write_compact_bytes(response.assignment)
        return b"%b%b%b%b\x00" % (throttle_time, INT16.pack(response.error_code), protocol, assignment)

    return encode_flexible if version >= 4 else encode_plain


API = Api(_KEY, "SyncGroup", VersionRange(0, 5), 4, _decoder, _encoder)
