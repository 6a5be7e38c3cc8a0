"""Streams groups (KIP-1071) as a kind of group: who takes what for them, and how a load makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groupcoord.core.classic.kind import ClassicGroups
from groupcoord.core.context import Handler, HandlerContext
from groupcoord.core.creation import Creation
from groupcoord.core.effects import Outcome
from groupcoord.core.messages import DescribedStreamsGroup, JoinGroup, StreamsGroupDescribe
from groupcoord.core.modern.kind import ModernGroups
from groupcoord.core.modern.strangers import Strangers
from groupcoord.core.questions import InternalTopicsCreated
from groupcoord.core.streams.conversion import StreamsConversion, WhenStreamsGroupConverted
from groupcoord.core.streams.environment import StreamsGroupEnvironment
from groupcoord.core.streams.group import StreamsGroup
from groupcoord.core.streams.member_timers import StreamsTimers
from groupcoord.core.streams.membership import StreamsMembership
from groupcoord.core.timers import TimerKind


class StreamsGroups(ModernGroups[StreamsGroup]):
    """The row of streams groups in the table of :mod:`~groupcoord.core.kinds`; what its parts are is said there."""

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
