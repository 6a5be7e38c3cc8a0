"""ListTransactions: key 66, versions 0-2, flexible (KIP-664).

1: how long ago they began (KIP-994). 2: a pattern for transactional ids (KIP-1152).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced
from groupcoord.wire.transaction_messages import ListTransactions, ListTransactionsResponse

_KEY = 66


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> ListTransactions:
    return ListTransactions(
        values["state_filters"],
        values["producer_id_filters"],
        values.get("duration_filter", -1),
        values.get("transactional_id_pattern"),
    )


def _response(response: ListTransactionsResponse, header: RequestHeader) -> schema.Values:
    return {
        "throttle_time_ms": 0,
        "error_code": response.error_code,
        "unknown_state_filters": response.unknown_state_filters,
        "transaction_states": [transaction._asdict() for transaction in paced(response.transactions)],
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "ListTransactions", VersionRange(0, 2), 0, _decoder, _encoder)
