"""Observer of groups: events while they are on, and counters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from groupcoord.core.events import (
    AppendFailures,
    Cause,
    Counters,
    Event,
    GroupLoaded,
    GroupRemoved,
    MemberAdded,
    MemberAssigned,
    MemberRemoved,
    MemberReplaced,
    OwnershipLost,
    RebalanceCompleted,
    RebalanceStarted,
    Trigger,
)

if TYPE_CHECKING:
    from groupcoord.core.groups.base.group import ModernGroup
    from groupcoord.core.groups.base.state import DraftedEvent, ModernGroupState
    from groupcoord.core.groups.classic.group import GroupMetadata, MemberMetadata
    from groupcoord.core.groups.group import Group

MAX_TRIGGERS = 16
"""A rebalance that is started over again and again remembers its first reasons only."""

REMOVALS = (Cause.LEAVE, Cause.SESSION_EXPIRY, Cause.REBALANCE_TIMEOUT, Cause.SYNC_TIMEOUT)
"""Causes of epochs that Kafka's ``consumer-group-rebalance-count`` does not count."""


class OpenRebalance(NamedTuple):
    """Rebalance in progress: its start, the generation before and the causes."""

    started_ms: int
    generation_id: int
    triggers: tuple[Trigger, ...]


class Observer:
    """Records events of groups while they are on, and counters.

    Attributes:
        events: events since the last call of ``take_events``; None while they are off.
        append_failures: log partition → failed appends since the last call of ``take_append_failures``.
    """

    NOT_COUNTED = ("_open_rebalances", "append_failures", "counters", "events")

    __slots__ = ("_open_rebalances", "append_failures", "counters", "events")

    def __init__(self) -> None:
        self.counters = Counters()
        self.events: list[Event] | None = None
        self.append_failures: dict[int, AppendFailures] = {}
        self._open_rebalances: dict[str, OpenRebalance] = {}

    def _add(self, event: Callable[..., Event], group: Any, now_ms: int, *facts: Any) -> None:
        if self.events is not None:
            self.events.append(event(group.group_id, now_ms, *facts))

    def member_added(self, group: GroupMetadata, member: MemberMetadata, now_ms: int) -> None:
        if self.events is not None:
            sender = member.client_id, member.client_host
            self._add(MemberAdded, group, now_ms, member.member_id, member.group_instance_id, *sender)

    def member_removed(self, group: GroupMetadata, member: MemberMetadata, cause: Cause, now_ms: int) -> None:
        if cause is Cause.SESSION_EXPIRY:
            self.counters.session_expirations += 1
        self._add(MemberRemoved, group, now_ms, member.member_id, member.group_instance_id, cause)

    def member_replaced(self, group: GroupMetadata, old_member_id: str, member: MemberMetadata, now_ms: int) -> None:
        self._add(MemberReplaced, group, now_ms, old_member_id, member.member_id, member.group_instance_id)

    def members_assigned(self, group: GroupMetadata, now_ms: int) -> None:
        if self.events is not None:
            for member_id, member in group.members.items():
                assigned = group.generation_id, member.assignment
                self._add(MemberAssigned, group, now_ms, member_id, member.group_instance_id, *assigned)

    def assignments_changed(
        self, before: ModernGroupState[Any, Any] | None, after: ModernGroupState[Any, Any], now_ms: int
    ) -> None:
        # Drafts copy members on write, so the same mapping means no change.
        if self.events is None or (before is not None and before.members is after.members):
            return
        for member_id, member in after.members.items():
            known = None if before is None else before.members.get(member_id)
            assignment = member.assignment
            is_same = known is not None and (
                known.assignment.member_epoch == assignment.member_epoch
                and known.assignment.assigned == assignment.assigned
            )
            # A static member that left temporarily keeps its assignment, and has no process to notify.
            if not (is_same or member.has_left):
                assigned = assignment.member_epoch, assignment.by_topic()
                self._add(MemberAssigned, after, now_ms, member_id, member.metadata.instance_id, *assigned)

    def rebalance_started(self, group: GroupMetadata, trigger: Trigger, now_ms: int) -> None:
        if self.events is not None:
            started = RebalanceStarted(group.group_id, now_ms, group.generation_id, trigger)
            self.events.append(started)
            self._open(started)

    def rebalance_completed(self, group: GroupMetadata, now_ms: int) -> None:
        if group.members:
            self.counters.group_completed_rebalances += 1
        self._close(group.group_id, group.generation_id, len(group.members), now_ms)

    def _open(self, started: RebalanceStarted) -> None:
        rebalance = self._open_rebalances.get(started.group_id)
        # A restart keeps the first start, so that the duration is the members' wait.
        rebalance = rebalance or OpenRebalance(started.at_ms, started.generation_id, ())
        if len(rebalance.triggers) < MAX_TRIGGERS:
            rebalance = rebalance._replace(triggers=(*rebalance.triggers, started.trigger))
        self._open_rebalances[started.group_id] = rebalance

    def _close(self, group_id: str, generation_id: int, member_count: int, now_ms: int) -> None:
        rebalance = self._open_rebalances.pop(group_id, None)
        # No start is known if events were off at that time.
        if self.events is not None and rebalance is not None:
            old_id, duration_ms = rebalance.generation_id, now_ms - rebalance.started_ms
            self.events.append(
                RebalanceCompleted(
                    group_id, now_ms, old_id, generation_id, rebalance.triggers, duration_ms, member_count
                )
            )

    def announce(self, group_id: str, group_type: str, drafted: Iterable[DraftedEvent], now_ms: int) -> None:
        """Record the events of a durable draft."""
        for event_class, facts in drafted:
            if event_class is MemberRemoved:
                self.counters.session_expirations += facts[-1] is Cause.SESSION_EXPIRY
            elif event_class is RebalanceStarted and facts[-1].cause not in REMOVALS:
                self.counters.count_rebalance(group_type)
            if self.events is not None:
                event = event_class(group_id, now_ms, *facts)
                self.events.append(event)
                if isinstance(event, RebalanceStarted):
                    self._open(event)

    def look_at_rebalance(self, group: ModernGroup[Any], now_ms: int) -> None:
        """Complete a rebalance if the group has settled."""
        if group.group_id in self._open_rebalances and not group.is_rebalancing:
            self._close(group.group_id, group.state.epoch, len(group.state.members), now_ms)

    def offsets_removed(self, count: int, cause: Cause) -> None:
        if cause is Cause.EXPIRY:
            self.counters.offset_expirations += count
        else:
            self.counters.offset_deletions += count

    def append_failed(self, partition: int, reason: str, next_log_offset: int) -> None:
        self.counters.append_failures += 1
        before = self.append_failures.get(partition)
        # One entry a partition, so that a dead log does not fill memory.
        count = 1 if before is None else before.count + 1
        self.append_failures[partition] = AppendFailures(count, reason, next_log_offset)

    def forget_untold(self, is_meant: Callable[[Event], bool] = lambda event: True) -> None:
        """Discard undelivered events, which may no longer be true."""
        if self.events is not None:
            self.events = [event for event in self.events if not is_meant(event)]

    def ownership_lost(self, now_ms: int) -> None:
        self.forget_untold()
        if self.events is not None:
            self.events.append(OwnershipLost("", now_ms))

    def partition_loaded(self, duration_ms: int) -> None:
        self.counters.partition_loads += 1
        self.counters.partition_load_ms += duration_ms

    def group_loaded(self, group_id: str, generation_id: int, member_count: int, now_ms: int) -> None:
        if self.events is not None:
            self.events.append(GroupLoaded(group_id, now_ms, generation_id, member_count))

    def group_removed(self, group: Group, cause: Cause, now_ms: int) -> None:
        self._open_rebalances.pop(group.group_id, None)
        self._add(GroupRemoved, group, now_ms, cause)
