"""What leaders of share-partitions and share groups ask the share coordinator: again, where it can't do it now.

As in ``PersisterStateManager`` of Apache Kafka 4.4 there are five tries, and pauses between them that double. There
they are a fifth longer or shorter by chance, and a partition that isn't known is asked for again as well, since a
broker may hear of topics late. Here none does.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from groupcoord.core.messages.share_state import ShareStateRequest, ShareStateResponse
from groupcoord.core.share_state.partition import AnyResult
from groupcoord.core.share_state.requests import TopicIdPartition, answer_of, part_of, results_of
from groupcoord.errors import ErrorCode

TRIES_MAX = 5
FIRST_PAUSE_MS = 1_000
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
        count: how often something ever had to be asked again.
    """

    def __init__(self, submit: Submit, now_ms: Callable[[], int]) -> None:
        self.count = 0
        self._submit = submit
        self._now_ms = now_ms
        self._later: list[tuple[int, int, _Asked]] = []

    def ask(self, request: ShareStateRequest, tell: Tell) -> None:
        """Have something done; ``tell`` takes the answer, now or later."""
        self._submit(request, _Asked(self, request, tell))

    def ask_later(self, asked: _Asked) -> None:
        """Ask again after a pause."""
        self.count += 1
        due_ms = self._now_ms() + (FIRST_PAUSE_MS << asked.try_count - 1)
        heappush(self._later, (due_ms, self.count, asked))

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`tick` is wanted; None: nothing is to be asked again."""
        return self._later[0][0] if self._later else None

    def tick(self, now_ms: int) -> None:
        """Time has passed: ask again."""
        while self._later and self._later[0][0] <= now_ms:
            asked = heappop(self._later)[2]
            self._submit(asked.request, asked)
