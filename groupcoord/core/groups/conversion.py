"""Conversion between a classic group and a group with logged state.

One append has the tombstones of the old group and the records of the new one. Until it is durable, readers see the old
group, and requests that may change it wait.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from groupcoord.core.events import Cause
from groupcoord.core.fast_construct import define
from groupcoord.core.groups.base.group import GroupEnvironment, GroupT, ModernGroup
from groupcoord.core.groups.base.kind import DraftT, ModernGroups
from groupcoord.core.groups.base.state import DraftedEvent
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.classic.kind import ClassicGroups
from groupcoord.core.groups.group import Group
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.log.log_partition import Continuation
from groupcoord.core.log.records import CLASSIC_GROUP_KEY, Record
from groupcoord.core.messages import JoinGroup, JoinGroupResponse, Reply, Token, Waiting
from groupcoord.errors import ErrorCode


@define(eq=False)
class WhenConverted(Continuation):
    """Conversion in flight, with the group before, events of the group that is not classic, and the join that caused
    it.
    """

    NOT_COUNTED = ("events",)

    group: Any
    events: Sequence[DraftedEvent] = ()
    joiner: Waiting | None = None

    MODERN_CLASS: ClassVar[type[Any]]

    def concerns(self, group: Group) -> bool:
        return self.group is group

    def parked_tokens(self) -> list[Token]:
        return [] if self.joiner is None else [self.joiner.token]

    def on_durable(self, context: HandlerContext, now_ms: int) -> None:
        context.kinds[self.MODERN_CLASS].on_converted(self, now_ms)
        context.end_writings((self.group,), now_ms)

    def on_refused(self, context: HandlerContext, error_code: ErrorCode, now_ms: int) -> None:
        context.kinds[self.MODERN_CLASS].on_conversion_failed(self, error_code, now_ms)
        context.resume((self.group,), now_ms)


class ConvertibleGroups(ModernGroups[GroupT, DraftT]):
    """Handlers of groups that are converted from and to classic ones."""

    converted_class: ClassVar[type[WhenConverted]]

    def __init__(
        self, context: HandlerContext, environment: GroupEnvironment[Any, Any], classic: ClassicGroups
    ) -> None:
        super().__init__(context, environment)
        self._classic = classic

    # ------------------------------------------------------------ beginning

    def join(self, group: GroupT, request: JoinGroup, token: Token, now_ms: int) -> None:
        if not group.is_empty:
            self.join_members(group, request, token, now_ms)
        elif request.member_id:
            # Kafka also removes the group, but from memory alone: a restart brings it back.
            self._context.effects.reply(token, JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        else:
            # An empty group becomes a classic one for the joining member.
            classic = GroupMetadata(group.group_id, self._context.partition, now_ms)
            # Tombstones come first: a broker that replays them must end with the new group.
            records = [*group.tombstones(), classic.to_record({})]
            self.begin_conversion(self.converted_class(group, joiner=Waiting(request, token)), records)

    @abstractmethod
    def join_members(self, group: GroupT, request: JoinGroup, token: Token, now_ms: int) -> None:
        """Handle a JoinGroup for a group with members."""

    def begin_conversion(self, written: WhenConverted, records: Sequence[Record], held: Sequence[Reply] = ()) -> None:
        """Append a conversion; requests for the group wait, also those that waited before."""
        self._context.writings[written.group.group_id] = written.group
        self._context.writer.begin(records, written, held)

    # ------------------------------------------------------------ outcome

    def on_converted(self, written: WhenConverted, now_ms: int) -> None:
        # The old group ends before the new one is built from its records, as in a load.
        self._end_converted(written, now_ms)
        records = self._context.writer.hard.groups.get(written.group.group_id)
        # The log decides: without records the group has ended.
        if records and CLASSIC_GROUP_KEY in records:
            revived = self._classic.bring_to_life(written.group.group_id, now_ms)
            self.go_on_as_classic_group(written, revived, now_ms)
        elif records:
            self.go_on_as_modern_group(written, self.convert(written.group.group_id, now_ms), now_ms)

    def _end_converted(self, written: WhenConverted, now_ms: int) -> None:
        context, group = self._context, written.group
        if isinstance(group, ModernGroup):
            context.observer.announce(group.group_id, group.TYPE, written.events, now_ms)
        # Timers of the old group must not fire in the new one.
        context.groups.pop(group.group_id, None)
        context.end(group, Cause.CONVERSION, now_ms)

    def convert(self, group_id: str, now_ms: int) -> GroupT:
        group = self.make_of_records(group_id)
        self.revive(group, now_ms)
        return group

    def go_on_as_classic_group(self, written: Any, group: GroupMetadata, now_ms: int) -> None:
        if written.joiner is not None:
            request, token = written.joiner
            assert isinstance(request, JoinGroup)
            self._classic.join(request, token, now_ms)

    def go_on_as_modern_group(self, written: Any, group: GroupT, now_ms: int) -> None:
        self._context.observer.announce(group.group_id, group.TYPE, written.events, now_ms)
        self._context.observer.look_at_rebalance(group, now_ms)

    def on_conversion_failed(self, written: WhenConverted, error_code: ErrorCode, now_ms: int) -> None:
        # No classic group exists, so Kafka's error has an empty member id.
        if written.joiner is not None:
            self._context.effects.reply(written.joiner.token, JoinGroupResponse(error_code))
        if isinstance(written.group, self.group_class):
            # A downgrade may be the removal of a silent member.
            self.retry_fencing(written.group, now_ms)
