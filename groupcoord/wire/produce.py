"""Produce: key 0, versions 3-13, flexible from 9. Listed from version 0 on.

5: log start offsets in the answer. 7: zstd (KIP-110). 8: errors of single records and a message in the answer
(KIP-467). 11, 12: transactions that an error ends, and that grow by what is written (KIP-890). 13: topics by id
(KIP-516).

ApiVersions lists versions 0 to 2 as well, as a broker of 4.x does, because librdkafka counts on them (KAFKA-18659); a
request of these versions closes the connection.

10: current leaders and where they are, for who asked another node (KIP-951).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.core.records import ZERO_UUID
from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.broker_messages import (
    NO_LEADER,
    Produce,
    ProducedPartition,
    ProducePartition,
    ProduceResponse,
    ProduceTopic,
)
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 0


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> Produce:
    version = header.api_version
    return Produce(
        tuple(
            ProduceTopic(
                topic.get("name"),
                topic.get("topic_id", ZERO_UUID),
                tuple(
                    ProducePartition(partition["index"], partition["records"])
                    for partition in paced(topic["partition_data"])
                ),
            )
            for topic in paced(values["topic_data"])
        ),
        values["acks"],
        values["transactional_id"],
        allows_zstd=version >= 7,
        knows_abortable=version >= 11,
        adds_partitions=version >= 12,
    )


def _response(response: ProduceResponse, header: RequestHeader) -> schema.Values:
    return {
        "throttle_time_ms": 0,
        "responses": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partition_responses": [_partition(partition) for partition in paced(topic.partitions)],
            }
            for topic in paced(response.topics)
        ],
        **(
            {"node_endpoints": [place._asdict() for place in response.node_endpoints]}
            if response.node_endpoints
            else {}
        ),
    }


def _partition(partition: ProducedPartition) -> schema.Values:
    leader = partition.current_leader
    return {
        "index": partition.partition_index,
        "error_code": partition.error_code,
        "error_message": partition.error_message,
        "base_offset": partition.base_offset,
        "log_append_time_ms": partition.log_append_time_ms,
        "log_start_offset": partition.log_start_offset,
        "record_errors": [
            {"batch_index": number, "batch_index_error_message": partition.error_message}
            for number in paced(partition.refused_records)
        ],
        **({} if leader is NO_LEADER else {"current_leader": leader._asdict()}),
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "Produce", VersionRange(3, 13), 9, _decoder, _encoder, listed_from=0)
