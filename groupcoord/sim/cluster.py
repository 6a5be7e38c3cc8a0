"""The simulated cluster: nodes, their network, the log, and the controller that says who leads which log partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from groupcoord.coordinator import GroupCoordinator
from groupcoord.errors import ErrorCode
from groupcoord.events import Event
from groupcoord.messages import Node, Request, Response, TxnOffsetCommit
from groupcoord.sim.cluster_log import NOBODY, ClusterLog, Leader, StoreFault
from groupcoord.sim.network import Network
from groupcoord.sim.nodes import CoordinatorNode
from groupcoord.sim.options import ClusterOptions
from groupcoord.sim.randomness import Latency, mixed, stable_number
from groupcoord.sim.scheduler import WORLD_RANK, Scheduler


class Cluster:
    """All that consumers talk to.

    Attributes:
        nodes: node 1 first.
        active: the nodes that may have changed since somebody last emptied this.
        on_event: called with each thing that happened to a group on a node.
        on_answer: called with each answer that a node gives, before it travels.
        on_crash: called with each node that is killed.
        on_change: called with a line about nodes and log partitions.
        verify_transaction: asked before a node takes a transactional commit.
    """

    def __init__(
        self, scheduler: Scheduler, options: ClusterOptions, *, seed: int, store_faults: Iterable[StoreFault] = ()
    ) -> None:
        self.scheduler = scheduler
        self.options = options
        self.config = options.config
        self.partition_count = options.config.offsets_topic_num_partitions
        self.network = Network(scheduler, seed, Latency(options.least_latency_ms, options.most_latency_ms))
        self.log = ClusterLog(
            scheduler, self.partition_count, seed=seed, flush_ms=options.flush_ms, faults=store_faults
        )
        self.nodes = [CoordinatorNode(number, self) for number in range(1, options.node_count + 1)]
        self.active: dict[CoordinatorNode, None] = {}
        self.on_event: Callable[[CoordinatorNode, Event], None] = _ignore
        self.on_answer: Callable[[CoordinatorNode, Request, Response], None] = _ignore
        self.on_crash: Callable[[CoordinatorNode], None] = _ignore
        self.on_change: Callable[[str, str], None] = _ignore
        self.verify_transaction: Callable[[TxnOffsetCommit], ErrorCode] | None = None
        self._epochs = [-1] * self.partition_count
        self._last_words = [0] * options.node_count
        self._id_key = stable_number(seed, "member ids")
        self._word_key = stable_number(seed, "words of the controller")
        self._id_count = 0
        self._partition_of: dict[str, int] = {}

    def start(self) -> None:
        """Start every node; the log partitions are dealt out to them in turn."""
        for node in self.nodes:
            node.start()
        for partition in range(self.partition_count):
            self._elect(partition, self.nodes[partition % len(self.nodes)].node_id)

    # ------------------------------------------------------------ what nodes ask and tell

    def address_of(self, node_id: int) -> Node | None:
        """Return the address of a node, or None if there is no such one."""
        return self.nodes[node_id - 1].address if 1 <= node_id <= len(self.nodes) else None

    def new_member_id(self, prefix: str) -> str:
        """Make a member id: looks random, comes from the seed."""
        self._id_count += 1
        return f"{prefix}-{mixed(self._id_key, self._id_count):08x}"

    def observed(self, node: CoordinatorNode, events: list[Event]) -> None:
        """Pass on what happened to groups on a node."""
        for event in events:
            self.on_event(node, event)

    def answered(self, node: CoordinatorNode, request: Request, response: Response) -> None:
        """Pass on what a node answers."""
        self.on_answer(node, request, response)

    def partition_of(self, group_id: str) -> int:
        """Return the log partition of a group."""
        index = self._partition_of.get(group_id)
        if index is None:
            index = self._partition_of[group_id] = GroupCoordinator(config=self.config).partition_of(group_id)
        return index

    def serving_node(self, group_id: str) -> CoordinatorNode | None:
        """Return the node that serves a group and knows all of its log, or None while there is none."""
        index = self.partition_of(group_id)
        for node in self.nodes:
            if node.is_up_to_date(index):
                return node
        return None

    def serving(self, group_id: str) -> GroupCoordinator | None:
        """Return the coordinator of :meth:`serving_node`."""
        node = self.serving_node(group_id)
        return None if node is None else node.coordinator

    # ------------------------------------------------------------ who leads

    def _elect(self, partition: int, node_id: int) -> None:
        """Make a node the leader of a log partition. The word reaches each node in its own time, after earlier ones."""
        self._epochs[partition] = epoch = self._epochs[partition] + 1
        self.log.leaders[partition] = Leader(node_id, epoch)
        for node in self.nodes:
            if node.is_up:
                number = mixed(self._word_key + partition * 1_000 + node.node_id, epoch)
                heard_ms = self.scheduler.time_ms + 1 + number % self.options.word_ms
                heard_ms = self._last_words[node.node_id - 1] = max(heard_ms, self._last_words[node.node_id - 1])
                self.scheduler.at(heard_ms, WORLD_RANK, self._hear, (node, node_id, partition, epoch))

    @staticmethod
    def _hear(word: tuple[CoordinatorNode, int, int, int]) -> None:
        node, leader_id, partition, epoch = word
        node.hear(partition, leader_id, epoch)

    def migrate(self, partition: int, node_id: int) -> None:
        """Let another node lead a log partition, if that node is up."""
        if self.nodes[node_id - 1].is_up and self.log.leaders[partition].node_id != node_id:
            self.on_change("controller", f"log partition {partition} moves to node {node_id}")
            self._elect(partition, node_id)

    def crash(self, node: CoordinatorNode) -> None:
        """Kill a node."""
        if not node.is_up:
            return
        self.on_change(node.name, "crashes")
        node.crash()
        self.on_crash(node)
        detection_ms = self.options.failure_detection_ms
        if detection_ms is not None:
            self.scheduler.at(self.scheduler.time_ms + detection_ms, WORLD_RANK, self._take_over, node)

    def _take_over(self, dead: CoordinatorNode) -> None:
        alive = [node for node in self.nodes if node.is_up]
        if dead.is_up or not alive:
            return
        led = [index for index, leader in enumerate(self.log.leaders) if leader.node_id == dead.node_id]
        if led:
            self.on_change("controller", f"log partitions {_listed(led)} of {dead.name} move to others")
        for place, partition in enumerate(led):
            self._elect(partition, alive[(place + dead.node_id) % len(alive)].node_id)

    def restart(self, node: CoordinatorNode) -> None:
        """Start a node that is down: it leads again what nobody else took over."""
        if node.is_up:
            return
        self.on_change(node.name, "starts")
        node.start()
        for partition, leader in enumerate(self.log.leaders):
            if leader.node_id == node.node_id or leader == NOBODY:
                self._elect(partition, node.node_id)
            else:
                self._hear((node, leader.node_id, partition, leader.epoch))


def _ignore(*_: object) -> None:
    """Nobody listens."""


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
