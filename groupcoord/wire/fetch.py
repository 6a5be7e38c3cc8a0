"""Fetch: key 1, versions 4-18, flexible from 12.

5: log start offsets. 7: fetch sessions (KIP-227) and a top-level error. 9: leader epochs. 11: rack and preferred
replica (KIP-392). 12: last fetched epoch, cluster id. 13: topics by id (KIP-516). 15: the replica id becomes a tagged
field (KIP-903).

Gaps: what only followers and controllers need (diverging epochs, snapshots, directory ids, high watermarks) is not
passed on; the current leader (12) and node endpoints (16) are never told.
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.core.records import ZERO_UUID
from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.broker_messages import (
    Fetch,
    FetchedPartitionData,
    FetchPartition,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 1


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> Fetch:
    replica_state = values.get("replica_state")
    return Fetch(
        tuple(
            FetchTopic(topic.get("topic"), topic.get("topic_id", ZERO_UUID), _partitions(topic["partitions"]))
            for topic in paced(values["topics"])
        ),
        max_wait_ms=values["max_wait_ms"],
        min_bytes=values["min_bytes"],
        max_bytes=values["max_bytes"],
        isolation_level=values["isolation_level"],
        session_id=values.get("session_id", 0),
        session_epoch=values.get("session_epoch", -1),
        forgotten_topics=tuple(
            ForgottenTopic(topic.get("topic"), topic.get("topic_id", ZERO_UUID), topic["partitions"])
            for topic in values.get("forgotten_topics_data", ())
        ),
        replica_id=replica_state["replica_id"] if replica_state else values.get("replica_id", -1),
        cluster_id=values.get("cluster_id"),
        rack_id=values.get("rack_id", ""),
    )


def _partitions(partitions: tuple[Mapping[str, Any], ...]) -> tuple[FetchPartition, ...]:
    return tuple(
        FetchPartition(
            partition["partition"],
            partition["fetch_offset"],
            partition["partition_max_bytes"],
            partition.get("current_leader_epoch", -1),
            partition.get("last_fetched_epoch", -1),
            partition.get("log_start_offset", -1),
        )
        for partition in paced(partitions)
    )


def _response(response: FetchResponse, header: RequestHeader) -> schema.Values:
    return {
        "throttle_time_ms": 0,
        "error_code": response.error_code,
        "session_id": response.session_id,
        "responses": [
            {
                "topic": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [_partition(partition) for partition in paced(topic.partitions)],
            }
            for topic in paced(response.topics)
        ],
    }


def _partition(partition: FetchedPartitionData) -> schema.Values:
    values = partition._asdict()
    if partition.aborted_transactions is not None:
        values["aborted_transactions"] = [
            {"producer_id": producer_id, "first_offset": first_offset}
            for producer_id, first_offset in partition.aborted_transactions
        ]
    return values


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "Fetch", VersionRange(4, 18), 12, _decoder, _encoder)
