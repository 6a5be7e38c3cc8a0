"""Futures of responses, for coordinators in an event loop and among threads."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from groupcoord.coordinator.group_coordinator import GroupCoordinator
from groupcoord.coordinator.share_coordinator import ShareCoordinator, StateReply
from groupcoord.core.messages import Reply
from groupcoord.errors import OwnershipLostError, UnansweredError

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


def tell_lost(error: OwnershipLostError) -> None:
    logger.error("nothing is coordinated here any more, all is answered NOT_COORDINATOR: %s", error)
