"""Share groups (KIP-932) in programs that embed both coordinators."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.coordinator.group_coordinator import GroupCoordinator
from groupcoord.coordinator.share_coordinator import ShareCoordinator, StateReply
from groupcoord.core.host_queries import (
    AskShareCoordinator,
    AwaitedAnswer,
    LatestOffset,
    ShareCoordinatorAnswered,
    known_ends,
)


class EmbeddedShare:
    """Host of share groups with a share coordinator in the same program: ``GroupCoordinator(share=…)``.

    Args:
        states: the share coordinator.
        settings_of: returns the settings of a share group by its id; those in the configuration of ``states`` if left
            out.
        latest_offset: returns the end offset of a partition for the lag of groups, or None; unknown if left out.

    Attributes:
        states: the share coordinator.
    """

    def __init__(
        self,
        states: ShareCoordinator,
        *,
        settings_of: Callable[[str], ShareGroupSettings] | None = None,
        latest_offset: LatestOffset | None = None,
    ) -> None:
        usual = ShareGroupSettings.of(states.config)
        self.states = states
        self.settings_of = settings_of or (lambda group_id: usual)
        self._latest_offset = latest_offset or (lambda topic, partition: None)
        self._found: deque[ShareCoordinatorAnswered] = deque()
        self._replies: list[StateReply] = []

    def ask(self, question: AskShareCoordinator) -> ShareCoordinatorAnswered | None:
        """Return the response of the share coordinator, or None if its log answers later."""
        awaited = AwaitedAnswer(question, self._found.append)
        self.states.submit(question.request, awaited, is_own=True)
        self._sort_replies()
        return awaited.now_or_late()

    def take_replies(self, coordinator: GroupCoordinator) -> list[StateReply]:
        """Pass responses to the waiting group coordinator, and return the other ones since the last call.

        A program whose log store answers later calls it after each answer.
        """
        self._sort_replies()
        while self._found:
            coordinator.found_out(self._found.popleft())
            self._sort_replies()
        replies, self._replies = self._replies, []
        return replies

    def _sort_replies(self) -> None:
        for reply in self.states.take_replies():
            if isinstance(reply.token, AwaitedAnswer):
                question, response = reply.token.question, reply.response
                ends = known_ends(question.ends_wanted(response), self._latest_offset)
                reply.token.found_out(ShareCoordinatorAnswered(question, response, ends))
            else:
                self._replies.append(reply)
