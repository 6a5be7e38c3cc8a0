"""EndTxn: key 26, versions 0-5, flexible from 3.

2: PRODUCER_FENCED in answers, which is INVALID_PRODUCER_EPOCH before (KIP-588). 5: each transaction ends with a new
epoch, which is in the answer (KIP-890).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.fencing import answer_with_producer
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.transaction_messages import EndTxn, EndTxnResponse

_KEY = 26


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> EndTxn:
    return EndTxn(**values, bumps_epoch=header.api_version >= 5)


def _response(response: EndTxnResponse, header: RequestHeader) -> schema.Values:
    return answer_with_producer(response, header, since=2)


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "EndTxn", VersionRange(0, 5), 3, _decoder, _encoder)
