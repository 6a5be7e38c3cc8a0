"""The share coordinator's requests and responses (KIP-932): what share groups have done with partitions of topics.

Brokers send them to each other. One request is about partitions of one group; each has a result of its own.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from attrs import define, frozen

from groupcoord.core.messages.request import Request
from groupcoord.core.share_state.records import NO_START_OFFSET, UNKNOWN_COUNT, StateBatch
from groupcoord.errors import ErrorCode


class StateResult(NamedTuple):
    """What became of a partition that was to be initialized, written or deleted."""

    partition: int
    error_code: ErrorCode
    error_message: str | None = None


class StateTopicResult(NamedTuple):
    """The results of a topic."""

    topic_id: UUID
    partitions: tuple[StateResult, ...]


class StateToInitialize(NamedTuple):
    """A partition that a group begins to read, or begins anew."""

    partition: int
    state_epoch: int
    start_offset: int


class StateTopicToInitialize(NamedTuple):
    """Partitions of a topic to initialize."""

    topic_id: UUID
    partitions: tuple[StateToInitialize, ...]


@frozen
class InitializeShareGroupStateResponse:
    """A result for each partition."""

    results: tuple[StateTopicResult, ...]


@define
class InitializeShareGroupState(Request[InitializeShareGroupStateResponse]):
    """Have a state for partitions, empty (API key 83)."""

    group_id: str
    topics: tuple[StateTopicToInitialize, ...]


class StateToRead(NamedTuple):
    """A partition whose state is wanted, by its leader in this epoch."""

    partition: int
    leader_epoch: int


class StateTopicToRead(NamedTuple):
    """Partitions of a topic to read the states of."""

    topic_id: UUID
    partitions: tuple[StateToRead, ...]


class ReadStateResult(NamedTuple):
    """The state of a partition; on errors there is none."""

    partition: int
    error_code: ErrorCode
    error_message: str | None = None
    state_epoch: int = 0
    start_offset: int = 0
    state_batches: tuple[StateBatch, ...] = ()


class ReadStateTopicResult(NamedTuple):
    """The states of a topic's partitions."""

    topic_id: UUID
    partitions: tuple[ReadStateResult, ...]


@frozen
class ReadShareGroupStateResponse:
    """The state of each partition."""

    results: tuple[ReadStateTopicResult, ...]


@define
class ReadShareGroupState(Request[ReadShareGroupStateResponse]):
    """Ask for the states of partitions, as their leader (API key 84): leaders of earlier epochs are fenced."""

    group_id: str
    topics: tuple[StateTopicToRead, ...]


class StateToWrite(NamedTuple):
    """What has become of a partition.

    Attributes:
        partition: the partition.
        state_epoch, leader_epoch: of whom writes.
        start_offset: all before it is finished; -1: as before.
        state_batches: what has changed.
        delivery_complete_count: how many records at and behind the start offset are finished; -1 if that isn't known.
    """

    partition: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    state_batches: tuple[StateBatch, ...]
    delivery_complete_count: int = UNKNOWN_COUNT


class StateTopicToWrite(NamedTuple):
    """Partitions of a topic to write the states of."""

    topic_id: UUID
    partitions: tuple[StateToWrite, ...]


@frozen
class WriteShareGroupStateResponse:
    """A result for each partition."""

    results: tuple[StateTopicResult, ...]


@define
class WriteShareGroupState(Request[WriteShareGroupStateResponse]):
    """Merge what has changed into the states of partitions (API key 85)."""

    group_id: str
    topics: tuple[StateTopicToWrite, ...]


class StateToDelete(NamedTuple):
    """A partition that a group has done with."""

    partition: int


class StateTopicToDelete(NamedTuple):
    """Partitions of a topic to delete the states of."""

    topic_id: UUID
    partitions: tuple[StateToDelete, ...]


@frozen
class DeleteShareGroupStateResponse:
    """A result for each partition; one without a state is fine."""

    results: tuple[StateTopicResult, ...]


@define
class DeleteShareGroupState(Request[DeleteShareGroupStateResponse]):
    """Forget the states of partitions (API key 86)."""

    group_id: str
    topics: tuple[StateTopicToDelete, ...]


class StateSummary(NamedTuple):
    """A partition's state without its batches; of one without a state there is neither start offset nor count."""

    partition: int
    error_code: ErrorCode
    error_message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = UNKNOWN_COUNT

    @property
    def has_lag(self) -> bool:
        """False where nobody could say how many records are left, even who knows where they end."""
        is_known = self.start_offset != NO_START_OFFSET and self.delivery_complete_count != UNKNOWN_COUNT
        return self.error_code is ErrorCode.NONE and is_known


class StateTopicSummary(NamedTuple):
    """The summaries of a topic's partitions."""

    topic_id: UUID
    partitions: tuple[StateSummary, ...]


@frozen
class ReadShareGroupStateSummaryResponse:
    """The summary of each partition."""

    results: tuple[StateTopicSummary, ...]


@define
class ReadShareGroupStateSummary(Request[ReadShareGroupStateSummaryResponse]):
    """Ask for the states of partitions without their batches (API key 87); the leader epochs are not looked at."""

    group_id: str
    topics: tuple[StateTopicToRead, ...]


ShareStateRequest = (
    InitializeShareGroupState
    | ReadShareGroupState
    | WriteShareGroupState
    | DeleteShareGroupState
    | ReadShareGroupStateSummary
)
"""Whatever a share coordinator is asked."""

ShareStateResponse = (
    InitializeShareGroupStateResponse
    | ReadShareGroupStateResponse
    | WriteShareGroupStateResponse
    | DeleteShareGroupStateResponse
    | ReadShareGroupStateSummaryResponse
)
"""Whatever a share coordinator answers."""
