"""Nodes that are processes of their own, here in one, so that what goes from one to the other can be held up."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from groupcoord import Config, ErrorCode, ManualClock
from groupcoord.broker.broker import Broker
from groupcoord.broker.cluster.neighbours import Asker, Question, TakeAnswer, answer_neighbour
from groupcoord.broker.security.security import Security
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.transactions.coordinator import RETRY_MS
from groupcoord.core.java.hashing import partition_for
from groupcoord.core.messages import (
    GroupToFetch,
    Node,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    TopicToCommit,
    TopicToFetch,
    TxnOffsetCommit,
)
from groupcoord.host.opening import open_worker_storage, prepare_for_workers
from groupcoord.host.worker_folders import WorkerFolders
from groupcoord.host.workers import worker_broker
from groupcoord.wire.broker_messages import (
    CreatableTopic,
    CreateTopics,
    DeleteTopics,
    Metadata,
    Produce,
    ProducePartition,
    ProduceTopic,
    TopicReference,
)
from groupcoord.wire.cluster_messages import AlterPartitionReassignments, PartitionToReassign, TopicToReassign
from groupcoord.wire.config_messages import ConfigResourceType, ConfigToAlter, IncrementalAlterConfigs, ResourceToAlter
from groupcoord.wire.transaction_messages import EndTxn, InitProducerId
from tests.broker.data_world import batch

ACLS: dict[str, str | int] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
NODES = (Node(1, "host", 1), Node(2, "host", 2))
PARTITIONS = 4
STATE_PARTITIONS = 7
SETTINGS = {
    "offsets_topic_num_partitions": PARTITIONS,
    "transaction_state_log_num_partitions": PARTITIONS,
    "share_coordinator_state_topic_num_partitions": STATE_PARTITIONS,
}


def name_in(worker: int, kind: str) -> str:
    """Return the name of something whose partition that worker leads."""
    return next(name for name in (f"{kind}{n}" for n in range(99)) if partition_for(name, PARTITIONS) % 2 == worker)


class Direct:
    """What one node asks the other is handed over as bytes, at once or when it is let go on."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.controller_id = 1

    def ask(self, node_id: int, question: Question, take: TakeAnswer) -> None:
        def hand_back(response: Any) -> None:
            deliver = lambda: take(pickle.loads(pickle.dumps(response)))  # noqa: E731
            self.cluster.held.append(deliver) if self.cluster.holds else deliver()

        broker = self.cluster.brokers.get(node_id)
        if broker is None:
            take(None)
        else:
            answer_neighbour(broker, pickle.loads(pickle.dumps(question)), hand_back)

    def tell_all(self, request: Any) -> None:
        for node_id in set(self.cluster.brokers) - {self.node_id}:
            self.ask(node_id, Question(request, Asker(self.node_id)), lambda response: None)


class Cluster:
    """Two nodes with a data directory.

    Attributes:
        brokers: those that run, by their ids.
        holds: answers between them are held back.
        held: what is, for whoever lets it go on.
    """

    def __init__(self, path: Path, properties: dict[str, str | int] | None = None, **settings: Any) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.brokers: dict[int, Broker] = {}
        self.storages: list[Any] = []
        self.holds = False
        self.held: list[Any] = []
        self._path = path
        self._config = Config(**SETTINGS, **settings)
        self._security = Security(self.clock, path, properties or {})
        folders = WorkerFolders(path)
        prepare_for_workers(path, self._config, TopicRegistry(path), folders.places())
        folders.spread(2)
        for number in (0, 1):
            self.start(number)

    def start(self, number: int) -> None:
        folder = WorkerFolders(self._path).of(number, 2)
        storage = open_worker_storage(self._path, folder, self._config, self.clock, self._security)
        self.storages.append(storage)
        node_id = NODES[number].node_id
        self.brokers[node_id] = worker_broker(storage, self.clock, NODES, number, Direct(self, node_id))

    def kill(self, number: int) -> None:
        del self.brokers[number + 1]
        self.storages.pop(number).abandon()

    def ask(self, worker: int, request: Any, principal: str = "User:a") -> Any:
        """Return the answer of a worker to a client; a list, which it may come into later, if it waits."""
        answers: list[Any] = []
        broker = self.brokers[worker + 1]
        answer_neighbour(
            broker, Question(request, Asker(worker + 1, principal, "/host", is_client=True)), answers.append
        )
        self.settle()
        return answers[0] if answers else answers

    def settle(self) -> None:
        for broker in self.brokers.values():
            broker.handle_waiting()
            broker.deliver_replies()

    def let_go_on(self) -> None:
        held, self.held, self.holds = self.held, [], False
        for deliver in held:
            deliver()
        self.settle()

    def create(self, worker: int, name: str = "orders", count: int = 4, factor: int = 1) -> str:
        (made,) = self.ask(worker, CreateTopics((CreatableTopic(name, count, factor),))).topics
        return made.error_code.name if made.error_code is ErrorCode.NONE else str(made.error_message)

    def leaders(self, worker: int, name: str = "orders") -> list[int] | None:
        (topic,) = self.ask(worker, Metadata((TopicReference(name),), allow_auto_topic_creation=False)).topics
        return [partition.leader_id for partition in topic.partitions] or None

    def committed(self, group_id: str, worker: int) -> int:
        wanted = GroupToFetch(group_id, (TopicToFetch("orders", (0,)),))
        response = self.ask(worker, OffsetFetch((wanted,), require_stable=True))
        return int(response.groups[0].topics[0].partitions[0].committed_offset)

    def begin(self, worker: int, transactional_id: str) -> tuple[int, int]:
        answer = self.ask(worker, InitProducerId(transactional_id, 60_000))
        assert answer.error_code is ErrorCode.NONE
        return answer.producer_id, answer.producer_epoch

    def commit_offsets(self, worker: int, group_id: str, producer: tuple[int, int], transactional_id: str) -> Any:
        topics = (TopicToCommit("orders", (OffsetToCommit(0, 42),)),)
        return self.ask(worker, TxnOffsetCommit(group_id, topics, *producer, transactional_id, adds_group=True))

    def produce(self, worker: int, index: int, producer: tuple[int, int], transactional_id: str) -> Any:
        data = batch(b"v", producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, is_transactional=True)
        topics = (ProduceTopic("orders", UUID(int=0), (ProducePartition(index, data),)),)
        return self.ask(worker, Produce(topics, transactional_id=transactional_id, adds_partitions=True))

    def end(self, worker: int, transactional_id: str, producer: tuple[int, int]) -> Any:
        return self.ask(worker, EndTxn(transactional_id, *producer, True, False))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    for storage in cluster.storages:
        storage.close()


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
    held, cluster.held, cluster.holds = cluster.held, [], False
    assert cluster.end(0, name, producer).error_code is ErrorCode.NONE
    cluster.held = held
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
