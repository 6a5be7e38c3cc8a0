"""How a consumer group comes of a classic one and becomes one again, with all its members (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define

from groupcoord.core.groups.base.conversion import Conversion, WhenConverted
from groupcoord.core.groups.base.refusal import RefusedError
from groupcoord.core.groups.classic.continuations import OfGroup
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.classic.kind import ClassicGroups
from groupcoord.core.groups.classic.states import GroupState
from groupcoord.core.groups.consumer.draft import ConsumerDraft, Downgrade
from groupcoord.core.groups.consumer.environment import ConsumerGroupEnvironment
from groupcoord.core.groups.consumer.group import ConsumerGroup
from groupcoord.core.groups.consumer.heartbeat import beat
from groupcoord.core.groups.consumer.member_timers import ConsumerTimers
from groupcoord.core.groups.consumer.regexes import question
from groupcoord.core.groups.consumer.state import ConsumerState
from groupcoord.core.groups.consumer.upgrade import check_upgrade, upgraded
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.host_queries import ResolveRegexes
from groupcoord.core.messages import ConsumerGroupHeartbeat
from groupcoord.core.replies import Reply, Token
from groupcoord.errors import ErrorCode


@define(eq=False)
class WhenConsumerGroupConverted(WhenConverted):
    """A consumer group has come of a classic one, is a classic one, or gone.

    Attributes:
        downgrade: how the classic group goes on that comes of it; None if none does.
        question: what the host is asked for the new group.
    """

    downgrade: Downgrade | None = None
    question: ResolveRegexes | None = None


class ConsumerConversion(Conversion[ConsumerGroup]):
    """Lets classic groups and consumer groups of one log partition change into each other.

    Args:
        context: of the log partition.
        environment: settings, topics and assignors.
        timers: of members of consumer groups.
        classic: classic groups.
        revive: makes a consumer group of what the log has of it, of which it has just become one.
    """

    WHEN_CONVERTED = WhenConsumerGroupConverted

    def __init__(
        self,
        context: HandlerContext,
        environment: ConsumerGroupEnvironment,
        timers: ConsumerTimers,
        classic: ClassicGroups,
        revive: Callable[[str, int], ConsumerGroup],
    ) -> None:
        super().__init__(context, timers, classic, revive)
        self._environment = environment

    def upgrade(self, group: GroupMetadata, request: ConsumerGroupHeartbeat, token: Token, now_ms: int) -> None:
        """Make a consumer group of a classic one, which the joiner is the first to use."""
        context, environment = self._context, self._environment
        member_id = request.member_id or context.new_uuid()
        draft = ConsumerDraft(ConsumerState(group.group_id))
        try:
            if self._is_written(group):
                raise RefusedError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            if not group.is_empty:
                check_upgrade(group, environment)
                context.effects.replies += group.refuse_waiting(ErrorCode.REBALANCE_IN_PROGRESS)
                draft.write(*upgraded(group, environment))
            draft.mark()
            response, step = beat(draft, request, member_id, environment, topics_changed=True, now_ms=now_ms)
        except RefusedError as error:
            context.effects.reply(token, request.refused(error.error_code, error.message))
            return
        asked = (
            question(context, draft.state, environment, request.principal, now_ms) if step.wants_resolution else None
        )
        written = WhenConsumerGroupConverted(group, question=asked, events=draft.events)
        self.begin(written, [*group.tombstones(), *draft.records], (Reply(token, response),))

    def _is_written(self, group: GroupMetadata) -> bool:
        """Tell whether a record of a classic group is on its way, of which nobody knows whether it will be."""
        in_flight = self._context.writer.in_flight
        return any(isinstance(e.continuation, OfGroup) and e.continuation.concerns(group) for e in in_flight)

    def downgrade(self, group: ConsumerGroup, draft: ConsumerDraft) -> None:
        """Make a classic group of a consumer group, as was drafted."""
        self.begin(
            WhenConsumerGroupConverted(group, draft.events, downgrade=draft.downgrade), draft.records, draft.held
        )

    def go_on_as_classic_group(self, written: WhenConsumerGroupConverted, group: GroupMetadata, now_ms: int) -> None:
        """The group is a classic one now, with the members that it had."""
        self._announce_members_of(group, now_ms)
        if group.state is GroupState.STABLE:
            self._context.observer.members_assigned(group, now_ms)
        if written.downgrade is not None:
            self._classic.go_on(group, written.downgrade.protocols, written.downgrade.trigger, now_ms)
        super().go_on_as_classic_group(written, group, now_ms)

    def go_on_as_modern_group(self, written: WhenConsumerGroupConverted, group: ConsumerGroup, now_ms: int) -> None:
        """The group is a consumer group now: those that it had are in it, and then who has joined it."""
        before, observer = written.group, self._context.observer
        assert isinstance(before, GroupMetadata)
        self._announce_members_of(before, now_ms)
        observer.announce(group.group_id, group.TYPE, written.events, now_ms)
        observer.assignments_changed(None, group.state, now_ms)
        observer.look_at_rebalance(group, now_ms)
        if written.question is not None:
            group.is_resolving = True
            self._context.effects.questions.append(written.question)

    def _announce_members_of(self, group: GroupMetadata, now_ms: int) -> None:
        """Let observers see a group again that was converted, if it has members."""
        if group.members:
            self._context.observer.group_loaded(group.group_id, group.generation_id, len(group.members), now_ms)
