"""A node of the simulated cluster: a coordinator that can be killed, started again, and told what it leads."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from groupcoord.coordinator import GroupCoordinator, PartitionStatus
from groupcoord.messages import Node, Response
from groupcoord.sim.cluster_log import NodeLog
from groupcoord.sim.network import Connection, Exchange
from groupcoord.sim.scheduler import rank_of_node

if TYPE_CHECKING:
    from groupcoord.sim.cluster import Cluster

RELOAD_PAUSE_MS = 1_000


class CoordinatorNode:
    """One node. Its coordinator, with all that it remembers, lives from :meth:`start` to :meth:`crash`.

    Attributes:
        node_id: 1, 2, …
        is_up: its process runs.
        coordinator: None while it is down.
        outstanding: requests without an answer, oldest first.
    """

    def __init__(self, node_id: int, cluster: Cluster) -> None:
        self.node_id = node_id
        self.name = f"node {node_id}"
        self.address = Node(node_id, f"node-{node_id}", 9092)
        self.is_up = False
        self.coordinator: GroupCoordinator | None = None
        self.log: NodeLog | None = None
        self.outstanding: dict[Exchange, None] = {}
        self.leaders_known: list[tuple[int, int]] = []
        self._cluster = cluster
        self._scheduler = cluster.scheduler
        self._connections: dict[Connection, None] = {}
        self._life = 0
        self._rank = rank_of_node(node_id)
        self._tick_ms: int | None = None
        self._advances = -1
        self._loading: dict[int, int] = {}

    # ------------------------------------------------------------ life

    def start(self) -> None:
        """Start the process, leading nothing yet."""
        cluster = self._cluster
        self.is_up, self._life = True, self._life + 1
        self.log = NodeLog(cluster.log, self.node_id, self.leads, self._scheduler, self.settle, self._failed)
        self.coordinator = GroupCoordinator(
            config=cluster.config,
            clock=self._scheduler,
            log_store=self.log,
            node=self.address,
            owner=self._owner,
            verify_transaction=cluster.verify_transaction,
            new_member_id=cluster.new_member_id,
        )
        self.log.connect(self.coordinator)
        self.coordinator.observe()
        self._tick_ms, self._advances = None, -1
        self.leaders_known = [(-1, -1)] * cluster.config.offsets_topic_num_partitions

    def crash(self) -> None:
        """Kill the process: its memory is gone and its connections break."""
        assert self.log is not None
        self._cluster.active[self] = None
        self.is_up, self.coordinator = False, None
        self.log.cut()
        self.outstanding.clear()
        for connection in self._connections:
            connection.waiting.clear()
            self._cluster.network.reset(connection)
        self._connections.clear()

    def _owner(self, partition: int) -> Node | None:
        node_id, _ = self.leaders_known[partition]
        return self._cluster.address_of(node_id)

    # ------------------------------------------------------------ requests

    def receive(self, exchange: Exchange) -> None:
        """Take a request; one connection's are worked on one after the other, as Kafka's broker does."""
        connection = exchange.connection
        self._connections[connection] = None
        if connection.is_busy:
            connection.waiting.append(exchange)
        else:
            self._submit(exchange)
            self.settle()

    def _submit(self, exchange: Exchange) -> None:
        assert self.coordinator is not None
        exchange.connection.is_busy = True
        self.outstanding[exchange] = None
        self.coordinator.submit(exchange.request, exchange)

    def settle(self) -> None:
        """Send out what the coordinator has to say, and see when it wants to be called."""
        coordinator = self.coordinator
        if coordinator is None:
            return
        self._cluster.active[self] = None
        unsent: deque[tuple[Exchange, Response | None]] = deque()
        while True:
            # An answer is judged before another lets the next request in, which may change what it is judged by.
            for exchange, response in coordinator.take_replies():
                if response is not None:
                    self._cluster.answered(self, exchange.request, response)
                unsent.append((exchange, response))
            if not unsent:
                break
            self._answer(*unsent.popleft())
        events = coordinator.take_events()
        if events:
            self._cluster.observed(self, events)
        if coordinator.timer_advances != self._advances:
            self._advances = coordinator.timer_advances
            self._schedule_tick()

    def _answer(self, exchange: Exchange, response: Response | None) -> None:
        del self.outstanding[exchange]
        if response is None:
            # Nothing is sent, so the connection stays as it is: the consumer behind it has moved on or gives up.
            return
        connection = exchange.connection
        self._cluster.network.answer(exchange, response)
        connection.is_busy = False
        if connection.waiting:
            self._submit(connection.waiting.popleft())

    # ------------------------------------------------------------ time

    def _schedule_tick(self) -> None:
        assert self.coordinator is not None
        deadline_ms = self.coordinator.next_deadline_ms()
        if deadline_ms is not None and (self._tick_ms is None or deadline_ms < self._tick_ms):
            self._tick_ms = deadline_ms
            self._scheduler.at(deadline_ms, self._rank, self._tick, (self._life, deadline_ms))

    def _tick(self, due: tuple[int, int]) -> None:
        life, deadline_ms = due
        coordinator = self.coordinator
        if life != self._life or deadline_ms != self._tick_ms or coordinator is None:
            return
        self._tick_ms = None
        next_ms = coordinator.next_deadline_ms()
        if next_ms is not None and next_ms <= self._scheduler.time_ms:
            coordinator.tick()
            self.settle()
        self._schedule_tick()

    # ------------------------------------------------------------ leading log partitions

    def hear(self, partition: int, leader_id: int, epoch: int) -> None:
        """The controller says who leads a log partition; such words can overtake each other."""
        if self.coordinator is None:
            return
        if epoch > self.leaders_known[partition][1]:
            self.leaders_known[partition] = (leader_id, epoch)
        if leader_id != self.node_id:
            self.coordinator.unload(partition, epoch)
        elif self.coordinator.begin_load(partition, epoch):
            self._loading[partition] = 0
            self._load_on((self._life, partition))
        self.settle()

    def leads(self, partition: int) -> bool:
        """Tell whether this node leads a log partition, and has heard so."""
        leader = self._cluster.log.leaders[partition]
        return leader.node_id == self.node_id and self.leaders_known[partition] == leader

    def is_up_to_date(self, partition: int) -> bool:
        """Tell whether this node serves a log partition and nobody else may have written to it since."""
        coordinator = self.coordinator
        return (
            coordinator is not None
            and self.leads(partition)
            and coordinator.status(partition) is PartitionStatus.ACTIVE
        )

    def _load_on(self, step: tuple[int, int]) -> None:
        life, partition = step
        if life != self._life or self.coordinator is None:
            return
        if self.coordinator.status(partition) is PartitionStatus.LOADING:
            options = self._cluster.options
            # How long it takes depends on how much is left after compaction: that is the same whether what is replaced
            # was ever written.
            passed = self._loading.get(partition, 0) + options.load_step_records
            is_loaded = passed >= len(self._cluster.log.compacted(partition))
            self._loading[partition] = passed
            if is_loaded:
                del self._loading[partition]
                self.coordinator.continue_load(partition)
            else:
                self.coordinator.continue_load(partition, 1)
                self._scheduler.at(self._scheduler.time_ms + options.load_step_ms, self._rank, self._load_on, step)
        self.settle()

    def _failed(self, partition: int) -> None:
        """An append has an unknown outcome: the log partition is loaded again in a while, as a host does."""
        self._scheduler.at(self._scheduler.time_ms + RELOAD_PAUSE_MS, self._rank, self._reload, (self._life, partition))

    def _reload(self, due: tuple[int, int]) -> None:
        life, partition = due
        coordinator = self.coordinator
        if life == self._life and coordinator is not None:
            if coordinator.status(partition) is PartitionStatus.FAILED:
                coordinator.begin_load(partition, self.leaders_known[partition][1])
                self._loading[partition] = 0
                self._load_on(due)
            self.settle()
