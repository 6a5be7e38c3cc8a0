"""Administrators: they look at groups, delete them, delete offsets, and put members out."""

from __future__ import annotations

from enum import Enum
from random import Random

from attrs import frozen

from groupcoord.messages import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResponse,
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
from groupcoord.sim.actors.fault import Fault
from groupcoord.sim.actors.population import Population
from groupcoord.sim.actors.scripted_clients import Ask, Pause, Script, ScriptedClient
from groupcoord.sim.actors.stage import Stage
from groupcoord.sim.kernel.randomness import stream


class AdminAction(Enum):
    """What an administrator does."""

    LOOK = "looks at"
    DELETE_GROUP = "deletes"
    DELETE_OFFSETS = "deletes offsets of"
    REMOVE_MEMBER = "puts a member out of"


@frozen(kw_only=True)
class Administrator(Fault):
    """An administrator deals with a group.

    Attributes:
        group: its id; consumers may have one of that name, or nobody.
        action: what is done to it.
        looks, look_pause_ms: how often it is looked at, and how long the pauses between are.
        topic: whose offsets are deleted; None: drawn.
    """

    group: str
    action: AdminAction
    looks: int = 5
    look_pause_ms: int = 700
    topic: str | None = None

    @property
    def group_id(self) -> str | None:
        """The only group that is affected."""
        return self.group

    def begin(self, stage: Stage, population: Population) -> None:
        """Let the administrator come."""
        stage.record(f"an administrator {self.action.value} {self.group}")
        chance = stream(stage.seed, "administrator", self.group, self.start_ms)
        scripts = {
            AdminAction.LOOK: self._look,
            AdminAction.DELETE_GROUP: self._delete_group,
            AdminAction.DELETE_OFFSETS: self._delete_offsets,
            AdminAction.REMOVE_MEMBER: self._remove_member,
        }
        script = scripts[self.action](stage, chance)
        ScriptedClient(stage, "administrator", population.find(self.group), script)

    def _look(self, stage: Stage, chance: Random) -> Script:
        for _ in range(self.looks):
            yield Ask(ListGroups(), None)
            yield Ask(DescribeGroups((self.group,)), self.group)
            yield Ask(ConsumerGroupDescribe((self.group,)), self.group)
            yield Ask(OffsetFetch((GroupToFetch(self.group),), require_stable=chance.random() < 0.5), self.group)
            yield Pause(self.look_pause_ms)

    def _delete_group(self, stage: Stage, chance: Random) -> Script:
        yield Ask(DeleteGroups((self.group,)), self.group)

    def _delete_offsets(self, stage: Stage, chance: Random) -> Script:
        topic = chance.choice(stage.topics.remembered_names()) if self.topic is None else self.topic
        indexes = tuple(partition.partition for partition in stage.topics.remembered_partitions_of((topic,)))
        yield Ask(OffsetDelete(self.group, (TopicToDelete(topic, indexes),)), self.group)

    def _remove_member(self, stage: Stage, chance: Random) -> Script:
        members: list[tuple[str, str | None]] = []
        answer = yield Ask(ConsumerGroupDescribe((self.group,)), self.group)
        if isinstance(answer, ConsumerGroupDescribeResponse):
            members = [(member.member_id, member.instance_id) for member in answer.groups[0].members]
        if not members:
            answer = yield Ask(DescribeGroups((self.group,)), self.group)
            if isinstance(answer, DescribeGroupsResponse):
                members = [(member.member_id, member.group_instance_id) for member in answer.groups[0].members]
        if not members:
            return
        member_id, instance_id = chance.choice(members)
        # Kafka's tools name static members by their instance id alone.
        leaving = LeavingMember("" if instance_id is not None else member_id, instance_id, "an administrator says so")
        yield Ask(LeaveGroup(self.group, (leaving,)), self.group)
