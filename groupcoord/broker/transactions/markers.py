"""WriteTxnMarkers: the ends of transactions, as other brokers and administrators ask for them.

Nothing is compared with what the transaction coordinator knows. A marker whose epoch, or whose coordinator's epoch, is
older than the last one that its partition has seen is refused there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

from attrs import define, field

from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.work import Token, Work
from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.front.authorization import Principal
from groupcoord.core.messages import CompleteTransaction, PartitionResult, TopicResult
from groupcoord.core.records import OFFSETS_TOPIC, ZERO_UUID, TransactionMarker
from groupcoord.errors import ErrorCode
from groupcoord.wire.transaction_messages import MarkerToWrite, WriteTxnMarkers, WriteTxnMarkersResponse, WrittenMarker


class Coordinating(Protocol):
    """Who takes offsets and markers: a :class:`~groupcoord.GroupCoordinator`, or those of several nodes."""

    def partition_of(self, group_id: str) -> int:
        """Return the log partition that holds a group."""

    def partition(self, index: int) -> Any:
        """Return the core of a log partition; None if it isn't served."""

    def topics_created(self, names: Collection[str]) -> None:
        """There are new topics."""

    def submit(self, request: Any, token: Any = None, principal: Principal = None) -> None:
        """Take a request; the token gets its answer, now or later."""


@define(eq=False)
class MarkerToken:
    """Stands for the token of one marker; hands on what became of it."""

    on_answer: Callable[[ErrorCode], None]

    def answer(self, response: Any) -> None:
        """Take the group coordinator's answer."""
        self.on_answer(response.error_code)


Results = list[tuple[str, list[PartitionResult]]]
"""The results of one marker by topic."""


@define(eq=False)
class _Request:
    """A request of which ``missing`` partitions have not answered yet."""

    token: Token
    markers: list[tuple[int, Results]] = field(factory=list)
    missing: int = 0

    def response(self) -> WriteTxnMarkersResponse:
        """Return the answer; what names no partition is left out of it."""
        return WriteTxnMarkersResponse(
            tuple(
                WrittenMarker(
                    producer_id, tuple(TopicResult(name, ZERO_UUID, tuple(found)) for name, found in topics if found)
                )
                for producer_id, topics in self.markers
                if any(found for _, found in topics)
            )
        )

    def taker(self, found: list[PartitionResult], place: int) -> Callable[[ErrorCode], None]:
        """Return what notes the answer to one marker, and answers the request with the last."""

        def take(error_code: ErrorCode) -> None:
            found[place] = found[place]._replace(error_code=error_code)
            self.missing -= 1
            if not self.missing:
                self.token.answer(self.response())

        return take


def answer_write_txn_markers(
    request: WriteTxnMarkers,
    token: Token,
    coordinator: GroupCoordinator,
    data: TopicData,
) -> Work[WriteTxnMarkersResponse | None]:
    """Write markers to the log partitions of offsets and to the logs of other topics.

    Args:
        request: which.
        token: who asks for it.
        coordinator: has the log partitions of offsets.
        data: has the others.

    Returns:
        The answer, or None: then ``token`` gets it when the group coordinator's replies are delivered.
    """
    pending = _Request(token)
    submissions: list[tuple[CompleteTransaction, Callable[[ErrorCode], None]]] = []
    for marker in request.markers:
        if pending.markers:
            yield None
        results: Results = []
        pending.markers.append((marker.producer_id, results))
        for name, indexes in marker.topics:
            if results:
                yield None
            found: list[PartitionResult] = []
            results.append((name, found))
            for index in indexes:
                if found:
                    yield None
                error_code = _error(marker, index, data.topics.partition_count(name) or 0)
                if error_code is ErrorCode.NONE and name != OFFSETS_TOPIC:
                    error_code = data.append_marker(name, index, _record(marker))
                found.append(PartitionResult(index, error_code))
                if error_code is ErrorCode.NONE and name == OFFSETS_TOPIC:
                    submissions.append((_completion(index, marker), pending.taker(found, len(found) - 1)))
    pending.missing = len(submissions)
    for completion, take in submissions:
        coordinator.submit(completion, MarkerToken(take))
    return None if submissions else pending.response()


def _completion(index: int, marker: MarkerToWrite) -> CompleteTransaction:
    return CompleteTransaction(
        index, marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch
    )


def _record(marker: MarkerToWrite) -> TransactionMarker:
    return TransactionMarker(
        marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch
    )


def _error(marker: MarkerToWrite, index: int, count: int) -> ErrorCode:
    if not 0 <= index < count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if marker.producer_id < 0:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.INVALID_PRODUCER_EPOCH if marker.producer_epoch < 0 else ErrorCode.NONE
