"""Outputs of handlers: replies, appends and host queries."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from attrs import define

from groupcoord.core.fast_construct import maker
from groupcoord.core.groups.group import Group
from groupcoord.core.host_queries import Question
from groupcoord.core.log.records import Record
from groupcoord.core.messages import Response
from groupcoord.core.replies import Reply, Token
from groupcoord.errors import ErrorCode

_make_reply = maker(Reply)


class Continuation:
    """Consequence of an append apart from the responses that it holds (:attr:`Append.held`).

    It is small data, so that a core can be copied and printed. ``context`` is the log partition's
    :class:`~groupcoord.core.handler_context.HandlerContext`.
    """

    __slots__ = ()

    def on_durable(self, context: Any, now_ms: int) -> None:
        """Act on records that are in the log."""

    def on_refused(self, context: Any, error_code: ErrorCode, now_ms: int) -> None:
        """Handle an append that is not in the log; clients see ``error_code``."""

    def on_overdue(self, context: Any, error_code: ErrorCode, now_ms: int) -> None:
        """Handle an append without an outcome after ``offsets.commit.timeout.ms``."""

    @property
    def suspended(self) -> Sequence[Group]:
        """Groups with requests and timers that wait for the log's answer."""
        return ()

    def concerns(self, group: Group) -> bool:
        """Return whether the append makes this group exist."""
        return False

    def parked_tokens(self) -> list[Token]:
        return []


@define(eq=False)
class Append:
    """Append of ``records`` to a log partition, with its sequence number.

    Attributes:
        continuation: the consequence of the log store's answer.
        held: responses that are sent when the records are durable; after a failure or timeout, errors replace them.
    """

    partition: int
    number: int
    records: Sequence[Record]
    continuation: Continuation
    held: list[Reply]


class Effects:
    """Collects the outputs of handlers, in order."""

    # A fingerprint is taken between inputs, when only replies may be left.
    NOT_COUNTED = ("appends", "questions", "replies")

    __slots__ = ("appends", "questions", "replies")

    def __init__(self) -> None:
        # Deques, because the coordinator empties them while handlers add to them.
        self.questions: deque[Question] = deque()
        self.replies: list[Reply] = []
        self.appends: deque[Append] = deque()

    def reply(self, token: Token, response: Response | None) -> None:
        self.replies.append(_make_reply((token, response)))
