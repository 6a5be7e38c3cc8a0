"""What the handlers of one log partition work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

from groupcoord.config import Config
from groupcoord.core.classic.group import GroupMetadata
from groupcoord.core.consumer.group import ConsumerGroup
from groupcoord.core.effects import Effects
from groupcoord.core.groups import AnyGroup, Group
from groupcoord.core.journal import Journal
from groupcoord.core.messages import JoinGroupResponse, SyncGroupResponse
from groupcoord.core.observer import Observer
from groupcoord.core.replies import Waiting
from groupcoord.core.timers import TimerKey, TimerQueue
from groupcoord.errors import ErrorCode


class Writing(NamedTuple):
    """A group's write in flight on which all else depends, and the requests that wait for its outcome.

    Such a write are the tombstones of a group: whether it is gone is the log's to say.

    Attributes:
        group: as the log knows it until then, which is what readers see.
        waiting: handled in their order as soon as the log has answered.
        overdue: timers of the group that have fired meanwhile.
    """

    group: AnyGroup
    waiting: list[Waiting]
    overdue: list[TimerKey]


class HandlerContext:
    """What the handlers of one log partition share: its state, and the ways out of it.

    Attributes:
        groups: group id → soft state of each group that requests meet.
        writings: group id → the write in flight that a group's requests have to wait for.
        has_consumer_groups: there is a consumer group, or there was one.
        new_member_id: makes a member id from its prefix, the client's or the instance's id.
        new_uuid: makes a member id for who joins a consumer group without one.
    """

    __slots__ = (
        "config",
        "effects",
        "groups",
        "has_consumer_groups",
        "journal",
        "new_member_id",
        "new_uuid",
        "observer",
        "partition",
        "timers",
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
    ) -> None:
        self.partition = partition
        self.config = config
        self.effects = effects
        self.timers = timers
        self.observer = observer
        self.new_member_id = new_member_id
        self.new_uuid = new_uuid
        self.groups: dict[str, AnyGroup] = {}
        self.has_consumer_groups = False
        self.writings: dict[str, Writing] = {}
        self.journal = Journal(partition, effects, first_append)

    @property
    def classic_groups(self) -> dict[str, GroupMetadata]:
        """The groups, for those who only meet classic ones: what concerns another kind does not get to them."""
        return cast(dict[str, GroupMetadata], self.groups)

    @property
    def consumer_groups(self) -> dict[str, ConsumerGroup]:
        """The groups, for those who only meet consumer groups."""
        return cast(dict[str, ConsumerGroup], self.groups)

    def is_seen(self, group: Group) -> bool:
        """Tell whether something that was written after the group was made is durable: until then no reader sees it."""
        return group.first_append <= self.journal.last_durable

    def visible(self, group_id: str) -> Group | None:
        """Return the group that readers see under this id: what the log says, not what is on its way there."""
        writing = self.writings.get(group_id) if self.writings else None
        group = self.groups.get(group_id) if writing is None else writing.group
        return group if group is not None and group.first_append <= self.journal.last_durable else None

    def visible_groups(self) -> list[Group]:
        """Return all groups that readers see."""
        group_ids = self.groups.keys() | self.writings.keys()
        return [group for group in map(self.visible, sorted(group_ids)) if group is not None]

    def disarm(self, group: Group) -> None:
        """Cancel every timer of a group, which is about to be dropped or rebuilt."""
        for timer in group.timers():
            self.timers.cancel(timer)

    def refuse_waiting(self, group: GroupMetadata, error_code: ErrorCode, *, names_members: bool = True) -> None:
        """Refuse every join and every sync that waits in a classic group, which won't answer them any more.

        Args:
            group: the group.
            error_code: what they are told.
            names_members: a refused join is told its member's id.
        """
        for member in group.members.values():
            join = group.take_join(member)
            if join is not None:
                self.effects.reply(join.token, JoinGroupResponse(error_code, member.member_id if names_members else ""))
            if member.parked_sync is not None:
                self.effects.reply(member.parked_sync.token, SyncGroupResponse(error_code))
                member.parked_sync = None
