"""Timers of members: sessions, and time to give something back. They follow from what is durable.

A member has a session from its first record on, and time to give something back from the record on that says so.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from groupcoord.core.groups.base.environment import GroupEnvironment
from groupcoord.core.groups.base.group import ModernGroup
from groupcoord.core.groups.base.state import MemberT
from groupcoord.core.log.records import GroupTombstone, Record
from groupcoord.core.timers import TimerQueue

FENCING_RETRY_MS = 500
"""After so long a timer fires again whose consequence could not be written (Kafka's ``CoordinatorTimerImpl``)."""

GroupT = TypeVar("GroupT", bound=ModernGroup[Any])


class MemberTimers(Generic[GroupT, MemberT]):
    """Arms and cancels the timers of members.

    Args:
        timers: where they are.
        environment: how long sessions are.
    """

    __slots__ = ("_environment", "_timers")

    def __init__(self, timers: TimerQueue, environment: GroupEnvironment[Any, Any]) -> None:
        self._environment = environment
        self._timers = timers

    def follow(self, group: GroupT, record: Record, now_ms: int) -> None:
        """Set the timers that follow from a record that is durable now."""
        told = group.STATE.RECORDS_OF_MEMBER[-1]  # what a member tells of itself
        if isinstance(record, told):
            member = group.state.members.get(record.member_id)
            if member is not None and group.timer(group.SESSION, record.member_id).deadline_ms is None:
                self.start_session(group, member, now_ms)
        elif isinstance(record, GroupTombstone):
            record_type, member_id = record.key
            if record_type == told.RECORD_TYPE and member_id not in group.state.members:
                for timer in group.drop_timers(member_id):
                    self._timers.cancel(timer)

    def await_revocation(self, group: GroupT, member: MemberT, timeout_ms: int, now_ms: int) -> None:
        """A member has to give something back."""
        assert group.REVOCATION is not None
        group.revoking_epochs[member.member_id] = member.member_epoch
        self._timers.arm(group.timer(group.REVOCATION, member.member_id), now_ms + timeout_ms)

    def end_revocation(self, group: GroupT, member_id: str) -> None:
        """A member need not give anything back, or not any more."""
        assert group.REVOCATION is not None
        known = group.known_timer(group.REVOCATION, member_id)
        if known is not None:
            self._timers.cancel(known)

    def start_session(self, group: GroupT, member: MemberT, now_ms: int) -> None:
        """A member is alive."""
        timeout_ms = self._environment.settings_of(group.group_id).session_timeout_ms
        self._timers.arm(group.timer(group.SESSION, member.member_id), now_ms + timeout_ms)

    def retry_fencing(self, group: GroupT, now_ms: int) -> None:
        """Whom the log has kept from being removed goes later, unless a sign of life has come."""
        fencing, group.fencing = group.fencing, []
        for key in fencing:
            timer = group.timer(key.kind, key.member_id)
            if timer.deadline_ms is None and key.member_id in group.state.members:
                self._timers.arm(timer, now_ms + FENCING_RETRY_MS)
