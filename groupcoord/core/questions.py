"""What the core asks its host: things that it can't know, and whose answers come as inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from attrs import frozen

from groupcoord.core.messages.share_state import (
    DeleteShareGroupState,
    InitializeShareGroupState,
    ReadShareGroupStateSummary,
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
    """

    partition: int
    group_id: str
    request: InitializeShareGroupState | DeleteShareGroupState | ReadShareGroupStateSummary
    purpose: Any = None


@frozen
class ShareCoordinatorAnswered:
    """The answer to a question.

    Attributes:
        question: what was asked.
        response: the share coordinator's; None if it could not be reached.
    """

    question: AskShareCoordinator
    response: ShareStateResponse | None

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
