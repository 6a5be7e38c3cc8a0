"""Queries of the core to its host, their answers, and the interfaces by which a host answers.

The core can't match regular expressions, create topics or reach the share coordinator. It asks, and takes the answer as
an input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol
from uuid import UUID

from attrs import field, frozen

from groupcoord.config import Config
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.messages.share_state import (
    DeleteShareGroupState,
    DeleteShareGroupStateResponse,
    InitializeShareGroupState,
    InitializeShareGroupStateResponse,
    ReadShareGroupStateSummary,
    ReadShareGroupStateSummaryResponse,
    ShareStateResponse,
    StateResult,
    StateSummary,
    StateTopicResult,
    StateTopicSummary,
)
from groupcoord.core.share_state.records import NO_START_OFFSET
from groupcoord.core.topics import RegexResolver
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


class ShareHost(Protocol):
    """The surroundings of share groups."""

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        """Return what holds for a share group. It is called at each heartbeat."""

    def ask(self, question: AskShareCoordinator) -> ShareCoordinatorAnswered | None:
        """Return what the share coordinator answers, and the latest offsets that are wanted besides.

        None: that comes later (``GroupCoordinator.found_out``).
        """


LatestOffset = Callable[[str, int], int | None]
"""Returns the offset behind the last record of a topic's partition; None if that isn't known."""


def known_ends(partitions: Iterable[TopicPartition], latest_offset: LatestOffset) -> dict[TopicPartition, int]:
    """Return the latest offsets of those of some partitions of which they are known."""
    found = ((partition, latest_offset(*partition)) for partition in partitions)
    return {partition: offset for partition, offset in found if offset is not None}


class AwaitedAnswer:
    """Whoever waits for what is found out to a question of a share group; a token for a share coordinator.

    Args:
        question: the question.
        take: takes what is found out when nobody waits for it here any more.

    Attributes:
        question: as given.
    """

    def __init__(self, question: AskShareCoordinator, take: Callable[[ShareCoordinatorAnswered], None]) -> None:
        self.question = question
        self._take = take
        self._found: ShareCoordinatorAnswered | None = None
        self._is_late = False

    def found_out(self, found: ShareCoordinatorAnswered) -> None:
        """Take what is found out."""
        self._found = found
        if self._is_late:
            self._take(found)

    def now_or_late(self) -> ShareCoordinatorAnswered | None:
        """Return what is found out; None: it comes late."""
        self._is_late = self._found is None
        return self._found


class LoneShareHost:
    """For programs without a share coordinator: every state is made as it is asked for, and kept in memory.

    Args:
        config: the settings of all share groups.
    """

    NOT_COUNTED = ("_states",)

    def __init__(self, config: Config) -> None:
        self._settings = ShareGroupSettings.of(config)
        self._states: dict[tuple[str, UUID, int], tuple[int, int]] = {}

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        """Return what the configuration says."""
        return self._settings

    def ask(self, question: AskShareCoordinator) -> ShareCoordinatorAnswered | None:
        """Agree at once. Where partitions end isn't known."""
        return ShareCoordinatorAnswered(question, self._answer(question.request))

    def _answer(
        self, request: InitializeShareGroupState | DeleteShareGroupState | ReadShareGroupStateSummary
    ) -> ShareStateResponse:
        match request:
            case InitializeShareGroupState():
                for topic_id, entries in request.topics:
                    for index, state_epoch, start_offset in entries:
                        self._states[request.group_id, topic_id, index] = state_epoch, start_offset
                return InitializeShareGroupStateResponse(_agreed(request))
            case DeleteShareGroupState():
                for topic_id, deleted in request.topics:
                    for (index,) in deleted:
                        self._states.pop((request.group_id, topic_id, index), None)
                return DeleteShareGroupStateResponse(_agreed(request))
        return ReadShareGroupStateSummaryResponse(self._summaries(request))

    def _summaries(self, request: ReadShareGroupStateSummary) -> tuple[StateTopicSummary, ...]:
        return tuple(
            [
                StateTopicSummary(
                    topic_id, tuple([self._summary(request.group_id, topic_id, entry.partition) for entry in entries])
                )
                for topic_id, entries in request.topics
            ]
        )

    def _summary(self, group_id: str, topic_id: UUID, index: int) -> StateSummary:
        state_epoch, start_offset = self._states.get((group_id, topic_id, index), (0, NO_START_OFFSET))
        return StateSummary(index, ErrorCode.NONE, None, state_epoch, 0, start_offset)


def _agreed(request: InitializeShareGroupState | DeleteShareGroupState) -> tuple[StateTopicResult, ...]:
    return tuple(
        [
            StateTopicResult(topic_id, tuple([StateResult(entry.partition, ErrorCode.NONE) for entry in entries]))
            for topic_id, entries in request.topics
        ]
    )


CreateTopics = Callable[[CreateInternalTopics], Mapping[str, str] | None]
"""Creates topics that a streams group needs, and returns by name why it could not create some. It must not raise.

None: it creates them later, and then calls :meth:`~groupcoord.coordinator.GroupCoordinator.found_out`."""


def create_no_topics(question: CreateInternalTopics) -> Mapping[str, str]:
    """Create nothing: for hosts that can't."""
    return {topic.name: "this coordinator creates no topics" for topic in question.topics}


class Host:
    """Answers the core's questions.

    Args:
        regexes: matches regular expressions against the topics.
        create_topics: creates topics.
        share: has a share coordinator.

    Attributes:
        share: as given.
    """

    __slots__ = ("_answers", "_create_topics", "_regexes", "share")

    def __init__(self, regexes: RegexResolver, create_topics: CreateTopics, share: ShareHost) -> None:
        self._regexes = regexes
        self._create_topics = create_topics
        self.share = share
        self._answers: dict[type[Question], Callable[[Any], Found | None]] = {
            ResolveRegexes: self._resolve,
            CreateInternalTopics: self._create,
            AskShareCoordinator: share.ask,
        }

    def answer(self, question: Question) -> Found | None:
        """Find out what the core asks; return None if the answer comes later."""
        return self._answers[type(question)](question)

    def _resolve(self, question: ResolveRegexes) -> ResolvedRegexes:
        matching = self._regexes.matching_topics
        topics = {regex: tuple(matching(regex, question.principal)) for regex in question.regexes}
        return ResolvedRegexes(question, topics)

    def _create(self, question: CreateInternalTopics) -> InternalTopicsCreated | None:
        errors = self._create_topics(question)
        return None if errors is None else InternalTopicsCreated(question, errors)
