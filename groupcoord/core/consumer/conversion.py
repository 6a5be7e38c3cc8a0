"""How a group changes its kind: the records of the other kind are written, and what is then in the log comes to life.

Until they are durable the group stands as it was: readers see it so, and what may change it waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define

from groupcoord.core.consumer.draft import Downgrade, News
from groupcoord.core.consumer.group import ConsumerGroup
from groupcoord.core.context import HandlerContext, Writing
from groupcoord.core.effects import Continuation
from groupcoord.core.events import Cause
from groupcoord.core.groups import AnyGroup, Group
from groupcoord.core.questions import ResolveRegexes
from groupcoord.core.records import Record
from groupcoord.core.replies import Reply, Waiting


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

    group: AnyGroup
    downgrade: Downgrade | None = None
    question: ResolveRegexes | None = None
    news: Sequence[News] = ()
    joiner: Waiting | None = None

    def concerns(self, group: Group) -> bool:
        """Tell whether it is this group."""
        return self.group is group


class Conversion:
    """Lets groups of one log partition change their kind."""

    __slots__ = ("_context",)

    def __init__(self, context: HandlerContext) -> None:
        self._context = context

    def begin(
        self,
        group: AnyGroup,
        records: Sequence[Record],
        held: Sequence[Reply] = (),
        downgrade: Downgrade | None = None,
        question: ResolveRegexes | None = None,
        news: Sequence[News] = (),
        joiner: Waiting | None = None,
    ) -> None:
        """Write what makes another group of this one; requests for it wait, those too that have waited before."""
        writing = Writing(group, [], [])
        if isinstance(group, ConsumerGroup):
            writing = Writing(group, group.waiting, group.overdue)
            group.waiting = []
        self._context.writings[group.group_id] = writing
        self._context.journal.begin(records, WhenConverted(group, downgrade, question, news, joiner), *held)

    def end(self, written: WhenConverted, now_ms: int) -> None:
        """The group is no more. What happened to a consumer group before that is told first."""
        context, group = self._context, written.group
        if isinstance(group, ConsumerGroup):
            context.observer.announce(group.group_id, written.news, now_ms)
        context.disarm(group)
        context.groups.pop(group.group_id, None)
        group.end(now_ms)
        context.observer.group_removed(group, Cause.CONVERSION, now_ms)
