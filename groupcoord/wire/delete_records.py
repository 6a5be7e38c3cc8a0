"""DeleteRecords: key 21, versions 0-2, flexible from 2."""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.broker_messages import (
    DeleteRecords,
    DeleteRecordsPartition,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced
from groupcoord.wire.topics import topic_values

_KEY = 21


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> DeleteRecords:
    topics = tuple(
        DeleteRecordsTopic(
            topic["name"], tuple(DeleteRecordsPartition(**partition) for partition in paced(topic["partitions"]))
        )
        for topic in paced(values["topics"])
    )
    return DeleteRecords(topics, values["timeout_ms"])


def _response(response: DeleteRecordsResponse, header: RequestHeader) -> schema.Values:
    return {
        "throttle_time_ms": 0,
        "topics": topic_values(response.topics),
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "DeleteRecords", VersionRange(0, 2), 2, _decoder, _encoder)
