"""DescribeProducers: key 61, version 0, flexible (KIP-664)."""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced
from groupcoord.wire.transaction_messages import (
    DescribedProducer,
    DescribeProducers,
    DescribeProducersResponse,
    TopicPartitions,
)

_KEY = 61


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> DescribeProducers:
    return DescribeProducers(
        tuple(TopicPartitions(topic["name"], topic["partition_indexes"]) for topic in paced(values["topics"]))
    )


def _response(response: DescribeProducersResponse, header: RequestHeader) -> schema.Values:
    return {
        "throttle_time_ms": 0,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": partition.partition_index,
                        "error_code": partition.error_code,
                        "error_message": None,
                        "active_producers": [_producer(producer) for producer in paced(partition.producers)],
                    }
                    for partition in paced(topic.partitions)
                ],
            }
            for topic in paced(response.topics)
        ],
    }


def _producer(producer: DescribedProducer) -> schema.Values:
    values = producer._asdict()
    values["last_timestamp"] = values.pop("last_timestamp_ms")
    return values


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "DescribeProducers", VersionRange(0, 0), 0, _decoder, _encoder)
