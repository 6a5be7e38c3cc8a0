"""Rows of the table in :mod:`~groupcoord.core.groups.group_types`: what groups share whose state is in the log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic

from groupcoord.core.administration import AllInGroups
from groupcoord.core.groups.base.environment import GroupEnvironment
from groupcoord.core.groups.base.member_timers import GroupT
from groupcoord.core.groups.base.membership import ModernMembership
from groupcoord.core.groups.group import why_not_found
from groupcoord.core.handler_context import Handler, HandlerContext
from groupcoord.core.outputs import Continuation, Outcome
from groupcoord.core.replies import Token
from groupcoord.errors import ErrorCode


class ModernGroups(AllInGroups, ABC, Generic[GroupT]):
    """The groups of one kind of one log partition, as far as they come from the log and go there.

    A row of the table adds its requests, and sets the timers of a group that a load made: :meth:`revive`.

    Args:
        context: of the log partition.
        environment: what the groups look at.
        membership: handles their requests.
    """

    DESCRIBE: ClassVar[type]
    """The request that describes groups of this kind."""
    DESCRIBED: ClassVar[Callable[..., Any]]
    """Makes the description of a group that isn't there."""

    def __init__(
        self,
        context: HandlerContext,
        environment: GroupEnvironment[Any, Any],
        membership: ModernMembership[GroupT, Any],
    ) -> None:
        self._context = context
        self._environment = environment
        self.group_class: type[GroupT] = membership.GROUP
        self.record_types = frozenset(self.group_class.STATE.FORGET)
        self.timers = dict.fromkeys(self.group_class.MEMBER_TIMERS, membership.on_timer)
        self.outcomes: dict[type[Continuation], Outcome] = {
            membership.WHEN_DRAFTED: Outcome(membership.on_durable, membership.on_failure, membership.on_overdue),
        }
        self.begin_rebalance = membership.begin_rebalance
        self.handlers: dict[type, Handler] = {membership.HEARTBEAT: membership.heartbeat}
        self.repeaters: dict[type, Callable[[Any, Token, int], bool]] = {membership.HEARTBEAT: membership.beat_again}
        self.descriptions: dict[type, Callable[[str], Any]] = {self.DESCRIBE: self._describe}

    def _describe(self, group_id: str) -> Any:
        group: Any = self._context.visible(group_id)
        if type(group) is self.group_class:
            return self.described(group)
        message = why_not_found(group, group_id, self.group_class.TYPE)
        return self.DESCRIBED(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)

    def described(self, group: Any) -> Any:
        """Return a group as administrators see it."""
        return group.described()

    def load(self, group_id: str, now_ms: int) -> None:
        """A load is over: make the group of what the log has of it."""
        group = self.make_of_records(group_id)
        self.revive(group, now_ms)
        self._context.observer.group_loaded(group_id, group.state.epoch, len(group.state.members), now_ms)

    def make_of_records(self, group_id: str) -> GroupT:
        """Make the group of what the log has of it, without its timers."""
        context = self._context
        group = self.group_class(group_id, context.partition, self._environment)
        group.state = type(group.state).of(
            group_id, [record for _, record in context.writer.hard.groups[group_id].values()]
        )
        context.groups[group_id] = group  # type: ignore[assignment]
        context.has_modern_groups = True
        return group

    def convert(self, group_id: str, now_ms: int) -> GroupT:
        """Make the group of what the log has of it, of which it has just become one."""
        group = self.make_of_records(group_id)
        self.revive(group, now_ms)
        return group

    @abstractmethod
    def revive(self, group: GroupT, now_ms: int) -> None:
        """Set the timers of a group that was made of its records: every member's session starts now."""
