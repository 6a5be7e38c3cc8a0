"""Error responses: whole requests or single partitions that fail with an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, ForwardRef, get_args
from uuid import UUID

from attrs import evolve

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import OffsetCommit, OffsetFetch, Request, TopicToCommit
from groupcoord.errors import ErrorCode
from groupcoord.wire import API_VERSIONS, Answered, WireRequest, WireResponse
from groupcoord.wire.broker_messages import (
    DeleteRecords,
    Fetch,
    FetchedPartitionData,
    ListOffsets,
    Metadata,
    MetadataResponse,
    Produce,
    TopicNameOrIdEntry,
)
from groupcoord.wire.cluster_messages import ApiVersions, ApiVersionsResponse, ServedApi
from groupcoord.wire.share_messages import (
    ShareAcknowledge,
    ShareAcknowledgedPartition,
    ShareAcknowledgeResponse,
    ShareFetch,
    ShareFetchResponse,
    SharePartitionData,
    TopicIdEntry,
)

API_VERSIONS_KEY = 18


@cache
def request_types() -> dict[str, type[Any]]:
    return {kind.__name__: kind for kind in (*_leaves(Request), *get_args(WireRequest))}


def _leaves(kind: type[Any]) -> Iterator[type[Any]]:
    for subclass in kind.__subclasses__():
        yield from _leaves(subclass) if subclass.__subclasses__() else (subclass,)


def response_name(request: Any) -> str:
    for base in getattr(type(request), "__orig_bases__", ()):
        for response in get_args(base):  # several requests may have one type of response
            name: str = response.__forward_arg__ if isinstance(response, ForwardRef) else response.__name__
            return name
    return f"{type(request).__name__}Response"


def refuse_topics(response: MetadataResponse, error_code: ErrorCode) -> MetadataResponse:
    topics = tuple([topic._replace(error_code=error_code, partitions=()) for topic in response.topics])
    return evolve(response, topics=topics)


def refuse(request: WireRequest, error_code: ErrorCode) -> WireResponse | None:
    """Return the error response to a request; None for Metadata, since its response needs the broker."""
    if isinstance(request, Metadata | Answered):
        return None
    if isinstance(request, ApiVersions):
        # With UNSUPPORTED_VERSION comes the range of this API, so that clients can try again (KIP-511).
        known = (ServedApi(API_VERSIONS_KEY, *API_VERSIONS[API_VERSIONS_KEY]),)
        return ApiVersionsResponse(error_code, known if error_code is ErrorCode.UNSUPPORTED_VERSION else ())
    response: WireResponse = request.refused(error_code)
    return response


NAMING_PARTITIONS = (
    Produce,
    Fetch,
    ListOffsets,
    OffsetCommit,
    OffsetFetch,
    DeleteRecords,
    ShareFetch,
    ShareAcknowledge,
)
"""Requests of which single partitions can fail."""

Place = tuple[str | UUID, int]
Chosen = Callable[[str | UUID, int], bool]


def topic_key(topic: Any) -> str | UUID:
    key: str | UUID = getattr(topic, "name", None) or topic.topic_id
    return key


def named_partitions(request: Any) -> Iterator[Place]:
    if isinstance(request, OffsetFetch):
        topics: Iterable[Any] = (topic for group in request.groups for topic in group.topics or ())
        yield from ((topic_key(topic), index) for topic in topics for index in topic.partition_indexes)
    elif type(request) in NAMING_PARTITIONS:
        yield from ((topic_key(topic), p.partition_index) for topic in request.topics for p in topic.partitions)


def keep(request: Any, chosen: Chosen) -> Any:
    """Return a request with only the chosen partitions."""
    if isinstance(request, OffsetFetch):
        groups = [
            group if group.topics is None else evolve(group, topics=tuple(_indexes_kept(group.topics, chosen)))
            for group in request.groups
        ]
        return evolve(request, groups=tuple(groups))
    topics = []
    for topic in request.topics:
        partitions = tuple([p for p in topic.partitions if chosen(topic_key(topic), p.partition_index)])
        if partitions and isinstance(topic, TopicToCommit):
            topics.append(TopicToCommit(topic.name, partitions, topic.topic_id))
        elif partitions:
            topics.append(topic._replace(partitions=partitions))
    return evolve(request, topics=tuple(topics))


def _indexes_kept(topics: Sequence[Any], chosen: Chosen) -> Iterator[Any]:
    for topic in topics:
        indexes = tuple([index for index in topic.partition_indexes if chosen(topic_key(topic), index)])
        if indexes:
            yield evolve(topic, partition_indexes=indexes)


def without(request: Any, chosen: Chosen) -> Any:
    if isinstance(request, Fetch):
        return evolve(request, max_wait_ms=0)
    if isinstance(request, ShareFetch):
        topics = [
            topic._replace(
                partitions=tuple(
                    [
                        p._replace(acknowledgement_batches=()) if chosen(topic_key(topic), p.partition_index) else p
                        for p in topic.partitions
                    ]
                )
            )
            for topic in request.topics
        ]
        return evolve(request, max_wait_ms=0, topics=tuple(topics))
    return keep(request, lambda topic, index: not chosen(topic, index))


def refused(request: Any, places: Sequence[Place], error_code: ErrorCode) -> Any:
    """Return the response to a request with an error at some partitions and no other entries."""
    if isinstance(request, ShareFetch):
        acknowledging = {
            (topic_key(topic), p.partition_index)
            for topic in request.topics
            for p in topic.partitions
            if p.acknowledgement_batches
        }
        data = [
            TopicIdEntry(
                _topic_id(topic),
                (
                    SharePartitionData(
                        index, error_code, error_code if (topic, index) in acknowledging else ErrorCode.NONE
                    ),
                ),
            )
            for topic, index in places
        ]
        return ShareFetchResponse(ErrorCode.NONE, responses=tuple(data))
    if isinstance(request, ShareAcknowledge):
        results = [
            TopicIdEntry(_topic_id(topic), (ShareAcknowledgedPartition(index, error_code),)) for topic, index in places
        ]
        return ShareAcknowledgeResponse(ErrorCode.NONE, responses=tuple(results))
    if isinstance(request, Fetch):
        named = set(named_partitions(request))
        response = keep(request, lambda topic, index: (topic, index) in places).refused(error_code)
        missing = [place for place in places if place not in named]
        return evolve(
            response,
            error_code=ErrorCode.NONE,
            topics=(*response.topics, *_fetch_errors(missing, error_code)),
        )
    kept = keep(request, lambda topic, index: (topic, index) in places)
    if isinstance(request, OffsetFetch):
        groups = tuple([group for group in kept.groups if group.topics])
        response = evolve(kept, groups=groups).refused(ErrorCode.UNSTABLE_OFFSET_COMMIT)
        return evolve(response, groups=tuple([_with_error(group, error_code) for group in response.groups]))
    return kept.refused(error_code)


def _topic_id(topic: str | UUID) -> UUID:
    assert isinstance(topic, UUID), "share consumers name topics by id"
    return topic


def _fetch_errors(places: Iterable[Place], error_code: ErrorCode) -> Iterator[Any]:
    for topic, index in places:
        name, topic_id = (topic, ZERO_UUID) if isinstance(topic, str) else (None, topic)
        yield TopicNameOrIdEntry(name, topic_id, (FetchedPartitionData(index, error_code),))


def _with_error(group: Any, error_code: ErrorCode) -> Any:
    topics = [
        topic._replace(partitions=tuple([p._replace(error_code=error_code) for p in topic.partitions]))
        for topic in group.topics
    ]
    return group._replace(topics=tuple(topics))


def merge(response: Any, failed: Any) -> Any:
    """Return a response with the entries of failed partitions added."""
    if getattr(response, "error_code", ErrorCode.NONE) is not ErrorCode.NONE:
        return response
    if hasattr(response, "groups"):
        extra = {group.group_id: group.topics for group in failed.groups}
        groups = [
            group
            if group.error_code is not ErrorCode.NONE
            else group._replace(topics=_merged(group.topics, extra.get(group.group_id, ())))
            for group in response.groups
        ]
        return evolve(response, groups=tuple(groups))
    name = "responses" if hasattr(response, "responses") else "topics"
    return evolve(response, **{name: _merged(getattr(response, name), getattr(failed, name))})


def _merged(topics: Sequence[Any], failed: Sequence[Any]) -> tuple[Any, ...]:
    gone = {(topic_key(topic), p.partition_index) for topic in failed for p in topic.partitions}
    kept = []
    for topic in topics:
        partitions = tuple([p for p in topic.partitions if (topic_key(topic), p.partition_index) not in gone])
        if len(partitions) == len(topic.partitions):
            kept.append(topic)
        elif partitions:
            kept.append(topic._replace(partitions=partitions))
    return (*kept, *failed)
