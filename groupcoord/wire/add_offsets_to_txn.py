"""AddOffsetsToTxn: key 25, versions 0-4, flexible from 3.

2: PRODUCER_FENCED in answers, which is INVALID_PRODUCER_EPOCH before (KIP-588).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.fencing import fenced
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.transaction_messages import AddOffsetsToTxn, AddOffsetsToTxnResponse

_KEY = 25


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> AddOffsetsToTxn:
    return AddOffsetsToTxn(**values)


def _response(response: AddOffsetsToTxnResponse, header: RequestHeader) -> schema.Values:
    return {"throttle_time_ms": 0, "error_code": fenced(response.error_code, header.api_version, since=2)}


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "AddOffsetsToTxn", VersionRange(0, 4), 3, _decoder, _encoder)
