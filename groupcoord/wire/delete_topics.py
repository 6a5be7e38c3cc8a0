"""DeleteTopics: key 20, versions 1-6, flexible from 4.

5: an error message in the answer. 6: topics by name or by id.
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.broker_messages import DeleteTopics, DeleteTopicsResponse, TopicReference
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 20


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> DeleteTopics:
    if header.api_version >= 6:
        topics = tuple(TopicReference(topic["name"], topic["topic_id"]) for topic in paced(values["topics"]))
    else:
        topics = tuple(TopicReference(name) for name in paced(values["topic_names"]))
    return DeleteTopics(topics, values["timeout_ms"])


def _response(response: DeleteTopicsResponse, header: RequestHeader) -> schema.Values:
    return {"throttle_time_ms": 0, "responses": [topic._asdict() for topic in paced(response.responses)]}


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "DeleteTopics", VersionRange(1, 6), 4, _decoder, _encoder)
