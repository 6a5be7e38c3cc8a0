"""DescribeQuorum: key 55, versions 0-2, flexible (KIP-595).

1: when voters fetched (KIP-836). 2: messages of errors, ids of voters' folders, addresses (KIP-853).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.core.records import ZERO_UUID
from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.cluster_messages import DescribeQuorum, DescribeQuorumResponse, PartitionsOfTopic, QuorumPartition
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 55


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> DescribeQuorum:
    return DescribeQuorum(
        tuple(
            PartitionsOfTopic(
                topic["topic_name"], tuple(partition["partition_index"] for partition in paced(topic["partitions"]))
            )
            for topic in paced(values["topics"])
        )
    )


def _partition(partition: QuorumPartition) -> schema.Values:
    voters = [voter._asdict() | {"replica_directory_id": ZERO_UUID} for voter in partition.current_voters]
    return partition._asdict() | {"error_message": None, "current_voters": voters, "observers": ()}


def _response(response: DescribeQuorumResponse, header: RequestHeader) -> schema.Values:
    nodes = [
        {"node_id": node.node_id, "listeners": [{"name": node.listener, "host": node.host, "port": node.port}]}
        for node in response.nodes
    ]
    topics = [
        {"topic_name": topic.topic_name, "partitions": [_partition(found) for found in paced(topic.partitions)]}
        for topic in paced(response.topics)
    ]
    return {
        "error_code": response.error_code,
        "error_message": response.error_message,
        "topics": topics,
        "nodes": nodes,
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "DescribeQuorum", VersionRange(0, 2), 0, _decoder, _encoder)
