"""Requests and responses of the share coordinator (KIP-932): states of share-partitions.

Brokers exchange them. One request names partitions of one group; each has its own result.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple
from uuid import UUID

from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.messages.request import R_co, Request
from groupcoord.core.share_state.records import NO_START_OFFSET, UNKNOWN_COUNT, StateBatch
from groupcoord.errors import ErrorCode

_MESSAGES = {
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch in the request is older than the epoch on the broker.",
    ErrorCode.FENCED_STATE_EPOCH: "The coordinator rejected the request because the state epoch did not match.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}


def state_message(error_code: ErrorCode) -> str:
    return _MESSAGES.get(error_code, error_code.name)


class ShareStateResponse:
    """Base of the responses of the share coordinator."""

    __slots__ = ()
    results: tuple[Any, ...]


class StateRequest(Request[R_co]):
    """A request about share-partitions of one group, with a result for each.

    Attributes:
        RESULT: class of the result of a share-partition.
        TOPIC_RESULT: class of the results of a topic.
        RESPONSE: class of the response.
        FAILURE: begins the error message if the log partition of the group is not served.
    """

    __slots__ = ()
    RESULT: ClassVar[type[Any]]
    TOPIC_RESULT: ClassVar[type[Any]]
    RESPONSE: ClassVar[type[Any]]
    FAILURE: ClassVar[str]

    group_id: str
    topics: tuple[Any, ...]

    def refused(self, error_code: ErrorCode, message: str | None = None) -> R_co:
        return super().refused(error_code, state_message(error_code) if message is None else message)


class StateResult(NamedTuple):
    """Result of initializing, writing or deleting a state."""

    partition: int
    error_code: ErrorCode
    error_message: str | None = None


class StateTopicResult(NamedTuple):
    """The results of a topic."""

    topic_id: UUID
    partitions: tuple[StateResult, ...]


class StateToInitialize(NamedTuple):
    """Partition that a group begins to read."""

    partition: int
    state_epoch: int
    start_offset: int


class StateTopicToInitialize(NamedTuple):
    """Partitions of a topic to initialize."""

    topic_id: UUID
    partitions: tuple[StateToInitialize, ...]


@frozen
class InitializeShareGroupStateResponse(ShareStateResponse):
    """A result for each partition."""

    results: tuple[StateTopicResult, ...]


@define
class InitializeShareGroupState(StateRequest[InitializeShareGroupStateResponse]):
    """Create empty states (API key 83)."""

    RESULT = StateResult
    TOPIC_RESULT = StateTopicResult
    RESPONSE = InitializeShareGroupStateResponse
    FAILURE = "Unable to initialize share group state: "

    group_id: str
    topics: tuple[StateTopicToInitialize, ...]


class StateToRead(NamedTuple):
    """Partition with a state that its leader requests."""

    partition: int
    leader_epoch: int


class StateTopicToRead(NamedTuple):
    """Partitions of a topic to read the states of."""

    topic_id: UUID
    partitions: tuple[StateToRead, ...]


class ReadStateResult(NamedTuple):
    """State of a partition, or an error."""

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
class ReadShareGroupStateResponse(ShareStateResponse):
    """The state of each partition."""

    results: tuple[ReadStateTopicResult, ...]


@define
class ReadShareGroupState(StateRequest[ReadShareGroupStateResponse]):
    """Read the states of partitions, as their leader (API key 84): leaders of earlier epochs are fenced."""

    RESULT = ReadStateResult
    TOPIC_RESULT = ReadStateTopicResult
    RESPONSE = ReadShareGroupStateResponse
    FAILURE = "Unable to read share group state: "

    group_id: str
    topics: tuple[StateTopicToRead, ...]


class StateToWrite(NamedTuple):
    """Changed state of a partition.

    Attributes:
        partition: the partition.
        state_epoch, leader_epoch: epochs of the writer.
        start_offset: first unfinished offset; -1: unchanged.
        state_batches: changed batches.
        delivery_complete_count: number of finished records from the start offset on; -1 if unknown.
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
class WriteShareGroupStateResponse(ShareStateResponse):
    """A result for each partition."""

    results: tuple[StateTopicResult, ...]


@define
class WriteShareGroupState(StateRequest[WriteShareGroupStateResponse]):
    """Merge changes into states (API key 85)."""

    RESULT = StateResult
    TOPIC_RESULT = StateTopicResult
    RESPONSE = WriteShareGroupStateResponse
    FAILURE = "Unable to write share group state: "

    group_id: str
    topics: tuple[StateTopicToWrite, ...]


class StateToDelete(NamedTuple):
    """Partition with a state to delete."""

    partition: int


class StateTopicToDelete(NamedTuple):
    """Partitions of a topic to delete the states of."""

    topic_id: UUID
    partitions: tuple[StateToDelete, ...]


@frozen
class DeleteShareGroupStateResponse(ShareStateResponse):
    """A result for each partition; NONE also for one without a state."""

    results: tuple[StateTopicResult, ...]


@define
class DeleteShareGroupState(StateRequest[DeleteShareGroupStateResponse]):
    """Delete states (API key 86)."""

    RESULT = StateResult
    TOPIC_RESULT = StateTopicResult
    RESPONSE = DeleteShareGroupStateResponse
    FAILURE = "Unable to delete share group state: "

    group_id: str
    topics: tuple[StateTopicToDelete, ...]


class StateSummary(NamedTuple):
    """State of a partition without its batches; without a state, start offset and count are unknown."""

    partition: int
    error_code: ErrorCode
    error_message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = UNKNOWN_COUNT

    @property
    def has_lag(self) -> bool:
        """False if the number of remaining records is unknown even with the end offset."""
        is_known = self.start_offset != NO_START_OFFSET and self.delivery_complete_count != UNKNOWN_COUNT
        return self.error_code is ErrorCode.NONE and is_known


class StateTopicSummary(NamedTuple):
    """The summaries of a topic's partitions."""

    topic_id: UUID
    partitions: tuple[StateSummary, ...]


@frozen
class ReadShareGroupStateSummaryResponse(ShareStateResponse):
    """The summary of each partition."""

    results: tuple[StateTopicSummary, ...]


@define
class ReadShareGroupStateSummary(StateRequest[ReadShareGroupStateSummaryResponse]):
    """Read the states of partitions without their batches (API key 87); leader epochs are not checked."""

    RESULT = StateSummary
    TOPIC_RESULT = StateTopicSummary
    RESPONSE = ReadShareGroupStateSummaryResponse
    FAILURE = "Unable to read share group state summary: "

    group_id: str
    topics: tuple[StateTopicToRead, ...]


ShareStateRequest = (
    InitializeShareGroupState
    | ReadShareGroupState
    | WriteShareGroupState
    | DeleteShareGroupState
    | ReadShareGroupStateSummary
)
