"""Leaders and replicas: each node is a replica of every partition, and failures and elections change leaders."""

from __future__ import annotations

from uuid import UUID

import pytest

from groupcoord.broker.cluster.administration import answer_alter_partition_reassignments
from groupcoord.broker.cluster.leadership import NOBODY, Leadership
from groupcoord.broker.cluster.metadata import answer_metadata
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.topics.registry import Topic, TopicRegistry
from groupcoord.broker.work import do_whole
from groupcoord.core.log.records import TRANSACTIONS_TOPIC
from groupcoord.core.messages import Node
from groupcoord.wire.broker_messages import Metadata, TopicEntry
from groupcoord.wire.cluster_messages import AlterPartitionReassignments, PartitionToReassign

ORDERS = Topic("orders", UUID(int=1), 4)


@pytest.fixture
def leadership() -> Leadership:
    return Leadership(Node(node_id, "h", 9000 + node_id) for node_id in (2, 1, 3))


def leaders(leadership: Leadership) -> list[tuple[int, int]]:
    return [leadership.leader(ORDERS, index) for index in range(ORDERS.partition_count)]


def test_partitions_are_led_in_turn(leadership: Leadership) -> None:
    """The preferred leader of partition 0 is the first node, of partition 1 the second, and they lead."""
    assert leaders(leadership) == [(1, 0), (2, 0), (3, 0), (1, 0)]
    assert leadership.replicas(ORDERS, 1) == (2, 3, 1)
    assert leadership.controller_id == 1


def test_a_node_alone_leads_everything() -> None:
    """One node leads everything with the epoch 0."""
    alone = Leadership((Node(7, "h", 1),))

    assert alone.is_sole
    assert alone.leader(ORDERS, 3) == (7, 0)
    assert Nodes(alone, TopicRegistry()).coordinates_transactions(7, "any")


def test_a_node_alone_goes_on_with_the_epochs_of_logs() -> None:
    """Partitions that other nodes have led keep their epochs, which are looked up once unless the log is unreadable."""
    told: dict[int, int | None] = {1: 5, 3: None}
    asked: list[int] = []

    def first_epoch(topic: Topic, index: int) -> int | None:
        asked.append(index)
        return told.get(index, 0)

    alone = Leadership((Node(7, "h", 1),), first_epoch)
    assert leaders(alone) == [(7, 0), (7, 5), (7, 0), (7, 0)]
    assert alone.leader_of_all(ORDERS) is None
    told[3] = 8
    assert leaders(alone) == [(7, 0), (7, 5), (7, 0), (7, 8)]
    asked.clear()
    assert alone.leader(ORDERS, 3) == (7, 8)
    assert not asked
    alone.forget(ORDERS)
    told.clear()
    assert alone.leader_of_all(ORDERS) == (7, 0)


def test_what_is_remembered_of_a_topic_is_of_no_other() -> None:
    """A topic that grew, or was created again under its name, is looked up again."""
    told = {ORDERS.topic_id: 5, UUID(int=2): 6}
    alone = Leadership((Node(7, "h", 1),), lambda topic, index: told[topic.topic_id])

    assert alone.leader(ORDERS, 3) == (7, 5)
    assert alone.leader(ORDERS._replace(partition_count=5), 4) == (7, 5)
    assert alone.leader(ORDERS._replace(topic_id=UUID(int=2)), 3) == (7, 6)
    assert alone.leader(ORDERS, 3) == (7, 5)


def test_others_lead_for_a_node_that_is_gone(leadership: Leadership) -> None:
    """Of a partition the next replica that runs is to be elected, and nothing else changes."""
    before, topics = leaders(leadership), TopicRegistry()
    topics.ensure("a", 3)
    leadership.stopped(2)

    elected = {(topic.name, index, node_id) for topic, index, node_id in leadership.to_elect(topics)}
    assert ("a", 0, 1) not in elected
    assert leaders(leadership) == before
    assert [node.node_id for node in leadership.brokers()] == [1, 3]
    assert leadership.in_sync((1, 2, 3)) == (1, 3)


def test_a_new_partition_is_led_by_who_runs(leadership: Leadership) -> None:
    """A partition that comes while its preferred leader is away is led by another, also when that is back."""
    leadership.stopped(1)
    assert leadership.leader(ORDERS, 0) == (2, 0)
    leadership.started(1)
    assert leadership.leader(ORDERS, 0) == (2, 0)


def test_nobody_leads_while_no_node_runs(leadership: Leadership) -> None:
    """Without nodes there is no leader, controller or election; the first node that starts is elected."""
    topics = TopicRegistry()
    topics.ensure("a", 2)
    for node_id in leadership.node_ids:
        leadership.stopped(node_id)
    assert leadership.leader(ORDERS, 0).node_id == NOBODY
    assert leadership.controller_id == NOBODY
    assert leadership.to_elect(topics) == []
    leadership.started(3)
    assert {node_id for _, _, node_id in leadership.to_elect(topics)} == {3}
    for node_id in leadership.node_ids:
        leadership.started(node_id)
    (topic,) = do_whole(answer_metadata(Metadata(), leadership, topics)).topics
    assert [partition.error_code.name for partition in topic.partitions] == ["LEADER_NOT_AVAILABLE"] * 2


def test_a_topic_that_is_gone_is_forgotten(leadership: Leadership) -> None:
    """A topic that is created again begins with its preferred leaders."""
    leadership.elect(ORDERS, 0, 3)
    leadership.forget(ORDERS)
    assert leadership.leader(ORDERS, 0) == (1, 0)


def test_topics_without_an_accepted_change_do_not_stop_reassignments(leadership: Leadership) -> None:
    topics = TopicRegistry()
    topics.ensure("a", 1)
    topics.ensure("b", 1)
    wanted = tuple(
        TopicEntry(name, (PartitionToReassign(index, (3, 2, 1)),)) for name, index in (("none", 0), ("a", 9), ("b", 0))
    )
    answer = answer_alter_partition_reassignments(
        AlterPartitionReassignments(wanted), Nodes(leadership, topics), topics
    )
    found = [topic.partitions[0].error_code.name for topic in do_whole(answer).responses]
    assert found == [*["UNKNOWN_TOPIC_OR_PARTITION"] * 2, "NONE"]
    assert [topic.replicas for topic in topics] == [{}, {0: (3, 2, 1)}]


def test_a_log_may_be_older_than_its_nodes() -> None:
    """Epochs go on from what the log has, since clients remember them."""
    leadership = Leadership([Node(1, "h", 1), Node(2, "h", 2)], lambda topic, index: 5)
    assert leadership.leader(ORDERS, 0) == (1, 5)


def test_transactions_have_coordinators(leadership: Leadership) -> None:
    """An id is coordinated by one node alone, the leader of its partition, once there is the topic that it is in."""
    topics = TopicRegistry()
    nodes = Nodes(leadership, topics)

    def coordinating() -> list[int]:
        return [node_id for node_id in (1, 2, 3) if nodes.coordinates_transactions(node_id, "tx")]

    assert (coordinating(), nodes.transaction_node("tx")) == ([], None)
    topics.ensure(TRANSACTIONS_TOPIC, 1)
    topic = topics.get(TRANSACTIONS_TOPIC)
    assert topic is not None
    leadership.elect(topic, 0, 3)
    assert coordinating() == [3]


def test_there_is_a_node() -> None:
    """A server without nodes is refused."""
    with pytest.raises(ValueError, match="at least one node"):
        Leadership(())
