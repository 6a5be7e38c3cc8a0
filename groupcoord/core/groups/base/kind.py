"""Handlers that all kinds of groups share whose state is in the log, and conversion between kinds.

A conversion writes tombstones of the old group and records of the new one in a single append. Until that is durable,
readers see the group as it was, and whatever may change it waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic

from attrs import define

from groupcoord.core.administration import AllInGroups
from groupcoord.core.events import Cause
from groupcoord.core.groups.base.environment import GroupEnvironment
from groupcoord.core.groups.base.group import GroupT, MemberTimers, ModernGroup
from groupcoord.core.groups.base.membership import ModernMembership
from groupcoord.core.groups.base.state import DraftedEvent
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.classic.kind import ClassicGroups
from groupcoord.core.groups.group import Group, why_not_found
from groupcoord.core.handler_context import Handler, HandlerContext, Writing
from groupcoord.core.log.records import CLASSIC_GROUP_KEY, Record
from groupcoord.core.messages import JoinGroup, JoinGroupResponse
from groupcoord.core.outputs import Continuation, Outcome
from groupcoord.core.replies import Reply, Token, Waiting
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


@define(eq=False)
class WhenConverted(Continuation):
    """A group is of another kind, or gone. Each kind that is no classic one has a class of it.

    Attributes:
        group: as it was.
        events: what observers are told of the group that is no classic one.
        joiner: the join that begins the new group, which is classic; None if there is none.
    """

    group: Any
    events: Sequence[DraftedEvent] = ()
    joiner: Waiting | None = None

    @property
    def suspended(self) -> tuple[Group, ...]:
        """The group: of which kind it is is the log's to say."""
        return (self.group,)

    def concerns(self, group: Group) -> bool:
        """Tell whether it is this group."""
        return self.group is group

    def parked_tokens(self) -> list[Token]:
        """Return the token of the join that begins the new group."""
        return [] if self.joiner is None else [self.joiner.token]


class Conversion(Generic[GroupT]):
    """Lets groups of one log partition change between the classic kind and another one.

    Args:
        context: of the log partition.
        timers: of members of groups of the other kind.
        classic: classic groups.
        revive: makes a group of the other kind of what the log has of it, of which it has just become one.
    """

    WHEN_CONVERTED: ClassVar[type[WhenConverted]]

    def __init__(
        self,
        context: HandlerContext,
        timers: MemberTimers[GroupT, Any],
        classic: ClassicGroups,
        revive: Callable[[str, int], GroupT],
    ) -> None:
        self._context = context
        self._timers = timers
        self._classic = classic
        self._revive = revive

    # ------------------------------------------------------------ what begins one

    def replace(self, group: GroupT, request: JoinGroup, token: Token, now_ms: int) -> None:
        """Make a classic group of one in which nobody is, and let somebody join that."""
        classic = GroupMetadata(group.group_id, self._context.partition, now_ms)
        records = [*group.tombstones(), classic.to_record({})]
        self.begin(self.WHEN_CONVERTED(group, joiner=Waiting(request, token)), records)

    def begin(self, written: WhenConverted, records: Sequence[Record], held: Sequence[Reply] = ()) -> None:
        """Write what makes another group of one; requests for it wait, those too that have waited before."""
        group = written.group
        writing = Writing(group, [], [])
        if isinstance(group, ModernGroup):
            writing = Writing(written.group, group.waiting, group.overdue)
            group.waiting = []
        self._context.writings[group.group_id] = writing
        self._context.writer.begin(records, written, held)

    # ------------------------------------------------------------ what the log says of it

    def on_durable(self, written: WhenConverted, now_ms: int) -> None:
        """A group is of another kind, or gone."""
        self.end(written, now_ms)
        records = self._context.writer.hard.groups.get(written.group.group_id)
        if records and CLASSIC_GROUP_KEY in records:
            revived = self._classic.bring_to_life(written.group.group_id, now_ms)
            self.go_on_as_classic_group(written, revived, now_ms)
        elif records:
            self.go_on_as_modern_group(written, self._revive(written.group.group_id, now_ms), now_ms)

    def end(self, written: WhenConverted, now_ms: int) -> None:
        """The group is no more. What happened to it before that is told first, if it was no classic one."""
        context, group = self._context, written.group
        if isinstance(group, ModernGroup):
            context.observer.announce(group.group_id, group.TYPE, written.events, now_ms)
        context.disarm(group)
        context.groups.pop(group.group_id, None)
        group.end(now_ms)
        context.observer.group_removed(group, Cause.CONVERSION, now_ms)

    def go_on_as_classic_group(self, written: Any, group: GroupMetadata, now_ms: int) -> None:
        """The group is a classic one now."""
        if written.joiner is not None:
            request, token = written.joiner
            assert isinstance(request, JoinGroup)
            self._classic.join(request, token, now_ms)

    def go_on_as_modern_group(self, written: Any, group: GroupT, now_ms: int) -> None:
        """The group is no classic one any more."""
        self._context.observer.announce(group.group_id, group.TYPE, written.events, now_ms)
        self._context.observer.look_at_rebalance(group, now_ms)

    def on_failure(self, written: WhenConverted, error_code: ErrorCode, now_ms: int) -> None:
        """A group stays what it was."""
        if written.joiner is not None:
            self._context.effects.reply(written.joiner.token, JoinGroupResponse(error_code))
        if isinstance(written.group, ModernGroup):
            self._timers.retry_fencing(written.group, now_ms)  # type: ignore[arg-type]
