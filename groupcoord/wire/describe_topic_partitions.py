"""DescribeTopicPartitions: key 75, version 0, flexible (KIP-966).

All replicas of a partition are in sync here, so none is left to be elected in need or offline.
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.cluster_messages import (
    DescribeTopicPartitions,
    DescribeTopicPartitionsResponse,
    PartitionCursor,
    TopicPartitionsDescription,
)
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 75


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> DescribeTopicPartitions:
    cursor = values["cursor"]
    return DescribeTopicPartitions(
        tuple(topic["name"] for topic in paced(values["topics"])),
        values["response_partition_limit"],
        None if cursor is None else PartitionCursor(cursor["topic_name"], cursor["partition_index"]),
    )


def _topic(topic: TopicPartitionsDescription) -> schema.Values:
    return {
        "error_code": topic.error_code,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [
            partition._asdict() | {"eligible_leader_replicas": (), "last_known_elr": ()}
            for partition in topic.partitions
        ],
        "topic_authorized_operations": topic.authorized_operations,
    }


def _response(response: DescribeTopicPartitionsResponse, header: RequestHeader) -> schema.Values:
    cursor = response.next_cursor
    return {
        "throttle_time_ms": 0,
        "topics": [_topic(topic) for topic in paced(response.topics)],
        "next_cursor": None if cursor is None else cursor._asdict(),
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "DescribeTopicPartitions", VersionRange(0, 0), 0, _decoder, _encoder)
