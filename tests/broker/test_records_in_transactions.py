"""Transactions over records: the coordinator lets producers in, and its markers end what they wrote."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord import Config, ErrorCode, ManualClock, MemoryLogStore
from groupcoord.broker.broker import make_broker
from groupcoord.broker.transactions.requests import answer_list_transactions
from groupcoord.broker.work import do_whole
from groupcoord.storage.log.memory_log import PartitionLog
from groupcoord.wire.broker_messages import Produce, ProducedPartition, ProducePartition, TopicEntry, TopicNameOrIdEntry
from groupcoord.wire.transaction_messages import (
    EndTxn,
    InitProducerId,
    ListTransactions,
    MarkerToWrite,
    WriteTxnMarkers,
)
from tests.broker.data_world import NO_ID, START_MS, FakeConnection, batch

WRITER = "writer"


class TransactionalProducer:
    """A broker with a topic of two partitions, and a producer with a transactional id."""

    def __init__(self) -> None:
        self.clock = ManualClock(START_MS)
        self.broker = make_broker(config=Config(), clock=self.clock, log_store=MemoryLogStore())
        self.broker.topics.ensure("t", 2)
        self.sequences = [0, 0]
        self.producer_id = self.producer_epoch = -1

    def init(self, timeout_ms: int = 60_000) -> None:
        response = self.broker.transactions.init_producer_id(InitProducerId(WRITER, timeout_ms))
        assert response.error_code is ErrorCode.NONE
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        self.sequences = [0, 0]

    def log(self, index: int = 0) -> PartitionLog:
        topic = self.broker.topics.get("t")
        assert topic is not None
        log = self.broker.data.log(topic, index)
        assert log is not None
        return log

    def produce(self, index: int = 0, *, adds_partitions: bool = True) -> ProducedPartition:
        records = batch(
            b"v",
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.sequences[index],
            is_transactional=True,
        )
        topic = TopicNameOrIdEntry("t", NO_ID, (ProducePartition(index, records),))
        request = Produce((topic,), transactional_id=WRITER, adds_partitions=adds_partitions)
        response: Any = do_whole(self.broker._handlers[Produce](FakeConnection(), request))  # type: ignore[arg-type]
        produced: ProducedPartition = response.topics[0].partitions[0]
        self.sequences[index] += produced.error_code is ErrorCode.NONE
        return produced

    def end(self, *, committed: bool, bumps_epoch: bool = True) -> ErrorCode:
        token = FakeConnection()
        request = EndTxn(WRITER, self.producer_id, self.producer_epoch, committed, bumps_epoch)
        response = self.broker.transactions.end(request, token) or token.answers[0]
        if bumps_epoch and response.error_code is ErrorCode.NONE:
            self.producer_epoch, self.sequences = response.producer_epoch, [0, 0]
        error_code: ErrorCode = response.error_code
        return error_code


@pytest.fixture
def world() -> TransactionalProducer:
    world = TransactionalProducer()
    world.init()
    return world


def aborted_count(log: PartitionLog) -> int:
    return sum(len(segment.aborted) for segment in log._segments)


@pytest.mark.parametrize("bumps_epoch", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_markers_end_a_transaction_everywhere(world: TransactionalProducer, committed: bool, bumps_epoch: bool) -> None:
    """Each written partition gets one, and the next transaction continues with this epoch or the next."""
    assert [world.produce(0).base_offset, world.produce(1).base_offset, world.produce(1).base_offset] == [0, 0, 1]
    assert [world.log(index).last_stable_offset for index in (0, 1)] == [0, 0]
    assert world.end(committed=committed, bumps_epoch=bumps_epoch) is ErrorCode.NONE
    assert [(log.end_offset, log.last_stable_offset) for log in (world.log(0), world.log(1))] == [(2, 2), (3, 3)]
    assert [aborted_count(world.log(index)) for index in (0, 1)] == [0 if committed else 1] * 2
    assert world.produce(0).base_offset == 2


def test_a_partition_must_be_in_the_transaction(world: TransactionalProducer) -> None:
    """Before version 12 a producer adds it first; a former epoch is fenced in both ways."""
    assert world.produce(adds_partitions=False).error_code is ErrorCode.TRANSACTION_ABORTABLE
    assert world.produce().error_code is ErrorCode.NONE
    assert world.produce(adds_partitions=False).error_code is ErrorCode.NONE
    assert world.produce(1, adds_partitions=False).error_code is ErrorCode.TRANSACTION_ABORTABLE
    world.end(committed=True)
    world.producer_epoch -= 1
    assert world.produce().error_code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_transaction_that_takes_too_long_is_aborted(world: TransactionalProducer) -> None:
    """Its readers go on, and its producer is fenced."""
    world.init(timeout_ms=1_000)
    world.produce()
    world.clock.advance(20_000)
    world.broker.tick()
    assert (world.log().end_offset, world.log().last_stable_offset, aborted_count(world.log())) == (2, 2, 1)
    assert world.produce().error_code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_deleted_topic_holds_up_no_transaction(world: TransactionalProducer) -> None:
    """Deleted partitions need no marker."""
    world.produce()
    with world.broker.topics.edit() as edit:
        topic = edit.delete("t")
    world.broker.data.delete(topic)
    assert world.end(committed=True) is ErrorCode.NONE


def test_markers_from_outside(world: TransactionalProducer) -> None:
    """As recorded: one without a transaction is written, one that is out of date is not."""
    producer_id = 2**41

    def write(epoch: int, coordinator_epoch: int = 0) -> str:
        marker = MarkerToWrite(producer_id, epoch, True, (TopicEntry("t", (0,)),), coordinator_epoch)
        connection = FakeConnection()
        world.broker.handle(connection, WriteTxnMarkers((marker,)))  # type: ignore[arg-type]
        (response,) = connection.answers
        return response.markers[0].topics[0].partitions[0].error_code.name

    assert [write(3), write(2), write(3), write(4, 5), write(4, 4)] == [
        "NONE",
        "INVALID_PRODUCER_EPOCH",
        "NONE",
        "NONE",
        "TRANSACTION_COORDINATOR_FENCED",
    ]
    assert world.log().end_offset == 3


@pytest.mark.parametrize(
    ("request_", "ids"),
    [
        (ListTransactions(), [WRITER]),
        (ListTransactions(("Ongoing",)), [WRITER]),
        (ListTransactions(("Empty", "Odd")), []),
        (ListTransactions(producer_id_filters=(99,)), []),
        (ListTransactions(duration_filter_ms=4_999), [WRITER]),
        (ListTransactions(duration_filter_ms=5_000), []),
        (ListTransactions(transactional_id_pattern="w.*r"), [WRITER]),
        (ListTransactions(transactional_id_pattern="rite"), []),
    ],
)
def test_list_transactions(world: TransactionalProducer, request_: ListTransactions, ids: list[str]) -> None:
    """By state, producer, how long ago they began, and a pattern that has to match all of the id."""
    world.produce()
    response = do_whole(answer_list_transactions(request_, world.broker.transactions.all, START_MS + 5_000))
    assert [transaction.transactional_id for transaction in response.transaction_states] == ids
    assert response.unknown_state_filters == (("Odd",) if "Odd" in request_.state_filters else ())


def test_a_bad_pattern(world: TransactionalProducer) -> None:
    """It has its own error code."""
    response = do_whole(
        answer_list_transactions(ListTransactions(transactional_id_pattern="("), world.broker.transactions.all, 0)
    )
    assert response.error_code is ErrorCode.INVALID_REGULAR_EXPRESSION
