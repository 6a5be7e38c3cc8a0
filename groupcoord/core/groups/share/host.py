"""What share groups need of their host: settings, a share coordinator, and where partitions end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol
from uuid import UUID

from groupcoord.config import Config
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.host_queries import AskShareCoordinator, ShareCoordinatorAnswered
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
from groupcoord.errors import ErrorCode


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
