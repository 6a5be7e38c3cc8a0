"""What a handler leaves behind: answers that may go out now, and appends that the log store must take."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, frozen

from groupcoord.core.fast_construct import maker
from groupcoord.core.groups.group import Group
from groupcoord.core.host_queries import Question
from groupcoord.core.log.records import Record
from groupcoord.core.messages import Response
from groupcoord.core.replies import Reply, Token
from groupcoord.errors import ErrorCode

_make_reply = maker(Reply)


class Continuation:
    """What follows when the log has answered an append: small data, so that a core can be copied and printed.

    Each kind of it has its :class:`Outcome` in a table of :class:`~groupcoord.core.partition.Partition`. Whose answers
    wait for the append is not its business: see :attr:`Append.held`.
    """

    __slots__ = ()

    @property
    def suspended(self) -> Sequence[Group]:
        """The groups whose requests and timers wait until the log has answered, and then go on."""
        return ()

    def concerns(self, group: Group) -> bool:
        """Tell whether the append is about a group: that it was begun says that the group is there."""
        return False

    def parked_tokens(self) -> list[Token]:
        """Return the tokens of requests that have still to be taken when the log has answered."""
        return []


def _nothing(written: Continuation, *_: object) -> None:
    """Nothing follows."""


@frozen
class Outcome:
    """What follows an append besides the answers that it holds, as the log decides.

    Attributes:
        durable: its records are in the log.
        refused: they are not, and never will be; the error is what clients see.
        overdue: nobody waits longer (``offsets.commit.timeout.ms``). Durable or refused is still to come.
    """

    durable: Callable[[Any, int], None] = _nothing
    refused: Callable[[Any, ErrorCode, int], None] = _nothing
    overdue: Callable[[Any, ErrorCode, int], None] = _nothing


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

    __slots__ = ("appends", "questions", "replies")

    def __init__(self) -> None:
        self.questions: deque[Question] = deque()
        self.replies: list[Reply] = []
        self.appends: deque[Append] = deque()

    def reply(self, token: Token, response: Response | None) -> None:
        """Answer a request."""
        self.replies.append(_make_reply((token, response)))
