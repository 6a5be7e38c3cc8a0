"""Nodes that are processes of their own, here in one, so that what goes from one to the other can be held up."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any
from uuid import UUID

from groupcoord import Config, ErrorCode, ManualClock
from groupcoord.broker.broker import Broker
from groupcoord.broker.cluster.neighbours import Asker, Question, TakeAnswer, answer_neighbour
from groupcoord.broker.security.security import Security
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.core.java.hashing import partition_for
from groupcoord.core.messages import (
    GroupToFetch,
    Node,
    OffsetFetch,
    OffsetToCommit,
    TopicToCommit,
    TopicToFetch,
    TxnOffsetCommit,
)
from groupcoord.host.opening import Storage, open_worker_storage, prepare_for_workers
from groupcoord.host.worker_folders import WorkerFolders
from groupcoord.host.workers import worker_broker
from groupcoord.wire.broker_messages import (
    CreatableTopic,
    CreateTopics,
    Metadata,
    Produce,
    ProducePartition,
    ProduceTopic,
    TopicReference,
)
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


class Asked:
    """What one node asks the other, as long as no answer has come: bytes, handed over at once or when let go.

    Attributes:
        asker, asked: the nodes, by their ids.
        take: takes the answer.
        answer_bytes: the answer, if it is held back.
    """

    def __init__(self, cluster: Cluster, asker: int, asked: int, take: TakeAnswer) -> None:
        self.cluster = cluster
        self.asker = asker
        self.asked = asked
        self.take = take
        self.answer_bytes: bytes | None = None

    def answer(self, response: Any) -> None:
        self.answer_bytes = pickle.dumps(response)
        if not self.cluster.holds:
            self.deliver()

    def deliver(self) -> None:
        if self in self.cluster.asked:
            self.cluster.asked.remove(self)
            assert self.answer_bytes is not None
            self.take(pickle.loads(self.answer_bytes))


class Direct:
    """The other node, as one of them reaches it."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.controller_id = 1

    def ask(self, node_id: int, question: Question, take: TakeAnswer) -> None:
        broker = self.cluster.brokers.get(node_id)
        if broker is None:
            take(None)
        else:
            asked = Asked(self.cluster, self.node_id, node_id, take)
            self.cluster.asked.append(asked)
            answer_neighbour(broker, pickle.loads(pickle.dumps(question)), asked.answer)

    def tell_all(self, request: Any) -> None:
        for node_id in set(self.cluster.brokers) - {self.node_id}:
            self.ask(node_id, Question(request, Asker(self.node_id)), lambda response: None)


class Cluster:
    """Two nodes with a data directory.

    Attributes:
        brokers: those that run, by their ids.
        holds: answers between them are held back.
        asked: what they have asked each other, and no answer has come to.
    """

    def __init__(self, path: Path, properties: dict[str, str | int] | None = None, **settings: Any) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.brokers: dict[int, Broker] = {}
        self.storages: dict[int, Storage] = {}
        self.holds = False
        self.asked: list[Asked] = []
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
        self.storages[number] = storage
        node_id = NODES[number].node_id
        self.brokers[node_id] = worker_broker(storage, self.clock, NODES, number, Direct(self, node_id))

    def kill(self, number: int) -> None:
        node_id = NODES[number].node_id
        del self.brokers[node_id]
        self.storages.pop(number).abandon()
        broken = [asked for asked in self.asked if node_id in (asked.asker, asked.asked)]
        self.asked = [asked for asked in self.asked if asked not in broken]
        for asked in broken:
            if asked.asker != node_id:
                asked.take(None)

    def close(self) -> None:
        for storage in self.storages.values():
            storage.close()

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

    @property
    def held(self) -> list[Asked]:
        """The answers that are held back."""
        return [asked for asked in self.asked if asked.answer_bytes is not None]

    def let_go(self) -> None:
        for asked in self.held:
            asked.deliver()
        self.settle()

    def let_go_on(self) -> None:
        self.holds = False
        self.let_go()

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
