"""What the core asks its host: things that it can't know, and whose answers come as inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from attrs import field, frozen

from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.messages.share_state import (
    DeleteShareGroupState,
    InitializeShareGroupState,
    ReadShareGroupStateSummary,
    ReadShareGroupStateSummaryResponse,
    ShareStateResponse,
)
from groupcoord.errors import ErrorCode


@frozen
class ResolveRegexes:
    """Please match regular expressions against the topics; the answer is :class:`ResolvedRegexes`.

    Attributes:
        partition: the log partition of the group.
        group_id: the group.
        regexes: what its members subscribe to.
        principal: for whom the member spoke that made it necessary; topics that it may not describe are left out.
        version: of the topics.
        asked_ms: when it was asked.
    """

    partition: int
    group_id: str
    regexes: tuple[str, ...]
    principal: Any
    version: int
    asked_ms: int


@frozen
class ResolvedRegexes:
    """The answer to a question.

    Attributes:
        question: what was asked.
        topics: regular expression → the names that match.
    """

    question: ResolveRegexes
    topics: Mapping[str, tuple[str, ...]]


@frozen
class InternalTopic:
    """A topic that an application of Kafka Streams keeps for itself: a changelog, or one that it repartitions by.

    Attributes:
        name: its name.
        partition_count: how many partitions it is to have.
        replication_factor: how many replicas; -1 for the broker's default.
        configs: its settings, as pairs of key and value.
    """

    name: str
    partition_count: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...] = ()


@frozen
class CreateInternalTopics:
    """Please create topics that a streams group needs (KIP-1071); the answer is :class:`InternalTopicsCreated`.

    Members are not kept waiting for it: the topics show when they are there.

    Attributes:
        partition: the log partition of the group.
        group_id: the group.
        topics: what is to be created.
        principal: for whom the member spoke that made it necessary.
    """

    partition: int
    group_id: str
    topics: tuple[InternalTopic, ...]
    principal: Any


@frozen
class InternalTopicsCreated:
    """The answer to a question.

    Attributes:
        question: what was asked.
        errors: by name of a topic that could not be created, why.
    """

    question: CreateInternalTopics
    errors: Mapping[str, str]


@frozen
class AskShareCoordinator:
    """Please let the share coordinator do this (KIP-932); the answer is :class:`ShareCoordinatorAnswered`.

    Attributes:
        partition: the log partition of the group.
        group_id: the group.
        request: what it is asked.
        purpose: tells the asker what it is for.
        topic_names: the names of topics of which not only the state, but also the latest offsets are wanted.
    """

    partition: int
    group_id: str
    request: InitializeShareGroupState | DeleteShareGroupState | ReadShareGroupStateSummary
    purpose: Any = None
    topic_names: Mapping[UUID, str] = field(factory=dict)

    def ends_wanted(self, response: ShareStateResponse) -> list[TopicPartition]:
        """Return the partitions whose latest offsets are wanted with a response: of others there is no lag."""
        if not isinstance(response, ReadShareGroupStateSummaryResponse):
            return []
        return [
            TopicPartition(self.topic_names[topic_id], summary.partition)
            for topic_id, summaries in response.results
            if topic_id in self.topic_names
            for summary in summaries
            if summary.has_lag
        ]


@frozen
class ShareCoordinatorAnswered:
    """The answer to a question.

    Attributes:
        question: what was asked.
        response: the share coordinator's; None if it could not be reached.
        latest_offsets: the offset behind the last record, of each partition of which it is wanted
            (:meth:`AskShareCoordinator.ends_wanted`) and known.
    """

    question: AskShareCoordinator
    response: ShareStateResponse | None
    latest_offsets: Mapping[TopicPartition, int] = field(factory=dict)

    def error_codes(self) -> dict[tuple[UUID, int], ErrorCode]:
        """Return the result of each partition, by topic id and index."""
        found = (
            {}
            if self.response is None
            else {
                (topic_id, result.partition): result.error_code
                for topic_id, results in self.response.results
                for result in results
            }
        )
        return {
            (topic_id, entry.partition): found.get((topic_id, entry.partition), ErrorCode.COORDINATOR_NOT_AVAILABLE)
            for topic_id, entries in self.question.request.topics
            for entry in entries
        }


Question = ResolveRegexes | CreateInternalTopics | AskShareCoordinator
"""Whatever the core asks."""

Found = ResolvedRegexes | InternalTopicsCreated | ShareCoordinatorAnswered
"""Whatever the host answers."""
