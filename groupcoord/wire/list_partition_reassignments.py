"""ListPartitionReassignments: key 46, version 0, flexible (KIP-455)."""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.cluster_messages import (
    ListPartitionReassignments,
    ListPartitionReassignmentsResponse,
    PartitionsOfTopic,
)
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 46


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> ListPartitionReassignments:
    topics = values["topics"]
    if topics is not None:
        topics = tuple(PartitionsOfTopic(topic["name"], topic["partition_indexes"]) for topic in paced(topics))
    return ListPartitionReassignments(topics, values["timeout_ms"])


def _response(response: ListPartitionReassignmentsResponse, header: RequestHeader) -> schema.Values:
    nowhere: schema.Values = {"replicas": (), "adding_replicas": (), "removing_replicas": ()}
    topics = [
        {
            "name": topic.topic,
            "partitions": [{"partition_index": index} | nowhere for index in paced(topic.partition_indexes)],
        }
        for topic in paced(response.topics)
    ]
    return {
        "throttle_time_ms": 0,
        "error_code": response.error_code,
        "error_message": response.error_message,
        "topics": topics,
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "ListPartitionReassignments", VersionRange(0, 0), 0, _decoder, _encoder)
