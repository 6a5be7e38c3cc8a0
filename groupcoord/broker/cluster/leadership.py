"""Which nodes there are, which of them run, and who leads each partition.

The nodes of one process share one log of each partition, so each of them can lead it: every node is a replica of every
partition that has no manual assignment, and those that run are in sync. Nodes that are processes of their own share the
log of ``__consumer_offsets``, and the owner of a part of it leads that. Leaders are chosen as in Kafka: the first
replica that runs, which stays leader until it fails or somebody else is elected; with each election the leader's epoch
rises. Sources: ``ReplicationControlManager``, ``PartitionChangeBuilder`` of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from groupcoord.broker.topics.registry import Topic, TopicRegistry
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.core.messages import Node
from groupcoord.storage.log.settings import LEADER_EPOCH

NOBODY = -1


class Leader(NamedTuple):
    """Who leads a partition; ``node_id`` -1: nobody, since no node runs."""

    node_id: int
    epoch: int


class Leadership:
    """The nodes of a server, and the leaders of its partitions.

    Args:
        nodes: the nodes, with the addresses that clients are told; all of them run.
        first_epoch: returns the epoch of the first leader of a partition whose log may be older than this, None if
            that can't be told now; 0 by default.
        owners: returns who owns a partition of ``__consumer_offsets``, where that isn't decided here: then nodes come
            and go (:meth:`use`), and nobody is elected.

    Raises:
        ValueError: there is no node.

    Attributes:
        elects: leaders are elected here.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        first_epoch: Callable[[Topic, int], int | None] | None = None,
        *,
        owners: Callable[[int], Leader] | None = None,
    ) -> None:
        self._owners = owners
        self.elects = owners is None
        self._first_epoch = first_epoch or (lambda topic, index: LEADER_EPOCH)
        self._leaders: dict[tuple[UUID, int], Leader] = {}
        self._sole_leaders: dict[str, tuple[Topic, dict[int, Leader]]] = {}  # by name, and for the topic as it was then
        self.use(nodes)
        is_sole = self.elects and len(self._nodes) == 1
        self._sole = Leader(next(iter(self._nodes)), LEADER_EPOCH) if is_sole else None

    # ------------------------------------------------------------ nodes

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Every node, in order."""
        return tuple(self._nodes)

    @property
    def keeps_assignments(self) -> bool:
        """True if manual assignments of replicas decide who leads: several nodes that elect leaders."""
        return self.elects and self._sole is None

    @property
    def is_sole(self) -> bool:
        """True of a server of one node, which leads everything."""
        return self._sole is not None

    def use(self, nodes: Iterable[Node]) -> None:
        """These are the nodes from now on, and all of them run."""
        self._nodes = {node.node_id: node for node in sorted(nodes)}
        if not self._nodes:
            raise ValueError("a server has at least one node")
        self._running = set(self._nodes)
        self._leaders.clear()
        ids = tuple(self._nodes)
        self._rotations = [ids[turn:] + ids[:turn] for turn in range(len(ids))]

    def update(self, node: Node) -> None:
        """A node has another address."""
        self._nodes[node.node_id] = node

    def node(self, node_id: int) -> Node | None:
        """Return a node that runs; None if it doesn't, or there is no such node."""
        return self._nodes[node_id] if node_id in self._running else None

    def brokers(self, told: Mapping[int, Node] | None = None) -> tuple[Node, ...]:
        """Return the nodes that run.

        Args:
            told: the addresses that the asker is told, if these aren't the same for all.
        """
        return tuple((told or self._nodes)[node_id] for node_id in self._nodes if node_id in self._running)

    @property
    def controller_id(self) -> int:
        """Which node clients are told as the controller: the first that runs."""
        return min(self._running, default=NOBODY)

    # ------------------------------------------------------------ leaders

    def leader(self, topic: Topic, index: int) -> Leader:
        """Return who leads a partition."""
        if self._sole is not None:
            return self._later_epochs(topic, self._sole).get(index, self._sole)
        if self._owners is not None and topic.name == OFFSETS_TOPIC:
            return self._owners(index)
        key = topic.topic_id, index
        leader = self._leaders.get(key)
        if leader is None:
            epoch = self._first_epoch(topic, index) or LEADER_EPOCH
            leader = self._leaders[key] = Leader(self._first_running(topic, index), epoch)
        return leader

    def next_leader(self, leader_id: int, running: Iterable[int]) -> int:
        """Return who of the nodes that run is next behind a leader, around the circle; NOBODY: no other runs."""
        others = sorted(running, key=lambda node_id: (node_id <= leader_id, node_id))
        return next((node_id for node_id in others if node_id != leader_id), NOBODY)

    def leader_of_all(self, topic: Topic) -> Leader | None:
        """Return who leads every partition of a topic, with the same epoch; None if they may differ."""
        sole = self._sole
        return None if sole is None or self._later_epochs(topic, sole) else sole

    def _later_epochs(self, topic: Topic, sole: Leader) -> dict[int, Leader]:
        """Return the leaders of those partitions of a node that is alone whose logs others have led before."""
        known = self._sole_leaders.get(topic.name)  # Python hashes a name once, but an id each time
        if known is not None and known[0] == topic:
            return known[1]
        epochs = [self._first_epoch(topic, index) for index in range(topic.partition_count)]
        leaders = {index: Leader(sole.node_id, epoch) for index, epoch in enumerate(epochs) if epoch}
        if None not in epochs:
            self._sole_leaders[topic.name] = topic, leaders
        return leaders

    def leads(self, node_id: int, topic: Topic, index: int) -> bool:
        """Tell whether a node leads a partition."""
        return self.leader(topic, index).node_id == node_id

    def replicas(self, topic: Topic, index: int) -> tuple[int, ...]:
        """Return the nodes that can lead a partition, the preferred one first.

        An assignment by hand counts as far as its nodes still exist: the server may have been started with fewer.
        """
        if self._sole is not None:
            return self._rotations[0]
        assigned = tuple(node_id for node_id in topic.replicas.get(index, ()) if node_id in self._nodes)
        return assigned or self._rotations[index % len(self._rotations)]

    def in_sync(self, replicas: tuple[int, ...]) -> tuple[int, ...]:
        """Return those of some nodes that run."""
        if len(self._running) == len(self._nodes):
            return replicas
        return tuple(node_id for node_id in replicas if node_id in self._running)

    def _first_running(self, topic: Topic, index: int) -> int:
        return next(iter(self.in_sync(self.replicas(topic, index))), NOBODY)

    def elect(self, topic: Topic, index: int, node_id: int) -> Leader:
        """Let a node lead a partition from now on, with the next epoch."""
        leader = Leader(node_id, self.leader(topic, index).epoch + 1)
        self._leaders[topic.topic_id, index] = leader
        return leader

    def raise_epoch(self, topic: Topic, index: int, epoch: int) -> None:
        """A partition's log knows of a later leader than was known here: the current one has at least its epoch."""
        leader = self.leader(topic, index)
        self._leaders[topic.topic_id, index] = leader._replace(epoch=max(leader.epoch, epoch))

    def forget(self, topic: Topic) -> None:
        """A topic is gone."""
        for index in range(topic.partition_count):
            self._leaders.pop((topic.topic_id, index), None)
        self._sole_leaders.pop(topic.name, None)

    # ------------------------------------------------------------ failures

    def stopped(self, node_id: int) -> None:
        """A node runs no more. It leads what it led until others are elected, see :meth:`to_elect`."""
        self._running.discard(node_id)
        self._sole_leaders.clear()  # its logs are read anew when it runs again

    def started(self, node_id: int) -> None:
        """A node runs again, and can be elected."""
        self._running.add(node_id)

    def to_elect(self, topics: TopicRegistry) -> list[tuple[Topic, int, int]]:
        """Return the partitions that need another leader: topic, index, and the first replica that runs.

        NOBODY stands for a partition that had a leader and has no replica left that runs. While no node runs, leaders
        stay as they are.
        """
        found = []
        for topic in topics:
            for index in range(topic.partition_count):
                leader_id = self.leader(topic, index).node_id
                if leader_id not in self._running:
                    node_id = self._first_running(topic, index)
                    if node_id != leader_id and self._running:
                        found.append((topic, index, node_id))
        return found
