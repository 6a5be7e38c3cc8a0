"""Leaders and replicas of partitions, and the running nodes.

Nodes of one process share their logs, so each is a replica of every partition without manual assignment. Nodes that
share a log between processes lead what they own of it. As in Kafka, the first running replica leads until it fails or
another one is elected, and each election raises the leader epoch. Sources: ``ReplicationControlManager``,
``PartitionChangeBuilder`` of Apache Kafka 4.4.
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
    """Leader of a partition; ``node_id`` is -1 while no node runs."""

    node_id: int
    epoch: int


class Leadership:
    """Nodes of a server and leaders of its partitions. ``owners`` replaces elections where nodes share a log."""

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
        self._sole_leaders: dict[str, tuple[Topic, dict[int, Leader]]] = {}
        self.use(nodes)
        is_sole = self.elects and len(self._nodes) == 1
        self._sole = Leader(next(iter(self._nodes)), LEADER_EPOCH) if is_sole else None

    # ------------------------------------------------------------ nodes

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(self._nodes)

    @property
    def keeps_assignments(self) -> bool:
        """True if manual replica assignments decide on leaders: several nodes that elect leaders."""
        return self.elects and self._sole is None

    @property
    def is_sole(self) -> bool:
        return self._sole is not None

    def use(self, nodes: Iterable[Node]) -> None:
        self._nodes = {node.node_id: node for node in sorted(nodes)}
        if not self._nodes:
            raise ValueError("a server has at least one node")
        self._running = set(self._nodes)
        self._leaders.clear()
        ids = tuple(self._nodes)
        # Spreads the load: partition n prefers node n, modulo their number.
        self._rotations = [ids[turn:] + ids[:turn] for turn in range(len(ids))]

    def update(self, node: Node) -> None:
        self._nodes[node.node_id] = node

    def node(self, node_id: int) -> Node | None:
        return self._nodes[node_id] if node_id in self._running else None

    def brokers(self, addresses: Mapping[int, Node] | None = None) -> tuple[Node, ...]:
        return tuple((addresses or self._nodes)[node_id] for node_id in self._nodes if node_id in self._running)

    @property
    def controller_id(self) -> int:
        # The lowest id, so that all nodes name the same controller.
        return min(self._running, default=NOBODY)

    # ------------------------------------------------------------ leaders

    def leader(self, topic: Topic, index: int) -> Leader:
        # The usual case needs no dictionary of leaders.
        if self._sole is not None:
            return self._later_epochs(topic, self._sole).get(index, self._sole)
        # Only this topic's log is shared between processes.
        if self._owners is not None and topic.name == OFFSETS_TOPIC:
            return self._owners(index)
        key = topic.topic_id, index
        leader = self._leaders.get(key)
        if leader is None:
            # Clients remember epochs over a restart of the server, so they must not go back.
            epoch = self._first_epoch(topic, index) or LEADER_EPOCH
            leader = self._leaders[key] = Leader(self._first_running(topic, index), epoch)
        return leader

    def next_leader(self, leader_id: int, running: Iterable[int]) -> int:
        """Return the running node after a leader in cyclic order, or -1."""
        others = sorted(running, key=lambda node_id: (node_id <= leader_id, node_id))
        return next((node_id for node_id in others if node_id != leader_id), NOBODY)

    def leader_of_all(self, topic: Topic) -> Leader | None:
        """Return the common leader of all partitions of a topic; None if they may differ."""
        sole = self._sole
        return None if sole is None or self._later_epochs(topic, sole) else sole

    def _later_epochs(self, topic: Topic, sole: Leader) -> dict[int, Leader]:
        known = self._sole_leaders.get(topic.name)  # Python caches the hash of a string, not of a UUID
        # A topic that grew or was created again differs.
        if known is not None and known[0] == topic:
            return known[1]
        epochs = [self._first_epoch(topic, index) for index in range(topic.partition_count)]
        leaders = {index: Leader(sole.node_id, epoch) for index, epoch in enumerate(epochs) if epoch}
        # A log that can't be read now may be readable later.
        if None not in epochs:
            self._sole_leaders[topic.name] = topic, leaders
        return leaders

    def leads(self, node_id: int, topic: Topic, index: int) -> bool:
        return self.leader(topic, index).node_id == node_id

    def replicas(self, topic: Topic, index: int) -> tuple[int, ...]:
        """Return the replicas, preferred leader first."""
        if self._sole is not None:
            return self._rotations[0]
        # The server may have been restarted with fewer nodes.
        assigned = tuple(node_id for node_id in topic.replicas.get(index, ()) if node_id in self._nodes)
        return assigned or self._rotations[index % len(self._rotations)]

    def in_sync(self, replicas: tuple[int, ...]) -> tuple[int, ...]:
        if len(self._running) == len(self._nodes):
            return replicas
        return tuple(node_id for node_id in replicas if node_id in self._running)

    def offline(self, replicas: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(node_id for node_id in replicas if node_id not in self._running)

    def _first_running(self, topic: Topic, index: int) -> int:
        return next(iter(self.in_sync(self.replicas(topic, index))), NOBODY)

    def elect(self, topic: Topic, index: int, node_id: int) -> Leader:
        # The epoch also rises when no node can lead, as in PartitionChangeBuilder.
        leader = Leader(node_id, self.leader(topic, index).epoch + 1)
        self._leaders[topic.topic_id, index] = leader
        return leader

    def raise_epoch(self, topic: Topic, index: int, epoch: int) -> None:
        leader = self.leader(topic, index)
        # Never lowered, since the log may be behind an election.
        self._leaders[topic.topic_id, index] = leader._replace(epoch=max(leader.epoch, epoch))

    def forget(self, topic: Topic) -> None:
        for index in range(topic.partition_count):
            self._leaders.pop((topic.topic_id, index), None)
        self._sole_leaders.pop(topic.name, None)

    # ------------------------------------------------------------ failures

    def stopped(self, node_id: int) -> None:
        """Mark a node as stopped; it leads its partitions until other leaders are elected."""
        self._running.discard(node_id)
        self._sole_leaders.clear()  # its logs are read again when it restarts

    def started(self, node_id: int) -> None:
        self._running.add(node_id)

    def to_elect(self, topics: TopicRegistry) -> list[tuple[Topic, int, int]]:
        """Return the partitions that need another leader: topic, index, first running replica or -1."""
        found = []
        for topic in topics:
            for index in range(topic.partition_count):
                leader_id = self.leader(topic, index).node_id
                if leader_id not in self._running:
                    node_id = self._first_running(topic, index)
                    # Without a running node, leaders stay.
                    if node_id != leader_id and self._running:
                        found.append((topic, index, node_id))
        return found
