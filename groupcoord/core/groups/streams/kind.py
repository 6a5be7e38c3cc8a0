"""Streams groups (KIP-1071) as a kind of group: who takes what for them, and how a load makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groupcoord.core.groups.base.kind import ModernGroups
from groupcoord.core.groups.base.strangers import Strangers
from groupcoord.core.groups.classic.kind import ClassicGroups
from groupcoord.core.groups.pending_groups import Creation
from groupcoord.core.groups.streams.conversion import StreamsConversion, WhenStreamsGroupConverted
from groupcoord.core.groups.streams.environment import StreamsGroupEnvironment
from groupcoord.core.groups.streams.group import StreamsGroup
from groupcoord.core.groups.streams.member_timers import StreamsTimers
from groupcoord.core.groups.streams.membership import StreamsMembership
from groupcoord.core.handler_context import Handler, HandlerContext
from groupcoord.core.host_queries import InternalTopicsCreated
from groupcoord.core.messages import DescribedStreamsGroup, JoinGroup, StreamsGroupDescribe
from groupcoord.core.outputs import Outcome
from groupcoord.core.timers import TimerKind


class StreamsGroups(ModernGroups[StreamsGroup]):
    """Handlers of streams groups; see :class:`~groupcoord.core.groups.group_types.GroupKind`."""

    DESCRIBE = StreamsGroupDescribe
    DESCRIBED = DescribedStreamsGroup

    def __init__(
        self, context: HandlerContext, creation: Creation, environment: StreamsGroupEnvironment, classic: ClassicGroups
    ) -> None:
        self._timers = StreamsTimers(context.timers, environment)
        conversion = StreamsConversion(context, self._timers, classic, self.convert)
        membership = StreamsMembership(context, creation, environment, self._timers, conversion)
        super().__init__(context, environment, membership)
        self.timers[TimerKind.ASSIGNMENT_DELAY] = membership.on_timer
        self.guest_handlers: dict[type, Handler] = {
            JoinGroup: membership.join,
            **Strangers(context).handlers,
        }
        self.answers: dict[type, Callable[[Any, int], None]] = {
            InternalTopicsCreated: membership.internal_topics_created
        }
        self.outcomes[WhenStreamsGroupConverted] = Outcome(conversion.on_durable, conversion.on_failure)

    def described(self, group: StreamsGroup) -> DescribedStreamsGroup:
        """Return a group as administrators see it."""
        return group.described(self._context.writer.last_durable)

    def revive(self, group: StreamsGroup, now_ms: int) -> None:
        """Start every member's session, and the time of those that have to give tasks back."""
        self._timers.revive(group, now_ms)
