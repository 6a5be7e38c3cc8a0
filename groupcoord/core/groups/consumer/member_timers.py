"""Timers of members of consumer groups: sessions, time to give partitions back, to join again, to sync."""

from __future__ import annotations

from groupcoord.core.groups.base.member_timers import MemberTimers
from groupcoord.core.groups.consumer.group import ConsumerGroup
from groupcoord.core.groups.consumer.reconciliation import MemberState
from groupcoord.core.groups.consumer.records import ConsumerGroupCurrentMemberAssignmentRecord
from groupcoord.core.groups.consumer.state import ConsumerMember
from groupcoord.core.log.records import Record
from groupcoord.core.timers import TimerKind


class ConsumerTimers(MemberTimers[ConsumerGroup, ConsumerMember]):
    """Arms and cancels the timers of members of consumer groups."""

    __slots__ = ()

    def follow(self, group: ConsumerGroup, record: Record, now_ms: int) -> None:
        """Set the timers that follow from a record that is durable now."""
        super().follow(group, record, now_ms)
        if isinstance(record, ConsumerGroupCurrentMemberAssignmentRecord):
            member = group.state.members.get(record.member_id)
            # Else its timers go on, and may find that it has moved on.
            if member is not None and not member.has_left and not member.uses_classic_protocol:
                self._follow_assignment(group, member, now_ms)

    def _follow_assignment(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        if member.assignment.state is MemberState.UNREVOKED_PARTITIONS:
            self.await_revocation(group, member, member.metadata.rebalance_timeout_ms, now_ms)
        else:
            self.end_revocation(group, member.member_id)

    def revive(self, group: ConsumerGroup, now_ms: int, *, uses_own_timeouts: bool) -> None:
        """Set the timers of a group that was made of its records. Every member's session starts now.

        Whoever is to give partitions back has its time for that again, members of the classic protocol too, which have
        no such timer otherwise (``GroupMetadataManager.onLoaded``).

        Args:
            group: the group.
            now_ms: the time.
            uses_own_timeouts: members of the classic protocol have the session time-outs that they brought; else the
                group's.
        """
        timeout_ms = self._environment.settings_of(group.group_id).session_timeout_ms
        for member_id, member in group.state.members.items():
            if uses_own_timeouts:
                self.start_session(group, member, now_ms)
            else:
                self._timers.arm(group.timer(TimerKind.CONSUMER_SESSION, member_id), now_ms + timeout_ms)
            self._follow_assignment(group, member, now_ms)

    def start_session(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        """A member is alive."""
        classic = member.metadata.classic_member_metadata
        timeout_ms = self._environment.settings_of(group.group_id).session_timeout_ms
        if classic is not None:
            timeout_ms = classic.session_timeout_ms
        self._timers.arm(group.timer(TimerKind.CONSUMER_SESSION, member.member_id), now_ms + timeout_ms)

    def await_join(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        """A member of the classic protocol was told to join again, now or before."""
        timer = group.timer(TimerKind.MEMBER_JOIN, member.member_id)
        if timer.deadline_ms is None:
            self._timers.arm(timer, now_ms + member.metadata.rebalance_timeout_ms)

    def await_sync(self, group: ConsumerGroup, member_id: str, now_ms: int) -> None:
        """A member has joined with the classic protocol: it is to sync next."""
        member = group.state.members.get(member_id)
        if member is not None:
            self._timers.cancel(group.timer(TimerKind.MEMBER_JOIN, member_id))
            self.start_session(group, member, now_ms)
            sync_timer = group.timer(TimerKind.MEMBER_SYNC, member_id)
            self._timers.arm(sync_timer, now_ms + member.metadata.rebalance_timeout_ms)

    def synced(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        """A member of the classic protocol has synced."""
        self._timers.cancel(group.timer(TimerKind.MEMBER_SYNC, member.member_id))
        self.start_session(group, member, now_ms)
