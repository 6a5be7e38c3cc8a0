"""How a group changes its kind: the records of the other kind are written, and what is then in the log comes to life.

Until they are durable the group stands as it was: readers see it so, and what may change it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import define

from groupcoord.core.classic.continuations import OfGroup
from groupcoord.core.classic.group import GroupMetadata
from groupcoord.core.classic.kind import ClassicGroups
from groupcoord.core.classic.states import GroupState
from groupcoord.core.consumer.draft import ConsumerDraft, Downgrade
from groupcoord.core.consumer.environment import ConsumerGroupEnvironment
from groupcoord.core.consumer.group import ConsumerGroup
from groupcoord.core.consumer.heartbeat import beat
from groupcoord.core.consumer.member_timers import ConsumerTimers
from groupcoord.core.consumer.refusal import refused
from groupcoord.core.consumer.regexes import question
from groupcoord.core.consumer.state import ConsumerState
from groupcoord.core.consumer.upgrade import check_upgrade, upgraded
from groupcoord.core.context import HandlerContext, Writing
from groupcoord.core.effects import Continuation
from groupcoord.core.events import Cause
from groupcoord.core.groups import Group
from groupcoord.core.messages import ConsumerGroupHeartbeat, JoinGroup, JoinGroupResponse
from groupcoord.core.modern.draft import News
from groupcoord.core.modern.refusal import RefusedError
from groupcoord.core.questions import ResolveRegexes
from groupcoord.core.records import CLASSIC_GROUP_KEY, Record
from groupcoord.core.replies import Reply, Token, Waiting
from groupcoord.errors import ErrorCode


@define(eq=False)
class WhenConverted(Continuation):
    """A group is of another kind, or gone.

    Attributes:
        group: as it was.
        downgrade: how the classic group goes on that comes of it; None if none does.
        question: what the host is asked for the new group.
        news: what observers are told of the consumer group.
        joiner: the join that begins the new group, which is classic; None if there is none.
    """

    group: GroupMetadata | ConsumerGroup
    downgrade: Downgrade | None = None
    question: ResolveRegexes | None = None
    news: Sequence[News] = ()
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


class Conversion:
    """Lets groups of one log partition change their kind.

    Args:
        context: of the log partition.
        environment: settings, topics and assignors.
        timers: of members of consumer groups.
        classic: classic groups.
        revive: makes a consumer group of what the log has of it, of which it has just become one.
    """

    __slots__ = ("_classic", "_context", "_environment", "_revive", "_timers")

    def __init__(
        self,
        context: HandlerContext,
        environment: ConsumerGroupEnvironment,
        timers: ConsumerTimers,
        classic: ClassicGroups,
        revive: Callable[[str, int], ConsumerGroup],
    ) -> None:
        self._context = context
        self._environment = environment
        self._timers = timers
        self._classic = classic
        self._revive = revive

    # ------------------------------------------------------------ what begins one

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
            context.effects.reply(token, refused(request, error))
            return
        asked = (
            question(context, draft.state, environment, request.principal, now_ms) if step.wants_resolution else None
        )
        written = WhenConverted(group, question=asked, news=draft.news)
        self._begin(written, [*group.tombstones(), *draft.records], (Reply(token, response),))

    def _is_written(self, group: GroupMetadata) -> bool:
        """Tell whether a record of a classic group is on its way, of which nobody knows whether it will be."""
        in_flight = self._context.writer.in_flight
        return any(isinstance(e.continuation, OfGroup) and e.continuation.concerns(group) for e in in_flight)

    def downgrade(self, group: ConsumerGroup, draft: ConsumerDraft) -> None:
        """Make a classic group of a consumer group, as was drafted."""
        self._begin(WhenConverted(group, draft.downgrade, news=draft.news), draft.records, draft.held)

    def replace(self, group: ConsumerGroup, request: JoinGroup, token: Token, now_ms: int) -> None:
        """Make a classic group of a consumer group in which nobody is, and let somebody join that."""
        classic = GroupMetadata(group.group_id, self._context.partition, now_ms)
        records = [*group.tombstones(), classic.to_record({})]
        self._begin(WhenConverted(group, joiner=Waiting(request, token)), records)

    def _begin(self, written: WhenConverted, records: Sequence[Record], held: Sequence[Reply] = ()) -> None:
        """Write what makes another group of one; requests for it wait, those too that have waited before."""
        group = written.group
        writing = Writing(group, [], [])
        if isinstance(group, ConsumerGroup):
            writing = Writing(group, group.waiting, group.overdue)
            group.waiting = []
        self._context.writings[group.group_id] = writing
        self._context.writer.begin(records, written, *held)

    # ------------------------------------------------------------ what the log says of it

    def on_durable(self, written: WhenConverted, now_ms: int) -> None:
        """A group is of another kind, or gone."""
        self.end(written, now_ms)
        records = self._context.writer.hard.groups.get(written.group.group_id)
        if records and CLASSIC_GROUP_KEY in records:
            self._go_on_as_classic_group(written, now_ms)
        elif records:
            self._go_on_as_consumer_group(written, now_ms)

    def end(self, written: WhenConverted, now_ms: int) -> None:
        """The group is no more. What happened to a consumer group before that is told first."""
        context, group = self._context, written.group
        if isinstance(group, ConsumerGroup):
            context.observer.announce(group.group_id, written.news, now_ms)
        context.disarm(group)
        context.groups.pop(group.group_id, None)
        group.end(now_ms)
        context.observer.group_removed(group, Cause.CONVERSION, now_ms)

    def _go_on_as_classic_group(self, written: WhenConverted, now_ms: int) -> None:
        revived = self._classic.bring_to_life(written.group.group_id, now_ms)
        self._announce_members_of(revived, now_ms)
        if revived.state is GroupState.STABLE:
            self._context.observer.members_assigned(revived, now_ms)
        if written.downgrade is not None:
            self._classic.go_on(revived, written.downgrade.protocols, written.downgrade.trigger, now_ms)
        if written.joiner is not None:
            request, token = written.joiner
            assert isinstance(request, JoinGroup)
            self._classic.join(request, token, now_ms)

    def _go_on_as_consumer_group(self, written: WhenConverted, now_ms: int) -> None:
        group, observer = written.group, self._context.observer
        revived = self._revive(group.group_id, now_ms)
        assert isinstance(group, GroupMetadata)
        self._announce_members_of(group, now_ms)  # those that it had; and then who has joined it
        observer.announce(group.group_id, written.news, now_ms)
        observer.assignments_changed(None, revived.state, now_ms)
        observer.look_at_rebalance(revived, now_ms)
        if written.question is not None:
            revived.is_resolving = True
            self._context.effects.questions.append(written.question)

    def _announce_members_of(self, group: GroupMetadata, now_ms: int) -> None:
        """Let observers see a group again that was converted, if it has members."""
        if group.members:
            self._context.observer.group_loaded(group.group_id, group.generation_id, len(group.members), now_ms)

    def on_failure(self, written: WhenConverted, error_code: ErrorCode, now_ms: int) -> None:
        """A group stays what it was."""
        if written.joiner is not None:
            self._context.effects.reply(written.joiner.token, JoinGroupResponse(error_code))
        if isinstance(written.group, ConsumerGroup):
            self._timers.retry_fencing(written.group, now_ms)
