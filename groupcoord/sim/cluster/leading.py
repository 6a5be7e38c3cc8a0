"""Leaders of the log partitions of the simulated cluster: elected by a controller, or shared among replicas.

Replicas (:mod:`groupcoord.cluster`) own log partitions by heartbeats. Their engine is a slot log in memory behind a
network: operations are delayed, lost in either direction, duplicated, or answered by a lagging replica. All decisions
are made by the code of real replicas."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from attrs import field, frozen

from groupcoord.cluster.membership import BEAT_MS, DEAD_MS, LEASE_MS, Membership
from groupcoord.cluster.replica import Sharing, carry_out
from groupcoord.cluster.slot_log import TAG_BYTES, Beat, Kind, MemorySlotLog, Message, Slot, join, split
from groupcoord.cluster.slot_store import SNAPSHOT_BYTES_MIN, SlotStore
from groupcoord.cluster.slot_writer import UNKNOWN, Operation, Put, Read, Unknown
from groupcoord.config import Config
from groupcoord.coordinator import GroupCoordinator
from groupcoord.laws import require
from groupcoord.log_store import LogRecord, StorageError, Ticket
from groupcoord.records.batches import encode_batch, iter_batches
from groupcoord.sim.cluster.log import NOBODY, Leader, NodeLog
from groupcoord.sim.kernel import WORLD_RANK, mixed, rank_of_node, stable_number
from groupcoord.storage.log.segment_files import all_records

if TYPE_CHECKING:
    from groupcoord.sim.cluster.nodes import CoordinatorNode, SimulatedCluster


@frozen
class ReplicaOptions:
    """Options of nodes that share the log as replicas (:mod:`groupcoord.cluster`).

    Attributes:
        lease_ms: time for which a node answers after the start of its last successful heartbeat.
        dead_ms: silence of a node after which others take over.
        beat_ms: heartbeat interval of a node.
        snapshot_bytes_min: bytes after which a log partition is rewritten as a snapshot.
        stale_percent: reads in a hundred that miss the last writes, as from a lagging replica of the engine.
        late_percent: puts in a hundred that arrive a second time, later.
    """

    lease_ms: int = LEASE_MS
    dead_ms: int = DEAD_MS
    beat_ms: int = BEAT_MS
    snapshot_bytes_min: int = SNAPSHOT_BYTES_MIN
    stale_percent: int = 0
    late_percent: int = 0


@frozen
class ClusterOptions:
    """Options of the simulated cluster.

    Attributes:
        node_count: number of nodes with a coordinator: node 1, node 2, …
        config: settings of the coordinators; ``offsets_topic_num_partitions`` is the number of log partitions.
        least_latency_ms, most_latency_ms: bounds of the latency of a message, one way.
        flush_ms: interval between writes of the log; 0: immediate.
        failure_detection_ms: time after which the log partitions of a crashed node move to others; None: they wait for
            it.
        metadata_delay_max_ms: largest delay of the notification of a new leader.
        lease_ms: time for which the owner of the whole log answers after an ownership check, and for which its
            successor waits; the other nodes stand by. None: log partitions have leaders, which are notified of their
            successors.
        replicas: options of nodes that share the log partitions over a slot log; None: a controller elects leaders.
            ``failure_detection_ms``, ``metadata_delay_max_ms`` and ``lease_ms`` do not apply to replicas.
        group_configs: by group id, the group's own settings (KIP-848), as attributes of
            :class:`~groupcoord.config.group_settings.ConsumerGroupSettings`.
        load_step_records, load_step_ms: records of a step of a load, and its duration.
    """

    node_count: int = 1
    config: Config = field(factory=lambda: Config(offsets_topic_num_partitions=8))
    least_latency_ms: int = 1
    most_latency_ms: int = 20
    flush_ms: int = 0
    failure_detection_ms: int | None = None
    metadata_delay_max_ms: int = 50
    lease_ms: int | None = None
    replicas: ReplicaOptions | None = None
    group_configs: Mapping[str, Mapping[str, int]] = field(factory=dict)
    load_step_records: int = 1_000
    load_step_ms: int = 10


class Leading:
    """Leaders of log partitions, and their changes.

    A place is the unit with one owner: a log partition, or the whole log. Without ``lease_ms`` there are no owners.
    """

    place_count = 1

    def __init__(self, cluster: SimulatedCluster, lease_ms: int | None) -> None:
        self.lease_ms = lease_ms
        self._cluster = cluster
        self._log = cluster.log
        self._scheduler = cluster.scheduler


class Controlled(Leading):
    """Leaders elected by a controller. With a lease the log is owned: one node owns all of it until a take-over."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster, cluster.options.lease_ms)
        self._epochs = [-1] * len(self._log.leaders)
        self._last_notices_ms = [0] * cluster.options.node_count
        self._notice_key = stable_number(cluster.seed, "words of the controller")

    def way_of(self, node: CoordinatorNode, life: int) -> NodeLog:
        """Return the access to the log of a node's process."""
        return NodeLog(self._log, node, node.settle_after, node.failed, self.lease_ms)

    def start(self) -> None:
        """Elect the first leaders."""
        for partition in range(len(self._epochs)):
            self._elect(
                partition, self._cluster.nodes[partition % len(self._cluster.nodes) if self.lease_ms is None else 0]
            )

    def _elect(self, partition: int, leader: CoordinatorNode) -> None:
        """Elect a leader. The notification reaches each node after its own delay, in order."""
        self._epochs[partition] = epoch = self._epochs[partition] + 1
        former, lease_ms, node_id = self._log.leaders[partition], self.lease_ms, leader.node_id
        self._log.leaders[partition] = Leader(node_id, epoch)
        for node in self._cluster.nodes:
            # The former owner of an owned log is not notified: its successor waits until its lease has expired.
            if node.is_up and (lease_ms is None or node is leader or node.node_id != former.node_id):
                number = mixed(self._notice_key + partition * 1_000 + node.node_id, epoch)
                heard_ms = self._scheduler.time_ms + 1 + number % self._cluster.options.metadata_delay_max_ms
                if lease_ms is not None and former != NOBODY and node is leader:
                    heard_ms = self._scheduler.time_ms + lease_ms
                heard_ms = self._last_notices_ms[node.node_id - 1] = max(
                    heard_ms, self._last_notices_ms[node.node_id - 1]
                )
                self._scheduler.at(heard_ms, WORLD_RANK, node.leader_changed, (partition, node_id, epoch))

    def move(self, partition: int, node: CoordinatorNode) -> None:
        """Move a log partition to another node if that is up."""
        if node.is_up and self._log.leaders[partition].node_id != node.node_id:
            moved = [partition] if self.lease_ms is None else list(range(len(self._epochs)))
            words = f"log partition {partition} moves" if len(moved) == 1 else f"log partitions {_listed(moved)} move"
            self._cluster.on_change("controller", f"{words} to {node.name}")
            for index in moved:
                self._elect(index, node)

    def is_missing(self, node: CoordinatorNode, *, is_dead: bool) -> None:
        """Handle a node that crashed or stalled."""
        detection_ms = self._cluster.options.failure_detection_ms
        if detection_ms is not None and (is_dead or self.lease_ms is not None):
            self._scheduler.at(self._scheduler.time_ms + detection_ms, WORLD_RANK, self._take_over, node)

    def _take_over(self, dead: CoordinatorNode) -> None:
        now_ms = self._scheduler.time_ms
        alive = [node for node in self._cluster.nodes if node.is_up and node.stalled_until_ms <= now_ms]
        if (dead.is_up and dead.stalled_until_ms <= now_ms) or not alive:
            return
        led = [index for index, leader in enumerate(self._log.leaders) if leader.node_id == dead.node_id]
        if led:
            self._cluster.on_change("controller", f"log partitions {_listed(led)} of {dead.name} move to others")
        for place, partition in enumerate(led):
            place = place if self.lease_ms is None else 0  # an owned log moves as a whole
            self._elect(partition, alive[(place + dead.node_id) % len(alive)])

    def is_back(self, node: CoordinatorNode) -> None:
        """Handle the restart of a node."""
        for partition, leader in enumerate(self._log.leaders):
            if leader.node_id == node.node_id or leader == NOBODY:
                self._elect(partition, node)
            else:
                node.leader_changed((partition, leader.node_id, leader.epoch))

    def write_foreign(self, partition: int, entry: LogRecord) -> None:
        self._log.write_foreign(partition, entry)

    def place(self, partitions: Collection[int]) -> int:
        """Return the place with the owner that answers for log partitions."""
        return 0


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


T = TypeVar("T")

OPERATION_MS = 1_000
"""Timeout after which an operation of the engine is repeated."""

AGAIN_MS = 100
LATE_MS = 2_500
"""Delay of a duplicated put."""

LATE_RECORDS = 2_000
"""Records kept for late responses: more than are written while one waits for an ownership check."""

NO_OWNER_TAG = bytes(TAG_BYTES)

Result = int | list[Slot] | Unknown | None


def at_once(work: Coroutine[Any, Any, T]) -> T:
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("it waits")


class Filled(NamedTuple):
    """Filled slot with the records that it appended."""

    slot: int
    appends: list[list[LogRecord]]


class SharedSlots:
    """Engine, and the records in its slots.

    The content of a slot joins the cluster's log when its owner learns that it is filled, or when the next fence is
    put. Until then its outcome is unknown.
    """

    def __init__(self, cluster: SimulatedCluster, options: ReplicaOptions) -> None:
        self.options = options
        self._cluster = cluster
        self._log = log = cluster.log
        self._engine = MemorySlotLog()
        self._chance_key = stable_number(cluster.seed, "chance of the engine")
        self._fencers: dict[bytes, SharedWay] = {}
        self._filled: list[list[Filled]] = [[] for _ in log.leaders]
        self._ends = [0] * len(log.leaders)
        self._last_fences: list[dict[int, SharedWay]] = [{} for _ in log.leaders]  # by slot, after all other slots

    def new_tag(self, fencer: SharedWay) -> bytes:
        tag = (len(self._fencers) + 1).to_bytes(TAG_BYTES, "big")
        self._fencers[tag] = fencer
        return tag

    def is_last(self, partition: int, slot: int) -> bool:
        """Return whether only abandoned fences follow a slot.

        A process that puts a fence and then crashes has announced nothing, so clients keep using the previous owner.
        """
        fences = self._last_fences[partition]
        return slot >= self._ends[partition] - len(fences) - 1 and not any(
            number > slot and fencer.wants(partition) for number, fencer in fences.items()
        )

    def beat(self, name: str, content: bytes) -> list[Beat]:
        self._engine.now_ms = self._cluster.scheduler.time_ms
        return at_once(self._engine.beat(name, content))

    def carry_out(self, partition: int, operation: Operation) -> Result:
        """Execute an operation; its outcome is unknown while the log refuses. A lagging replica returns half."""
        now_ms = self._cluster.scheduler.time_ms
        error = self._log.refusal(partition, now_ms)
        if error is not None and not (error.outcome_unknown and self._log.survivors(partition, 1)):
            return UNKNOWN
        result = at_once(carry_out(self._engine, partition, operation))
        if isinstance(operation, Put) and result is None:
            self._take(partition, operation)
        elif isinstance(result, list) and self._lags(partition):
            result = result[: len(result) // 2]
        return UNKNOWN if error is not None else result

    def _take(self, partition: int, put: Put) -> None:
        message = Message.decoded(put.payload)
        self._ends[partition] = put.slot + 1
        if message.kind is Kind.FENCE:
            fencer = self._last_fences[partition][put.slot] = self._fencers[message.tag]
            self.heard(partition, put.slot)
            self._log.leaders[partition] = Leader(fencer.node_id, put.slot)
            self.report_fence(fencer.node_id, partition)
            return
        self._last_fences[partition].clear()
        if message.kind is Kind.BATCHES:
            appends = [list(all_records(iter_batches(body))) for body in split(message.body)]
            self._filled[partition].append(Filled(put.slot, appends))
        elif message.kind is Kind.MANIFEST:
            self._log.has_snapshot.add(partition)

    def report_fence(self, node_id: int, partition: int) -> None:
        self._cluster.on_change(f"node {node_id}", f"takes log partition {partition} over")

    def heard(self, partition: int, last_slot: int) -> None:
        """Add the records of slots up to ``last_slot`` to the cluster's log."""
        filled, late = self._filled[partition], self._log.late[partition]
        while filled and filled[0].slot <= last_slot:
            for records in filled.pop(0).appends:
                base_offset = self._log.write(partition, Ticket(partition, -1), records)
                require(base_offset == records[0].offset, f"{records[0]} was to be at offset {base_offset}")
                late += records
        del late[:-LATE_RECORDS]

    def write_foreign(self, partition: int, entry: LogRecord) -> None:
        """Fill the next slot with a record that no owner requested, so that the owner loses the log partition."""
        waiting = sum(len(records) for filled in self._filled[partition] for records in filled.appends)
        offset = self._log.memory.end_offset(partition) + waiting
        body = join([encode_batch(offset, [(*entry.encoded(), entry.timestamp_ms)])])
        put = Put(self._ends[partition], Message(Kind.BATCHES, NO_OWNER_TAG, self._ends[partition], body).encoded())
        at_once(carry_out(self._engine, partition, put))
        self._take(partition, put)

    def _lags(self, partition: int) -> bool:
        return mixed(self._chance_key + partition, self._cluster.scheduler.time_ms) % 100 < self.options.stale_percent

    def comes_late(self, moment: int) -> bool:
        return mixed(self._chance_key, ~moment) % 100 < self.options.late_percent


class _Flight(NamedTuple):
    partition: int
    operation: Operation
    key: int
    result: Result = UNKNOWN


class SharedWay:
    """Access of a node to the slots: :class:`~groupcoord.cluster.replica.Replica` without an event loop.

    Attributes:
        answers_late: True while responses are sent that may have waited for an ownership check.
    """

    def __init__(self, node: CoordinatorNode, name: str, slots: SharedSlots, cluster: SimulatedCluster) -> None:
        options = slots.options
        self.store = SlotStore(
            lambda: slots.new_tag(self),
            lease_ms=options.lease_ms,
            snapshot_bytes_min=options.snapshot_bytes_min,
        )
        self.node_id = node.node_id
        self._epochs: dict[int, int] = {}  # of each log partition, the last in which this process owned it
        self.answers_late = False
        self._node, self._name, self._slots, self._log = node, name, slots, cluster.log
        self._network, self._scheduler = cluster.network, cluster.scheduler
        self._key = stable_number("way to the slots", name)
        self._rank = rank_of_node(node.node_id)
        self._sent = 0
        self._awaited: dict[int, int] = {}  # log partition → key of the operation in flight
        self._beat_number = 0  # events of earlier beats are ignored
        self._is_beating = False
        self._is_beat_wanted = False
        self._is_work_noted = False
        self._is_over = False

    def connect(self, coordinator: GroupCoordinator) -> None:
        options = self._slots.options
        count = coordinator.config.offsets_topic_num_partitions
        membership = Membership(self._name, count, options.dead_ms)
        self._coordinator = coordinator
        self._sharing = Sharing(coordinator, self.store, membership, str(self._node.node_id))
        self.store.on_work = self._note_work
        self._beat(0)

    def cut(self) -> None:
        self._is_over = True

    def owner_of(self, partition: int) -> int:
        owner = self._sharing.owner_of(partition)
        return -1 if owner is None else int(owner.address)

    def wants(self, partition: int) -> bool:
        return not self._is_over and self.store.wants(partition)

    def epoch_of(self, partition: int) -> int:
        """Return the epoch in which this process owns a log partition or last owned it, or -1."""
        return self._epochs.get(partition, -1)

    def has_all(self, partition: int) -> bool:
        """Return whether the slots that this process does not know contain only fences of abandoned take-overs."""
        return self._slots.is_last(partition, self.store.last_slot(partition))

    # ------------------------------------------------------------ messages

    def _moment(self) -> int:
        self._sent += 1
        return self._key + self._sent

    def _arrival_ms(self, key: int) -> int:
        now_ms = self._scheduler.time_ms
        return now_ms + self._network.latency.at(key, now_ms)

    def _is_lost(self, key: int) -> bool:
        loss = self._network.loss
        return loss is not None and loss.strikes(key + self._scheduler.time_ms)

    # ------------------------------------------------------------ beats

    def _beat(self, number: int) -> None:
        if number != self._beat_number:
            return
        self._beat_number, self._is_beating, self._is_beat_wanted = number + 1, True, False
        now_ms, key, content = self._scheduler.time_ms, self._moment(), self._sharing.announcement()
        due = self._beat_number, now_ms, key
        if not self._is_lost(key):
            self._scheduler.at(self._arrival_ms(key), self._rank, self._beat_arrives, (due, content))
        self._node.at(now_ms + self._slots.options.dead_ms, self._beat_is_given_up, due[0])

    def _beat_arrives(self, beat: tuple[tuple[int, int, int], bytes]) -> None:
        (number, began_ms, key), content = beat
        beats = self._slots.beat(self._name, content)
        if not self._is_lost(~key):
            self._node.at(self._arrival_ms(~key), self._beat_is_heard, (number, began_ms, beats))

    def _beat_is_heard(self, heard: tuple[int, int, list[Beat]]) -> None:
        number, began_ms, beats = heard
        if self._is_over or number != self._beat_number or not self._is_beating:
            return
        self.answers_late = not self._coordinator.may_answer()
        to_load = self._sharing.heard(beats, began_ms)
        for partition, epoch in self.store.owned.items():
            self._log.on_look(partition, epoch, began_ms)
        for partition, epoch in to_load:
            self._node.load_shared(partition, epoch)
        self._end_beat(began_ms)

    def _beat_is_given_up(self, number: int) -> None:
        if number != self._beat_number or not self._is_beating:
            return
        self._sharing.end_look(StorageError("the beat was lost"))
        self._end_beat(self._scheduler.time_ms)

    def _end_beat(self, began_ms: int) -> None:
        self._is_beating = False
        self._node.settle_all()
        self.answers_late = False
        self._work(None)
        next_ms = self._scheduler.time_ms if self._is_beat_wanted else began_ms + self._slots.options.beat_ms
        self._node.at(next_ms, self._beat, self._beat_number)

    def _want_beat(self) -> None:
        if not self._is_beating and not self._is_beat_wanted:
            self._node.at(self._scheduler.time_ms, self._beat, self._beat_number)
        self._is_beat_wanted = True

    # ------------------------------------------------------------ the store's work

    def _note_work(self) -> None:
        if not self._is_work_noted:
            self._is_work_noted = True
            self._node.at(self._scheduler.time_ms, self._work)

    def _work(self, _: None) -> None:
        if self._is_over or self._node.is_stalled(self._work, None):
            return
        self._is_work_noted = False
        for partition, operation in self.store.next_operations():
            self._send(_Flight(partition, operation, self._moment()))
        if self.store.is_look_wanted and not self._coordinator.may_answer():
            self._want_beat()

    def _send(self, flight: _Flight) -> None:
        now_ms = self._scheduler.time_ms
        self._awaited[flight.partition] = flight.key
        self._scheduler.at(now_ms + OPERATION_MS, self._rank, self._done, flight)
        if not self._is_lost(flight.key):
            arrival_ms = self._arrival_ms(flight.key)
            if not isinstance(flight.operation, Read):
                arrival_ms = self._log.durable_ms(arrival_ms)
            self._scheduler.at(arrival_ms, self._rank, self._arrive, flight)
        if isinstance(flight.operation, Put) and self._slots.comes_late(flight.key):
            self._scheduler.at(now_ms + LATE_MS, self._rank, self._arrive, flight)

    def _arrive(self, flight: _Flight) -> None:
        result = self._slots.carry_out(flight.partition, flight.operation)
        if not self._is_lost(~flight.key):
            back_ms = self._arrival_ms(~flight.key) + (AGAIN_MS if result is UNKNOWN else 0)
            self._scheduler.at(back_ms, self._rank, self._done, flight._replace(result=result))

    def _done(self, flight: _Flight) -> None:
        if self._is_over or self._node.is_stalled(self._done, flight):
            return
        partition = flight.partition
        # A repeated operation has a new key, so that results of earlier attempts are ignored.
        if self._awaited.get(partition) != flight.key:
            return
        del self._awaited[partition]
        self.store.done(partition, flight.operation, flight.result)
        self._slots.heard(partition, self.store.last_slot(partition))
        self._epochs.update(self.store.owned)
        if self._sharing.settle():
            self._want_beat()
        self._sharing.snapshot(partition)
        self._node.settle_all()
        self._work(None)


class Replicated(Leading):
    """Leaders among replicas, which share the log partitions by a slot log and heartbeats."""

    def __init__(self, cluster: SimulatedCluster, options: ReplicaOptions) -> None:
        super().__init__(cluster, options.lease_ms)
        self.slots = SharedSlots(cluster, options)
        self.place_count = len(self._log.leaders)

    def way_of(self, node: CoordinatorNode, life: int) -> SharedWay:
        """Return the access to the slots of a node's process."""
        return SharedWay(node, f"{node.node_id}.{life}", self.slots, self._cluster)

    def start(self) -> None: ...

    def is_missing(self, node: CoordinatorNode, *, is_dead: bool) -> None: ...

    def is_back(self, node: CoordinatorNode) -> None: ...

    def move(self, partition: int, node: CoordinatorNode) -> None:
        """Move a log partition to another replica for a while; a stalled one takes it when it continues."""
        if node.is_up:
            self._cluster.on_change("somebody", f"lets {node.name} take log partition {partition} over")
            self._seize((node, partition))

    def _seize(self, taken: tuple[CoordinatorNode, int]) -> None:
        node, partition = taken
        if not node.is_stalled(self._seize, taken):
            assert isinstance(node.log, SharedWay)
            node.log.store.take_over(partition)

    def write_foreign(self, partition: int, entry: LogRecord) -> None:
        self.slots.write_foreign(partition, entry)

    def place(self, partitions: Collection[int]) -> int | None:
        """Return the place with the owner that answers for log partitions, or None if they have several."""
        return next(iter(partitions)) if len(partitions) == 1 else None
