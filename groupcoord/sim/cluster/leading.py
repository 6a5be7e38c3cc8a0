"""Leaders of the log partitions of the simulated cluster: elected by a controller, or shared among replicas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from groupcoord.log_store import LogRecord
from groupcoord.sim.cluster.log import NOBODY, ClusterLog, Leader, NodeLog
from groupcoord.sim.cluster.options import ClusterOptions, ReplicaOptions
from groupcoord.sim.cluster.replicas import SharedSlots, SharedWay, SharingNode
from groupcoord.sim.kernel import WORLD_RANK, Network, Scheduler, ignore, mixed, stable_number


class LedNode(SharingNode, Protocol):
    """Node as seen by the object that assigns leaders."""

    name: str
    is_up: bool
    stalled_until_ms: int
    leaders_known: list[tuple[int, int]]

    def leads(self, partition: int) -> bool: ...

    def leader_changed(self, word: tuple[int, int, int]) -> None: ...

    def settle_after(self, partition: int) -> None: ...

    def failed(self, partition: int) -> None: ...


Way = NodeLog | SharedWay


class Leading(ABC):
    """Leaders of log partitions, and their changes.

    A place is the unit with one owner: a log partition, or the whole log. Without ``lease_ms`` there are no owners.

    Attributes:
        on_look: called after an ownership check with the place, the owner's epoch, and the start of its lease.
    """

    place_count = 1

    def __init__(self, log: ClusterLog, lease_ms: int | None) -> None:
        self.log = log
        self.lease_ms = lease_ms
        self.nodes: Sequence[LedNode] = ()
        self.on_change: Callable[[str, str], None] = ignore
        self.on_look: Callable[[int, int, int], None] = ignore

    @abstractmethod
    def way_of(self, node: LedNode, life: int) -> Way: ...

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def move(self, partition: int, node: LedNode) -> None:
        """Move a log partition to another node if that is up."""

    def is_missing(self, node: LedNode, *, is_dead: bool) -> None:  # noqa: B027
        """Handle a node that crashed or stalled."""

    def is_back(self, node: LedNode) -> None:  # noqa: B027
        """Handle the restart of a node."""

    @abstractmethod
    def write_foreign(self, partition: int, entry: LogRecord) -> None: ...

    @abstractmethod
    def owner_of(self, node: LedNode, partition: int) -> int:
        """Return the leader of a log partition that a node knows, or -1."""

    @abstractmethod
    def epoch_of(self, node: LedNode, partition: int) -> int:
        """Return the epoch in which a node owns a log partition or last owned it, or -1."""

    def has_all(self, node: LedNode, partition: int) -> bool:
        """Return whether a node that does not lead a log partition knows all its records."""
        return False

    @abstractmethod
    def place(self, partitions: Collection[int]) -> int | None:
        """Return the place whose owner must answer for log partitions, or None if they have several."""


class Controlled(Leading):
    """Leaders elected by a controller. With a lease the log is owned: one node owns all of it until a take-over."""

    def __init__(self, scheduler: Scheduler, options: ClusterOptions, log: ClusterLog, seed: int) -> None:
        super().__init__(log, options.lease_ms)
        self._scheduler = scheduler
        self._options = options
        self._epochs = [-1] * len(log.leaders)
        self._last_notices_ms = [0] * options.node_count
        self._notice_key = stable_number(seed, "words of the controller")
        log.on_look = lambda epoch, began_ms: self.on_look(0, epoch, began_ms)

    def way_of(self, node: LedNode, life: int) -> Way:
        return NodeLog(
            self.log, node.node_id, node.leads, self._scheduler, node.settle_after, node.failed, self.lease_ms
        )

    def start(self) -> None:
        for partition in range(len(self._epochs)):
            self._elect(partition, self.nodes[partition % len(self.nodes) if self.lease_ms is None else 0])

    def _elect(self, partition: int, leader: LedNode) -> None:
        """Elect a leader. The notification reaches each node after its own delay, in order."""
        self._epochs[partition] = epoch = self._epochs[partition] + 1
        former, lease_ms, node_id = self.log.leaders[partition], self.lease_ms, leader.node_id
        self.log.leaders[partition] = Leader(node_id, epoch)
        for node in self.nodes:
            # The former owner of an owned log is not notified: its successor waits until its lease has expired.
            if node.is_up and (lease_ms is None or node is leader or node.node_id != former.node_id):
                number = mixed(self._notice_key + partition * 1_000 + node.node_id, epoch)
                heard_ms = self._scheduler.time_ms + 1 + number % self._options.metadata_delay_max_ms
                if lease_ms is not None and former != NOBODY and node is leader:
                    heard_ms = self._scheduler.time_ms + lease_ms
                heard_ms = self._last_notices_ms[node.node_id - 1] = max(
                    heard_ms, self._last_notices_ms[node.node_id - 1]
                )
                self._scheduler.at(heard_ms, WORLD_RANK, node.leader_changed, (partition, node_id, epoch))

    def move(self, partition: int, node: LedNode) -> None:
        if node.is_up and self.log.leaders[partition].node_id != node.node_id:
            moved = [partition] if self.lease_ms is None else list(range(len(self._epochs)))
            words = f"log partition {partition} moves" if len(moved) == 1 else f"log partitions {_listed(moved)} move"
            self.on_change("controller", f"{words} to {node.name}")
            for index in moved:
                self._elect(index, node)

    def is_missing(self, node: LedNode, *, is_dead: bool) -> None:
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
            place = place if self.lease_ms is None else 0  # an owned log moves as a whole
            self._elect(partition, alive[(place + dead.node_id) % len(alive)])

    def is_back(self, node: LedNode) -> None:
        for partition, leader in enumerate(self.log.leaders):
            if leader.node_id == node.node_id or leader == NOBODY:
                self._elect(partition, node)
            else:
                node.leader_changed((partition, leader.node_id, leader.epoch))

    def write_foreign(self, partition: int, entry: LogRecord) -> None:
        self.log.write_foreign(partition, entry)

    def owner_of(self, node: LedNode, partition: int) -> int:
        return node.leaders_known[partition][0]

    def epoch_of(self, node: LedNode, partition: int) -> int:
        # Only an owned log has owners, and it is a single place.
        return max((epoch for node_id, epoch in node.leaders_known if node_id == node.node_id), default=-1)

    def place(self, partitions: Collection[int]) -> int:
        return 0


class Replicated(Leading):
    """Leaders among replicas, which share the log partitions by a slot log and heartbeats."""

    def __init__(
        self, scheduler: Scheduler, options: ReplicaOptions, log: ClusterLog, network: Network, seed: int
    ) -> None:
        super().__init__(log, options.lease_ms)
        self.slots = SharedSlots(log, scheduler, options, seed)
        self.slots.on_look = lambda partition, epoch, began_ms: self.on_look(partition, epoch, began_ms)
        self.slots.on_fence = self._report_fence
        self.place_count = len(log.leaders)
        self._scheduler = scheduler
        self._network = network
        self._ways: dict[int, SharedWay] = {}

    def _report_fence(self, node_id: int, partition: int) -> None:
        self.on_change(f"node {node_id}", f"takes log partition {partition} over")

    def way_of(self, node: LedNode, life: int) -> Way:
        name = f"{node.node_id}.{life}"
        way = SharedWay(node, name, self.slots, self.log, self._network, self._scheduler)
        self._ways[node.node_id] = way
        return way

    def start(self) -> None: ...

    def move(self, partition: int, node: LedNode) -> None:
        """Move a log partition to another replica for a while; a stalled one takes it when it continues."""
        if node.is_up:
            self.on_change("somebody", f"lets {node.name} take log partition {partition} over")
            self._seize((node, partition))

    def _seize(self, taken: tuple[LedNode, int]) -> None:
        node, partition = taken
        if not node.is_stalled(self._seize, taken):
            self._ways[node.node_id].seize(partition)

    def write_foreign(self, partition: int, entry: LogRecord) -> None:
        self.slots.write_foreign(partition, entry)

    def owner_of(self, node: LedNode, partition: int) -> int:
        return self._ways[node.node_id].owner_of(partition)

    def epoch_of(self, node: LedNode, partition: int) -> int:
        return self._ways[node.node_id].epochs.get(partition, -1)

    def has_all(self, node: LedNode, partition: int) -> bool:
        """Return whether the slots that the node does not know contain only fences of abandoned take-overs."""
        return self._ways[node.node_id].has_all(partition)

    def place(self, partitions: Collection[int]) -> int | None:
        return next(iter(partitions)) if len(partitions) == 1 else None


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
