"""Requests for the share coordinator: brokers send them, and whoever wants to look into a share group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupcoord.broker.answering import answers
from groupcoord.broker.bounds import holds_more
from groupcoord.broker.connection import Connection
from groupcoord.broker.share.coordination import ShareCoordination
from groupcoord.broker.work import Answer, Work
from groupcoord.core.messages.share_state import (
    DeleteShareGroupState,
    InitializeShareGroupState,
    ReadShareGroupState,
    ReadShareGroupStateSummary,
    ShareStateRequest,
    WriteShareGroupState,
)
from groupcoord.errors import ErrorCode
from groupcoord.wire import WireResponse

if TYPE_CHECKING:
    from groupcoord.coordinator.share_coordinator import ShareCoordinator

ENTRIES_AT_ONCE = 50
"""A request of no more share-partitions and batches of states is answered in one step."""


class ShareStateRequests:
    """Answers what is asked about the states of share-partitions; any node does.

    Args:
        share: the share coordinator.
    """

    def __init__(self, share: ShareCoordination) -> None:
        self._share = share

    @answers(
        InitializeShareGroupState,
        ReadShareGroupState,
        WriteShareGroupState,
        DeleteShareGroupState,
        ReadShareGroupStateSummary,
    )
    def answer(
        self, connection: Connection, request: ShareStateRequest
    ) -> WireResponse | Work[WireResponse | None] | None:
        """Initialize, read, write, delete or summarize states; many of them in steps."""
        coordinator = self._share.coordinator
        if coordinator is None:
            return request.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if holds_more(request, ENTRIES_AT_ONCE):
            return self._answer_in_steps(coordinator, request, connection)
        coordinator.submit(request, connection, connection.principal)
        self._share.deliver_replies()
        return None

    def _answer_in_steps(
        self, coordinator: ShareCoordinator, request: ShareStateRequest, connection: Connection
    ) -> Work[WireResponse]:
        answer, principal = Answer(), connection.principal
        for _ in coordinator.submit_in_steps(request, answer, principal):
            yield None
        self._share.deliver_replies()
        if not answer.is_done:
            yield answer
        response: WireResponse = answer.response
        return response
