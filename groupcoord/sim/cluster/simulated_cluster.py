"""The simulated cluster: nodes, their network, the log, and the controller that says who leads which log partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.groups import Group
from groupcoord.core.questions import CreateInternalTopics
from groupcoord.log_store import LogRecord
from groupcoord.messages import Node
from groupcoord.sim.cluster.log import NOBODY, Leader, StoreFault
from groupcoord.sim.cluster.nodes import CoordinatorNode, NodeEnvironment
from groupcoord.sim.cluster.options import ClusterOptions
from groupcoord.sim.cluster.shared_topics import SharedTopics
from groupcoord.sim.cluster.topics import Topics
from groupcoord.sim.kernel.randomness import mixed, stable_number
from groupcoord.sim.kernel.scheduler import WORLD_RANK, Scheduler


class KnownGroup(NamedTuple):
    """A group as its coordinator has it; None: there is none of that name.

    Attributes:
        node: where that is.
    """

    group: Group | None
    node: Node


class SimulatedCluster:
    """All that clients talk to.

    Args:
        has_share_groups: records are shared (KIP-932), so topics hold some.

    Attributes:
        environment: what the nodes share; its ``on_event`` and ``on_answer`` hear of what they do.
        scheduler, options, config, network, log, slots, topics: of the environment.
        nodes: node 1 first.
        shared: what share groups work on; None: there are none.
        on_crash: called with each node that is killed.
        on_change: called with a line about nodes and log partitions.
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
        self.topics = topics
        self.environment = environment = NodeEnvironment(
            scheduler, options, seed=seed, topics=self.topics, store_faults=store_faults
        )
        environment.create_internal_topics = self._create_internal_topics
        self.shared: SharedTopics | None = None
        if has_share_groups:
            self.shared = environment.shared = SharedTopics(
                scheduler, options, topics, environment.log, seed=seed, faults=store_faults
            )
        self.scheduler = scheduler
        self.options = options
        self.config = options.config
        self.network = environment.network
        self.log = environment.log
        self.slots = environment.slots
        if self.slots is not None:
            self.slots.on_fence = self._say_fence
        self.partition_count = options.config.offsets_topic_num_partitions
        self.nodes = [CoordinatorNode(number, environment) for number in range(1, options.node_count + 1)]
        self.on_crash: Callable[[CoordinatorNode], None] = _ignore
        self.on_change: Callable[[str, str], None] = _ignore
        self._epochs = [-1] * self.partition_count
        self._last_words = [0] * options.node_count
        self._word_key = stable_number(seed, "words of the controller")
        self._partition_of: dict[str, int] = {}

    def start(self) -> None:
        """Start every node; the log partitions are dealt out to them in turn, or the first owns them all.

        Replicas deal them out among themselves.
        """
        for node in self.nodes:
            node.start()
        for partition in range(0 if self.slots is not None else self.partition_count):
            place = 0 if self.options.lease_ms is not None else partition % len(self.nodes)
            self._elect(partition, self.nodes[place].node_id)

    # ------------------------------------------------------------ who serves a group

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

    def known_group(self, group_id: str) -> KnownGroup | None:
        """Return a group as its coordinator has it, and who that is; None while there is no coordinator."""
        coordinator = self.serving(group_id)
        if coordinator is None:
            return None
        partition = coordinator.partition(coordinator.partition_of(group_id))
        return KnownGroup(None if partition is None else partition.groups.get(group_id), coordinator.node)

    # ------------------------------------------------------------ topics

    def set_partition_count(self, topic: str, partition_count: int) -> tuple[TopicPartition, ...]:
        """Give a topic more partitions, or create it; return the new ones. Nodes that are up learn of it at once."""
        is_new = self.topics.partition_count(topic) is None
        added = self.topics.set_partition_count(topic, partition_count)
        if self.shared is not None:
            self.shared.set_partition_count(topic)
        for node in self.nodes:
            node.topics_changed((topic,), are_new=is_new)
        return added

    def _create_internal_topics(self, question: CreateInternalTopics) -> Mapping[str, str]:
        """Create topics a moment later, as a controller does."""
        for topic in question.topics:
            created_ms = self.scheduler.time_ms + self.options.word_ms
            self.scheduler.at(created_ms, WORLD_RANK, self._create, (topic.name, topic.partition_count))
        return {}

    def _create(self, topic: tuple[str, int]) -> None:
        name, partition_count = topic
        if self.topics.partition_count(name) is None:
            self.on_change("controller", f"{name} is created with {partition_count} partitions")
            self.set_partition_count(name, partition_count)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic. Nodes that are up learn of it at once, and delete the offsets that were committed for it."""
        topic_id = self.topics.delete(topic)
        if self.shared is not None:
            self.shared.delete_topic(topic)
        for node in self.nodes:
            node.topic_deleted(topic, topic_id)

    def write_foreign(self, partition: int, entry: LogRecord) -> None:
        """Let somebody write a record that no coordinator has asked for."""
        if self.slots is None:
            self.log.write_foreign(partition, entry)
        else:
            self.slots.write_foreign(partition, entry)

    # ------------------------------------------------------------ who leads

    def _say_fence(self, node_id: int, partition: int) -> None:
        self.on_change(f"node {node_id}", f"takes log partition {partition} over")

    def _elect(self, partition: int, node_id: int) -> None:
        """Make a node the leader of a log partition. The word reaches each node in its own time, after earlier ones.

        Where the log is owned, nobody tells an owner that it isn't any more, and its successor waits for its lease.
        """
        self._epochs[partition] = epoch = self._epochs[partition] + 1
        former, lease_ms = self.log.leaders[partition], self.options.lease_ms
        self.log.leaders[partition] = Leader(node_id, epoch)
        for node in self.nodes:
            if node.is_up and (lease_ms is None or node.node_id in (node_id, *self._others_than(former.node_id))):
                number = mixed(self._word_key + partition * 1_000 + node.node_id, epoch)
                heard_ms = self.scheduler.time_ms + 1 + number % self.options.word_ms
                if lease_ms is not None and former != NOBODY and node.node_id == node_id:
                    heard_ms = self.scheduler.time_ms + lease_ms
                heard_ms = self._last_words[node.node_id - 1] = max(heard_ms, self._last_words[node.node_id - 1])
                self.scheduler.at(heard_ms, WORLD_RANK, self._hear, (node, node_id, partition, epoch))

    def _others_than(self, node_id: int) -> Iterator[int]:
        return (node.node_id for node in self.nodes if node.node_id != node_id)

    @staticmethod
    def _hear(word: tuple[CoordinatorNode, int, int, int]) -> None:
        node, leader_id, partition, epoch = word
        node.hear((partition, leader_id, epoch))

    def migrate(self, partition: int, node_id: int) -> None:
        """Let another node lead a log partition, if it is up; where the log is owned, it takes all of it over.

        A replica takes it over, and then finds that it is another's to have.
        """
        if self.slots is not None:
            if self.nodes[node_id - 1].is_up:
                self.on_change("somebody", f"lets node {node_id} take log partition {partition} over")
                self.nodes[node_id - 1].seize(partition)
        elif self.nodes[node_id - 1].is_up and self.log.leaders[partition].node_id != node_id:
            moved = [partition] if self.options.lease_ms is None else list(range(self.partition_count))
            words = f"log partition {partition} moves" if len(moved) == 1 else f"log partitions {_listed(moved)} move"
            self.on_change("controller", f"{words} to node {node_id}")
            for index in moved:
                self._elect(index, node_id)

    def stall(self, node: CoordinatorNode, until_ms: int) -> None:
        """Let a node's process stand still; where the log is owned, others believe that it is dead after a while."""
        if not node.is_up or until_ms <= node.stalled_until_ms:
            return
        self.on_change(node.name, "stands still")
        node.stalled_until_ms = until_ms
        detection_ms = self.options.failure_detection_ms
        if self.options.lease_ms is not None and detection_ms is not None and self.slots is None:
            self.scheduler.at(self.scheduler.time_ms + detection_ms, WORLD_RANK, self._take_over, node)

    def crash(self, node: CoordinatorNode) -> None:
        """Kill a node."""
        if not node.is_up:
            return
        self.on_change(node.name, "crashes")
        node.crash()
        self.on_crash(node)
        detection_ms = self.options.failure_detection_ms
        if detection_ms is not None and self.slots is None:
            self.scheduler.at(self.scheduler.time_ms + detection_ms, WORLD_RANK, self._take_over, node)

    def _take_over(self, dead: CoordinatorNode) -> None:
        now_ms = self.scheduler.time_ms
        alive = [node for node in self.nodes if node.is_up and node.stalled_until_ms <= now_ms]
        if (dead.is_up and dead.stalled_until_ms <= now_ms) or not alive:
            return
        led = [index for index, leader in enumerate(self.log.leaders) if leader.node_id == dead.node_id]
        if led:
            self.on_change("controller", f"log partitions {_listed(led)} of {dead.name} move to others")
        for place, partition in enumerate(led):
            place = place if self.options.lease_ms is None else 0
            self._elect(partition, alive[(place + dead.node_id) % len(alive)].node_id)

    def restart(self, node: CoordinatorNode) -> None:
        """Start a node that is down: it leads again what nobody else took over."""
        if node.is_up:
            return
        self.on_change(node.name, "starts")
        node.start()
        for partition, leader in enumerate(() if self.slots is not None else self.log.leaders):
            if leader.node_id == node.node_id or leader == NOBODY:
                self._elect(partition, node.node_id)
            else:
                self._hear((node, leader.node_id, partition, leader.epoch))


def _ignore(*_: object) -> None:
    """Nobody listens."""


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
