"""When appends take too long (``offsets.commit.timeout.ms``): whoever waits for one is told, the log is not."""

from __future__ import annotations

from collections import deque

from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.outputs import Append
from groupcoord.core.timers import Timer, TimerKey, TimerKind


class AppendTimeouts:
    """The deadlines of appends that the log store did not answer at once, of one context.

    A store that answers at once costs nothing here, and any other one number for each append: the one timer stands
    for the oldest, and what was answered since is passed over when it fires.

    Attributes:
        timer: fires when an append may be overdue.
    """

    __slots__ = ("_context", "_deadlines", "timer")

    def __init__(self, context: HandlerContext) -> None:
        self.timer = Timer(TimerKey(TimerKind.APPEND, context.partition))
        self._context = context
        self._deadlines: deque[tuple[int, int]] = deque()

    def begin(self, number: int, now_ms: int) -> None:
        """An append has been handed to the log store, whose answer comes later."""
        self._drop_answered()
        deadline_ms = now_ms + self._context.config.offsets_commit_timeout_ms
        self._deadlines.append((number, deadline_ms))
        if self.timer.deadline_ms is None:
            self._context.timers.arm(self.timer, deadline_ms)

    def take_overdue(self, now_ms: int) -> list[Append]:
        """Return the appends that are overdue since the last call, oldest first."""
        self._drop_answered()
        in_flight = self._context.writer.in_flight
        overdue = []
        while self._deadlines and self._deadlines[0][1] <= now_ms:
            number, _ = self._deadlines.popleft()
            overdue.append(in_flight[number - in_flight[0].number])
        if self._deadlines:
            self._context.timers.arm(self.timer, self._deadlines[0][1])
        return overdue

    def _drop_answered(self) -> None:
        in_flight, deadlines = self._context.writer.in_flight, self._deadlines
        oldest = in_flight[0].number if in_flight else self._context.writer.next_number
        while deadlines and deadlines[0][0] < oldest:
            deadlines.popleft()
