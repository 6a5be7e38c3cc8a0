"""Requests to a share coordinator as a whole: what their answers are made of, and parts of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast
from uuid import UUID

from attrs import evolve

from groupcoord.core.messages.share_state import (
    DeleteShareGroupState,
    DeleteShareGroupStateResponse,
    InitializeShareGroupState,
    InitializeShareGroupStateResponse,
    ReadShareGroupState,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummary,
    ReadShareGroupStateSummaryResponse,
    ReadStateResult,
    ReadStateTopicResult,
    ShareStateRequest,
    ShareStateResponse,
    StateResult,
    StateSummary,
    StateTopicResult,
    StateTopicSummary,
    WriteShareGroupState,
    WriteShareGroupStateResponse,
)
from groupcoord.core.share_state.partition import AnyResult, state_message
from groupcoord.errors import ErrorCode

TopicIdPartition = tuple[UUID, int]


class StateForm(NamedTuple):
    """What the answers to a kind of request are made of, and how its trouble is told."""

    result: type[AnyResult]
    topic: Callable[[UUID, tuple[Any, ...]], Any]
    response: Callable[[tuple[Any, ...]], Any]
    trouble: str


_FORMS: dict[type, StateForm] = {
    InitializeShareGroupState: StateForm(
        StateResult, StateTopicResult, InitializeShareGroupStateResponse, "Unable to initialize share group state: "
    ),
    ReadShareGroupState: StateForm(
        ReadStateResult, ReadStateTopicResult, ReadShareGroupStateResponse, "Unable to read share group state: "
    ),
    WriteShareGroupState: StateForm(
        StateResult, StateTopicResult, WriteShareGroupStateResponse, "Unable to write share group state: "
    ),
    DeleteShareGroupState: StateForm(
        StateResult, StateTopicResult, DeleteShareGroupStateResponse, "Unable to delete share group state: "
    ),
    ReadShareGroupStateSummary: StateForm(
        StateSummary,
        StateTopicSummary,
        ReadShareGroupStateSummaryResponse,
        "Unable to read share group state summary: ",
    ),
}


def form_of(request: ShareStateRequest) -> StateForm:
    """Return what the answer to a request is made of.

    Raises:
        KeyError: this is no request of a share coordinator.
    """
    return _FORMS[type(request)]


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
    form, whole = form_of(request), cast(Any, request)
    topics = [
        form.topic(topic.topic_id, tuple([results[topic.topic_id, entry.partition] for entry in topic.partitions]))
        for topic in whole.topics
    ]
    return cast(ShareStateResponse, form.response(tuple(topics)))


def refuse_states(request: ShareStateRequest, error_code: ErrorCode) -> ShareStateResponse:
    """Return the answer to a request that is refused as a whole: each share-partition has the error."""
    refuse, message = form_of(request).result, state_message(error_code)
    refusals = {
        (topic.topic_id, entry.partition): refuse(entry.partition, error_code, message)
        for topic in request.topics
        for entry in topic.partitions
    }
    return answer_of(request, refusals)
