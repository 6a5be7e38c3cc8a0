"""OffsetForLeaderEpoch: key 23, versions 2-4, flexible from 4.

3: the replica id, by which followers are told from consumers (KIP-392).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.broker_messages import (
    LeaderEpochPartition,
    LeaderEpochTopic,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResponse,
)
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 23


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> OffsetForLeaderEpoch:
    topics = tuple(
        LeaderEpochTopic(
            topic["topic"],
            tuple(
                LeaderEpochPartition(
                    partition["partition"], partition["leader_epoch"], partition["current_leader_epoch"]
                )
                for partition in paced(topic["partitions"])
            ),
        )
        for topic in paced(values["topics"])
    )
    return OffsetForLeaderEpoch(topics, values.get("replica_id", -2))


def _response(response: OffsetForLeaderEpochResponse, header: RequestHeader) -> schema.Values:
    return {
        "throttle_time_ms": 0,
        "topics": [
            {
                "topic": topic.name,
                "partitions": [
                    {**partition._asdict(), "partition": partition.partition_index}
                    for partition in paced(topic.partitions)
                ],
            }
            for topic in paced(response.topics)
        ],
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "OffsetForLeaderEpoch", VersionRange(2, 4), 4, _decoder, _encoder)
