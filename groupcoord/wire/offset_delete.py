"""OffsetDelete: key 47, version 0, not flexible (KIP-496)."""

from collections.abc import Mapping
from typing import Any

from groupcoord.core.messages import OffsetDelete, OffsetDeleteResponse, TopicToDelete
from groupcoord.wire import schema
from groupcoord.wire.api import NEVER_FLEXIBLE, Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced
from groupcoord.wire.topics import topic_values

_KEY = 47


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> OffsetDelete:
    return OffsetDelete(values["group_id"], tuple(_topic_to_delete(topic) for topic in paced(values["topics"])))


def _topic_to_delete(values: Mapping[str, Any]) -> TopicToDelete:
    return TopicToDelete(
        values["name"], tuple(partition["partition_index"] for partition in paced(values["partitions"]))
    )


def _response(response: OffsetDeleteResponse, header: RequestHeader) -> schema.Values:
    return {
        "error_code": response.error_code,
        "throttle_time_ms": 0,
        "topics": topic_values(response.topics),
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "OffsetDelete", VersionRange(0, 0), NEVER_FLEXIBLE, _decoder, _encoder)
