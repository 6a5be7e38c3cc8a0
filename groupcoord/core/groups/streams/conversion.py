"""How a streams group comes of an empty classic group, and an empty one becomes a classic group (KIP-1071).

Unlike a consumer group it does not take over members, and no other kind's group becomes one.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define

from groupcoord.core.groups.base.conversion import Conversion, WhenConverted
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.classic.kind import ClassicGroups
from groupcoord.core.groups.streams.draft import StreamsDraft
from groupcoord.core.groups.streams.group import StreamsGroup
from groupcoord.core.groups.streams.member_timers import StreamsTimers
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.messages import StreamsGroupHeartbeatResponse
from groupcoord.core.replies import Reply, Token


@define(eq=False)
class WhenStreamsGroupConverted(WhenConverted):
    """A streams group has come of an empty classic group, or the other way round.

    Attributes:
        delay_until_ms: until when the new group waits for more members; None if it doesn't.
    """

    delay_until_ms: int | None = None


class StreamsConversion(Conversion[StreamsGroup]):
    """Lets empty groups of one log partition change between the classic kind and that of streams groups."""

    WHEN_CONVERTED = WhenStreamsGroupConverted

    def __init__(
        self,
        context: HandlerContext,
        timers: StreamsTimers,
        classic: ClassicGroups,
        revive: Callable[[str, int], StreamsGroup],
    ) -> None:
        super().__init__(context, timers, classic, revive)
        self._streams_timers = timers

    def upgrade(
        self,
        classic: GroupMetadata,
        group: StreamsGroup,
        draft: StreamsDraft,
        token: Token,
        response: StreamsGroupHeartbeatResponse,
    ) -> None:
        """Make a streams group of a classic group in which nobody is.

        Args:
            classic: the group as it is.
            group: stands for the group that it is to be, until the log has it.
            draft: what its first member's heartbeat writes.
            token: of that heartbeat.
            response: its answer.
        """
        written = WhenStreamsGroupConverted(
            classic, draft.events, delay_until_ms=self._streams_timers.take_delay(group)
        )
        self.begin(written, [*classic.tombstones(), *draft.records], (Reply(token, response),))

    def go_on_as_modern_group(self, written: WhenStreamsGroupConverted, group: StreamsGroup, now_ms: int) -> None:
        """The group is a streams group now, and may wait for more members."""
        super().go_on_as_modern_group(written, group, now_ms)
        if written.delay_until_ms is not None:
            self._streams_timers.begin_delay(group, written.delay_until_ms)
