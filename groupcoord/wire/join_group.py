"""JoinGroup: key 11, versions 0-9, flexible from 6.

0: no rebalance timeout; the session timeout is used. 2: throttle time in the response. 4: a dynamic member first gets
an id (KIP-394). 5: instance ids (KIP-345). 7: the response has the protocol type, and a missing protocol name is null
(KIP-559), before it is "". 8: a reason (KIP-800). 9: skip-assignment (KIP-814).

The response is encoded by hand: the leader of a large group gets the metadata of all members.
"""

from groupcoord.core.messages import JoinedMember, JoinGroup, JoinGroupResponse, JoinProtocol
from groupcoord.wire import primitives
from groupcoord.wire.api import Api, Decoder, Encoder, RequestHeader, VersionRange
from groupcoord.wire.by_schema import decoder_of
from groupcoord.wire.newer_schemas import request_schema
from groupcoord.wire.primitives import INT16, INT32
from groupcoord.wire.schema import Values

_KEY = 11


def _request(values: Values, header: RequestHeader, client_host: str) -> JoinGroup:
    session_timeout_ms: int = values["session_timeout_ms"]
    return JoinGroup(
        group_id=values["group_id"],
        member_id=values["member_id"],
        protocol_type=values["protocol_type"],
        protocols=tuple(JoinProtocol(protocol["name"], protocol["metadata"]) for protocol in values["protocols"]),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=values.get("rebalance_timeout_ms", session_timeout_ms),
        group_instance_id=values.get("group_instance_id"),
        client_id=header.client_id,
        client_host=client_host,
        reason=values.get("reason"),
        requires_known_member_id=header.api_version >= 4,
        supports_skip_assignment=header.api_version >= 9,
    )


def _decoder(version: int) -> Decoder:
    return decoder_of(request_schema(_KEY, version), _request)


def _encoder(version: int) -> Encoder:
    return _flexible_encoder(version) if version >= 6 else _plain_encoder(version)


def _plain_encoder(version: int) -> Encoder:
    throttle_time = bytes(4) if version >= 2 else b""
    write_string = primitives.write_string
    has_instance_id = version >= 5

    def encode(response: JoinGroupResponse, header: RequestHeader) -> bytes:
        parts = [
            throttle_time,
            INT16.pack(response.error_code),
            INT32.pack(response.generation_id),
            write_string(response.protocol_name or ""),
            write_string(response.leader),
            write_string(response.member_id),
            INT32.pack(len(response.members)),
        ]
        for member_id, group_instance_id, metadata in response.members:
            parts.append(write_string(member_id))
            if has_instance_id:
                parts.append(primitives.write_nullable_string(group_instance_id))
            parts += (INT32.pack(len(metadata)), metadata)
        return b"".join(parts)

    return encode


def _flexible_encoder(version: int) -> Encoder:
    write_string = primitives.write_compact_string
    write_nullable_string = primitives.write_compact_nullable_string

    def encode(response: JoinGroupResponse, header: RequestHeader) -> bytes:
        parts = [bytes(4), INT16.pack(response.error_code), INT32.pack(response.generation_id)]
        if version >= 7:
            parts.append(write_nullable_string(response.protocol_type))
            parts.append(write_nullable_string(response.protocol_name or None))
        else:
            parts.append(write_string(response.protocol_name or ""))
        parts.append(write_string(response.leader))
        if version >= 9:
            parts.append(b"\x01" if response.skip_assignment else b"\x00")
        parts.append(write_string(response.member_id))
        parts.append(primitives.write_uvarint(len(response.members) + 1))
        parts += [_flexible_member(member) for member in response.members]
        parts.append(b"\x00")
        return b"".join(parts)

    return encode


def _flexible_member(member: JoinedMember) -> bytes:
    member_id, group_instance_id, metadata = member
    return b"%b%b%b\x00" % (
        primitives.write_compact_string(member_id),
        primitives.write_compact_nullable_string(group_instance_id),
        primitives.write_compact_bytes(metadata),
    )


API = Api(_KEY, "JoinGroup", VersionRange(0, 9), 6, _decoder, _encoder)
