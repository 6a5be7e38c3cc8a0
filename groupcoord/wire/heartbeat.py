"""Heartbeat: key 12, versions 0-4, flexible from 4.

1: throttle time in the response. 3: instance id (KIP-345).

Written by hand for speed: it is the most frequent request of a coordinator.
"""

from groupcoord.core.messages import Heartbeat, HeartbeatResponse
from groupcoord.wire.api import Api, Decoder, Encoder, RequestHeader, VersionRange
from groupcoord.wire.primitives import (
    INT16,
    INT32_FROM,
    read_compact_nullable_string,
    read_compact_string,
    read_nullable_string,
    read_string,
    skip_tagged_fields,
)


def _decode(frame: bytes, position: int, header: RequestHeader, client_host: str) -> Heartbeat:
    group_id, middle = read_string(frame, position)
    member_id, position = read_string(frame, middle + 4)
    group_instance_id = None
    if header.api_version >= 3:
        group_instance_id, position = read_nullable_string(frame, position)
    return Heartbeat(group_id, INT32_FROM(frame, middle)[0], member_id, group_instance_id)


def _decode_flexible(frame: bytes, position: int, header: RequestHeader, client_host: str) -> Heartbeat:
    group_id, middle = read_compact_string(frame, position)
    member_id, position = read_compact_string(frame, middle + 4)
    group_instance_id, position = read_compact_nullable_string(frame, position)
    skip_tagged_fields(frame, position)
    return Heartbeat(group_id, INT32_FROM(frame, middle)[0], member_id, group_instance_id)


def _decoder(version: int) -> Decoder:
    return _decode_flexible if version >= 4 else _decode


def _encoder(version: int) -> Encoder:
    throttle_time = bytes(4) if version >= 1 else b""
    tagged_fields = b"\x00" if version >= 4 else b""
    bodies: dict[int, bytes] = {}

    def encode(response: HeartbeatResponse, header: RequestHeader) -> bytes:
        error_code = response.error_code
        body = bodies.get(error_code)
        if body is None:
            body = bodies[error_code] = throttle_time + INT16.pack(error_code) + tagged_fields
        return body

    return encode


API = Api(12, "Heartbeat", VersionRange(0, 4), 4, _decoder, _encoder)
