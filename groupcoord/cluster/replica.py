"""Replica of a service that shares a log with others: ownership logic without I/O, and its execution in an event loop.

A log partition is served in this order: it is taken over, the take-over is announced, and it is loaded once the
announcement was acknowledged and no other replica should own it. Of two replicas that take it over at the same time, at
least one hears the other and both compute the same owner. So only that one serves it, and no answer from memory
contradicts another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import uuid4

from attrs import define, field

from groupcoord.aio.coordinator import AsyncCoordinator, load_in_portions
from groupcoord.cluster.membership import BEAT_MS, DEAD_MS, Membership, Owner
from groupcoord.cluster.shared_log import agree_on_partition_count
from groupcoord.cluster.slot_log import Beat, ConnectedSlotLog, Slot, SlotLog, SlotLogError
from groupcoord.cluster.slot_store import Gone, PartitionFigures, SlotStore, Taken
from groupcoord.cluster.slot_writer import UNKNOWN, Operation, Purge, Put, Unknown
from groupcoord.coordinator import GroupCoordinator, LoadError
from groupcoord.core.events import Event
from groupcoord.core.messages import Request
from groupcoord.core.router.authorization import Principal
from groupcoord.errors import StorageError
from groupcoord.log_store import LogStoreError


@define(eq=False, repr=False)
class Sharing:
    """Keeps a coordinator, its slot store and the announcements of other replicas consistent."""

    _coordinator: GroupCoordinator
    _store: SlotStore
    membership: Membership
    _address: str = ""
    _said: dict[int, int] = field(factory=dict, init=False)
    _is_look: bool = field(default=False, init=False)
    _loaded: dict[int, int] = field(factory=dict, init=False)

    # ------------------------------------------------------------ beats

    def announcement(self, *, leaves: bool = False) -> bytes:
        # A log partition is served only after an announcement that named it was acknowledged.
        self._said = self._store.owned
        self._is_look = self._is_look or self._store.is_look_wanted
        self._store.is_look_wanted = False
        return self.membership.announcement(self._address, self._said, leaves=leaves).encoded()

    def heard(self, beats: Collection[Beat], began_ms: int) -> list[Taken]:
        """Apply the result of a heartbeat: release what others own or should own, take over what no replica owns.

        Returns the log partitions to load now. A malformed announcement raises ValueError.
        """
        self.membership.heard(beats)
        # Before the ownership check ends: waiting responses must not be sent for a lost partition.
        for partition in self.membership.superseded(self._store.owned):
            self._give_up(partition, "another replica has taken it over")
        for partition in self.membership.to_release(self._store.owned):
            self._give_up(partition, f"{self.membership.chosen(partition)} is to have it")
        self.end_look(None)
        owned = self._store.owned
        # Otherwise this process was paused, and what it heard is old.
        if self._coordinator.clock.now_ms() < began_ms + (self._store.lease_ms or 0):
            for partition in self.membership.to_take(owned):
                self._store.take_over(partition)
        found = [
            Taken(partition, epoch)
            for partition, epoch in owned.items()
            # A partition that was lost and taken over again has not been announced yet.
            if self._said.get(partition) == epoch != self._loaded.get(partition)
        ]
        self._loaded.update(found)
        return found

    def end_look(self, error: LogStoreError | None) -> None:
        """Answer a requested ownership check; after a failed heartbeat, with ``error``, the owners are unknown."""
        if self._is_look:
            self._is_look = False
            self._coordinator.ownership_checked(error)

    # ------------------------------------------------------------ the store

    def settle(self) -> bool:
        """Pass answers of appends and losses of log partitions to the coordinator.

        Returns whether a log partition was taken over, which should be announced soon.
        """
        changes = self._store.take_changes()
        for change in changes:
            if isinstance(change, Gone):
                # Before the appends are answered: a failed one may lead to a next one.
                self._unload(change.partition)
        for ticket, answer in self._store.take_answers():
            if isinstance(answer, LogStoreError):
                self._coordinator.append_failed(ticket, answer)
            else:
                self._coordinator.appended(ticket, answer)
        return any(not isinstance(change, Gone) for change in changes)

    def snapshot(self, partition: int) -> None:
        core = self._coordinator.partition(partition)
        if core is not None and self._store.is_snapshot_due(partition):
            self._store.snapshot(partition, core.snapshot(), self._coordinator.clock.now_ms())

    def give_all_up(self) -> None:
        for partition in range(self._coordinator.config.offsets_topic_num_partitions):
            self._give_up(partition, "this replica ends")

    def _give_up(self, partition: int, reason: str) -> None:
        self._unload(partition)
        self._store.give_up(partition, reason)
        self.settle()

    def _unload(self, partition: int) -> None:
        self._loaded.pop(partition, None)
        self._coordinator.unload(partition)

    # ------------------------------------------------------------ owners

    def owner_of(self, partition: int) -> Owner | None:
        """Return the replica that owns a log partition, or None if no live replica has announced it."""
        owner = self.membership.owner(partition)
        # Lost since the last heartbeat: clients would go back and forth.
        if owner is not None and owner.node_id == self.membership.node_id and partition not in self._store.owned:
            return None
        return owner


async def carry_out(slot_log: SlotLog, partition: int, operation: Operation) -> int | list[Slot] | None:
    """Execute an operation and return the result that :meth:`~groupcoord.cluster.slot_writer.SlotWriter.done` takes.

    After a SlotLogError the outcome is unknown.
    """
    if isinstance(operation, Put):
        return await slot_log.put(partition, operation.slot, operation.payload)
    if isinstance(operation, Purge):
        await slot_log.purge(partition, operation.before_slot)
        return None
    return await slot_log.read(partition, operation.from_slot)


logger = logging.getLogger("groupcoord")

R = TypeVar("R")
T = TypeVar("T")

OPERATION_S = 10.0
"""Time limit for an operation of the engine; after that it is repeated."""

AGAIN_S = 0.1
CLOSING_S = 1.0


class ReplicaStatus(NamedTuple):
    """Status of a replica, for metrics and probes.

    Attributes:
        live: the replicas that it has heard lately.
        owners: the owner of each log partition as far as it has heard; partitions without an owner are missing.
        partitions: figures of the log partitions that it owns, by number.
        take_overs: how many times it took a log partition over.
        losses: how many times a write failed because another replica had taken over.
    """

    may_answer: bool
    live: tuple[str, ...]
    owners: dict[int, str]
    partitions: dict[int, PartitionFigures]
    take_overs: int
    losses: int


class Served(Protocol):
    """Coordinator in an event loop, such as :class:`~groupcoord.aio.AsyncCoordinator`."""

    coordinator: GroupCoordinator

    def change(self, change: Callable[[GroupCoordinator], T]) -> T:
        """Call a function with the coordinator and deliver the responses that result."""

    async def close(self) -> None:
        """Stop serving: waiting requests fail with NOT_COORDINATOR."""


class Participant:
    """Serves a coordinator's share of a log from :meth:`start` to :meth:`close`, in the thread of the event loop.

    Args:
        served: the coordinator. Its log store must be a :class:`~groupcoord.cluster.slot_store.SlotStore`.
        slot_log: the engine; open.
        address: where clients reach this process, in a form that the program understands.
        node_id, dead_ms, beat_ms: as in :class:`~groupcoord.cluster.replica.Replica`.

    Attributes:
        on_heard: is called after each heartbeat that was answered.

    Raises:
        ValueError: the log store is not a SlotStore, or its lease is not shorter than ``dead_ms``.
    """

    def __init__(
        self,
        served: Served,
        slot_log: SlotLog,
        address: str,
        *,
        node_id: str | None = None,
        dead_ms: int = DEAD_MS,
        beat_ms: int = BEAT_MS,
    ) -> None:
        core = served.coordinator
        store = core.log_store
        if not isinstance(store, SlotStore) or store.lease_ms is None:
            raise ValueError("a replica's coordinator has a SlotStore with a lease: GroupCoordinator(log_store=…)")
        # Otherwise it would answer when others own already what it owned.
        if not 0 < store.lease_ms < dead_ms:
            raise ValueError(f"a lease of {store.lease_ms} ms must be shorter than dead_ms={dead_ms}")
        self.node_id = node_id or str(uuid4())
        membership = Membership(self.node_id, core.config.offsets_topic_num_partitions, dead_ms)
        self.sharing = Sharing(core, store, membership, address)
        self.on_heard: Callable[[], None] = lambda: None
        self._served, self._core, self._store, self._slot_log = served, core, store, slot_log
        self._beat_s, self._dead_s = beat_ms / 1000, dead_ms / 1000
        self._tasks: set[asyncio.Task[None]] = set()
        self._beating: asyncio.Task[None] | None = None
        self._beat_wanted = asyncio.Event()
        self._is_heard = True
        self._is_work_noted = False
        self._unknown: set[int] = set()
        self._patience: set[asyncio.Timeout] = set()

    def status(self) -> ReplicaStatus:
        """Return the status of this replica."""
        store, live = self._store, self.sharing.membership.live
        indexes = range(self._core.config.offsets_topic_num_partitions)
        found = ((index, self.sharing.owner_of(index)) for index in indexes)
        owners = {index: owner.node_id for index, owner in found if owner is not None}
        return ReplicaStatus(self._core.may_answer(), live, owners, store.figures(), store.take_overs, store.losses)

    # ------------------------------------------------------------ life cycle

    async def start(self) -> None:
        """Start heartbeats and take-overs.

        Raises:
            LayoutError: the log has another number of log partitions than this coordinator.
            SlotLogError: the engine failed.
            TimeoutError: the engine does not answer.
        """
        async with asyncio.timeout(OPERATION_S):
            # Before the first fence.
            await agree_on_partition_count(self._slot_log, self._core.config.offsets_topic_num_partitions)
        self._store.on_work = self._note_work
        self._beating = asyncio.create_task(self._beat_on())

    async def close(self) -> None:
        """Release everything, so that other replicas take over at once. The engine stays open."""
        if self._beating is None:
            return
        self._beating.cancel()
        # wait() does not raise the cancellation of the heartbeats.
        await asyncio.wait((self._beating,))
        await self._served.close()
        # Last, since the coordinator's last responses need the ownership.
        self.sharing.give_all_up()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSING_S)
        for task in self._tasks:
            task.cancel()
        # Otherwise the others wait until this replica counts as dead.
        with suppress(SlotLogError, TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                await self._slot_log.beat(self.node_id, self.sharing.announcement(leaves=True))

    # ------------------------------------------------------------ beats

    async def _beat_on(self) -> None:
        while True:
            await self._beat()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._beat_s):
                    await self._beat_wanted.wait()

    async def _beat(self) -> None:
        self._beat_wanted.clear()
        # The engine may have answered at any time since.
        began_ms = self._core.clock.now_ms()
        content = self.sharing.announcement()
        try:
            # The others take over after this time.
            async with asyncio.timeout(self._dead_s):
                beats = await self._slot_log.beat(self.node_id, content)
            to_load = self._served.change(lambda _: self.sharing.heard(beats, began_ms))
        except Exception as error:  # an engine may raise any error
            if self._is_heard:
                logger.warning("replica %s is not heard, and answers no more: %r", self.node_id, error)
            self._is_heard, problem = False, StorageError(repr(error))
            # Responses that wait for an ownership check fail.
            self._served.change(lambda _: self.sharing.end_look(problem))
            self._lose_patience()
            return
        if not self._is_heard:
            logger.warning("replica %s is heard again", self.node_id)
            self._is_heard = True
        self.on_heard()
        for each in to_load:
            # A long load must not cost the lease.
            self._begin(self._load(each))

    def _lose_patience(self) -> None:
        for patience in self._patience:
            if not patience.expired():
                patience.reschedule(asyncio.get_running_loop().time())

    async def _load(self, what: Taken) -> None:
        logger.info("replica %s serves log partition %d, epoch %d", self.node_id, what.partition, what.epoch)
        try:
            if self._served.change(lambda coordinator: coordinator.begin_load(what.partition, what.epoch)):
                await load_in_portions(self._served.change, what.partition)
        except LoadError as error:
            logger.error("log partition %d can not be served: %s", what.partition, error)

    # ------------------------------------------------------------ the store's work

    def _note_work(self) -> None:
        """Schedule the pending operations for the end of this turn of the event loop."""
        if not self._is_work_noted:
            self._is_work_noted = True
            # All appends of this turn share a put.
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        self._is_work_noted = False
        for partition, operation in self._store.next_operations():
            self._begin(self._carry_out(partition, operation))
        if self._store.is_look_wanted and not self._core.may_answer():
            self._beat_wanted.set()  # responses wait for this heartbeat

    async def _carry_out(self, partition: int, operation: Operation) -> None:
        result = await self._outcome(partition, operation)
        if result is UNKNOWN:
            # Repeated until its outcome is known: another message could write an append twice.
            await asyncio.sleep(AGAIN_S)
        self._store.done(partition, operation, result)
        if self._served.change(lambda _: self.sharing.settle()):
            self._beat_wanted.set()
        self.sharing.snapshot(partition)
        self._work()

    async def _outcome(self, partition: int, operation: Operation) -> int | list[Slot] | Unknown | None:
        """Execute an operation and return its result. Log the first of consecutive failures of a log partition."""
        try:
            async with asyncio.timeout(OPERATION_S) as patience:
                # Shortened when heartbeats fail.
                self._patience.add(patience)
                try:
                    result = await carry_out(self._slot_log, partition, operation)
                finally:
                    self._patience.discard(patience)
        except Exception as error:  # an engine may raise any error
            if partition not in self._unknown:
                self._unknown.add(partition)
                logger.warning("log partition %d: the engine is queried again until it responds: %r", partition, error)
            return UNKNOWN
        self._unknown.discard(partition)
        return result

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        # asyncio itself keeps only weak references to tasks.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Replica(Participant):
    """One of several processes that share a log: ``async with Replica(GroupCoordinator(…), slot_log, address)``.

    Entering starts heartbeats and take-overs. Leaving releases the log partitions in order, so that other replicas
    serve them at once. Use it in the thread of the event loop.

    A request for a group of another replica, or of none, fails with NOT_COORDINATOR; :meth:`coordinator_of` returns the
    replica that has it. A replica that was paused or can't reach the engine fails requests with NOT_COORDINATOR once
    its lease is over, before another replica answers for its groups.

    Args:
        coordinator: the coordinator, which the replica owns from now on. Its log store must be a
            :class:`~groupcoord.cluster.slot_store.SlotStore`.
        slot_log: the engine; open.
        address: where clients reach this replica, in a form that the service understands.
        node_id: id that no other process has or had; random if left out.
        on_event: the observer of :class:`~groupcoord.aio.AsyncCoordinator`.
        dead_ms: the silence after which other replicas take over, in milliseconds; longer than the ``lease_ms`` of the
            store.
        beat_ms: the interval of heartbeats, in milliseconds.

    Attributes:
        coordinator: the coordinator in the event loop, for everything except requests.
        node_id: the id of this replica.

    Raises:
        ValueError: the log store is not a SlotStore, or its lease is not shorter than ``dead_ms``.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        slot_log: SlotLog,
        address: str,
        *,
        node_id: str | None = None,
        on_event: Callable[[Event], None] | None = None,
        dead_ms: int = DEAD_MS,
        beat_ms: int = BEAT_MS,
    ) -> None:
        self.coordinator = AsyncCoordinator(coordinator, on_event=on_event)
        super().__init__(self.coordinator, slot_log, address, node_id=node_id, dead_ms=dead_ms, beat_ms=beat_ms)

    async def __aenter__(self) -> Replica:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def ask(self, request: Request[R], principal: Principal = None, *, timeout_s: float | None = None) -> R:
        """Return the response to a request, as :meth:`groupcoord.aio.AsyncCoordinator.ask` does."""
        return await self.coordinator.ask(request, principal, timeout_s=timeout_s)

    def coordinator_of(self, group_id: str) -> Owner | None:
        """Return the replica that has a group, as far as this one has heard.

        Returns:
            Its ``node_id`` and ``address``, or None if no replica has the group yet: retry in a moment.
        """
        return self.sharing.owner_of(self._core.partition_of(group_id))

    async def start(self) -> None:
        """Start heartbeats and take-overs.

        Raises:
            RuntimeError: the slot log is not open.
            LayoutError: the log has another number of log partitions than this coordinator.
            SlotLogError: the engine failed.
            TimeoutError: the engine does not answer.
        """
        slot_log = self._slot_log
        if isinstance(slot_log, ConnectedSlotLog) and not slot_log.is_open:
            kind = type(slot_log).__name__
            raise RuntimeError(f"the slot log is not open: async with {kind}(…) as slot_log, Replica(…, slot_log, …)")
        await self.coordinator.start(())
        await super().start()
