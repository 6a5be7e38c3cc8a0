"""Metadata: key 3, versions 0-13, flexible from 9.

0: an empty list of topics stands for all; from 1 on null does. 12: topics can be requested by id.

A request with an invalid topic reference is answered here, with the broker's error code and message.
"""

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.errors import ErrorCode
from groupcoord.wire.api import Answered
from groupcoord.wire.broker_messages import Metadata, MetadataResponse, MetadataTopic, TopicReference
from groupcoord.wire.by_schema import by_schema
from groupcoord.wire.header import RequestHeader


def _request(request: Metadata, header: RequestHeader) -> Metadata | Answered:
    if not request.topics and header.api_version == 0:
        request.topics = None
    if request.topics is None:
        return request
    error_code = _reference_error(request.topics, header.api_version)
    return request if error_code is None else Answered(_refusal(request.topics, error_code))


def _reference_error(topics: tuple[TopicReference, ...], version: int) -> ErrorCode | None:
    """Return the error of a list with references that this version does not allow, or None."""
    has_ids = any(topic.topic_id != ZERO_UUID for topic in topics)
    has_nulls = any(topic.name is None for topic in topics)
    if version < 12 and (has_ids or has_nulls):
        return ErrorCode.INVALID_REQUEST
    # With ids, names are not validated.
    return ErrorCode.UNKNOWN_SERVER_ERROR if has_nulls and not has_ids else None


def _refusal(topics: tuple[TopicReference, ...], error_code: ErrorCode) -> MetadataResponse:
    refused = tuple(MetadataTopic(error_code, topic.name or "", topic.topic_id) for topic in topics)
    return MetadataResponse(brokers=(), topics=refused)


API = by_schema(3, Metadata, MetadataResponse, (0, 13), 9, adapt_request=_request)
