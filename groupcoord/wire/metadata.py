"""Metadata: key 3, versions 0-13, flexible from 9.

0: an empty list of topics means all; from 1 on null does. 1: rack, controller and internal topics in the answer; 2:
cluster id. 3: throttle time. 4: the client says whether a topic may be created. 5: offline replicas; 7: leader
epochs. 8: authorized operations, of topics and (to 10) of the cluster. 10: topic ids, which can be asked for from 12
on. 13: a top-level error.

A request that is not allowed to name a topic as it does is answered here, with the error and the text of a broker.
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.core.records import ZERO_UUID
from groupcoord.errors import ErrorCode
from groupcoord.wire import schema
from groupcoord.wire.api import Answered, Api, Decoder, Encoder, VersionRange
from groupcoord.wire.broker_messages import (
    Metadata,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
    TopicReference,
)
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 3


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> Metadata | Answered:
    topics: tuple[TopicReference, ...] | None = None
    # In version 0 there is no null: no topic means all.
    if values["topics"] is not None and (values["topics"] or header.api_version > 0):
        topics = tuple(
            TopicReference(topic["name"], topic.get("topic_id", ZERO_UUID)) for topic in paced(values["topics"])
        )
        error_code = _reference_error(topics, header.api_version)
        if error_code is not None:
            return Answered(_refusal(topics, error_code))
    return Metadata(
        topics,
        values.get("allow_auto_topic_creation", True),
        values.get("include_cluster_authorized_operations", False),
        values.get("include_topic_authorized_operations", False),
    )


def _reference_error(topics: tuple[TopicReference, ...], version: int) -> ErrorCode | None:
    """Give the error of a list that names topics in a way this version may not, or not at all."""
    has_ids = any(topic.topic_id != ZERO_UUID for topic in paced(topics))
    has_nulls = any(topic.name is None for topic in paced(topics))
    if version < 12 and (has_ids or has_nulls):
        return ErrorCode.INVALID_REQUEST
    # Where there are ids, names are not looked at.
    return ErrorCode.UNKNOWN_SERVER_ERROR if has_nulls and not has_ids else None


def _refusal(topics: tuple[TopicReference, ...], error_code: ErrorCode) -> MetadataResponse:
    refused = tuple(MetadataTopic(error_code, topic.name or "", topic.topic_id) for topic in paced(topics))
    return MetadataResponse(brokers=(), topics=refused)


def _response(response: MetadataResponse, header: RequestHeader) -> schema.Values:
    return {
        "throttle_time_ms": 0,
        "brokers": [broker._asdict() for broker in paced(response.brokers)],
        "cluster_id": response.cluster_id,
        "controller_id": response.controller_id,
        "topics": [_topic(topic, header.api_version) for topic in paced(response.topics)],
        "cluster_authorized_operations": response.cluster_authorized_operations,
        "error_code": response.error_code,
    }


def _topic(topic: MetadataTopic, version: int) -> schema.Values:
    return {
        "error_code": topic.error_code,
        "name": topic.name if version >= 12 else topic.name or "",
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [MetadataPartition._asdict(partition) for partition in paced(topic.partitions)],
        "topic_authorized_operations": topic.authorized_operations,
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "Metadata", VersionRange(0, 13), 9, _decoder, _encoder)
