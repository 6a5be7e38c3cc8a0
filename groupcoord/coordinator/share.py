"""Share groups (KIP-932) in programs that embed both coordinators: one asks the other."""

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
    """What share groups need, where their share coordinator is in the same program: ``GroupCoordinator(share=…)``.

    Args:
        states: the share coordinator.
        settings_of: says what holds for a share group, by its id; what the configuration of ``states`` says if left
            out.
        latest_offset: returns the offset behind the last record of a topic's partition, for the lag of groups, or None;
            nobody knows if left out.

    Attributes:
        states: as given.
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
        """Return what the share coordinator answers; None if its log answers later."""
        awaited = AwaitedAnswer(question, self._found.append)
        self.states.submit(question.request, awaited, is_own=True)
        self._sort_replies()
        return awaited.now_or_late()

    def take_replies(self, coordinator: GroupCoordinator) -> list[StateReply]:
        """Pass on to the group coordinator what it has waited for, and return the other answers since the last call.

        Whoever has a log store that answers later calls it after that has answered.
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
