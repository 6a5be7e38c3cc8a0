"""Nodes of a simulated cluster, and the cluster: coordinators that crash and restart, their network and their log."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from groupcoord.config.group_settings import ConsumerGroupSettings
from groupcoord.coordinator import GroupCoordinator, LoadError, PartitionStatus
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.groups.group import Group
from groupcoord.core.host_queries import CreateInternalTopics, ShareCoordinatorAnswered
from groupcoord.errors import ErrorCode
from groupcoord.events import Event
from groupcoord.messages import Node, Request, Response, TxnOffsetCommit
from groupcoord.sim.cluster.leading import ClusterOptions, Controlled, Replicated, SharedWay
from groupcoord.sim.cluster.log import ClusterLog, NodeLog, StoreFault
from groupcoord.sim.cluster.share_groups import SharedTopics, ShareServer
from groupcoord.sim.cluster.topics import Topics
from groupcoord.sim.kernel import (
    WORLD_RANK,
    Exchange,
    Latency,
    Network,
    Scheduler,
    SimulatedConnection,
    ignore,
    mixed,
    rank_of_node,
    stable_number,
)
from groupcoord.wire.share_messages import ShareAcknowledge, ShareFetch

RELOAD_PAUSE_MS = 1_000


class CoordinatorNode:
    """Node with a coordinator, which lives from :meth:`start` to :meth:`crash`.

    Its actions wait while its process is stalled, and are dropped when it has ended.

    Attributes:
        leaders_known: last leader and epoch of each log partition of which the node was notified.
        touched: log partitions that may have changed since this set was last cleared.
    """

    def __init__(self, node_id: int, cluster: SimulatedCluster) -> None:
        self.node_id = node_id
        self.name = f"node {node_id}"
        self.is_up = False
        self.stalled_until_ms = 0
        self.leaders_known: list[tuple[int, int]] = []
        self._scheduler = cluster.scheduler
        self._life = 0
        self.address = Node(node_id, f"node-{node_id}", 9092)
        self.coordinator: GroupCoordinator | None = None
        self.log: NodeLog | SharedWay
        self.shares: ShareServer | None = None
        self.outstanding: dict[Exchange, None] = {}
        self.touched: set[int] = set()
        self._cluster = cluster
        self._connections: dict[SimulatedConnection, None] = {}
        self._tick_ms: int | None = None
        self._advances = -1
        self._loading: dict[int, int] = {}
        self._knows_loss = False

    # ------------------------------------------------------------ the process

    def at(self, time_ms: int, act: Callable[[Any], None], argument: Any = None) -> None:
        """Schedule an action of the present process."""
        self._scheduler.at(time_ms, rank_of_node(self.node_id), self._go_on, (self._life, act, argument))

    def is_stalled(self, act: Callable[[Any], None], argument: Any) -> bool:
        """Return whether the process is stalled. If so, schedule the action for when it continues."""
        if self._scheduler.time_ms >= self.stalled_until_ms:
            return False
        self.at(self.stalled_until_ms, act, argument)
        return True

    def _go_on(self, action: tuple[int, Callable[[Any], None], Any]) -> None:
        life, act, argument = action
        if life == self._life and self.is_up and not self.is_stalled(act, argument):
            act(argument)

    def start(self) -> None:
        cluster = self._cluster
        self.is_up, self._life = True, self._life + 1
        self.log = cluster.leading.way_of(self, self._life)
        if cluster.shared is not None:
            self.shares = ShareServer(self, cluster.shared, cluster.network.latency)
        self.coordinator = GroupCoordinator(
            config=cluster.config,
            clock=self._scheduler,
            log_store=self.log.store,
            topics=cluster.topics,
            regexes=cluster.topics,
            consumer_group_settings=cluster.settings_of,
            create_internal_topics=cluster.create_internal_topics,
            share=self.shares,
            node=self.address,
            owner=self._owner,
            verify_transaction=cluster.verify_transaction,
            new_member_id=cluster.new_member_id,
            new_uuid=lambda: cluster.new_member_id("member"),
        )
        self.coordinator.observe()
        self._tick_ms, self._advances, self._knows_loss = None, -1, False
        self.leaders_known = [(-1, -1)] * cluster.config.offsets_topic_num_partitions
        self.log.connect(self.coordinator)

    def crash(self) -> None:
        self._cluster.active[self] = None
        self.is_up, self.coordinator, self.stalled_until_ms = False, None, 0
        self.log.cut()
        if self.shares is not None:
            self.shares.crash()
            self.shares = None
        self.outstanding.clear()
        for connection in self._connections:
            connection.waiting.clear()
            self._cluster.network.reset(connection)
        self._connections.clear()

    def _owner(self, partition: int) -> Node | None:
        node_id = self.log.owner_of(partition)
        return None if node_id < 0 else self._cluster.nodes[node_id - 1].address

    # ------------------------------------------------------------ requests

    def receive(self, exchange: Exchange) -> None:
        """Handle a request. Requests of one connection are handled one after the other, as in Kafka's broker."""
        if self.is_stalled(self.receive, exchange):
            return
        connection = exchange.connection
        self._connections[connection] = None
        if connection.is_busy:
            connection.waiting.append(exchange)
        else:
            self._submit(exchange)
            self.settle()

    def disconnected(self, connection: SimulatedConnection) -> None:
        if self.shares is not None and not self.is_stalled(self.disconnected, connection):
            self.shares.disconnected(connection)

    def _submit(self, exchange: Exchange) -> None:
        assert self.coordinator is not None
        exchange.connection.is_busy = True
        if self.shares is not None and isinstance(exchange.request, ShareFetch | ShareAcknowledge):
            self.shares.submit(exchange)
            return
        self.outstanding[exchange] = None
        group_id = getattr(exchange.request, "group_id", None)
        if group_id is None:
            self._touch_all()
        else:
            self.touched.add(self.coordinator.partition_of(group_id))
        self.coordinator.submit(exchange.request, exchange)

    def settle(self) -> None:
        coordinator = self.coordinator
        if coordinator is None:
            return
        self._cluster.active[self] = None
        unsent: deque[tuple[Exchange, Response | None]] = deque()
        while True:
            # Responses are checked, then events are reported, and only then a response leaves. Sending it may let
            # in the next request, and its response is checked against all of these.
            for exchange, response in coordinator.take_replies():
                if response is not None:
                    self._cluster.on_answer(self, exchange.request, response)
                unsent.append((exchange, response))
            for event in coordinator.take_events():
                self._cluster.on_event(self, event)
            if not unsent:
                break
            self._answer(*unsent.popleft())
        if coordinator.lost is not None and not self._knows_loss:
            self._schedule_leader_changes()
        self._knows_loss = coordinator.lost is not None
        if coordinator.timer_advances != self._advances:
            self._advances = coordinator.timer_advances
            self._schedule_tick()

    def settle_after(self, partition: int) -> None:
        self.touched.add(partition)
        self.settle()

    def settle_all(self) -> None:
        self._touch_all()
        self.settle()

    def _touch_all(self) -> None:
        self.touched.update(range(len(self.leaders_known)))

    def _answer(self, exchange: Exchange, response: Response | None) -> None:
        del self.outstanding[exchange]
        if response is not None:
            self._send(exchange, response)
        # Otherwise nothing is sent, and the connection stays: its consumer has moved on or gives up.

    def send_answer(self, exchange: Exchange, response: Response) -> None:
        self._cluster.on_answer(self, exchange.request, response)
        self._send(exchange, response)

    def _send(self, exchange: Exchange, response: Response) -> None:
        connection = exchange.connection
        self._cluster.network.answer(exchange, response)
        connection.is_busy = False
        if connection.waiting:
            self._submit(connection.waiting.popleft())

    def found_out(self, found: ShareCoordinatorAnswered) -> None:
        if self.coordinator is not None:
            self.coordinator.found_out(found)
            self.settle_after(found.question.partition)

    # ------------------------------------------------------------ time

    def _schedule_tick(self) -> None:
        assert self.coordinator is not None
        deadline_ms = self.coordinator.next_deadline_ms()
        if deadline_ms is not None and (self._tick_ms is None or deadline_ms < self._tick_ms):
            self._tick_ms = deadline_ms
            self.at(deadline_ms, self._tick, deadline_ms)

    def _tick(self, deadline_ms: int) -> None:
        coordinator = self.coordinator
        if deadline_ms != self._tick_ms or coordinator is None:
            return
        self._tick_ms = None
        next_ms = coordinator.next_deadline_ms()
        if next_ms is not None and next_ms <= self._scheduler.time_ms:
            coordinator.tick()
            self.settle_all()
        self._schedule_tick()

    # ------------------------------------------------------------ topics

    def topics_changed(self, change: Callable[[GroupCoordinator], object]) -> None:
        """Call a function of a running coordinator that is notified of changed topics."""
        if self.coordinator is not None:
            change(self.coordinator)
            self.settle_all()

    # ------------------------------------------------------------ leading log partitions

    def known_leader(self, partition: int) -> int:
        return self.leaders_known[partition][0]

    def led_epoch(self, partition: int) -> int | None:
        """Return the epoch in which this node leads a log partition, as far as it knows, or None."""
        node_id, epoch = self.leaders_known[partition]
        return epoch if node_id == self.node_id else None

    def leads(self, partition: int) -> bool:
        leader = self._cluster.log.leaders[partition]
        return leader.node_id == self.node_id and self.leaders_known[partition] == leader

    def leader_changed(self, change: tuple[int, int, int]) -> None:
        """Receive the leader of a log partition; notifications may arrive out of order."""
        if self.coordinator is None or self.is_stalled(self.leader_changed, change):
            return
        partition, leader_id, epoch = change
        if epoch > self.leaders_known[partition][1]:
            self.leaders_known[partition] = (leader_id, epoch)
            if self.shares is not None:
                self.shares.leader_changed(partition, epoch, leads=leader_id == self.node_id)
        if leader_id != self.node_id:
            self.coordinator.unload(partition, epoch)
        elif self._cluster.options.lease_ms is not None and not self.leads(partition):
            self._schedule_leader_changes()  # another node took over before this one began
        else:
            self._begin_load(partition, epoch)
        self.settle_after(partition)

    def load_shared(self, partition: int, epoch: int) -> None:
        self.leaders_known[partition] = (self.node_id, epoch)
        self._begin_load(partition, epoch)

    def _begin_load(self, partition: int, epoch: int) -> None:
        assert self.coordinator is not None
        if self.coordinator.begin_load(partition, epoch):
            self._loading[partition] = 0
            self._load_on(partition)

    def _schedule_leader_changes(self) -> None:
        heard_ms = self._scheduler.time_ms + self._cluster.options.metadata_delay_max_ms
        self.at(heard_ms, self._apply_leaders)

    def _apply_leaders(self, _: None) -> None:
        for partition, leader in enumerate(self._cluster.log.leaders):
            if leader.node_id != self.node_id:
                self.leader_changed((partition, *leader))

    def is_up_to_date(self, partition: int) -> bool:
        """Return whether this node serves a log partition and no other node may have written to it since."""
        coordinator = self.coordinator
        return (
            coordinator is not None
            and not self.log.answers_late
            and coordinator.status(partition) is PartitionStatus.ACTIVE
            and (self.leads(partition) or self.log.has_all(partition))
        )

    def _load_on(self, partition: int) -> None:
        assert self.coordinator is not None
        if self.coordinator.status(partition) is PartitionStatus.LOADING:
            options = self._cluster.options
            # The duration depends on the records left after compaction, not on the replaced ones. Steps before the last
            # load only one record.
            passed = self._loading.get(partition, 0) + options.load_step_records
            is_loaded = passed >= len(self._cluster.log.compacted(partition))
            self._loading[partition] = passed
            if is_loaded:
                del self._loading[partition]
            try:
                self.coordinator.continue_load(partition, None if is_loaded else 1)
            except LoadError:
                self._loading.pop(partition, None)
                self.failed(partition)
                is_loaded = True
            if not is_loaded:
                self.at(self._scheduler.time_ms + options.load_step_ms, self._load_on, partition)
        self.settle_after(partition)

    def failed(self, partition: int) -> None:
        """Schedule another load, as a host does."""
        self.at(self._scheduler.time_ms + RELOAD_PAUSE_MS, self._reload, partition)

    def _reload(self, partition: int) -> None:
        coordinator = self.coordinator
        assert coordinator is not None
        is_ours = coordinator.lost is None or self.leads(partition)
        if coordinator.status(partition) is PartitionStatus.FAILED and is_ours:
            self._begin_load(partition, self.leaders_known[partition][1])
        self.settle_after(partition)


class KnownGroup(NamedTuple):
    """Group, or None if it does not exist, and the node of its coordinator."""

    group: Group | None
    node: Node


class SimulatedCluster:
    """Cluster that clients connect to.

    Attributes:
        active: nodes that may have changed since this set was last cleared.
        shared: topics with records for share groups, or None.
        on_answer: called with each response before it is sent.
        on_change: called with the name of a node, or "controller", and a line about it.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        options: ClusterOptions,
        *,
        seed: int,
        topics: Topics,
        store_faults: Sequence[StoreFault] = (),
        has_share_groups: bool = False,
    ) -> None:
        self.seed = seed
        self.scheduler = scheduler
        self.topics = topics
        self.options = options
        self.config = options.config
        self.partition_count = options.config.offsets_topic_num_partitions
        self._usual_settings = ConsumerGroupSettings.of(options.config)
        self._own_settings = {
            group_id: ConsumerGroupSettings.of(options.config, own) for group_id, own in options.group_configs.items()
        }
        self.network = Network(scheduler, seed, Latency(options.least_latency_ms, options.most_latency_ms))
        self.log = ClusterLog(
            scheduler, self.partition_count, seed=seed, flush_ms=options.flush_ms, faults=store_faults
        )
        replicas = options.replicas
        self.leading = Controlled(self) if replicas is None else Replicated(self, replicas)
        self.shared = SharedTopics(self, store_faults) if has_share_groups else None
        self.active: dict[CoordinatorNode, None] = {}
        self.on_event: Callable[[CoordinatorNode, Event], None] = ignore
        self.on_answer: Callable[[CoordinatorNode, Request, Response], None] = ignore
        self.on_crash: Callable[[CoordinatorNode], None] = ignore
        self.on_change: Callable[[str, str], None] = ignore
        self.verify_transaction: Callable[[TxnOffsetCommit], ErrorCode] | None = None
        self._id_key = stable_number(seed, "member ids")
        self._id_count = 0
        self._partition_of: dict[str, int] = {}
        self.nodes = [CoordinatorNode(number, self) for number in range(1, options.node_count + 1)]

    def settings_of(self, group_id: str) -> ConsumerGroupSettings:
        return self._own_settings.get(group_id, self._usual_settings)

    def new_member_id(self, prefix: str) -> str:
        self._id_count += 1
        return f"{prefix}-{mixed(self._id_key, self._id_count):08x}"

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        self.leading.start()

    # ------------------------------------------------------------ who serves a group

    def partition_of(self, group_id: str) -> int:
        index = self._partition_of.get(group_id)
        if index is None:
            index = self._partition_of[group_id] = GroupCoordinator(config=self.config).partition_of(group_id)
        return index

    def serving_node(self, group_id: str) -> CoordinatorNode | None:
        """Return the node that serves a group and knows its whole log, or None."""
        index = self.partition_of(group_id)
        return next((node for node in self.nodes if node.is_up_to_date(index)), None)

    def serving(self, group_id: str) -> GroupCoordinator | None:
        node = self.serving_node(group_id)
        return None if node is None else node.coordinator

    def known_group(self, group_id: str) -> KnownGroup | None:
        """Return a group with its coordinator's node, or None while no coordinator serves it."""
        coordinator = self.serving(group_id)
        if coordinator is None:
            return None
        partition = coordinator.partition(coordinator.partition_of(group_id))
        return KnownGroup(None if partition is None else partition.groups.get(group_id), coordinator.node)

    # ------------------------------------------------------------ topics

    def set_partition_count(self, topic: str, partition_count: int) -> tuple[TopicPartition, ...]:
        """Add partitions to a topic or create it; return the new ones. Running nodes see them at once."""
        is_new = self.topics.partition_count(topic) is None
        notify = GroupCoordinator.topics_created if is_new else GroupCoordinator.topics_changed
        added = self.topics.set_partition_count(topic, partition_count)
        for node in self.nodes:
            node.topics_changed(lambda coordinator: notify(coordinator, (topic,)))
        return added

    def create_internal_topics(self, question: CreateInternalTopics) -> Mapping[str, str]:
        for topic in question.topics:
            created_ms = self.scheduler.time_ms + self.options.metadata_delay_max_ms
            self.scheduler.at(created_ms, WORLD_RANK, self._create, (topic.name, topic.partition_count))
        return {}

    def _create(self, topic: tuple[str, int]) -> None:
        name, partition_count = topic
        if self.topics.partition_count(name) is None:
            self.on_change("controller", f"{name} is created with {partition_count} partitions")
            self.set_partition_count(name, partition_count)

    def delete_topic(self, name: str) -> None:
        topic = self.topics.delete(name)
        if self.shared is not None:
            self.shared.delete_topic(topic)
        for node in self.nodes:
            node.topics_changed(lambda coordinator: coordinator.topic_deleted(name, topic.topic_id))

    # ------------------------------------------------------------ who leads

    def stall(self, node: CoordinatorNode, until_ms: int) -> None:
        if not node.is_up or until_ms <= node.stalled_until_ms:
            return
        self.on_change(node.name, "stands still")
        node.stalled_until_ms = until_ms
        self.leading.is_missing(node, is_dead=False)

    def crash(self, node: CoordinatorNode) -> None:
        if not node.is_up:
            return
        self.on_change(node.name, "crashes")
        node.crash()
        self.on_crash(node)
        self.leading.is_missing(node, is_dead=True)

    def restart(self, node: CoordinatorNode) -> None:
        if node.is_up:
            return
        self.on_change(node.name, "starts")
        node.start()
        self.leading.is_back(node)
