"""WriteTxnMarkers: the ends of transactions, as other brokers and administrators ask for them.

Nothing is compared with what the transaction coordinator knows. A marker whose epoch, or whose coordinator's epoch, is
older than the last one that its partition has seen is refused there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

from attrs import define

from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.work import Answer, Token, Work, each, each_long
from groupcoord.core.log.records import OFFSETS_TOPIC, ZERO_UUID, TransactionMarker
from groupcoord.core.messages import CompleteTransaction, PartitionResult, TopicResult
from groupcoord.core.router.authorization import Principal
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


Found = list[tuple[str, list[tuple[int, ErrorCode | Answer]]]]
"""By topic and partition what came of one marker, or what the group coordinator answers to it."""


def answer_write_txn_markers(
    request: WriteTxnMarkers, submit: Callable[[CompleteTransaction, Token], None], data: TopicData
) -> Work[WriteTxnMarkersResponse]:
    """Write markers to the log partitions of offsets and to the logs of other topics.

    Args:
        request: which.
        submit: has the group coordinator complete a transaction in a log partition of offsets.
        data: has the logs of other topics.
    """
    markers: list[tuple[int, Found]] = []
    submissions: list[tuple[CompleteTransaction, Answer]] = []
    for marker in request.markers:
        if markers:
            yield None
        topics: Found = []
        markers.append((marker.producer_id, topics))
        for name, indexes in marker.topics:
            if topics:
                yield None
            found: list[tuple[int, ErrorCode | Answer]] = []
            topics.append((name, found))
            for index in indexes:
                if found:
                    yield None
                error_code = _error(marker, index, data.topics.partition_count(name) or 0)
                if error_code is not ErrorCode.NONE:
                    found.append((index, error_code))
                elif name == OFFSETS_TOPIC:
                    answer = Answer()
                    submissions.append((_completion(index, marker), answer))
                    found.append((index, answer))
                else:
                    found.append((index, data.append_marker(name, index, _record(marker))))
    for completion, answer in submissions:
        submit(completion, answer)
        yield None
    for _, answer in submissions:
        if not answer.is_done:
            yield answer
    named = [marker for marker in markers if any(found for _, found in marker[1])]
    return WriteTxnMarkersResponse((yield from each_long(named, _written)))


def _written(marker: tuple[int, Found]) -> Work[WrittenMarker]:
    """Return what came of one marker; a topic without partitions is left out."""
    producer_id, topics = marker
    results: list[TopicResult] = []
    for name, partitions in topics:
        if results:
            yield None
        if partitions:
            found = yield from each(partitions, lambda named: PartitionResult(named[0], _error_code(named[1])))
            results.append(TopicResult(name, ZERO_UUID, found))
    return WrittenMarker(producer_id, tuple(results))


def _error_code(found: ErrorCode | Answer) -> ErrorCode:
    error_code: ErrorCode = found.response.error_code if isinstance(found, Answer) else found
    return error_code


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
