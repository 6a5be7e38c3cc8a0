"""Groups that the log does not know yet: they are in memory first, and are dropped if their write fails."""

from __future__ import annotations

from groupcoord.core.events import Cause
from groupcoord.core.groups.group import Group
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.offsets.retention import Retention
from groupcoord.errors import ErrorCode


class PendingGroups:
    """Makes the groups of one log partition, and takes them back.

    A group is there for requests at once, and for readers as soon as an append is durable that began after it was made,
    whomever that append is for. So does Kafka 4, which keeps a version of its memory for each write. A group for which
    nothing was written (the commit that made it was refused for all partitions) is soft state alone: a restart forgets
    it, the next check for expired offsets deletes it, and a join that finds it writes no record of an empty group.
    """

    __slots__ = ("_context", "_retention")

    def __init__(self, context: HandlerContext, retention: Retention) -> None:
        self._context = context
        self._retention = retention

    def add(self, group: Group, now_ms: int) -> None:
        """Take in a group that the log does not know yet."""
        writer = self._context.writer
        group.first_append = writer.next_number
        self._context.groups[group.group_id] = group
        writer.unseen.setdefault(group.first_append, []).append(group)
        self._retention.wake(now_ms)

    def undo(self, number: int, error_code: ErrorCode, now_ms: int) -> None:
        """The append ``number`` failed: groups made since the one before never were, unless more of them follows."""
        writer = self._context.writer
        for group in writer.unseen.pop(number, ()):
            followers = (entry.number for entry in writer.in_flight if entry.continuation.concerns(group))
            first_follower = next(followers, None)
            if first_follower is not None:
                group.first_append = first_follower
                writer.unseen.setdefault(first_follower, []).append(group)
            elif self._context.groups.get(group.group_id) is group:
                self._forget(group, error_code, now_ms)

    def _forget(self, group: Group, error_code: ErrorCode, now_ms: int) -> None:
        """Drop a group that never was."""
        # Kafka leaves joins without an answer.
        self._context.effects.replies += group.refuse_waiting(error_code, names_members=False)
        del self._context.groups[group.group_id]
        self._context.end(group, Cause.CREATION_FAILED, now_ms)
