"""CreatePartitions: key 37, versions 0-3, flexible from 2.

Nothing else changes between the versions.
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.broker_messages import CreatePartitions, CreatePartitionsResponse, CreatePartitionsTopic
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 37


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> CreatePartitions:
    return CreatePartitions(
        tuple(_topic(topic) for topic in paced(values["topics"])), values["timeout_ms"], values["validate_only"]
    )


def _topic(topic: Mapping[str, Any]) -> CreatePartitionsTopic:
    assignments = topic["assignments"]
    if assignments is not None:
        assignments = tuple(assignment["broker_ids"] for assignment in assignments)
    return CreatePartitionsTopic(topic["name"], topic["count"], assignments)


def _response(response: CreatePartitionsResponse, header: RequestHeader) -> schema.Values:
    return {"throttle_time_ms": 0, "results": [result._asdict() for result in paced(response.results)]}


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "CreatePartitions", VersionRange(0, 3), 2, _decoder, _encoder)
