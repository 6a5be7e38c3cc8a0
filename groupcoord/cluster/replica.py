"""Replica of a service: it shares a log with others and coordinates the groups of the log partitions that it owns."""

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
        """Return the response to a request, as :meth:`groupcoord.aio.AsyncCoordinator.ask` does."""
        return await self.coordinator.ask(request, principal, timeout_s=timeout_s)

    def coordinator_of(self, group_id: str) -> Owner | None:
        """Return the replica that has a group, as far as this one has heard.

        Returns:
            Its ``node_id`` and ``address``, or None if no replica has the group yet: retry in a moment.
        """
        return self._participant.sharing.coordinator_of(group_id)

    def status(self) -> ReplicaStatus:
        """Return the status of this replica."""
        return self._participant.status()

    # ------------------------------------------------------------ life cycle

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
        await self._participant.start()

    async def close(self) -> None:
        """Release everything: waiting requests fail with NOT_COORDINATOR. The engine stays open."""
        await self._participant.close()
