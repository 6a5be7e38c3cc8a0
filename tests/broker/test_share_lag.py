"""The lag of share groups in partitions that other nodes lead: DescribeShareGroupOffsets."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from groupcoord import Config, ErrorCode, ManualClock, MemoryLogStore
from groupcoord.broker.broker import Broker, make_broker
from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.records.topic_data import NodeData, TopicData
from groupcoord.broker.topics.registry import Topic, TopicRegistry
from groupcoord.core.javacompat import partition_for
from groupcoord.core.messages import Node
from groupcoord.core.messages.share_state import (
    InitializeShareGroupState,
    StateToInitialize,
    StateTopicToInitialize,
    StateTopicToWrite,
    StateToWrite,
    WriteShareGroupState,
)
from groupcoord.messages import (
    DescribedShareOffset,
    DescribeShareGroupOffsets,
    ShareGroupToDescribe,
    ShareTopicToDescribe,
)
from groupcoord.storage.errors import FailedLogError
from groupcoord.storage.log.memory_log import PartitionLog
from groupcoord.wire.broker_messages import Produce, ProducePartition, TopicNameOrIdEntry
from tests.broker.data_world import FakeConnection, batch

INDEXES = range(4)
RECORDS, FINISHED = [5, 6, 7, 8], 2
LEFT = [3, 4, 5, 6]


def asked(broker: Broker, request: Any) -> list[Any]:
    """Return a list with the answer to a request."""
    connection = FakeConnection(broker)
    broker.handle(connection, request)  # type: ignore[arg-type]
    broker.deliver_replies()
    return connection.answers


def produce(broker: Broker, index: int) -> None:
    """Give a partition its records."""
    data = batch(*[b"v"] * RECORDS[index])
    (response,) = asked(broker, Produce((TopicNameOrIdEntry("orders", UUID(int=0), (ProducePartition(index, data),)),)))
    assert response.topics[0].partitions[0].error_code is ErrorCode.NONE


def begin(broker: Broker, group_id: str) -> None:
    """Initialize a group at the start of all partitions, and accept two records of each."""
    topic_id = broker.topics.topic_id("orders")
    assert topic_id is not None
    initialized = StateTopicToInitialize(topic_id, tuple(StateToInitialize(index, 1, 0) for index in INDEXES))
    written = StateTopicToWrite(topic_id, tuple(StateToWrite(index, 1, 0, 0, (), FINISHED) for index in INDEXES))
    for request in (InitializeShareGroupState(group_id, (initialized,)), WriteShareGroupState(group_id, (written,))):
        (response,) = asked(broker, request)
        assert {result.error_code for result in response.results[0].partitions} == {ErrorCode.NONE}


def describing(group_id: str) -> DescribeShareGroupOffsets:
    """Return the question where a group stands."""
    wanted = ShareTopicToDescribe("orders", tuple(INDEXES))
    return DescribeShareGroupOffsets((ShareGroupToDescribe(group_id, (wanted,)),))


def described(answers: list[Any]) -> tuple[DescribedShareOffset, ...]:
    """Return the described partitions."""
    (response,) = answers
    partitions: tuple[DescribedShareOffset, ...] = response.groups[0].topics[0].partitions
    assert {partition.error_code for partition in partitions} == {ErrorCode.NONE}
    return partitions


def lags(answers: list[Any]) -> list[int]:
    """Return the described lags of the partitions."""
    return [partition.lag for partition in described(answers)]


@pytest.fixture
def data() -> TopicData:
    """Return the logs of topics, shared by both nodes."""
    topics = TopicRegistry()
    topics.ensure("orders", len(INDEXES))
    return TopicData(Config(offsets_topic_num_partitions=2), ManualClock(1_700_000_000_000), topics)


@pytest.fixture
def brokers(data: TopicData) -> list[Broker]:
    """Two nodes that have produced records and begun nothing."""
    store, leadership = MemoryLogStore(), Leadership(Node(node_id, "host", node_id) for node_id in (1, 2))
    nodes = Nodes(leadership, data.topics, data)
    found = [
        make_broker(
            config=data.config,
            clock=data.clock,
            log_store=store,
            topics=data.topics,
            node=Node(node_id, "host", node_id),
            nodes=nodes,
            data=NodeData(data, leadership, node_id),
        )
        for node_id in (1, 2)
    ]
    for index in INDEXES:
        produce(found[index % 2], index)
    return found


def group_of(number: int) -> str:
    return next(name for name in "abcdefgh" if partition_for(name, 2) == number)


@pytest.mark.parametrize("number", [0, 1])
def test_the_lag_of_partitions_that_another_node_leads(brokers: list[Broker], number: int) -> None:
    """The group's coordinator returns all of them, though clients may read each only from its leader."""
    begin(brokers[number], group_of(number))
    assert lags(asked(brokers[number], describing(group_of(number)))) == LEFT


def test_a_log_that_cannot_be_used(data: TopicData, brokers: list[Broker], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lag is -1; where the group stands, and the lag of the others, is returned all the same."""
    begin(brokers[0], group_of(0))
    usual = data.log

    def log(topic: Topic, index: int) -> PartitionLog | None:
        if (topic.name, index) == ("orders", 1):
            raise FailedLogError("the disk is gone")
        return usual(topic, index)

    monkeypatch.setattr(data, "log", log)
    answers = asked(brokers[0], describing(group_of(0)))
    assert [partition.start_offset for partition in described(answers)] == [0] * 4
    assert lags(answers) == [LEFT[0], -1, *LEFT[2:]]


def test_each_node_is_woken_earlier_for_a_part_that_all_share(brokers: list[Broker]) -> None:
    """A pause of the share coordinator's requests is a new deadline of every node, a fetch of one node alone."""
    share = brokers[0].nodes.share
    assert share is not None

    def woken() -> list[bool]:
        return [broker.nearer_deadline_ms() is not None for broker in brokers]

    woken()
    assert woken() == [False, False]
    share.persister.timers.add(0, lambda: None)
    assert woken() == [True, True]
    brokers[1].share_requests.timers.add(10, lambda: None)
    assert woken() == [False, True]
    brokers[0].abandon()
    share.persister.timers.add(0, lambda: None)
    assert woken() == [False, True]
