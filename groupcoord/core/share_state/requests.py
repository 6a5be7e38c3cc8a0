"""Parts of share coordinator requests by share-partition, and responses put together from results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID

from attrs import evolve

from groupcoord.core.messages.share_state import ShareStateRequest, ShareStateResponse, StateRequest
from groupcoord.core.share_state.partition import AnyResult

TopicIdPartition = tuple[UUID, int]


def part_of(request: ShareStateRequest, wanted: set[TopicIdPartition]) -> ShareStateRequest:
    """Return a request with those of its partitions that are wanted."""
    whole = cast(Any, request)
    topics = [
        topic._replace(
            partitions=tuple([entry for entry in topic.partitions if (topic.topic_id, entry.partition) in wanted])
        )
        for topic in whole.topics
    ]
    return cast(ShareStateRequest, evolve(whole, topics=tuple([topic for topic in topics if topic.partitions])))


def results_of(response: ShareStateResponse) -> dict[TopicIdPartition, AnyResult]:
    """Return the result of each partition."""
    return {(topic.topic_id, result.partition): result for topic in response.results for result in topic.partitions}


def answer_of(request: ShareStateRequest, results: Mapping[TopicIdPartition, AnyResult]) -> ShareStateResponse:
    """Return the answer to a request, put together from the results of its partitions."""
    form = cast(StateRequest[Any], request)
    topics = [
        form.TOPIC_RESULT(topic.topic_id, tuple([results[topic.topic_id, p.partition] for p in topic.partitions]))
        for topic in form.topics
    ]
    return cast(ShareStateResponse, form.RESPONSE(tuple(topics)))
