"""The simulated cluster: nodes, their network, the log, and who leads which log partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.groups.group import Group
from groupcoord.core.host_queries import CreateInternalTopics
from groupcoord.log_store import LogRecord
from groupcoord.messages import Node
from groupcoord.sim.cluster.log import StoreFault
from groupcoord.sim.cluster.nodes import CoordinatorNode, NodeEnvironment
from groupcoord.sim.cluster.options import ClusterOptions
from groupcoord.sim.cluster.shared_topics import SharedTopics
from groupcoord.sim.cluster.topics import Topics
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
        scheduler, options, config, network, log, leading, topics: of the environment.
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
        self.leading = environment.leading
        self.leading.on_change = lambda who, what: self.on_change(who, what)
        self.partition_count = options.config.offsets_topic_num_partitions
        self.nodes = [CoordinatorNode(number, environment) for number in range(1, options.node_count + 1)]
        self.leading.nodes = self.nodes
        self.on_crash: Callable[[CoordinatorNode], None] = _ignore
        self.on_change: Callable[[str, str], None] = _ignore
        self._partition_of: dict[str, int] = {}

    def start(self) -> None:
        """Start every node, and let them lead the log partitions."""
        for node in self.nodes:
            node.start()
        self.leading.start()

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
        self.leading.write_foreign(partition, entry)

    # ------------------------------------------------------------ who leads

    def migrate(self, partition: int, node_id: int) -> None:
        """Let another node lead a log partition, if it is up; where the log is owned, it takes all of it over."""
        self.leading.move(partition, self.nodes[node_id - 1])

    def stall(self, node: CoordinatorNode, until_ms: int) -> None:
        """Let a node's process stand still."""
        if not node.is_up or until_ms <= node.stalled_until_ms:
            return
        self.on_change(node.name, "stands still")
        node.stalled_until_ms = until_ms
        self.leading.is_missing(node, is_dead=False)

    def crash(self, node: CoordinatorNode) -> None:
        """Kill a node."""
        if not node.is_up:
            return
        self.on_change(node.name, "crashes")
        node.crash()
        self.on_crash(node)
        self.leading.is_missing(node, is_dead=True)

    def restart(self, node: CoordinatorNode) -> None:
        """Start a node that is down."""
        if node.is_up:
            return
        self.on_change(node.name, "starts")
        node.start()
        self.leading.is_back(node)


def _ignore(*_: object) -> None:
    """Nobody listens."""
