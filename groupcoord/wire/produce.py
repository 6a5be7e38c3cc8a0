"""Produce: key 0, versions 3-13, flexible from 9. Listed from version 0 on.

5: log start offsets in the answer. 8: errors of single records and a message in the answer (KIP-467). 13: topics by id
(KIP-516).

ApiVersions lists versions 0 to 2 as well, as a broker of 4.x does, because librdkafka counts on them (KAFKA-18659); a
request of these versions closes the connection.

Gaps: what a request holds of records is passed over; an answer never has errors of single records, and names neither
current leaders nor node endpoints (10).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.core.records import ZERO_UUID
from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.broker_messages import Produce, ProducedPartition, ProduceResponse, ProduceTopic
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 0


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> Produce:
    return Produce(
        tuple(
            ProduceTopic(
                topic.get("name"),
                topic.get("topic_id", ZERO_UUID),
                tuple(partition["index"] for partition in paced(topic["partition_data"])),
            )
            for topic in paced(values["topic_data"])
        ),
        values["acks"],
        values["transactional_id"],
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
    }


def _partition(partition: ProducedPartition) -> schema.Values:
    return {
        "index": partition.partition_index,
        "error_code": partition.error_code,
        "error_message": partition.error_message,
        "base_offset": -1,
        "log_append_time_ms": -1,
        "log_start_offset": -1,
        "record_errors": (),
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "Produce", VersionRange(3, 13), 9, _decoder, _encoder, listed_from=0)
