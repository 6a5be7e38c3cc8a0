"""AlterPartitionReassignments: key 45, versions 0-1, flexible (KIP-455).

1: whether the number of replicas may change (KIP-860).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.cluster_messages import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResponse,
    PartitionToReassign,
    TopicToReassign,
)
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced
from groupcoord.wire.topics import topic_values

_KEY = 45


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> AlterPartitionReassignments:
    topics = tuple(
        TopicToReassign(
            topic["name"],
            tuple(
                PartitionToReassign(partition["partition_index"], partition["replicas"])
                for partition in paced(topic["partitions"])
            ),
        )
        for topic in paced(values["topics"])
    )
    return AlterPartitionReassignments(
        topics, values.get("allow_replication_factor_change", True), values["timeout_ms"]
    )


def _response(response: AlterPartitionReassignmentsResponse, header: RequestHeader) -> schema.Values:
    return {
        "throttle_time_ms": 0,
        "allow_replication_factor_change": response.allow_replication_factor_change,
        "error_code": response.error_code,
        "error_message": response.error_message,
        "responses": topic_values(response.topics),
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "AlterPartitionReassignments", VersionRange(0, 1), 0, _decoder, _encoder)
