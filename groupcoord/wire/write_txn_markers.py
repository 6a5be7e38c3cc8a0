"""WriteTxnMarkers: key 27, versions 1-2, flexible from 1.

2: the transaction version (KIP-1228), which only concerns the checks of partitions that hold data; it is not kept.
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced
from groupcoord.wire.topics import topic_values
from groupcoord.wire.transaction_messages import (
    MarkerToWrite,
    TopicPartitions,
    WriteTxnMarkers,
    WriteTxnMarkersResponse,
)

_KEY = 27


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> WriteTxnMarkers:
    return WriteTxnMarkers(tuple(_marker(marker) for marker in paced(values["markers"])))


def _marker(values: Mapping[str, Any]) -> MarkerToWrite:
    topics = tuple(TopicPartitions(topic["name"], topic["partition_indexes"]) for topic in paced(values["topics"]))
    return MarkerToWrite(
        values["producer_id"],
        values["producer_epoch"],
        values["transaction_result"],
        topics,
        values["coordinator_epoch"],
    )


def _response(response: WriteTxnMarkersResponse, header: RequestHeader) -> schema.Values:
    return {
        "markers": [
            {"producer_id": marker.producer_id, "topics": topic_values(marker.topics)}
            for marker in paced(response.markers)
        ]
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "WriteTxnMarkers", VersionRange(1, 2), 1, _decoder, _encoder)
