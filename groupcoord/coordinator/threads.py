"""The coordinator for programs with threads: any of them asks, and one more looks after the time.

with ThreadSafeCoordinator(GroupCoordinator()) as coordinator:
    joined = coordinator.ask(JoinGroup("crew", protocols=(JoinProtocol("deal", b""),)))

Programs on asyncio have the same in :mod:`groupcoord.aio`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import TypeVar, cast

from groupcoord.coordinator.answers import resolve, sleep_s, tell_lost
from groupcoord.coordinator.group_coordinator import GroupCoordinator
from groupcoord.core.events import Event
from groupcoord.core.messages import Request, Response
from groupcoord.core.replies import Reply
from groupcoord.core.router.authorization import Principal
from groupcoord.errors import OwnershipLostError
from groupcoord.log_store import AnsweringStore, LogStoreError, Ticket

__all__ = ["ThreadSafeCoordinator"]

logger = logging.getLogger("groupcoord")

R = TypeVar("R")
T = TypeVar("T")


class ThreadSafeCoordinator:
    """A coordinator that threads share: ``with ThreadSafeCoordinator(GroupCoordinator(…)) as coordinator``.

    Entering loads all log partitions, or raises what :meth:`start` raises, and starts a thread that looks after the
    time; leaving closes both. One lock
    guards the coordinator, so one request is handled at a time; nobody holds it while waiting for an answer. All
    methods may be called from any thread, those of the log store among them.

    When somebody else has taken the log over, that is logged, and whatever is asked is answered NOT_COORDINATOR; the
    end of the ``with`` raises OwnershipLostError, unless it ends in an exception anyway.

    Args:
        coordinator: belongs to this one from now on. If its log store answers later by itself
            (:class:`~groupcoord.log_store.AnsweringStore`), its answers come here.
        on_event: is called for everything that happens to groups, in order, see :mod:`groupcoord.events`; by the thread
            that made it happen, with the lock held, so it had better only pass it on.
        on_lost: is called in the same way when somebody else has taken the log over.

    Attributes:
        coordinator: the coordinator inside; what looks at it or changes it goes through :meth:`change`.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        *,
        on_event: Callable[[Event], None] | None = None,
        on_lost: Callable[[OwnershipLostError], None] | None = None,
    ) -> None:
        if not isinstance(coordinator, GroupCoordinator):
            raise TypeError(f"ThreadSafeCoordinator(GroupCoordinator(…)): it holds a coordinator, not {coordinator!r}")
        self.coordinator = coordinator
        self._on_event = on_event
        self._on_lost = on_lost
        coordinator.on_lost = self._lose
        self._changed = threading.Condition(threading.RLock())
        self._timekeeper: threading.Thread | None = None
        self._is_closed = False
        if isinstance(coordinator.log_store, AnsweringStore):
            coordinator.log_store.answer_to(self)
        if on_event is not None:
            coordinator.observe()

    def __enter__(self) -> ThreadSafeCoordinator:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if error is None and self.coordinator.lost is not None:
            raise self.coordinator.lost

    # ------------------------------------------------------------ requests

    def ask(self, request: Request[R], principal: Principal = None, *, timeout_s: float | None = None) -> R:
        """Return the answer to a request, whenever it comes.

        Args:
            request: one of :mod:`groupcoord.messages`.
            principal: for whom it speaks; given to ``authorize``.
            timeout_s: how long to wait for the answer, in seconds; None: as long as it takes.

        Raises:
            TimeoutError: there was no answer in time. The request itself goes on, as that of a client that has hung up
                does: a join is still a join.
            UnansweredError: Kafka never answers this one: a newer request of the same member takes its place.
            TypeError: this is no request of the coordinator.
        """
        response = self.submit(request, principal).result(timeout_s)
        return response if self.coordinator.may_answer() else self._again(response, timeout_s)

    def _again(self, response: R, timeout_s: float | None) -> R:
        """Return an answer anew: between the future's result and the turn of who asked the process was held up."""
        late: Future[R] = Future()
        self.change(lambda coordinator: coordinator.put_back(Reply(late, cast(Response, response))))
        return late.result(timeout_s)

    def submit(self, request: Request[R], principal: Principal = None) -> Future[R]:
        """Take a request at once, and return the future that its answer comes to; it can't be cancelled.

        Raises:
            TypeError: this is no request of the coordinator.
        """
        answer: Future[R] = Future()
        answer.set_running_or_notify_cancel()
        self.change(lambda coordinator: coordinator.submit(request, answer, principal))
        return answer

    def change(self, change: Callable[[GroupCoordinator], T]) -> T:
        """Do something else with the coordinator while nobody else does, and pass on what comes of it.

        ``change(lambda coordinator: coordinator.topic_deleted("orders"))``; after a clock was turned that tests turn by
        hand, ``change(GroupCoordinator.tick)``.
        """
        replies: list[Reply] = []
        try:
            with self._changed:
                advances = self.coordinator.timer_advances
                try:
                    return change(self.coordinator)
                finally:
                    replies += self.coordinator.take_replies()
                    if self._on_event is not None:
                        for event in self.coordinator.take_events():
                            self._on_event(event)
                    if self.coordinator.timer_advances != advances:
                        self._changed.notify()
        finally:
            resolve(replies)  # whoever waits may ask again at once, and what was hung on a future may take its time

    # ------------------------------------------------------------ the log store's answers

    def appended(self, ticket: Ticket, base_offset: int) -> None:
        """Take over what the log store says: see :meth:`GroupCoordinator.appended`."""
        self.change(lambda coordinator: coordinator.appended(ticket, base_offset))

    def append_failed(self, ticket: Ticket, error: LogStoreError) -> None:
        """Take over what the log store says: see :meth:`GroupCoordinator.append_failed`."""
        self.change(lambda coordinator: coordinator.append_failed(ticket, error))

    def ownership_checked(self, error: LogStoreError | None = None) -> None:
        """Take over what the log store says: see :meth:`GroupCoordinator.ownership_checked`."""
        self.change(lambda coordinator: coordinator.ownership_checked(error))

    def _lose(self, error: OwnershipLostError) -> None:
        tell_lost(error)
        if self._on_lost is not None:
            self._on_lost(error)

    # ------------------------------------------------------------ life cycle

    def start(self) -> None:
        """Load all log partitions, and look after the time from now on.

        Raises:
            LoadError: some could not be loaded; the others are served.
        """
        self._timekeeper = threading.Thread(target=self._keep_time, name="groupcoord-time", daemon=True)
        self._timekeeper.start()
        self.change(GroupCoordinator.load_all)

    def close(self) -> None:
        """Stop serving: whoever waits is told NOT_COORDINATOR, and later requests COORDINATOR_NOT_AVAILABLE.

        The log store stays open.
        """
        self.change(GroupCoordinator.close)
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._timekeeper is not None:
            self._timekeeper.join()

    def _keep_time(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                pause_s = sleep_s(self.coordinator)
                if pause_s != 0:
                    self._changed.wait(pause_s)
                    continue
            try:
                self.change(GroupCoordinator.tick)
            except Exception:  # of the log store, or of what hangs on events
                logger.exception("timed work failed")
