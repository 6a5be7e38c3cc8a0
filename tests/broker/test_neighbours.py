"""What nodes that are processes of their own leave to each other, and that clients don't notice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from groupcoord import ErrorCode
from groupcoord.broker.transactions.coordinator import RETRY_MS
from groupcoord.core.messages import (
    OffsetCommit,
    OffsetToCommit,
    TopicToCommit,
)
from groupcoord.wire.broker_messages import (
    CreatableTopic,
    CreateTopics,
    DeleteTopics,
    Metadata,
    TopicReference,
)
from groupcoord.wire.cluster_messages import AlterPartitionReassignments, PartitionToReassign, TopicToReassign
from groupcoord.wire.config_messages import ConfigResourceType, ConfigToAlter, IncrementalAlterConfigs, ResourceToAlter
from groupcoord.wire.transaction_messages import InitProducerId
from tests.broker.processes import ACLS, Cluster, name_in


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def errors(topics: Any) -> list[str]:
    return [partition.error_code.name for topic in topics for partition in topic.partitions]


@pytest.mark.parametrize("asked", [0, 1])
def test_topics_are_known_to_all(cluster: Cluster, asked: int) -> None:
    """Any node has a topic made or deleted; all know it, and who leads which partition; groups forget what is gone."""
    assert cluster.create(asked) == "NONE"
    assert cluster.leaders(0) == cluster.leaders(1) == [1, 2, 1, 2]
    for worker in (0, 1):
        group_id = name_in(worker, "group")
        cluster.ask(worker, OffsetCommit(group_id, (TopicToCommit("orders", (OffsetToCommit(0, 7),)),)))
        assert cluster.committed(group_id, worker) == 7
    cluster.ask(asked, DeleteTopics((TopicReference("orders"),), 1_000))
    assert (cluster.leaders(0), cluster.leaders(1)) == (None, None)
    assert [cluster.committed(name_in(worker, "group"), worker) for worker in (0, 1)] == [-1, -1]


def test_a_topic_that_was_made_again_meanwhile_is_empty(cluster: Cluster) -> None:
    """A worker that did not run when its topic was deleted does not take the old records for the new topic's."""
    cluster.create(0)
    cluster.produce(1, 1, cluster.begin(0, name_in(0, "writer")), name_in(0, "writer"))
    cluster.kill(1)
    cluster.ask(0, DeleteTopics((TopicReference("orders"),), 1_000))
    cluster.create(0)
    cluster.start(1)
    topic = cluster.brokers[2].topics.get("orders")
    assert topic is not None
    log = cluster.brokers[2].data.log(topic, 1)
    assert log is not None
    assert log.end_offset == 0


def test_topics_that_clients_name_are_made_by_the_controller(cluster: Cluster) -> None:
    """``auto.create.topics.enable``: the client asks again, as with a broker, and then it is there."""
    cluster.ask(1, Metadata((TopicReference("orders"),), allow_auto_topic_creation=True))
    assert cluster.leaders(1) == cluster.leaders(0) == [1]


def test_one_worker_has_each_partition(cluster: Cluster) -> None:
    """More replicas than one, or others, are refused with the reason."""
    assert "kept by one worker" in cluster.create(1, factor=2)
    cluster.create(1)
    moves = TopicToReassign("orders", (PartitionToReassign(0, (2,)), PartitionToReassign(1, (2,))))
    (topic,) = cluster.ask(0, AlterPartitionReassignments((moves,))).responses
    assert errors([topic]) == ["INVALID_REPLICA_ASSIGNMENT", "NONE"]


def test_settings_of_a_broker_are_its_own(cluster: Cluster) -> None:
    """What is set of node 2, through node 2, holds there and not in node 1."""
    change = ConfigToAlter("log.retention.bytes", "77")
    (result,) = cluster.ask(
        1, IncrementalAlterConfigs((ResourceToAlter(ConfigResourceType.BROKER, "2", (change,)),), False)
    ).responses
    assert result.error_code is ErrorCode.NONE
    cluster.create(0)
    found = []
    for broker in cluster.brokers.values():
        topic = broker.topics.get("orders")
        assert topic is not None
        found.append(broker.data.settings_of(topic).retention_bytes)
    assert found == [-1, 77]


def test_what_a_client_may_not_do_it_may_not_do_through_others(tmp_path: Path) -> None:
    """The controller asks for the client's permissions, not for those of the node that passes it on."""
    cluster = Cluster(tmp_path, {**ACLS, "super.users": "User:root"})
    request = CreateTopics((CreatableTopic("orders", 1, 1),))
    assert cluster.ask(1, request).topics[0].error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert cluster.ask(1, request, "User:root").topics[0].error_code is ErrorCode.NONE


def test_producer_ids_are_given_once(cluster: Cluster) -> None:
    """Whichever node is asked, nobody else has the id."""
    found = [cluster.ask(n % 2, InitProducerId(None, 0)).producer_id for n in range(6)]
    assert len(set(found)) == len(found)


# ---------------------------------------------------------------- transactions


@pytest.mark.parametrize("ours", [0, 1])
def test_a_transaction_over_both_nodes(cluster: Cluster, ours: int) -> None:
    """One node coordinates it; records and offsets in it are on both, and appear with its end."""
    cluster.create(0)
    name = name_in(ours, "writer")
    producer = cluster.begin(ours, name)
    for worker in (0, 1):
        assert errors(cluster.produce(worker, worker, producer, name).topics) == ["NONE"]
        assert errors(cluster.commit_offsets(worker, name_in(worker, "group"), producer, name).topics) == ["NONE"]
    assert [cluster.committed(name_in(worker, "group"), worker) for worker in (0, 1)] == [-1, -1]
    assert cluster.end(ours, name, producer).error_code is ErrorCode.NONE
    assert [cluster.committed(name_in(worker, "group"), worker) for worker in (0, 1)] == [42, 42]
    for worker in (0, 1):
        broker = cluster.brokers[worker + 1]
        topic = broker.topics.get("orders")
        assert topic is not None
        log = broker.data.log(topic, worker)
        assert log is not None
        assert (log.end_offset, log.last_stable_offset) == (2, 2)


@pytest.mark.parametrize("what", ["records", "offsets"])
def test_what_is_verified_when_the_transaction_is_over_is_refused(cluster: Cluster, what: str) -> None:
    """A marker comes between the coordinator's yes and the write: that would belong to no transaction that ends."""
    cluster.create(0)
    name, group_id = name_in(0, "writer"), name_in(1, "group")
    producer = cluster.begin(0, name)
    cluster.holds = True
    if what == "records":
        late = cluster.produce(1, 1, producer, name)
    else:
        late = cluster.commit_offsets(1, group_id, producer, name)
    assert late == []
    cluster.holds = False
    assert cluster.end(0, name, producer).error_code is ErrorCode.NONE
    cluster.let_go_on()
    assert errors(late[0].topics) == ["INVALID_TXN_STATE"]
    assert cluster.committed(group_id, 1) == -1
    topic = cluster.brokers[2].topics.get("orders")
    assert topic is not None
    log = cluster.brokers[2].data.log(topic, 1)
    assert log is not None
    assert log.last_stable_offset == log.end_offset


def test_markers_wait_for_a_node_that_is_gone(cluster: Cluster) -> None:
    """The outcome is decided; the node that was killed gets its markers when it is back."""
    cluster.create(0)
    name, group_id = name_in(0, "writer"), name_in(1, "group")
    producer = cluster.begin(0, name)
    cluster.commit_offsets(1, group_id, producer, name)
    cluster.kill(1)
    assert cluster.end(0, name, producer).error_code is ErrorCode.NONE
    cluster.start(1)
    assert cluster.committed(group_id, 1) == -1
    cluster.clock.advance(RETRY_MS)
    cluster.brokers[1].tick()
    cluster.settle()
    assert cluster.committed(group_id, 1) == 42


def test_nobody_writes_in_a_transaction_whose_coordinator_is_gone(cluster: Cluster) -> None:
    """It can't be asked: the client is told to come again."""
    cluster.create(0)
    name = name_in(0, "writer")
    producer = cluster.begin(0, name)
    cluster.kill(0)
    assert errors(cluster.produce(1, 1, producer, name).topics) == ["NOT_ENOUGH_REPLICAS"]
    committed = cluster.commit_offsets(1, name_in(1, "group"), producer, name)
    assert errors(committed.topics) == ["COORDINATOR_NOT_AVAILABLE"]
