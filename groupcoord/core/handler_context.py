"""What the handlers of one log partition work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from groupcoord.config import Config
from groupcoord.core.groups.group import Group
from groupcoord.core.log.append_queue import PartitionWriter
from groupcoord.core.observer import Observer
from groupcoord.core.outputs import Effects
from groupcoord.core.replies import Token, Waiting
from groupcoord.core.timers import TimerKey, TimerQueue

Handler = Callable[[Any, Token, int], None]
"""Takes a request of one type: the request, its token, the time."""


class Writing(NamedTuple):
    """A group's write in flight on which all else depends, and the requests that wait for its outcome.

    Such a write are the tombstones of a group: whether it is gone is the log's to say.

    Attributes:
        group: as the log knows it until then, which is what readers see.
        waiting: handled in their order as soon as the log has answered.
        overdue: timers of the group that have fired meanwhile.
    """

    group: Group
    waiting: list[Waiting]
    overdue: list[TimerKey]


class HandlerContext:
    """What the handlers of one log partition share: its state, and the ways out of it.

    Attributes:
        groups: group id → soft state of each group that requests meet.
        writings: group id → the write in flight that a group's requests have to wait for.
        has_modern_groups: there is or was a group that is no classic one: the classic protocol may meet it.
        handle: takes a request for one group as if it came now.
        new_member_id: makes a member id from its prefix, the client's or the instance's id.
        new_uuid: makes a member id for who joins a consumer group without one.
    """

    __slots__ = (
        "config",
        "effects",
        "groups",
        "handle",
        "has_modern_groups",
        "new_member_id",
        "new_uuid",
        "observer",
        "partition",
        "timers",
        "writer",
        "writings",
    )

    def __init__(
        self,
        partition: int,
        *,
        config: Config,
        effects: Effects,
        timers: TimerQueue,
        observer: Observer,
        new_member_id: Callable[[str], str],
        new_uuid: Callable[[], str],
        first_append: int,
        handle: Handler,
    ) -> None:
        self.partition = partition
        self.config = config
        self.effects = effects
        self.timers = timers
        self.observer = observer
        self.new_member_id = new_member_id
        self.new_uuid = new_uuid
        self.groups: dict[str, Group] = {}
        self.has_modern_groups = False
        self.handle = handle
        self.writings: dict[str, Writing] = {}
        self.writer = PartitionWriter(partition, effects, first_append)

    def is_seen(self, group: Group) -> bool:
        """Tell whether something that was written after the group was made is durable: until then no reader sees it."""
        return group.first_append <= self.writer.last_durable

    def visible(self, group_id: str) -> Group | None:
        """Return the group that readers see under this id: what the log says, not what is on its way there."""
        writing = self.writings.get(group_id) if self.writings else None
        group = self.groups.get(group_id) if writing is None else writing.group
        return group if group is not None and group.first_append <= self.writer.last_durable else None

    def visible_groups(self) -> list[Group]:
        """Return all groups that readers see."""
        group_ids = self.groups.keys() | self.writings.keys()
        return [group for group in map(self.visible, sorted(group_ids)) if group is not None]

    def disarm(self, group: Group) -> None:
        """Cancel every timer of a group, which is about to be dropped or rebuilt."""
        for timer in group.timers():
            self.timers.cancel(timer)
