"""Row of classic groups in the table of group types: handlers, descriptions, loads."""

from __future__ import annotations

from collections.abc import Mapping

from groupcoord.config import GroupType
from groupcoord.core.events import Cause, Trigger
from groupcoord.core.groups.classic.group import GroupMetadata, GroupState
from groupcoord.core.groups.classic.membership import ClassicMembership
from groupcoord.core.groups.classic.rebalance import CAN_REBALANCE, Rebalance
from groupcoord.core.groups.group import Group, why_not_found
from groupcoord.core.handler_context import GroupKind, HandlerContext
from groupcoord.core.log.records import CLASSIC_GROUP_KEY
from groupcoord.core.messages import (
    DescribedGroup,
    DescribeGroups,
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    LeaveGroup,
    SyncGroup,
)
from groupcoord.core.timers import TimerKind
from groupcoord.errors import ErrorCode


class ClassicGroups(GroupKind):
    """Handlers of classic groups."""

    group_class = GroupMetadata
    describe_request = DescribeGroups
    record_types = frozenset({CLASSIC_GROUP_KEY[0]})

    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self.rebalance = rebalance = Rebalance(context)
        self.membership = membership = ClassicMembership(context, rebalance)
        self.create = membership.create
        self.join = membership.join
        self.handlers = {
            JoinGroup: membership.join,
            SyncGroup: membership.sync,
            Heartbeat: membership.heartbeat,
            LeaveGroup: membership.leave,
        }
        # Requests of other protocols convert the group or fail in handlers of their type.
        self.guest_handlers = {}
        self.timers = {
            TimerKind.SESSION: rebalance.on_session_timer,
            TimerKind.JOIN: rebalance.on_join_timer,
            TimerKind.SYNC: rebalance.on_sync_timer,
        }

    def describe(self, group_id: str) -> DescribedGroup:
        group = self._context.visible(group_id)
        if isinstance(group, GroupMetadata):
            return group.described()
        error_message = why_not_found(group, group_id, GroupType.CLASSIC)
        return DescribedGroup(group_id, ErrorCode.GROUP_ID_NOT_FOUND, error_message, GroupState.DEAD.value)

    def begin_rebalance(self, group: Group, now_ms: int) -> bool:
        assert isinstance(group, GroupMetadata)
        if group.is_empty or group.state not in CAN_REBALANCE:
            return False
        self.rebalance.start(group, Trigger(Cause.LEADER_REJOIN), now_ms)
        return True

    def load(self, group_id: str, now_ms: int) -> None:
        group = self.bring_to_life(group_id, now_ms)
        self._context.observer.group_loaded(group_id, group.generation_id, len(group.members), now_ms)
        # A lowered limit shrinks a loaded group by a rebalance, and the first to rejoin stay (KAFKA-7641).
        if len(group.members) > self._context.config.group_max_size:
            self.rebalance.start(group, Trigger(Cause.LOAD), now_ms)

    def bring_to_life(self, group_id: str, now_ms: int) -> GroupMetadata:
        record = self._context.writer.hard.classic_record(group_id)
        if record is None:
            # The log has only offsets: a simple group, without a state timestamp.
            group = GroupMetadata(group_id, self._context.partition, None)
        else:
            group = GroupMetadata.from_record(record, self._context.partition)
        self._context.groups[group_id] = group
        for member in group.members.values():
            # The log has no heartbeats, so all sessions start with the load.
            self.rebalance.renew_session(member, now_ms)
        return group

    def go_on(
        self,
        group: GroupMetadata,
        protocols: Mapping[str, tuple[JoinProtocol, ...]],
        trigger: Trigger | None,
        now_ms: int,
    ) -> None:
        """Continue with a converted group."""
        for member_id, supported in protocols.items():
            member = group.members[member_id]
            # The record has only the chosen protocol; members offered more.
            group.update(member, supported, member.rebalance_timeout_ms, member.session_timeout_ms)
        if trigger is not None:
            self.rebalance.start(group, trigger, now_ms)
