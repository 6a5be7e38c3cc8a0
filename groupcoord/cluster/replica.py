"""A replica of a service: it shares the log partitions with the others, and coordinates the groups of its own."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from groupcoord.aio import AsyncCoordinator
from groupcoord.cluster.membership import BEAT_MS, DEAD_MS, Owner
from groupcoord.cluster.participant import Participant, ReplicaStatus
from groupcoord.cluster.slot_log import ConnectedSlotLog, SlotLog
from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.events import Event
from groupcoord.core.messages import Request
from groupcoord.core.router.authorization import Principal

__all__ = ["Replica", "ReplicaStatus"]

R = TypeVar("R")


class Replica:
    """One of several processes that share a log: ``async with Replica(GroupCoordinator(…), slot_log, address)``.

    Entering begins to beat and to take log partitions over; leaving gives them up in order, so that the others have
    them at once. Use it from the event loop's thread.

    Whatever is asked about a group that another replica has is answered NOT_COORDINATOR, as it is while nobody has it;
    :meth:`coordinator_of` says who has it. A replica that can't reach the engine, or was stopped, answers
    NOT_COORDINATOR when its lease is over, before another one answers for what it had.

    Args:
        coordinator: belongs to this one from now on. Its log store must be a
            :class:`~groupcoord.cluster.slot_store.SlotStore`.
        slot_log: the engine; open.
        address: where the others' clients find this replica, in words that the service understands.
        node_id: tells this process from all others that there ever were; a random one if left out.
        on_event: see :class:`~groupcoord.aio.AsyncCoordinator`.
        dead_ms: after how long in silence others take over, in milliseconds; longer than the store's ``lease_ms``.
        beat_ms: how often it says that it lives, in milliseconds.

    Attributes:
        coordinator: the coordinator in the event loop, for what isn't a request.
        node_id: see above.

    Raises:
        ValueError: the log store is another one, or the lease is not shorter than ``dead_ms``.
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
        self._participant = Participant(
            self.coordinator, slot_log, address, node_id=node_id, dead_ms=dead_ms, beat_ms=beat_ms
        )
        self._slot_log = slot_log
        self.node_id = self._participant.node_id

    async def __aenter__(self) -> Replica:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def ask(self, request: Request[R], principal: Principal = None, *, timeout_s: float | None = None) -> R:
        """Return the answer to a request; see :meth:`groupcoord.aio.AsyncCoordinator.ask`."""
        return await self.coordinator.ask(request, principal, timeout_s=timeout_s)

    def coordinator_of(self, group_id: str) -> Owner | None:
        """Return which replica has a group, this one included, as far as this one has heard.

        Returns:
            Its ``node_id`` and ``address``; None: nobody has it yet, so ask again in a moment.
        """
        return self._participant.sharing.coordinator_of(group_id)

    def status(self) -> ReplicaStatus:
        """Return what there is to be known of this replica now."""
        return self._participant.status()

    # ------------------------------------------------------------ life cycle

    async def start(self) -> None:
        """Begin to beat, and with that to take log partitions over.

        Raises:
            RuntimeError: the slot log is not open.
            LayoutError: the log has another number of log partitions than this coordinator.
            SlotLogError: the engine can't be asked.
            TimeoutError: it does not answer.
        """
        slot_log = self._slot_log
        if isinstance(slot_log, ConnectedSlotLog) and not slot_log.is_open:
            kind = type(slot_log).__name__
            raise RuntimeError(f"the slot log is not open: async with {kind}(…) as slot_log, Replica(…, slot_log, …)")
        await self.coordinator.start(())
        await self._participant.start()

    async def close(self) -> None:
        """Give everything up: whoever waits is told NOT_COORDINATOR. The engine stays open."""
        await self._participant.close()
