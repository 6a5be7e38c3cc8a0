"""Heartbeat: key 12, versions 0-4, flexible from 4.

1: throttle time in the answer. 3: the member's instance id (KIP-345).

Read and written by hand: it is the request that a coordinator sees most.
"""

from functools import lru_cache

from groupcoord.core.messages import Heartbeat, HeartbeatResponse
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.primitives import (
    INT16,
    INT32_FROM,
    read_compact_nullable_string,
    read_compact_string,
    read_nullable_string,
    read_string,
    skip_tagged_fields,
)

_REMEMBERED, _REMEMBERED_BYTES_MAX = 8_192, 256


def _plain(body: bytes) -> Heartbeat:
    group_id, position = read_string(body, 0)
    member_id, _ = read_string(body, position + 4)
    return Heartbeat(group_id, INT32_FROM(body, position)[0], member_id)


def _with_instance(body: bytes) -> Heartbeat:
    group_id, position = read_string(body, 0)
    member_id, end = read_string(body, position + 4)
    group_instance_id, _ = read_nullable_string(body, end)
    return Heartbeat(group_id, INT32_FROM(body, position)[0], member_id, group_instance_id)


def _flexible(body: bytes) -> Heartbeat:
    group_id, position = read_compact_string(body, 0)
    member_id, end = read_compact_string(body, position + 4)
    group_instance_id, end = read_compact_nullable_string(body, end)
    skip_tagged_fields(body, end)
    return Heartbeat(group_id, INT32_FROM(body, position)[0], member_id, group_instance_id)


def _decoder(version: int) -> Decoder:
    read = _flexible if version >= 4 else _with_instance if version == 3 else _plain
    # A member says the same again and again, so what it said before is kept.
    remember = lru_cache(maxsize=_REMEMBERED)(read)

    def decode(frame: bytes, position: int, header: RequestHeader, client_host: str) -> Heartbeat:
        body = frame[position:]
        return remember(body) if len(body) <= _REMEMBERED_BYTES_MAX else read(body)

    return decode


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
