"""CreateTopics: key 19, versions 2-7, flexible from 5.

4: -1 partitions or replicas mean the broker's default (KIP-464). 5: the answer tells the numbers and settings of what
was made (KIP-525), or that they may not be told. 7: the answer has the topic's id.
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.errors import ErrorCode
from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.broker_messages import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatedTopic,
    CreateTopics,
    CreateTopicsResponse,
)
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 19


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> CreateTopics:
    topics = tuple(
        CreatableTopic(
            topic["name"],
            topic["num_partitions"],
            topic["replication_factor"],
            tuple(CreatableReplicaAssignment(**assignment) for assignment in paced(topic["assignments"])),
            tuple(CreatableTopicConfig(**config) for config in paced(topic["configs"])),
        )
        for topic in paced(values["topics"])
    )
    return CreateTopics(topics, values["timeout_ms"], values["validate_only"])


def _response(response: CreateTopicsResponse, header: RequestHeader) -> schema.Values:
    return {"throttle_time_ms": 0, "topics": [_topic(topic) for topic in paced(response.topics)]}


def _topic(topic: CreatedTopic) -> schema.Values:
    values = {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "error_code": topic.error_code,
        "error_message": topic.error_message,
        "num_partitions": topic.num_partitions,
        "replication_factor": topic.replication_factor,
        "configs": None if topic.configs is None else [config._asdict() for config in paced(topic.configs)],
    }
    if topic.topic_config_error_code is not ErrorCode.NONE:
        values["topic_config_error_code"] = topic.topic_config_error_code
    return values


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "CreateTopics", VersionRange(2, 7), 5, _decoder, _encoder)
