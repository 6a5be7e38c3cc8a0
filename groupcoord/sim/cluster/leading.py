"""Who leads the log partitions of the simulated cluster: a controller elects nodes, or replicas share them out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

from groupcoord.log_store import LogRecord
from groupcoord.sim.cluster.log import NOBODY, ClusterLog, Leader, NodeLog
from groupcoord.sim.cluster.options import ClusterOptions, ReplicaOptions
from groupcoord.sim.cluster.replicas import SharedSlots, SharedWay, SharingNode
from groupcoord.sim.kernel.network import Network
from groupcoord.sim.kernel.randomness import mixed, stable_number
from groupcoord.sim.kernel.scheduler import WORLD_RANK, Scheduler


class LedNode(SharingNode, Protocol):
    """What a node is to whoever says what it leads."""

    name: str
    is_up: bool
    stalled_until_ms: int
    leaders_known: list[tuple[int, int]]

    def leads(self, partition: int) -> bool:
        """Tell whether it leads a log partition, and has heard so."""

    def hear(self, word: tuple[int, int, int]) -> None:
        """Hear of a log partition, its leader, and the leader's epoch."""

    def settle_after(self, partition: int) -> None:
        """Settle after something has happened to a log partition."""

    def failed(self, partition: int) -> None:
        """A log partition has to be loaded again."""


Way = NodeLog | SharedWay
"""One node's way to the log, for as long as its process lives."""


class Leading(ABC):
    """Who leads which log partition, and how that changes.

    Args:
        log: what is durable.
        lease_ms: for how long an owner may answer after a look at whose the log is; None: nobody owns anything.

    Attributes:
        nodes: all of them, node 1 first.
        on_change: called with a line about nodes and log partitions.
        on_look: called with the place of an owner, its epoch, and since when it may answer for longer.
        place_count: how many things have an owner of their own: log partitions, or the whole log.
    """

    place_count = 1

    def __init__(self, log: ClusterLog, lease_ms: int | None) -> None:
        self.log = log
        self.lease_ms = lease_ms
        self.nodes: Sequence[LedNode] = ()
        self.on_change: Callable[[str, str], None] = _ignore
        self.on_look: Callable[[int, int, int], None] = _ignore

    @abstractmethod
    def way_of(self, node: LedNode, life: int) -> Way:
        """Return the way to the log of a node's process."""

    @abstractmethod
    def start(self) -> None:
        """All nodes have started."""

    @abstractmethod
    def move(self, partition: int, node: LedNode) -> None:
        """Let another node lead a log partition, if it is up."""

    def is_missing(self, node: LedNode, *, is_dead: bool) -> None:  # noqa: B027
        """A node does not answer: it is dead, or stands still. Replicas find out by themselves."""

    def is_back(self, node: LedNode) -> None:  # noqa: B027
        """A node was started again."""

    @abstractmethod
    def write_foreign(self, partition: int, entry: LogRecord) -> None:
        """Let somebody write a record that no coordinator has asked for."""

    @abstractmethod
    def owner_of(self, node: LedNode, partition: int) -> int:
        """Return who leads a log partition, as a node has heard; -1: nobody."""

    @abstractmethod
    def epoch_of(self, node: LedNode, partition: int) -> int:
        """Return the epoch in which a node owns a log partition, or has owned it; -1: it never has."""

    def has_all(self, node: LedNode, partition: int) -> bool:
        """Tell whether a node knows all of a log partition though it is not its leader now."""
        return False

    @abstractmethod
    def place(self, partitions: Collection[int]) -> int | None:
        """Return whose owner is to answer what is about log partitions; None: each of them has one."""


class Controlled(Leading):
    """A controller elects the leaders. Where the log is owned, that is one node, until another takes all of it over.

    Args:
        seed: decides what is left to chance.
    """

    def __init__(self, scheduler: Scheduler, options: ClusterOptions, log: ClusterLog, seed: int) -> None:
        super().__init__(log, options.lease_ms)
        self._scheduler = scheduler
        self._options = options
        self._epochs = [-1] * len(log.leaders)
        self._last_words = [0] * options.node_count
        self._word_key = stable_number(seed, "words of the controller")
        log.on_look = lambda epoch, began_ms: self.on_look(0, epoch, began_ms)

    def way_of(self, node: LedNode, life: int) -> Way:
        """See :class:`Leading`."""
        return NodeLog(
            self.log, node.node_id, node.leads, self._scheduler, node.settle_after, node.failed, self.lease_ms
        )

    def start(self) -> None:
        """Deal the log partitions out in turn; or the first node owns them all."""
        for partition in range(len(self._epochs)):
            self._elect(partition, self.nodes[partition % len(self.nodes) if self.lease_ms is None else 0])

    def _elect(self, partition: int, leader: LedNode) -> None:
        """Make a node the leader of a log partition. The word reaches each node in its own time, after earlier ones.

        Where the log is owned, nobody tells an owner that it isn't any more, and its successor waits for its lease.
        """
        self._epochs[partition] = epoch = self._epochs[partition] + 1
        former, lease_ms, node_id = self.log.leaders[partition], self.lease_ms, leader.node_id
        self.log.leaders[partition] = Leader(node_id, epoch)
        for node in self.nodes:
            if node.is_up and (lease_ms is None or node.node_id in (node_id, *self._others_than(former.node_id))):
                number = mixed(self._word_key + partition * 1_000 + node.node_id, epoch)
                heard_ms = self._scheduler.time_ms + 1 + number % self._options.word_ms
                if lease_ms is not None and former != NOBODY and node is leader:
                    heard_ms = self._scheduler.time_ms + lease_ms
                heard_ms = self._last_words[node.node_id - 1] = max(heard_ms, self._last_words[node.node_id - 1])
                self._scheduler.at(heard_ms, WORLD_RANK, _hear, (node, node_id, partition, epoch))

    def _others_than(self, node_id: int) -> Iterator[int]:
        return (node.node_id for node in self.nodes if node.node_id != node_id)

    def move(self, partition: int, node: LedNode) -> None:
        """See :class:`Leading`; where the log is owned, the node takes all of it over."""
        if node.is_up and self.log.leaders[partition].node_id != node.node_id:
            moved = [partition] if self.lease_ms is None else list(range(len(self._epochs)))
            words = f"log partition {partition} moves" if len(moved) == 1 else f"log partitions {_listed(moved)} move"
            self.on_change("controller", f"{words} to {node.name}")
            for index in moved:
                self._elect(index, node)

    def is_missing(self, node: LedNode, *, is_dead: bool) -> None:
        """Others take its log partitions over after a while; of who stands still, if the log is owned."""
        detection_ms = self._options.failure_detection_ms
        if detection_ms is not None and (is_dead or self.lease_ms is not None):
            self._scheduler.at(self._scheduler.time_ms + detection_ms, WORLD_RANK, self._take_over, node)

    def _take_over(self, dead: LedNode) -> None:
        now_ms = self._scheduler.time_ms
        alive = [node for node in self.nodes if node.is_up and node.stalled_until_ms <= now_ms]
        if (dead.is_up and dead.stalled_until_ms <= now_ms) or not alive:
            return
        led = [index for index, leader in enumerate(self.log.leaders) if leader.node_id == dead.node_id]
        if led:
            self.on_change("controller", f"log partitions {_listed(led)} of {dead.name} move to others")
        for place, partition in enumerate(led):
            place = place if self.lease_ms is None else 0
            self._elect(partition, alive[(place + dead.node_id) % len(alive)])

    def is_back(self, node: LedNode) -> None:
        """It leads again what nobody else took over."""
        for partition, leader in enumerate(self.log.leaders):
            if leader.node_id == node.node_id or leader == NOBODY:
                self._elect(partition, node)
            else:
                node.hear((partition, leader.node_id, leader.epoch))

    def write_foreign(self, partition: int, entry: LogRecord) -> None:
        """See :class:`Leading`."""
        self.log.write_foreign(partition, entry)

    def owner_of(self, node: LedNode, partition: int) -> int:
        """See :class:`Leading`."""
        return node.leaders_known[partition][0]

    def epoch_of(self, node: LedNode, partition: int) -> int:
        """See :class:`Leading`. Where one node owns the whole log, each log partition is of the same owner."""
        return max((epoch for node_id, epoch in node.leaders_known if node_id == node.node_id), default=-1)

    def place(self, partitions: Collection[int]) -> int:
        """Return the only one: it doesn't matter what it is about."""
        return 0


class Replicated(Leading):
    """Nodes are replicas, who share the log partitions over an engine, and find out by beats who is to have which.

    Args:
        network: between the nodes and the engine.
        options: what replicas are like.
        seed: decides what is left to chance.

    Attributes:
        slots: the engine.
    """

    def __init__(
        self, scheduler: Scheduler, options: ReplicaOptions, log: ClusterLog, network: Network, seed: int
    ) -> None:
        super().__init__(log, options.lease_ms)
        self.slots = SharedSlots(log, scheduler, options, seed)
        self.slots.on_look = lambda partition, epoch, began_ms: self.on_look(partition, epoch, began_ms)
        self.slots.on_fence = self._say_fence
        self.place_count = len(log.leaders)
        self._scheduler = scheduler
        self._network = network
        self._ways: dict[int, SharedWay] = {}

    def _say_fence(self, node_id: int, partition: int) -> None:
        self.on_change(f"node {node_id}", f"takes log partition {partition} over")

    def way_of(self, node: LedNode, life: int) -> Way:
        """See :class:`Leading`."""
        name = f"{node.node_id}.{life}"
        way = SharedWay(node, name, self.slots, self.log, self._network, self._scheduler)
        self._ways[node.node_id] = way
        return way

    def start(self) -> None:
        """They share them out among themselves."""

    def move(self, partition: int, node: LedNode) -> None:
        """Let a replica take a log partition over from another that lives; it then finds that it is another's to have.

        One that stands still does so when it goes on.
        """
        if node.is_up:
            self.on_change("somebody", f"lets {node.name} take log partition {partition} over")
            self._seize((node, partition))

    def _seize(self, taken: tuple[LedNode, int]) -> None:
        node, partition = taken
        if not node.is_stalled(self._seize, taken):
            self._ways[node.node_id].seize(partition)

    def write_foreign(self, partition: int, entry: LogRecord) -> None:
        """See :class:`Leading`."""
        self.slots.write_foreign(partition, entry)

    def owner_of(self, node: LedNode, partition: int) -> int:
        """See :class:`Leading`."""
        return self._ways[node.node_id].owner_of(partition)

    def epoch_of(self, node: LedNode, partition: int) -> int:
        """See :class:`Leading`."""
        return self._ways[node.node_id].epochs.get(partition, -1)

    def has_all(self, node: LedNode, partition: int) -> bool:
        """See :class:`Leading`: only fences of those who want it no more have come after what it knows."""
        return self._ways[node.node_id].has_all(partition)

    def place(self, partitions: Collection[int]) -> int | None:
        """Return the log partition, if it is one."""
        return next(iter(partitions)) if len(partitions) == 1 else None


def _hear(word: tuple[LedNode, int, int, int]) -> None:
    node, leader_id, partition, epoch = word
    node.hear((partition, leader_id, epoch))


def _ignore(*_: object) -> None:
    """Nobody listens."""


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
