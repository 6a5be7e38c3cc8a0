"""DescribeTransactions: key 65, version 0, flexible (KIP-664)."""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, PartsEncoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced
from groupcoord.wire.transaction_messages import (
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsResponse,
)

_KEY = 65


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> DescribeTransactions:
    return DescribeTransactions(values["transactional_ids"])


def _response(response: DescribeTransactionsResponse, header: RequestHeader) -> schema.Values:
    states = [_transaction(transaction) for transaction in paced(response.transactions)]
    return {"throttle_time_ms": 0, "transaction_states": states}


def _response_of_transactions(response: DescribeTransactionsResponse, header: RequestHeader) -> schema.Values:
    return {"throttle_time_ms": 0, "transaction_states": response.transactions}


def _transaction(transaction: DescribedTransaction) -> schema.Values:
    return {
        "error_code": transaction.error_code,
        "transactional_id": transaction.transactional_id,
        "transaction_state": transaction.transaction_state,
        "transaction_timeout_ms": transaction.transaction_timeout_ms,
        "transaction_start_time_ms": transaction.transaction_start_time_ms,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "topics": [{"topic": topic.name, "partitions": topic.partition_indexes} for topic in paced(transaction.topics)],
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


def _parts_encoder(version: int) -> PartsEncoder:
    return schema.response_parts_encoder(
        _KEY, version, "transaction_states", _response_of_transactions, lambda transaction, _: _transaction(transaction)
    )


API = Api(_KEY, "DescribeTransactions", VersionRange(0, 0), 0, _decoder, _encoder, _parts_encoder)
