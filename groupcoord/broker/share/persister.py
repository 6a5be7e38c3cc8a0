"""What leaders of share-partitions and share groups ask the share coordinator: again, where it can't do it now.

In Kafka a partition that isn't known is asked for again as well, since a broker may hear of topics late. Here none
does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from groupcoord.broker.share.pauses import TRIES_MAX, Pauses
from groupcoord.core.messages.share_state import ShareStateRequest, ShareStateResponse
from groupcoord.core.share_state.partition import AnyResult, TopicIdPartition, answer_of, part_of, results_of
from groupcoord.errors import ErrorCode

PASSING = frozenset(
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
)
"""What may be over in a moment."""

Tell = Callable[[Any], None]
"""Takes what the share coordinator has answered."""

Submit = Callable[[ShareStateRequest, Any], None]
"""Asks the share coordinator; the token takes the answer."""


class _Asked:
    """A request under way, as a token for the share coordinator.

    Attributes:
        request: what is asked, or what is left of that.
        try_count: how often it was answered.
    """

    def __init__(self, persister: Persister, request: ShareStateRequest, tell: Tell) -> None:
        self.request = request
        self.try_count = 0
        self._persister = persister
        self._tell = tell
        self._whole = request
        self._results: dict[TopicIdPartition, AnyResult] = {}

    def answer(self, response: ShareStateResponse) -> None:
        """Take an answer: pass it on, or ask again for what could not be done."""
        self.try_count += 1
        found = results_of(response)
        failed = {partition for partition, result in found.items() if result.error_code in PASSING}
        self._results.update(found)
        if failed and self.try_count < TRIES_MAX:
            self.request = part_of(self.request, failed)
            self._persister.ask_later(self)
        else:
            self._tell(response if self.try_count == 1 else answer_of(self._whole, self._results))


class Persister:
    """Asks the share coordinator until it has an answer, for a while.

    Args:
        submit: asks the share coordinator, or refuses if there is none.
        now_ms: tells the time.

    Attributes:
        pauses: before something is asked again.
    """

    def __init__(self, submit: Submit, now_ms: Callable[[], int]) -> None:
        self.pauses = Pauses(now_ms)
        self._submit = submit

    def ask(self, request: ShareStateRequest, tell: Tell) -> None:
        """Have something done; ``tell`` takes the answer, now or later."""
        self._submit(request, _Asked(self, request, tell))

    def ask_later(self, asked: _Asked) -> None:
        """Ask again after a pause."""
        self.pauses.begin(asked.try_count, partial(self._submit, asked.request, asked))
