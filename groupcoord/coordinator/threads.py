"""Coordinator for programs with threads: any thread sends requests, and one thread runs the timers.

    with ThreadSafeCoordinator(GroupCoordinator()) as coordinator:
        joined = coordinator.ask(JoinGroup("crew", protocols=(JoinProtocol("deal", b""),)))

Programs on asyncio use :mod:`groupcoord.aio`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import TypeVar, cast

from groupcoord.coordinator.answers import CoordinatorRunner, resolve, sleep_s
from groupcoord.coordinator.group_coordinator import GroupCoordinator
from groupcoord.core.events import Event
from groupcoord.core.messages import Reply, Request, Response
from groupcoord.core.router.authorization import Principal
from groupcoord.errors import OwnershipLostError

logger = logging.getLogger("groupcoord")

R = TypeVar("R")
T = TypeVar("T")


class ThreadSafeCoordinator(CoordinatorRunner):
    """Coordinator that threads share: ``with ThreadSafeCoordinator(GroupCoordinator(…)) as coordinator``.

    Entering calls :meth:`start`, which loads all log partitions and starts a thread for the timers; leaving closes
    both. One lock guards the coordinator; it is not held while waiting for a response. All methods are thread-safe,
    those for the log store included.

    When another process takes over the log, that is logged and all requests fail with NOT_COORDINATOR. The end of the
    ``with`` raises OwnershipLostError unless it ends with another exception.

    Args:
        coordinator: the coordinator, which this object owns from now on. If its log store is an
            :class:`~groupcoord.log_store.AnsweringStore`, its answers come here.
        on_event: called for every event of a group, in order (:mod:`groupcoord.events`), in the thread that caused it
            and with the lock held: do not block or call back.
        on_lost: called in the same way when another process has taken over the log.

    Attributes:
        coordinator: the synchronous coordinator; read and change it through :meth:`change` only.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        *,
        on_event: Callable[[Event], None] | None = None,
        on_lost: Callable[[OwnershipLostError], None] | None = None,
    ) -> None:
        # Reentrant, because a store may answer inside of an append.
        self._changed = threading.Condition(threading.RLock())
        self._timekeeper: threading.Thread | None = None
        self._is_closed = False
        super().__init__(coordinator, on_event, on_lost)

    def __enter__(self) -> ThreadSafeCoordinator:
        try:
            self.start()
        except BaseException:
            # A with statement that fails to begin does not call __exit__.
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
        """Return the response to a request when it comes.

        Args:
            request: one of :mod:`groupcoord.messages`.
            principal: the client's principal, passed to ``authorize``.
            timeout_s: the time limit in seconds, or None.

        Raises:
            TimeoutError: there was no response in time. The request continues, like that of a client that has
                disconnected: a join is still a join.
            UnansweredError: Kafka never answers this request, because a newer one of the same member replaces it.
            TypeError: the coordinator does not handle this request.
        """
        response = self.submit(request, principal).result(timeout_s)
        return response if self.coordinator.may_answer() else self._again(response, timeout_s)

    def _again(self, response: R, timeout_s: float | None) -> R:
        # The lease has expired since the response was taken: it is checked once more.
        late: Future[R] = Future()
        self.change(lambda coordinator: coordinator.put_back(Reply(late, cast(Response, response))))
        return late.result(timeout_s)

    def submit(self, request: Request[R], principal: Principal = None) -> Future[R]:
        """Handle a request at once and return the future of its response, which can't be cancelled.

        Raises:
            TypeError: the coordinator does not handle this request.
        """
        answer: Future[R] = Future()
        # A cancelled future would refuse its result.
        answer.set_running_or_notify_cancel()
        self.change(lambda coordinator: coordinator.submit(request, answer, principal))
        return answer

    def change(self, change: Callable[[GroupCoordinator], T]) -> T:
        """Call a function with the coordinator under the lock and deliver the responses that result.

        For example, pass ``lambda coordinator: coordinator.topic_deleted("orders")``.
        """
        replies: list[Reply] = []
        # Responses are delivered also if the change raises.
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
                    if self.coordinator.timer_advances != advances:  # the timer thread would wait too long
                        self._changed.notify()
        finally:
            resolve(replies)  # callers may send requests at once, and callbacks of futures may take time

    def _from_any_thread(self, change: Callable[[GroupCoordinator], None]) -> None:
        self.change(change)

    def _lose(self, error: OwnershipLostError) -> None:
        super()._lose(error)
        if self._on_lost is not None:
            self._on_lost(error)

    # ------------------------------------------------------------ life cycle

    def start(self) -> None:
        """Start the timers and load all log partitions.

        Raises:
            LoadError: some could not be loaded; the others are served.
        """
        self._timekeeper = threading.Thread(target=self._keep_time, name="groupcoord-time", daemon=True)
        self._timekeeper.start()
        self.change(GroupCoordinator.load_all)

    def close(self) -> None:
        """Stop serving: waiting requests fail with NOT_COORDINATOR, later ones with COORDINATOR_NOT_AVAILABLE.

        The log store stays open.
        """
        self.change(GroupCoordinator.close)
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._timekeeper is not None:
            # Without the lock, which the thread may need once more.
            self._timekeeper.join()

    def _keep_time(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                pause_s = sleep_s(self.coordinator)
                # Woken early by a new deadline, so that the loop looks again.
                if pause_s != 0:
                    self._changed.wait(pause_s)
                    continue
            try:
                # Without the lock, so that responses are delivered after its release.
                self.change(GroupCoordinator.tick)
            except Exception:  # raised by the log store or by callbacks of events
                logger.exception("timed work failed")
