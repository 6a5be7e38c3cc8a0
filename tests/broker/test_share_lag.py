"""How much is left for a share group of partitions that other nodes lead: DescribeShareGroupOffsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from groupcoord import Config, ErrorCode, ManualClock, MemoryLogStore
from groupcoord.broker.broker import Broker
from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.cluster.neighbours import Asker, Question, answer_neighbour
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.records.node_data import NodeData
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.share.latest_offsets import LatestOffsets
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.java.hashing import partition_for
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
from groupcoord.wire.broker_messages import Produce, ProducePartition, ProduceTopic
from tests.broker.data_world import batch
from tests.broker.processes import SETTINGS, Cluster, name_in

INDEXES = range(4)
RECORDS, FINISHED = [5, 6, 7, 8], 2
LEFT = [3, 4, 5, 6]


def asked(broker: Broker, request: Any) -> list[Any]:
    """Return a list with the answer to a request, in which it comes later if it waits."""
    answers: list[Any] = []
    answer_neighbour(broker, Question(request, Asker(1)), answers.append)
    broker.handle_waiting()
    return answers


def produce(broker: Broker, index: int) -> None:
    """Give a partition its records."""
    data = batch(*[b"v"] * RECORDS[index])
    (response,) = asked(broker, Produce((ProduceTopic("orders", UUID(int=0), (ProducePartition(index, data),)),)))
    assert response.topics[0].partitions[0].error_code is ErrorCode.NONE


def begin(broker: Broker, group_id: str) -> None:
    """Let a group begin at the start of all partitions, and finish two records of each."""
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
    """Return what has been told of the partitions."""
    (response,) = answers
    partitions: tuple[DescribedShareOffset, ...] = response.groups[0].topics[0].partitions
    assert {partition.error_code for partition in partitions} == {ErrorCode.NONE}
    return partitions


def lags(answers: list[Any]) -> list[int]:
    """Return how much is left of the partitions, as it has been told."""
    return [partition.lag for partition in described(answers)]


# ---------------------------------------------------------------- nodes of one process


def test_the_lag_of_partitions_that_another_node_of_the_process_leads() -> None:
    """Any node tells all of them, though clients may read each only of its leader."""
    clock, config, topics = ManualClock(1_700_000_000_000), Config(offsets_topic_num_partitions=2), TopicRegistry()
    topics.ensure("orders", len(INDEXES))
    data, store = TopicData(config, clock, topics), MemoryLogStore()
    leadership = Leadership(Node(node_id, "host", node_id) for node_id in (1, 2))
    nodes = Nodes(leadership, topics, data)
    brokers = [
        Broker(
            config=config,
            clock=clock,
            log_store=store,
            topics=topics,
            node=Node(node_id, "host", node_id),
            nodes=nodes,
            data=NodeData(data, leadership, node_id),
        )
        for node_id in (1, 2)
    ]
    for index in INDEXES:
        produce(brokers[index % 2], index)
    for number, broker in enumerate(brokers):
        group_id = next(name for name in "abcdefgh" if partition_for(name, 2) == number)
        begin(broker, group_id)
        assert lags(asked(broker, describing(group_id))) == LEFT


def test_a_log_that_cannot_be_used() -> None:
    """It has no end that anybody knows, nor has a partition that isn't there."""
    topics = TopicRegistry()
    topics.ensure("orders", 2)
    data = TopicData(Config(), ManualClock(), topics)
    node = NodeData(data, Leadership((Node(1, "host", 1), Node(2, "host", 2))), 1)
    partitions = [TopicPartition("orders", index) for index in (0, 1, 2)] + [TopicPartition("gone", 0)]
    found: list[Any] = []
    LatestOffsets(node, None).find(partitions, found.append)
    assert found == [{TopicPartition("orders", 0): 0}]


# ---------------------------------------------------------------- processes


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Two processes, each with the records of the partitions that it leads; the first has the states of all groups."""
    monkeypatch.setitem(SETTINGS, "share_coordinator_state_topic_num_partitions", 1)
    cluster = Cluster(tmp_path)
    cluster.create(0)
    for index in INDEXES:
        produce(cluster.brokers[index % 2 + 1], index)
    yield cluster
    cluster.close()


def begun(cluster: Cluster) -> str:
    """Return a group that has begun, and whose coordinators, of all kinds, are the first process."""
    group_id = name_in(0, "group")
    begin(cluster.brokers[1], group_id)
    return group_id


def test_the_lag_of_partitions_that_another_process_leads(cluster: Cluster) -> None:
    """The process is asked where they end, once for all."""
    group_id = begun(cluster)
    cluster.holds = True
    answers = asked(cluster.brokers[1], describing(group_id))
    assert (answers, len(cluster.held)) == ([], 1)
    cluster.let_go_on()
    assert lags(answers) == LEFT


def test_the_lag_of_partitions_whose_leader_is_gone(cluster: Cluster) -> None:
    """It isn't known; where the group stands, and the lag of the others, is told all the same."""
    group_id = begun(cluster)
    cluster.kill(1)
    answers = asked(cluster.brokers[1], describing(group_id))
    assert [partition.start_offset for partition in described(answers)] == [0] * 4
    assert lags(answers) == [LEFT[0], -1, LEFT[2], -1]


def test_ends_that_come_when_the_group_is_served_anew(cluster: Cluster) -> None:
    """Whoever has asked was refused when its coordinator was unloaded, and is not answered twice."""
    group_id = begun(cluster)
    coordinator = cluster.brokers[1].coordinator
    cluster.holds = True
    answers = asked(cluster.brokers[1], describing(group_id))
    index = coordinator.partition_of(group_id)
    coordinator.unload(index)
    coordinator.load(index, 1)
    cluster.let_go_on()
    assert [answer.groups[0].error_code for answer in answers] == [ErrorCode.NOT_COORDINATOR]
