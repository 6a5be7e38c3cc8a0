"""Kafka's protocol: bytes to requests and responses to bytes, every version that a 4.4 broker lists. No I/O.

>>> frame = bytes.fromhex("000c0000000000070003666f6f" "00016700000001" "00016d")
>>> header, request = decode_request(frame, "/127.0.0.1")
>>> request
Heartbeat(group_id='g', generation_id=1, member_id='m', group_instance_id=None)
>>> from groupcoord.core.messages import HeartbeatResponse
>>> from groupcoord.errors import ErrorCode
>>> encode_response(header, HeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID)).hex(" ", 2)
'0000 0006 0000 0007 0019'

The coordinator's requests and responses are in :mod:`groupcoord.core.messages`, the others in the modules
``*_messages`` of this package.
"""

from groupcoord.wire.api import (
    Answered as Answered,
    ProtocolError as ProtocolError,
    RequestHeader as RequestHeader,
    UnknownApiError as UnknownApiError,
    UnsupportedVersionError as UnsupportedVersionError,
    VersionRange as VersionRange,
)
from groupcoord.wire.protocol import (
    WireRequest as WireRequest,
    WireResponse as WireResponse,
    decode_request as decode_request,
    encode_response as encode_response,
    encode_response_parts as encode_response_parts,
    load_newest as load_newest,
)
from groupcoord.wire.registry import API_VERSIONS as API_VERSIONS
