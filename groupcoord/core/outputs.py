"""What a handler leaves behind: answers that may go out now, and appends that the log store must take."""

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
    """Consequence of an append besides the answers that it holds (:attr:`Append.held`).

    Small data, so that a core can be copied and printed. Its methods get the
    :class:`~groupcoord.core.handler_context.HandlerContext` of the log partition.
    """

    __slots__ = ()

    def on_durable(self, context: Any, now_ms: int) -> None:
        """Act on records that are in the log."""

    def on_refused(self, context: Any, error_code: ErrorCode, now_ms: int) -> None:
        """Act on records that are not in the log and never will be; ``error_code`` is what clients see."""

    def on_overdue(self, context: Any, error_code: ErrorCode, now_ms: int) -> None:
        """Act on an append that takes longer than ``offsets.commit.timeout.ms``; its outcome is still to come."""

    @property
    def suspended(self) -> Sequence[Group]:
        """The groups whose requests and timers wait until the log has answered, and then go on."""
        return ()

    def concerns(self, group: Group) -> bool:
        """Return whether the append is about a group: that it was begun says that the group is there."""
        return False

    def parked_tokens(self) -> list[Token]:
        """Return the tokens of requests that have still to be taken when the log has answered."""
        return []


@define(eq=False)
class Append:
    """Please persist ``records`` together, in log partition ``partition``, as its append number ``number``.

    Attributes:
        continuation: what follows when the log store has answered.
        held: the answers that leave when the records are durable. Refusals take their place when they are not, or when
            that takes too long; nobody waits after that.
    """

    partition: int
    number: int
    records: Sequence[Record]
    continuation: Continuation
    held: list[Reply]


class Effects:
    """Collects the outputs of handlers, in order."""

    NOT_COUNTED = ("appends", "questions", "replies")

    __slots__ = ("appends", "questions", "replies")

    def __init__(self) -> None:
        self.questions: deque[Question] = deque()
        self.replies: list[Reply] = []
        self.appends: deque[Append] = deque()

    def reply(self, token: Token, response: Response | None) -> None:
        """Answer a request."""
        self.replies.append(_make_reply((token, response)))
