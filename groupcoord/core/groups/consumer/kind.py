"""Consumer groups (KIP-848) as a kind of group: who takes what for them, and how a load makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groupcoord.core.groups.base.kind import ModernGroups
from groupcoord.core.groups.classic.kind import ClassicGroups
from groupcoord.core.groups.consumer.classic_requests import ClassicRequests
from groupcoord.core.groups.consumer.conversion import ConsumerConversion, WhenConsumerGroupConverted
from groupcoord.core.groups.consumer.environment import ConsumerGroupEnvironment
from groupcoord.core.groups.consumer.group import ConsumerGroup
from groupcoord.core.groups.consumer.member_timers import ConsumerTimers
from groupcoord.core.groups.consumer.membership import ConsumerMembership
from groupcoord.core.groups.pending_groups import Creation
from groupcoord.core.handler_context import Handler, HandlerContext
from groupcoord.core.host_queries import ResolvedRegexes
from groupcoord.core.messages import (
    ConsumerGroupDescribe,
    DescribedConsumerGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from groupcoord.core.outputs import Outcome


class ConsumerGroups(ModernGroups[ConsumerGroup]):
    """Handlers of consumer groups; see :class:`~groupcoord.core.groups.group_types.GroupKind`."""

    DESCRIBE = ConsumerGroupDescribe
    DESCRIBED = DescribedConsumerGroup

    def __init__(
        self, context: HandlerContext, creation: Creation, environment: ConsumerGroupEnvironment, classic: ClassicGroups
    ) -> None:
        self._timers = ConsumerTimers(context.timers, environment)
        conversion = ConsumerConversion(context, environment, self._timers, classic, self.convert)
        membership = ConsumerMembership(context, creation, environment, self._timers, conversion)
        super().__init__(context, environment, membership)
        classic_requests = ClassicRequests(context, environment, self._timers)
        self.guest_handlers: dict[type, Handler] = {
            JoinGroup: membership.join,
            SyncGroup: classic_requests.sync,
            Heartbeat: classic_requests.heartbeat,
            LeaveGroup: membership.leave,
        }
        self.answers: dict[type, Callable[[Any, int], None]] = {ResolvedRegexes: membership.regexes_resolved}
        self.outcomes[WhenConsumerGroupConverted] = Outcome(conversion.on_durable, conversion.on_failure)

    def make_of_records(self, group_id: str) -> ConsumerGroup:
        """Make the group of what the log has of it, without its timers."""
        group = super().make_of_records(group_id)
        versions = [record.version for record in group.state.resolved.values()]
        topics = self._environment.topics
        topics.version = max(topics.version, *versions, 0)
        return group

    def revive(self, group: ConsumerGroup, now_ms: int) -> None:
        """Start every member's session, of the length that Kafka takes for all of the group after a load."""
        self._timers.revive(group, now_ms, uses_own_timeouts=False)

    def convert(self, group_id: str, now_ms: int) -> ConsumerGroup:
        """Make the group of what the log has of it, of which it has just become one."""
        group = self.make_of_records(group_id)
        self._timers.revive(group, now_ms, uses_own_timeouts=True)
        return group
