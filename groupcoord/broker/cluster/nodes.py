"""State that the nodes of a server share: leaders, coordinators, and documents in a cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from types import GeneratorType
from typing import Any

from attrs import define, field

from groupcoord.broker.cluster.leadership import NOBODY, Leadership
from groupcoord.broker.cluster.metadata import Features
from groupcoord.broker.cluster.quotas import Quotas
from groupcoord.broker.configs.client_metrics import ClientMetrics
from groupcoord.broker.configs.definitions import BrokerConfigs
from groupcoord.broker.connection import Connection, Handler
from groupcoord.broker.json_file import DataFileError, Document, Place
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.share.coordination import ShareCoordination
from groupcoord.broker.topics.registry import Topic, TopicRegistry
from groupcoord.broker.transactions.coordinator import TransactionCoordinator
from groupcoord.broker.transactions.log import ProducerIds
from groupcoord.broker.work import Token, Work, deliver_replies
from groupcoord.coordinator import GroupCoordinator, LoadError
from groupcoord.core.javacompat import partition_for
from groupcoord.core.log.records import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from groupcoord.core.messages import Node
from groupcoord.core.router.authorization import Authorize, Principal
from groupcoord.storage.errors import FailedLogError
from groupcoord.wire import WireResponse
from groupcoord.wire.broker_messages import CreatePartitions, CreateTopics, DeleteTopics
from groupcoord.wire.cluster_messages import UpdateFeatures
from groupcoord.wire.config_messages import AlterClientQuotas, AlterConfigs, IncrementalAlterConfigs
from groupcoord.wire.security_messages import AlterUserScramCredentials, CreateAcls, DeleteAcls

logger = logging.getLogger("groupcoord.host")


@define(eq=False)
class Nodes:
    """Nodes of a server, often one.

    Attributes:
        coordinators: the group coordinators of the running nodes.
        transactions: the transaction coordinator of all nodes, once a broker has requested it.
        before_unload: called with a partition of ``__consumer_offsets`` before its coordinator unloads it.
    """

    leadership: Leadership
    _topics: TopicRegistry
    _data: TopicData | None = None
    before_unload: Callable[[int], None] = field(init=False, default=lambda index: None)
    coordinators: dict[int, GroupCoordinator] = field(init=False, factory=dict)
    transactions: TransactionCoordinator | None = field(init=False, default=None)
    share: ShareCoordination | None = field(init=False, default=None)

    @property
    def has_transactions(self) -> bool:
        """False for nodes that share a log: no node coordinates transactions."""
        return self.leadership.elects

    @property
    def _offsets_topic(self) -> Topic:
        topic = self._topics.get(OFFSETS_TOPIC)
        assert topic is not None, "each node sees to it that it is there"
        return topic

    def led_log_partitions(self, node_id: int) -> dict[int, int]:
        topic = self._offsets_topic
        leaders = {index: self.leadership.leader(topic, index) for index in range(topic.partition_count)}
        return {index: leader.epoch for index, leader in leaders.items() if leader.node_id == node_id}

    def coordinator_node(self, log_partition: int) -> Node | None:
        return self.leadership.node(self.leadership.leader(self._offsets_topic, log_partition).node_id)

    def transaction_node(self, transactional_id: str) -> Node | None:
        return self.leadership.node(self.transaction_leader(transactional_id))

    def coordinates_transactions(self, node_id: int, transactional_id: str) -> bool:
        return self.leadership.is_sole or self.transaction_leader(transactional_id) == node_id

    def transaction_leader(self, transactional_id: str) -> int:
        """Return the leader for a transactional id; -1 before the topic is created."""
        topic = self._topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return NOBODY
        return self.leadership.leader(topic, partition_for(transactional_id, topic.partition_count)).node_id

    def transaction_coordinator(self, producer_ids: ProducerIds, data: TopicData) -> TransactionCoordinator:
        """Return the transaction coordinator, created for the first node. With several nodes its creator recovers it
        when all run, since markers need every coordinator.
        """
        if self.transactions is None:
            self.transactions = TransactionCoordinator(
                producer_ids=producer_ids,
                data=data,
                serving=self.serving,
                submit=self.submit,
                topics_created=self.topics_created,
            )
            if self.leadership.is_sole:
                self.transactions.recover()
        return self.transactions

    def share_coordination(self, data: TopicData, authorize: Authorize | None) -> ShareCoordination:
        if self.share is None:
            self.share = ShareCoordination(data, self.leadership, authorize)
        return self.share

    def share_node(self, key: str) -> Node | None:
        return None if self.share is None else self.share.node_of(key)

    def serving(self, log_partition: int) -> GroupCoordinator | None:
        node_id = self.leadership.leader(self._offsets_topic, log_partition).node_id
        return None if node_id == NOBODY else self.coordinators.get(node_id)

    def submit(self, log_partition: int, request: Any, token: Token, principal: Principal) -> None:
        """Pass a request to the group coordinator of a log partition, and deliver its responses."""
        # Without a leader, any node refuses the request with NOT_COORDINATOR.
        coordinator = self.serving(log_partition) or next(iter(self.coordinators.values()))
        coordinator.submit(request, token, principal)
        deliver_replies(coordinator)

    # ------------------------------------------------------------ elections

    def elect(self, topic: Topic, index: int, node_id: int) -> None:
        """Make a node the leader of a partition; LoadError if its coordinator can't load the log."""
        is_offsets = topic.name == OFFSETS_TOPIC
        former = self.coordinators.get(self.leadership.leader(topic, index).node_id) if is_offsets else None
        if former is not None:
            self.before_unload(index)
            # Before the election: two coordinators must not write one log partition.
            former.unload(index)
            # Its waiting requests fail with NOT_COORDINATOR.
            deliver_replies(former)
        leader = self.leadership.elect(topic, index, node_id)
        if not is_offsets and self._data is not None and node_id != NOBODY:
            with suppress(FailedLogError):  # reads and writes report it
                log = self._data.log(topic, index)
                if log is not None:
                    # OffsetForLeaderEpoch (KIP-320) reads the start of an epoch from the log.
                    log.begin_epoch(leader.epoch)
        coordinator = self.coordinators.get(node_id) if is_offsets else None
        if coordinator is not None:
            coordinator.load(index, leader.epoch)
            deliver_replies(coordinator)

    def reassigned(self, topic: Topic, index: int, former: Collection[int]) -> None:
        replicas, leader_id = self.leadership.replicas(topic, index), self.leadership.leader(topic, index).node_id
        # As in Kafka, a leader that stays a replica keeps its role.
        if leader_id not in replicas:
            leader_id = self.leadership.in_sync(replicas)[0]
        # The epoch rises only if a replica is removed (PartitionChangeBuilder).
        elif set(former).issubset(replicas):
            return
        with suppress(LoadError):  # the new leader will retry
            self.elect(topic, index, leader_id)

    def stopped(self, node_id: int) -> None:
        coordinator = self.coordinators.get(node_id)
        if coordinator is not None:
            for index in self.led_log_partitions(node_id):
                # While the coordinator can still read it.
                self.before_unload(index)
            del self.coordinators[node_id]
            coordinator.close()
            deliver_replies(coordinator)
        self.leadership.stopped(node_id)
        self._elect_where_nobody_leads()

    def start(self, node_ids: Collection[int]) -> None:
        for node_id in node_ids:
            self.leadership.started(node_id)
        self._elect_where_nobody_leads()

    def _elect_where_nobody_leads(self) -> None:
        for topic, index, node_id in self.leadership.to_elect(self._topics):
            with suppress(LoadError):  # the new leader will retry
                self.elect(topic, index, node_id)

    # ------------------------------------------------------------ topics

    def topics_created(self, names: Collection[str]) -> None:
        for coordinator in self.coordinators.values():
            coordinator.topics_created(names)

    def topics_changed(self, names: Collection[str]) -> None:
        for coordinator in self.coordinators.values():
            coordinator.topics_changed(names)

    def topic_deleted(self, topic: Topic) -> None:
        self.leadership.forget(topic)
        for coordinator in self.coordinators.values():
            coordinator.topic_deleted(topic.name, topic.topic_id)
            deliver_replies(coordinator)
        if self.share is not None:
            self.share.topic_deleted(topic)


# ---------------------------------------------------------------- documents that nodes share


class Administered:
    """Broker configs, client metrics, quotas and features, each in a file."""

    def __init__(self, place: Place | None = None) -> None:
        self.brokers = BrokerConfigs(place)
        self.client_metrics = ClientMetrics(place)
        self.quotas = Quotas(place)
        self.features = Features(place)


WRITING_REQUESTS = (
    *(CreateTopics, CreatePartitions, DeleteTopics, IncrementalAlterConfigs, AlterConfigs, UpdateFeatures),
    *(AlterClientQuotas, CreateAcls, DeleteAcls, AlterUserScramCredentials),
)
"""Requests that write shared documents."""


class SharedDocuments:
    """Documents that the nodes of a cluster share."""

    def __init__(self, topics: TopicRegistry, others: Iterable[Document]) -> None:
        self._topics = topics
        self._documents: tuple[Document, ...] = (topics, *others)

    def reload(self) -> None:
        """Read what other nodes have written. Unreadable documents are logged, and keep their content."""
        for document in self._documents:
            try:
                document.reload()
            except DataFileError as error:
                logger.error("what another node has written can't be read: %s", error)

    def retry_conflicts(self, table: dict[type, Handler], reload: Callable[[], None]) -> None:
        for request_type in WRITING_REQUESTS:
            table[request_type] = self._retried(table[request_type], reload)

    def _retried(self, handler: Handler, reload: Callable[[], None]) -> Handler:
        def change(connection: Connection, request: Any) -> Work[WireResponse | None]:
            # Ends: each further round means that another node has written.
            while True:
                refusals = self._topics.file.refusals
                try:
                    found: Any = handler(connection, request)
                    response: WireResponse | None = (yield from found) if isinstance(found, GeneratorType) else found
                except OSError:
                    # The engine failed.
                    if self._topics.file.refusals == refusals:
                        raise
                # Handlers may report a refused write in their response.
                if self._topics.file.refusals == refusals:
                    return response
                reload()

        return change
