"""What a handler leaves behind: answers that may go out now, and appends that the log store must take."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from attrs import define

from groupcoord.core.messages import Response
from groupcoord.core.records import Record
from groupcoord.interpreter import maker

if TYPE_CHECKING:
    from groupcoord.core.continuations import Continuation

Token = Any
"""Whatever the caller gave with a request; it comes back with the answer, once."""


class Reply(NamedTuple):
    """The answer to the request that came with ``token``; None: Kafka never answers it, so nothing is sent."""

    token: Token
    response: Response | None


_make_reply = maker(Reply)


@define(eq=False)
class Append:
    """Please persist ``records`` together, in log partition ``partition``, as its append number ``number``.

    Attributes:
        continuation: what follows when the log store has answered.
    """

    partition: int
    number: int
    records: Sequence[Record]
    continuation: Continuation


class Effects:
    """Collects the outputs of handlers, in order."""

    __slots__ = ("appends", "replies")

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.appends: deque[Append] = deque()

    def reply(self, token: Token, response: Response | None) -> None:
        """Answer a request."""
        self.replies.append(_make_reply((token, response)))
