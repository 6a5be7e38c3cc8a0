"""Host queries of the core, their answers, and the host's interfaces.

The core can't match regular expressions, create topics or reach the share coordinator. It emits a query; the answer is
an input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol
from uuid import UUID

from attrs import field

from groupcoord.config import Config
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.fast_construct import frozen
from groupcoord.core.messages.share_state import (
    DeleteShareGroupState,
    InitializeShareGroupState,
    ReadShareGroupStateSummary,
    ReadShareGroupStateSummaryResponse,
    ShareStateResponse,
    StateRequest,
    StateResult,
    StateSummary,
    StateToDelete,
    StateToInitialize,
)
from groupcoord.core.share_state.records import NO_START_OFFSET
from groupcoord.core.topics import RegexResolver
from groupcoord.errors import ErrorCode


@frozen
class ResolveRegexes:
    """Query for the topics that regular expressions match; the answer is :class:`ResolvedRegexes`.

    Attributes:
        partition: the log partition of the group.
        regexes: the expressions of its members.
        principal: principal of the member that caused it; topics that it may not describe are omitted.
        version: version of the topics.
        asked_ms: time of the query.
    """

    partition: int
    group_id: str
    regexes: tuple[str, ...]
    principal: Any
    version: int
    asked_ms: int


@frozen
class ResolvedRegexes:
    """Answer to :class:`ResolveRegexes`; ``topics`` maps regular expressions to matching names."""

    question: ResolveRegexes
    topics: Mapping[str, tuple[str, ...]]


@frozen
class InternalTopic:
    """Internal topic of an application of Kafka Streams: a changelog or repartition topic.

    Attributes:
        replication_factor: number of replicas; -1 for the broker's default.
        configs: its settings, as pairs of key and value.
    """

    name: str
    partition_count: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...] = ()


@frozen
class CreateInternalTopics:
    """Query to create topics of a streams group (KIP-1071); the answer is :class:`InternalTopicsCreated`.

    Members do not wait for it.
    """

    partition: int
    group_id: str
    topics: tuple[InternalTopic, ...]
    principal: Any


@frozen
class InternalTopicsCreated:
    """Answer to :class:`CreateInternalTopics`; ``errors`` maps names to the reason why a topic could not be created."""

    question: CreateInternalTopics
    errors: Mapping[str, str]


@frozen
class AskShareCoordinator:
    """Request for the share coordinator (KIP-932); the answer is :class:`ShareCoordinatorAnswered`.

    Attributes:
        purpose: identifies the query to the group.
        topic_names: topics with wanted latest offsets.
    """

    partition: int
    group_id: str
    request: InitializeShareGroupState | DeleteShareGroupState | ReadShareGroupStateSummary
    purpose: Any = None
    topic_names: Mapping[UUID, str] = field(factory=dict)

    def ends_wanted(self, response: ShareStateResponse) -> list[TopicPartition]:
        """Return the partitions of a response that have a lag, where latest offsets are wanted."""
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
    """Answer to :class:`AskShareCoordinator`.

    Attributes:
        question: the query.
        response: the share coordinator's; None if it could not be reached.
        latest_offsets: end offset by partition, where wanted (:meth:`AskShareCoordinator.ends_wanted`) and known.
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
            # A partition that is missing in the response counts as failed, too.
            (topic_id, entry.partition): found.get((topic_id, entry.partition), ErrorCode.COORDINATOR_NOT_AVAILABLE)
            for topic_id, entries in self.question.request.topics
            for entry in entries
        }


Question = ResolveRegexes | CreateInternalTopics | AskShareCoordinator
"""Query to the host."""

Found = ResolvedRegexes | InternalTopicsCreated | ShareCoordinatorAnswered
"""Answer of the host."""


class ShareHost(Protocol):
    """Settings of share groups, and access to the share coordinator."""

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        """Return the settings of a share group; called for each heartbeat."""

    def ask(self, question: AskShareCoordinator) -> ShareCoordinatorAnswered | None:
        """Return the share coordinator's response with latest offsets, or None if ``GroupCoordinator.found_out`` gets
        it later.
        """


LatestOffset = Callable[[str, int], int | None]
"""Returns the end offset of a partition, or None if unknown."""


def known_ends(partitions: Iterable[TopicPartition], latest_offset: LatestOffset) -> dict[TopicPartition, int]:
    """Return the known end offsets of some partitions."""
    found = ((partition, latest_offset(*partition)) for partition in partitions)
    return {partition: offset for partition, offset in found if offset is not None}


class AwaitedAnswer:
    """Receiver of the answer to a query to a share coordinator.

    Args:
        question: the query.
        take: is called with an answer that comes later.
    """

    def __init__(self, question: AskShareCoordinator, take: Callable[[ShareCoordinatorAnswered], None]) -> None:
        self.question = question
        self._take = take
        self._found: ShareCoordinatorAnswered | None = None
        self._is_late = False

    def found_out(self, found: ShareCoordinatorAnswered) -> None:
        self._found = found
        if self._is_late:
            self._take(found)

    def now_or_late(self) -> ShareCoordinatorAnswered | None:
        """Return the answer, or None if it comes later."""
        # From here on the answer is passed to take.
        self._is_late = self._found is None
        return self._found


class LoneShareHost:
    """Host without a share coordinator: keeps all states in memory and responds at once.

    Args:
        config: the settings of all share groups.
    """

    NOT_COUNTED = ("_states",)

    def __init__(self, config: Config) -> None:
        self._settings = ShareGroupSettings.of(config)
        self._states: dict[tuple[str, UUID, int], tuple[int, int]] = {}

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        """Return the settings of the configuration."""
        return self._settings

    def ask(self, question: AskShareCoordinator) -> ShareCoordinatorAnswered | None:
        """Return success at once; end offsets are unknown."""
        request: StateRequest[Any] = question.request
        results = [
            request.TOPIC_RESULT(topic_id, tuple([self._result(request.group_id, topic_id, each) for each in entries]))
            for topic_id, entries in request.topics
        ]
        return ShareCoordinatorAnswered(question, request.RESPONSE(tuple(results)))

    def _result(self, group_id: str, topic_id: UUID, entry: Any) -> StateResult | StateSummary:
        key = group_id, topic_id, entry.partition
        match entry:
            case StateToInitialize():
                self._states[key] = entry.state_epoch, entry.start_offset
            case StateToDelete():
                self._states.pop(key, None)
            case _:
                # Kafka's share coordinator reports no error for a missing state either.
                state_epoch, start_offset = self._states.get(key, (0, NO_START_OFFSET))
                return StateSummary(entry.partition, ErrorCode.NONE, None, state_epoch, 0, start_offset)
        return StateResult(entry.partition, ErrorCode.NONE)


CreateTopics = Callable[[CreateInternalTopics], Mapping[str, str] | None]
"""Creates topics of a streams group; returns the reason by name for those that failed. Must not raise.

None: they are created later, followed by :meth:`~groupcoord.coordinator.GroupCoordinator.found_out`.
"""


def create_no_topics(question: CreateInternalTopics) -> Mapping[str, str]:
    """Create nothing: for hosts that can't."""
    return {topic.name: "this coordinator creates no topics" for topic in question.topics}


class Host:
    """Answers host queries."""

    __slots__ = ("_create_topics", "_regexes", "share")

    def __init__(self, regexes: RegexResolver, create_topics: CreateTopics, share: ShareHost) -> None:
        self._regexes = regexes
        self._create_topics = create_topics
        self.share = share

    def answer(self, question: Question) -> Found | None:
        """Return the answer to a query, or None if it comes later."""
        match question:
            case ResolveRegexes():
                matching = self._regexes.matching_topics
                # Kafka omits topics without DESCRIBE here; subscriptions by name would fail.
                topics = {regex: tuple(matching(regex, question.principal)) for regex in question.regexes}
                return ResolvedRegexes(question, topics)
            case CreateInternalTopics():
                errors = self._create_topics(question)
                return None if errors is None else InternalTopicsCreated(question, errors)
        return self.share.ask(question)
