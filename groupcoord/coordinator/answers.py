"""What programs share that wait for a coordinator's answers, in an event loop or in threads."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Protocol

from groupcoord.coordinator.group_coordinator import GroupCoordinator
from groupcoord.coordinator.share_coordinator import ShareCoordinator, StateReply
from groupcoord.core.replies import Reply
from groupcoord.errors import OwnershipLostError, UnansweredError

logger = logging.getLogger("groupcoord")

LONGEST_SLEEP_S = 86_400.0
"""Event loops and locks don't take absurd times; who wakes for nothing sleeps again."""


class Answer(Protocol):
    """A future of :mod:`asyncio` or of :mod:`concurrent.futures`."""

    def done(self) -> bool:
        """Tell whether it has a result, or was cancelled."""

    def set_result(self, result: Any, /) -> None:
        """Answer."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Let whoever waits for it see an error."""


def resolve(replies: Iterable[Reply | StateReply]) -> None:
    """Give each reply to the future that is its token, unless whoever asked has gone away."""
    for token, response in replies:
        answer: Answer = token
        if answer.done():
            continue
        if response is None:
            answer.set_exception(UnansweredError("a newer request of the same member takes this one's place"))
        else:
            answer.set_result(response)


def sleep_s(coordinator: GroupCoordinator | ShareCoordinator) -> float | None:
    """Return in how many seconds a coordinator wants to be woken; None: not at all, as nothing waits for time."""
    deadline_ms = coordinator.next_deadline_ms()
    if deadline_ms is None:
        return None
    return min(max(deadline_ms - coordinator.clock.now_ms(), 0) / 1000, LONGEST_SLEEP_S)


def tell_lost(error: OwnershipLostError) -> None:
    """Say for whoever reads logs that somebody else has taken over."""
    logger.error("nothing is coordinated here any more, all is answered NOT_COORDINATOR: %s", error)
