"""Coordinator on asyncio: a future for each request, and one timer for the next deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext, suppress
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, cast

from attrs import frozen

from groupcoord.aio.log_store import TaskLogStore, prepared
from groupcoord.coordinator import GroupCoordinator
from groupcoord.coordinator.answers import CoordinatorRunner, resolve, sleep_s
from groupcoord.coordinator.loading import LoadError
from groupcoord.coordinator.share_coordinator import EmbeddedShare, ShareCoordinator
from groupcoord.core.events import Event
from groupcoord.core.messages import Reply, Request, Response
from groupcoord.core.messages.share_state import ShareStateRequest
from groupcoord.core.router.authorization import Principal
from groupcoord.errors import OwnershipLostError
from groupcoord.log_store import AnsweringStore, LogStoreError, Ticket

R = TypeVar("R")
T = TypeVar("T")

RECORDS_AT_ONCE = 2_000
"""Records that are loaded without yielding: some milliseconds."""


async def load_in_portions(change: Callable[[Callable[[GroupCoordinator], bool]], bool], partition: int) -> None:
    """Finish a load that was begun, yielding to the event loop; ``change`` is :meth:`AsyncCoordinator.change`.

    Raises:
        LoadError: the log can't be read.
    """
    while not change(lambda coordinator: coordinator.continue_load(partition, RECORDS_AT_ONCE)):
        await asyncio.sleep(0)


class AsyncCoordinator(CoordinatorRunner):
    """Coordinator on the running event loop: ``async with AsyncCoordinator(GroupCoordinator(…)) as coordinator``.

    Entering loads all log partitions, or raises as :meth:`start`; leaving closes. Use it in the thread of the event
    loop. Only :meth:`appended`, :meth:`append_failed` and :meth:`ownership_checked` may be called in other threads.

    When another process takes over the log, that is logged, all requests fail with NOT_COORDINATOR, and the body of the
    ``async with`` is cancelled, which then raises OwnershipLostError.

    Args:
        coordinator: the coordinator, which this object owns from now on. If its log store is an
            :class:`~groupcoord.log_store.AnsweringStore`, its answers come here.
        on_event: is called in the event loop for every event of a group, in order (:mod:`groupcoord.events`).
        on_lost: is called in the event loop when another process has taken over the log.
        share: the share coordinator of its share groups (KIP-932), if it is in this program. It is loaded and closed
            with the coordinator, and takes requests here as well.

    Attributes:
        coordinator: the synchronous coordinator. Read it freely; change it through :meth:`change` only.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        *,
        on_event: Callable[[Event], None] | None = None,
        on_lost: Callable[[OwnershipLostError], None] | None = None,
        share: EmbeddedShare | None = None,
    ) -> None:
        self._share = share
        self._cores: tuple[GroupCoordinator | ShareCoordinator, ...] = (
            (coordinator,) if share is None else (share.states, coordinator)
        )
        self._body: asyncio.Task[Any] | None = None
        self._cancelled_before = 0
        self._is_body_cancelled = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._seen_advances = -1
        super().__init__(coordinator, on_event, on_lost)
        if share is not None and isinstance(share.states.log_store, AnsweringStore):
            share.states.log_store.answer_to(_StatesAnswers(share.states, self._from_any_thread))

    async def __aenter__(self) -> AsyncCoordinator:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        self._body = asyncio.current_task()
        assert self._body is not None
        self._cancelled_before = self._body.cancelling()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        is_cancelled_by_us = await self._take_back_cancel(error)
        await self.close()
        lost = self.coordinator.lost
        if lost is not None and (error is None or is_cancelled_by_us):
            raise lost

    async def _take_back_cancel(self, error: BaseException | None) -> bool:
        """Return whether the body has ended by the cancellation from here and no other."""
        body, self._body = self._body, None
        if body is None or not self._is_body_cancelled:
            return False
        is_only_ours = body.uncancel() <= self._cancelled_before
        if not isinstance(error, asyncio.CancelledError):  # the body had ended before it was cancelled
            with suppress(asyncio.CancelledError) if is_only_ours else nullcontext():
                await asyncio.sleep(0)
        return is_only_ours and isinstance(error, asyncio.CancelledError)

    # ------------------------------------------------------------ requests

    async def ask(self, request: Request[R], principal: Principal = None, *, timeout_s: float | None = None) -> R:
        """Return the response to a request when it comes.

        Args:
            request: one of :mod:`groupcoord.messages`.
            principal: the client's principal, passed to ``authorize``.
            timeout_s: the time limit in seconds, or None.

        Raises:
            TimeoutError: there was no response in time. The request continues, like that of a client that has
                disconnected: a join is still a join. The same holds if the waiting task is cancelled.
            UnansweredError: Kafka never answers this request, because a newer one of the same member replaces it.
            TypeError: the coordinator does not handle this request.
        """
        async with asyncio.timeout(timeout_s):
            answer = self.submit(request, principal)
            if answer.done():
                return answer.result()
            response = await answer
            return response if self.coordinator.may_answer() else await self._again(response)

    async def _again(self, response: R) -> R:
        """Return a response after another check of the lease: the process may have been paused."""
        late: asyncio.Future[R] = self._running_loop().create_future()
        self.change(lambda coordinator: coordinator.put_back(Reply(late, cast(Response, response))))
        return await late

    def submit(self, request: Request[R], principal: Principal = None) -> asyncio.Future[R]:
        """Handle a request at once and return the future of its response; see :meth:`ask`.

        Raises:
            TypeError: the coordinator does not handle this request.
        """
        answer: asyncio.Future[R] = self._running_loop().create_future()
        share = self._share
        if share is not None and isinstance(request, ShareStateRequest):
            self.change(lambda _: share.states.submit(request, answer, principal))
        else:
            self.change(lambda coordinator: coordinator.submit(request, answer, principal))
        return answer

    def change(self, change: Callable[[GroupCoordinator], T]) -> T:
        """Call a function with the coordinator and deliver the responses that result.

        ``change(lambda coordinator: coordinator.topic_deleted("orders"))``; after advancing a manual clock,
        ``change(GroupCoordinator.tick)``.
        """
        self._running_loop()
        try:
            return change(self.coordinator)
        finally:
            self._deliver()

    def _from_any_thread(self, change: Callable[[GroupCoordinator], None]) -> None:
        # A breach of the store's contract goes to the exception handler of the event loop.
        try:
            self._running_loop().call_soon_threadsafe(self.change, change)
        except RuntimeError:
            if not self._running_loop().is_closed():
                raise  # after the end of the loop there is no caller left

    # ------------------------------------------------------------ life cycle

    async def start(self, partitions: Iterable[int] | None = None) -> None:
        """Load log partitions: all of them, or those that this coordinator is to serve.

        Meanwhile requests for groups that are not loaded yet fail with COORDINATOR_LOAD_IN_PROGRESS.

        Raises:
            LoadError: some could not be loaded; the others are served.
            OwnershipLostError: another process has taken over the log meanwhile.
        """
        self._loop = asyncio.get_running_loop()
        count = self.coordinator.config.offsets_topic_num_partitions
        loads: list[Callable[[], Awaitable[None]]] = []
        if self._share is not None:
            states = self._share.states
            loads += [partial(self._load_states, states, partition) for partition in range(states.partition_count)]
        loads += [partial(self.load, partition) for partition in (range(count) if partitions is None else partitions)]
        causes: dict[int, Exception] = {}
        for load in loads:
            try:
                await load()
            except LoadError as error:
                causes.update(error.causes)
        if self.coordinator.lost is not None:
            raise self.coordinator.lost
        if causes:
            raise LoadError(causes)

    async def load(self, partition: int, leader_epoch: int = 0) -> None:
        """Load a log partition to serve it, or again after it has failed.

        The event loop continues while records are read. See :meth:`GroupCoordinator.load`.

        Raises:
            LoadError: the log can't be read; requests fail with NOT_COORDINATOR until the partition is loaded again.
        """
        self._loop = asyncio.get_running_loop()
        if not self.change(lambda coordinator: coordinator.begin_load(partition, leader_epoch)):
            return
        async with prepared(self.coordinator.log_store, partition):
            await load_in_portions(self.change, partition)

    async def _load_states(self, states: ShareCoordinator, partition: int) -> None:
        async with prepared(states.log_store, partition):
            for _ in states.load_in_steps(partition):
                await asyncio.sleep(0)

    async def close(self) -> None:
        """Stop serving: waiting requests fail with NOT_COORDINATOR, later ones with COORDINATOR_NOT_AVAILABLE.

        The log store stays open. All appends of a :class:`~groupcoord.aio.log_store.TaskLogStore` have ended when this
        returns.
        """
        if self._loop is None:
            return
        self.change(GroupCoordinator.close)
        if self._share is not None:
            for partition in range(self._share.states.partition_count):
                self._share.states.unload(partition)
            self._deliver()
        if self._timer is not None:
            self._timer.cancel()
        for core in self._cores:
            if isinstance(core.log_store, TaskLogStore):
                await core.log_store.finish()

    # ------------------------------------------------------------ inside

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("the coordinator was not started: use it as 'async with', or call start()")
        return self._loop

    def _deliver(self) -> None:
        if self._share is not None:
            resolve(self._share.take_replies(self.coordinator))
        resolve(self.coordinator.take_replies())
        if self._on_event is not None and self.coordinator.has_events:
            self._running_loop().call_soon(self._deliver_events)
        advances = sum(core.timer_advances for core in self._cores)
        if self._timer is None or advances != self._seen_advances:
            self._seen_advances = advances
            self._set_timer()

    def _deliver_events(self) -> None:
        """Deliver events without a suspension, so that the lease cannot end meanwhile."""
        assert self._on_event is not None
        for event in self.coordinator.take_events():
            self._on_event(event)

    def _lose(self, error: OwnershipLostError) -> None:
        super()._lose(error)
        if self._on_lost is not None:
            self._running_loop().call_soon(self._on_lost, error)
        if self._body is not None:
            self._is_body_cancelled = self._body.cancel()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        pause_s = min((each for each in map(sleep_s, self._cores) if each is not None), default=None)
        self._timer = None if pause_s is None else self._running_loop().call_later(pause_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self._share is not None:
            self._share.states.tick()
        self.change(GroupCoordinator.tick)


@frozen
class _StatesAnswers:
    """Passes answers of the share coordinator's log store on, from any thread."""

    _states: ShareCoordinator
    _from_any_thread: Callable[[Callable[[GroupCoordinator], None]], None]

    def appended(self, ticket: Ticket, base_offset: int) -> None:
        self._from_any_thread(lambda _: self._states.appended(ticket, base_offset))

    def append_failed(self, ticket: Ticket, error: LogStoreError) -> None:
        self._from_any_thread(lambda _: self._states.append_failed(ticket, error))

    def ownership_checked(self, error: LogStoreError | None = None) -> None:
        """Do nothing: the owner of the groups' log owns this one, too."""
