"""Administrators: they look at groups, delete them, delete offsets, and put members out."""

from __future__ import annotations

from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from attrs import frozen

from groupcoord.messages import (
    DeleteGroups,
    DescribeGroups,
    DescribeGroupsResponse,
    GroupToFetch,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetDelete,
    OffsetFetch,
    TopicToDelete,
)
from groupcoord.sim.faults import Fault
from groupcoord.sim.randomness import stream
from groupcoord.sim.visitors import Ask, Errand, Pause, Visitor

if TYPE_CHECKING:
    from groupcoord.sim.world import World


class AdministratorsWish(Enum):
    """What an administrator has come for."""

    LOOK = "looks at"
    DELETE_GROUP = "deletes"
    DELETE_OFFSETS = "deletes offsets of"
    REMOVE_MEMBER = "puts a member out of"


@frozen(kw_only=True)
class Administrator(Fault):
    """Somebody administrates a group.

    Attributes:
        group: its id; consumers may have one of that name, or nobody.
        wish: what is done to it.
        looks, look_pause_ms: who looks does so so often, with pauses between.
        topic: whose offsets are deleted; None: drawn.
    """

    group: str
    wish: AdministratorsWish
    looks: int = 5
    look_pause_ms: int = 700
    topic: str | None = None

    @property
    def group_id(self) -> str | None:
        """The only group that is touched."""
        return self.group

    def begin(self, world: World) -> None:
        """Let the administrator come."""
        world.tell(f"an administrator {self.wish.value} {self.group}")
        chance = stream(world.seed, "administrator", self.group, self.start_ms)
        errand = {
            AdministratorsWish.LOOK: self._look,
            AdministratorsWish.DELETE_GROUP: self._delete_group,
            AdministratorsWish.DELETE_OFFSETS: self._delete_offsets,
            AdministratorsWish.REMOVE_MEMBER: self._remove_member,
        }[self.wish](world, chance)
        groups = [group for group in world.groups if group.options.group_id == self.group]
        Visitor(world, "administrator", groups, errand)

    def _look(self, world: World, chance: Random) -> Errand:
        for _ in range(self.looks):
            yield Ask(ListGroups(), None)
            yield Ask(DescribeGroups((self.group,)), self.group)
            yield Ask(OffsetFetch((GroupToFetch(self.group),), require_stable=chance.random() < 0.5), self.group)
            yield Pause(self.look_pause_ms)

    def _delete_group(self, world: World, chance: Random) -> Errand:
        yield Ask(DeleteGroups((self.group,)), self.group)

    def _delete_offsets(self, world: World, chance: Random) -> Errand:
        topic = chance.choice(sorted(world.topics.topics)) if self.topic is None else self.topic
        indexes = tuple(partition.partition for partition in world.partitions_of((topic,)))
        yield Ask(OffsetDelete(self.group, (TopicToDelete(topic, indexes),)), self.group)

    def _remove_member(self, world: World, chance: Random) -> Errand:
        answer = yield Ask(DescribeGroups((self.group,)), self.group)
        if not isinstance(answer, DescribeGroupsResponse) or not answer.groups[0].members:
            return
        member = chance.choice(answer.groups[0].members)
        # Kafka's tools name static members by their instance id alone.
        member_id = "" if member.group_instance_id is not None else member.member_id
        leaving = LeavingMember(member_id, member.group_instance_id, "an administrator says so")
        yield Ask(LeaveGroup(self.group, (leaving,)), self.group)
