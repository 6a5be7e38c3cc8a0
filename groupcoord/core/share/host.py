"""What share groups need of their host: settings, a share coordinator, and how long partitions are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from groupcoord.config import Config
from groupcoord.config.group_settings import ShareGroupSettings
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
from groupcoord.core.questions import AskShareCoordinator, ShareCoordinatorAnswered
from groupcoord.errors import ErrorCode

NO_START_OFFSET = -1


class ShareHost(Protocol):
    """The surroundings of share groups."""

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        """Return what holds for a share group. It is called at each heartbeat."""

    def latest_offset(self, topic: str, partition: int) -> int | None:
        """Return the offset behind the last record of a partition; None if that isn't known."""

    def ask(self, question: AskShareCoordinator) -> ShareStateResponse | None:
        """Return what the share coordinator answers; None if that comes later (``GroupCoordinator.found_out``)."""


class AwaitedAnswer:
    """A token for a share coordinator: takes its answer to a question of a share group.

    Args:
        question: the question.
        take: takes what is found out when nobody waits for it here any more.
    """

    def __init__(self, question: AskShareCoordinator, take: Callable[[ShareCoordinatorAnswered], None]) -> None:
        self._question = question
        self._take = take
        self._response: ShareStateResponse | None = None
        self._is_late = False

    def answer(self, response: ShareStateResponse) -> None:
        """Take the answer."""
        self._response = response
        if self._is_late:
            self._take(ShareCoordinatorAnswered(self._question, response))

    def now_or_late(self) -> ShareStateResponse | None:
        """Return the answer; None: it comes late."""
        self._is_late = self._response is None
        return self._response


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

    def latest_offset(self, topic: str, partition: int) -> int | None:
        """Return that it isn't known."""
        return None

    def ask(self, question: AskShareCoordinator) -> ShareStateResponse | None:
        """Agree at once."""
        request = question.request
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
