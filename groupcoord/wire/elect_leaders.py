"""ElectLeaders: key 43, versions 0-2, flexible from 2 (KIP-183).

1: the type of election, and an error of the whole (KIP-460).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.cluster_messages import ElectLeaders, ElectLeadersResponse, PartitionsOfTopic
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 43


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> ElectLeaders:
    topics = values["topic_partitions"]
    if topics is not None:
        topics = tuple(PartitionsOfTopic(topic["topic"], topic["partitions"]) for topic in paced(topics))
    return ElectLeaders(topics, values.get("election_type", 0), values["timeout_ms"])


def _response(response: ElectLeadersResponse, header: RequestHeader) -> schema.Values:
    results = [
        {
            "topic": topic.topic,
            "partition_result": [
                {
                    "partition_id": partition.partition_index,
                    "error_code": partition.error_code,
                    "error_message": partition.error_message,
                }
                for partition in paced(topic.partitions)
            ],
        }
        for topic in paced(response.topics)
    ]
    return {"throttle_time_ms": 0, "error_code": response.error_code, "replica_election_results": results}


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "ElectLeaders", VersionRange(0, 2), 2, _decoder, _encoder)
