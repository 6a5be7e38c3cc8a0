"""Consumer groups (KIP-848) as a kind of group: who takes what for them, and how a load makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groupcoord.core.classic.kind import ClassicGroups
from groupcoord.core.consumer.classic_requests import ClassicRequests
from groupcoord.core.consumer.conversion import Conversion, WhenConverted
from groupcoord.core.consumer.environment import GroupEnvironment
from groupcoord.core.consumer.group import MEMBER_TIMERS, ConsumerGroup
from groupcoord.core.consumer.member_timers import MemberTimers
from groupcoord.core.consumer.membership import ConsumerMembership, WhenDrafted
from groupcoord.core.consumer.state import RECORD_TYPES, ConsumerState
from groupcoord.core.context import Handler, HandlerContext
from groupcoord.core.creation import Creation
from groupcoord.core.effects import Continuation, Outcome
from groupcoord.core.messages import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    DescribedConsumerGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from groupcoord.core.questions import ResolvedRegexes
from groupcoord.core.replies import Token
from groupcoord.errors import ErrorCode


class ConsumerGroups:
    """The row of consumer groups in the table of :mod:`~groupcoord.core.kinds`; what its parts are is said there."""

    group_class = ConsumerGroup
    record_types = RECORD_TYPES

    def __init__(
        self, context: HandlerContext, creation: Creation, environment: GroupEnvironment, classic: ClassicGroups
    ) -> None:
        self._context = context
        self._environment = environment
        self._timers = MemberTimers(context.timers, environment)
        conversion = Conversion(context, environment, self._timers, classic, self._revive)
        membership = ConsumerMembership(context, creation, environment, self._timers, conversion)
        classic_requests = ClassicRequests(context, environment, self._timers)
        self.handlers: dict[type, Handler] = {ConsumerGroupHeartbeat: membership.heartbeat}
        self.guest_handlers: dict[type, Handler] = {
            JoinGroup: membership.join,
            SyncGroup: classic_requests.sync,
            Heartbeat: classic_requests.heartbeat,
            LeaveGroup: membership.leave,
        }
        self.repeaters: dict[type, Callable[[Any, Token, int], bool]] = {ConsumerGroupHeartbeat: membership.beat_again}
        self.answers: dict[type, Callable[[Any, int], None]] = {ResolvedRegexes: membership.regexes_resolved}
        self.descriptions: dict[type, Callable[[str], Any]] = {ConsumerGroupDescribe: self._describe}
        self.timers = dict.fromkeys(MEMBER_TIMERS, membership.on_timer)
        self.outcomes: dict[type[Continuation], Outcome] = {
            WhenDrafted: Outcome(membership.on_durable, membership.on_failure, membership.on_overdue),
            WhenConverted: Outcome(conversion.on_durable, conversion.on_failure),
        }
        self.begin_rebalance = membership.begin_rebalance

    def _describe(self, group_id: str) -> DescribedConsumerGroup:
        group = self._context.visible(group_id)
        if isinstance(group, ConsumerGroup):
            return group.described()
        message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        return DescribedConsumerGroup(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)

    def load(self, group_id: str, now_ms: int) -> None:
        """A load is over: make the group of what the log has of it."""
        state = self._bring_to_life(group_id, now_ms, uses_own_timeouts=False).state
        self._context.observer.group_loaded(group_id, state.epoch, len(state.members), now_ms)

    def _revive(self, group_id: str, now_ms: int) -> ConsumerGroup:
        return self._bring_to_life(group_id, now_ms, uses_own_timeouts=True)

    def _bring_to_life(self, group_id: str, now_ms: int, *, uses_own_timeouts: bool) -> ConsumerGroup:
        """Make the group of what the log has of it. Every member's session starts now.

        Args:
            group_id: the group.
            now_ms: the time.
            uses_own_timeouts: members of the classic protocol have the session time-outs that they brought. After a
                load Kafka takes the group's for all.
        """
        context = self._context
        group = ConsumerGroup(group_id, context.partition, self._environment)
        group.state = ConsumerState.of(
            group_id, [record for _, record in context.writer.hard.groups[group_id].values()]
        )
        context.groups[group_id] = group
        context.has_modern_groups = True
        versions = [record.version for record in group.state.resolved.values()]
        self._environment.topics_version = max(self._environment.topics_version, *versions, 0)
        self._timers.revive(group, now_ms, uses_own_timeouts=uses_own_timeouts)
        return group
