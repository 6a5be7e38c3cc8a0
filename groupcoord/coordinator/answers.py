"""Parts common to coordinators in an event loop and among threads: futures of responses, answers of the log store."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from groupcoord.coordinator.group_coordinator import GroupCoordinator
from groupcoord.coordinator.share_coordinator import ShareCoordinator, StateReply
from groupcoord.core.events import Event
from groupcoord.core.messages import Reply
from groupcoord.errors import OwnershipLostError, UnansweredError
from groupcoord.log_store import AnsweringStore, LogStoreError, Ticket

logger = logging.getLogger("groupcoord")

LONGEST_SLEEP_S = 86_400.0
"""Longest sleep of an event loop or a lock."""


def resolve(replies: Iterable[Reply | StateReply]) -> None:
    """Set each reply as the result of its token, a future of asyncio or concurrent.futures, unless cancelled."""
    for answer, response in replies:
        # The cancelled request was executed; only its response is dropped.
        if answer.done():
            continue
        # Kafka never answers such a request; a future has to end.
        if response is None:
            answer.set_exception(UnansweredError("a newer request of the same member takes this one's place"))
        else:
            answer.set_result(response)


def sleep_s(coordinator: GroupCoordinator | ShareCoordinator) -> float | None:
    """Return the seconds until the next deadline of a coordinator, or None without one."""
    deadline_ms = coordinator.next_deadline_ms()
    if deadline_ms is None:
        return None
    # A lock can't wait for longer; afterwards the caller sleeps again.
    return min(max(deadline_ms - coordinator.clock.now_ms(), 0) / 1000, LONGEST_SLEEP_S)


class CoordinatorRunner(ABC):
    """Base of the classes that run a coordinator: its construction, and the answers of its log store."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        on_event: Callable[[Event], None] | None,
        on_lost: Callable[[OwnershipLostError], None] | None,
    ) -> None:
        if not isinstance(coordinator, GroupCoordinator):
            kind = type(self).__name__
            raise TypeError(f"{kind}(GroupCoordinator(…)): it holds a coordinator, not {coordinator!r}")
        self.coordinator = coordinator
        self._on_event = on_event
        self._on_lost = on_lost
        coordinator.on_lost = self._lose
        if isinstance(coordinator.log_store, AnsweringStore):
            coordinator.log_store.answer_to(self)
        if on_event is not None:
            coordinator.observe()

    def appended(self, ticket: Ticket, base_offset: int) -> None:
        """Pass on an answer of the log store, from any thread: see :meth:`GroupCoordinator.appended`."""
        self._from_any_thread(lambda coordinator: coordinator.appended(ticket, base_offset))

    def append_failed(self, ticket: Ticket, error: LogStoreError) -> None:
        """Pass on an answer of the log store, from any thread: see :meth:`GroupCoordinator.append_failed`."""
        self._from_any_thread(lambda coordinator: coordinator.append_failed(ticket, error))

    def ownership_checked(self, error: LogStoreError | None = None) -> None:
        """Pass on an answer of the log store, from any thread: see :meth:`GroupCoordinator.ownership_checked`."""
        self._from_any_thread(lambda coordinator: coordinator.ownership_checked(error))

    def _lose(self, error: OwnershipLostError) -> None:
        logger.error("nothing is coordinated here any more, all is answered NOT_COORDINATOR: %s", error)

    @abstractmethod
    def _from_any_thread(self, change: Callable[[GroupCoordinator], None]) -> None:
        """Call a function with the coordinator and deliver the responses that result."""
