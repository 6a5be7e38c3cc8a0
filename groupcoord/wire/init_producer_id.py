"""InitProducerId: key 22, versions 0-5, flexible from 2.

3: a producer may say which id and epoch it has (KIP-360). 4: PRODUCER_FENCED in answers, which is
INVALID_PRODUCER_EPOCH before (KIP-588). Version 6 (two-phase commit, KIP-939) is not listed by a 4.4 broker.
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.fencing import answer_with_producer
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.transaction_messages import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitProducerId,
    InitProducerIdResponse,
)

_KEY = 22


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> InitProducerId:
    return InitProducerId(
        transactional_id=values["transactional_id"],
        transaction_timeout_ms=values["transaction_timeout_ms"],
        producer_id=values.get("producer_id", NO_PRODUCER_ID),
        producer_epoch=values.get("producer_epoch", NO_PRODUCER_EPOCH),
    )


def _response(response: InitProducerIdResponse, header: RequestHeader) -> schema.Values:
    return answer_with_producer(response, header, since=4)


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "InitProducerId", VersionRange(0, 5), 2, _decoder, _encoder)
