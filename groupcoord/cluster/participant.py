"""Heartbeats, take-overs and engine operations of one process that shares a log, in an event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import uuid4

from groupcoord.aio.coordinator import load_in_portions
from groupcoord.cluster.carrying_out import carry_out
from groupcoord.cluster.layout import agree_on_partition_count
from groupcoord.cluster.membership import BEAT_MS, DEAD_MS, Membership
from groupcoord.cluster.sharing import Sharing, ToLoad
from groupcoord.cluster.slot_log import Slot, SlotLog, SlotLogError
from groupcoord.cluster.slot_store import PartitionFigures, SlotStore
from groupcoord.cluster.slot_writer import UNKNOWN, Operation, Unknown
from groupcoord.coordinator import GroupCoordinator, LoadError
from groupcoord.errors import StorageError

logger = logging.getLogger("groupcoord")

T = TypeVar("T")

OPERATION_S = 10.0
"""Time limit for an operation of the engine; after that it is repeated."""

AGAIN_S = 0.1
CLOSING_S = 1.0


class ReplicaStatus(NamedTuple):
    """Status of a replica, for metrics and probes.

    Attributes:
        may_answer: whether its lease lasts.
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
    """Coordinator in an event loop, such as :class:`~groupcoord.aio.AsyncCoordinator`.

    Attributes:
        coordinator: the synchronous coordinator.
    """

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
        node_id: the id of this process.
        sharing: the ownership logic.
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
        self.node_id = node_id or str(uuid4())
        membership = Membership(self.node_id, core.config.offsets_topic_num_partitions, store.lease_ms, dead_ms)
        self.sharing = Sharing(core, store, membership, address)
        self.on_heard: Callable[[], None] = _nobody_is_told
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
        store = self._store
        indexes = range(self._core.config.offsets_topic_num_partitions)
        found = ((index, self.sharing.owner_of(index)) for index in indexes)
        owners = {index: owner.node_id for index, owner in found if owner is not None}
        return ReplicaStatus(
            self._core.may_answer(), self.sharing.live, owners, store.figures(), store.take_overs, store.losses
        )

    # ------------------------------------------------------------ life cycle

    async def start(self) -> None:
        """Start heartbeats and take-overs.

        Raises:
            LayoutError: the log has another number of log partitions than this coordinator.
            SlotLogError: the engine failed.
            TimeoutError: the engine does not answer.
        """
        async with asyncio.timeout(OPERATION_S):
            await agree_on_partition_count(self._slot_log, self._core.config.offsets_topic_num_partitions)
        self._store.on_work = self._note_work
        self._beating = asyncio.create_task(self._beat_on())

    async def close(self) -> None:
        """Release everything, so that other replicas take over at once. The engine stays open."""
        if self._beating is None:
            return
        self._beating.cancel()
        await asyncio.wait((self._beating,))
        await self._served.close()
        self.sharing.give_all_up()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSING_S)
        for task in self._tasks:
            task.cancel()
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
        """Announce the owned log partitions, receive all announcements, and apply them."""
        self._beat_wanted.clear()
        began_ms = self._core.clock.now_ms()
        content = self.sharing.announcement()
        try:
            async with asyncio.timeout(self._dead_s):
                beats = await self._slot_log.beat(self.node_id, content)
            to_load = self._served.change(lambda _: self.sharing.heard(beats, began_ms))
        except Exception as error:  # an engine may raise errors of its own; the next heartbeat retries
            if self._is_heard:
                logger.warning("replica %s is not heard, and answers no more: %r", self.node_id, error)
            self._is_heard, problem = False, StorageError(repr(error))
            self._served.change(lambda _: self.sharing.not_heard(problem))
            self._lose_patience()
            return
        if not self._is_heard:
            logger.warning("replica %s is heard again", self.node_id)
            self._is_heard = True
        self.on_heard()
        for each in to_load:
            self._begin(self._load(each))

    def _lose_patience(self) -> None:
        """Cancel pending operations: without heartbeats this process is cut off, and the connection may be lost."""
        for patience in self._patience:
            if not patience.expired():
                patience.reschedule(asyncio.get_running_loop().time())

    async def _load(self, what: ToLoad) -> None:
        logger.info("replica %s serves log partition %d, epoch %d", self.node_id, what.partition, what.epoch)
        try:
            if self._served.change(lambda coordinator: coordinator.begin_load(what.partition, what.epoch)):
                await load_in_portions(self._served.change, what.partition)
        except LoadError as error:
            logger.error("log partition %d can not be served: %s", what.partition, error)

    # ------------------------------------------------------------ the store's work

    def _note_work(self) -> None:
        """Schedule the pending operations for the end of this turn of the event loop, so that its appends share one
        put.
        """
        if not self._is_work_noted:
            self._is_work_noted = True
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
                self._patience.add(patience)
                try:
                    result = await carry_out(self._slot_log, partition, operation)
                finally:
                    self._patience.discard(patience)
        except Exception as error:  # an engine may raise errors of its own; repeating is right in any case
            if partition not in self._unknown:
                self._unknown.add(partition)
                logger.warning("log partition %d: the engine is asked again, until it answers: %r", partition, error)
            return UNKNOWN
        self._unknown.discard(partition)
        return result

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _nobody_is_told() -> None:
    """Default of ``on_heard``."""
