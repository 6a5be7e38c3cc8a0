"""Timers of streams groups: sessions of members, their time to give tasks back, the time to wait for more members."""

from __future__ import annotations

from groupcoord.core.groups.base.member_timers import MemberTimers
from groupcoord.core.groups.streams.group import StreamsGroup
from groupcoord.core.groups.streams.reconciliation import TaskState
from groupcoord.core.groups.streams.records import StreamsGroupCurrentMemberAssignmentRecord
from groupcoord.core.groups.streams.state import StreamsMember
from groupcoord.core.log.records import Record
from groupcoord.core.timers import TimerKind


class StreamsTimers(MemberTimers[StreamsGroup, StreamsMember]):
    """Arms and cancels the timers of streams groups."""

    __slots__ = ()

    def follow(self, group: StreamsGroup, record: Record, now_ms: int) -> None:
        """Set the timers that follow from a record that is durable now."""
        super().follow(group, record, now_ms)
        if isinstance(record, StreamsGroupCurrentMemberAssignmentRecord):
            member = group.state.members.get(record.member_id)
            if member is not None and not member.has_left:  # else its timers go on, and may find that it has moved on
                self.follow_assignment(group, member, now_ms)

    def follow_assignment(self, group: StreamsGroup, member: StreamsMember, now_ms: int) -> None:
        """A member has to give tasks back, or not."""
        if member.assignment.state is TaskState.UNREVOKED_TASKS:
            self.await_revocation(group, member, member.metadata.rebalance_timeout_ms, now_ms)
        else:
            self.end_revocation(group, member.member_id)

    def revive(self, group: StreamsGroup, now_ms: int) -> None:
        """Set the timers of a group that was made of its records. Every member's session starts now."""
        for member in group.state.members.values():
            self.start_session(group, member, now_ms)
            self.follow_assignment(group, member, now_ms)

    def is_delayed(self, group: StreamsGroup, *, was_empty: bool, delay_ms: int, now_ms: int) -> bool:
        """Tell whether a group still waits for more members before it assigns tasks.

        Args:
            group: the group.
            was_empty: nobody was in it before: it waits from now on, unless it does already.
            delay_ms: for how long.
            now_ms: the time.
        """
        timer = group.timer(TimerKind.ASSIGNMENT_DELAY, "")
        if was_empty and delay_ms > 0 and timer.deadline_ms is None:
            self.begin_delay(group, now_ms + delay_ms)
        return timer.deadline_ms is not None

    def begin_delay(self, group: StreamsGroup, until_ms: int) -> None:
        """Let a group wait for more members."""
        self._timers.arm(group.timer(TimerKind.ASSIGNMENT_DELAY, ""), until_ms)

    def take_delay(self, group: StreamsGroup) -> int | None:
        """Let a group that is none yet wait no longer; return until when it would have waited, None if it didn't."""
        timer = group.timer(TimerKind.ASSIGNMENT_DELAY, "")
        until_ms = timer.deadline_ms
        self._timers.cancel(timer)
        return until_ms
