"""A consumer group (KIP-848): its durable state, and what a restart may forget of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import cast
from uuid import UUID

from groupcoord.config import Config, GroupType
from groupcoord.core.groups.base.committing import CommittingGroup
from groupcoord.core.groups.base.group import BEFORE_ALL_APPENDS, described_partitions
from groupcoord.core.groups.consumer.environment import ConsumerGroupEnvironment
from groupcoord.core.groups.consumer.state import ConsumerMember, ConsumerState
from groupcoord.core.groups.consumer.votes import preferred_assignor
from groupcoord.core.groups.group import Group
from groupcoord.core.messages import (
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedPartitions,
    MemberType,
    TopicToCommit,
)
from groupcoord.core.timers import TimerKind


class ConsumerGroupState(Enum):
    """Where a consumer group stands, by Kafka's names."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup(CommittingGroup[ConsumerState]):
    """One group of one log partition.

    Attributes:
        is_resolving: the host was asked to match regular expressions, and has not answered.
    """

    TYPE = GroupType.CONSUMER
    STATE = ConsumerState
    SESSION = TimerKind.CONSUMER_SESSION
    REVOCATION = TimerKind.REVOCATION
    MEMBER_TIMERS = (TimerKind.CONSUMER_SESSION, TimerKind.REVOCATION, TimerKind.MEMBER_JOIN, TimerKind.MEMBER_SYNC)

    def __init__(
        self,
        group_id: str,
        partition: int,
        environment: ConsumerGroupEnvironment,
        *,
        first_append: int = BEFORE_ALL_APPENDS,
    ) -> None:
        super().__init__(group_id, partition, environment, first_append=first_append)
        self.is_resolving = False

    @property
    def group_state(self) -> ConsumerGroupState:
        """Where the group stands."""
        state = self.state
        if self.is_dead:
            return ConsumerGroupState.DEAD
        if not state.members:
            return ConsumerGroupState.EMPTY
        if state.epoch > state.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(map(state.is_settled, state.members.values())):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def is_rebalancing(self) -> bool:
        """True as long as members have not got what they are to have."""
        return self.group_state not in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY)

    def uses_classic_protocol(self, member: ConsumerMember) -> bool:
        """Tell whether a member speaks the classic protocol, and so has a generation."""
        return member.uses_classic_protocol

    def held_since(self, member: ConsumerMember, topic: TopicToCommit) -> Callable[[int], int | None]:
        """Return what tells since which epoch a member has a partition of a topic; None if it doesn't have it."""
        assigned = member.assignment.assigned.get(topic.topic_id, {})
        pending = member.assignment.pending_revocation.get(topic.topic_id, {})
        return lambda partition: assigned.get(partition, pending.get(partition))

    def described(self) -> DescribedConsumerGroup:
        """Return the group as ConsumerGroupDescribe shows it."""
        state = self.state
        return DescribedConsumerGroup(
            self.group_id,
            group_state=self.group_state.value,
            group_epoch=state.epoch,
            assignment_epoch=state.assignment_epoch,
            assignor_name=preferred_assignor(state.votes) or self._environment.default_assignor,
            members=tuple(self._described_member(member) for member in state.members.values()),
        )

    def _described_member(self, member: ConsumerMember) -> DescribedConsumerMember:
        metadata, assignment = member.metadata, member.assignment
        return DescribedConsumerMember(
            member.member_id,
            metadata.instance_id,
            metadata.rack_id,
            assignment.member_epoch,
            metadata.client_id,
            metadata.client_host,
            metadata.subscribed_topic_names,
            metadata.subscribed_topic_regex,
            self._described_partitions(member.partitions()),
            self._described_partitions(
                (topic_id, partition)
                for topic_id, partitions in self.state.targets.get(member.member_id, {}).items()
                for partition in partitions
            ),
            MemberType.CLASSIC if member.uses_classic_protocol else MemberType.CONSUMER,
        )

    def _described_partitions(self, partitions: Iterable[tuple[UUID, int]]) -> tuple[DescribedPartitions, ...]:
        return described_partitions(partitions, self._environment.topics)

    def max_size(self, config: Config) -> int:
        """Return ``group.consumer.max.size``."""
        return config.group_consumer_max_size

    def _invariants(self) -> dict[str, bool]:
        held = [partition for member in self.state.members.values() for partition in member.partitions()]
        return {
            **super()._invariants(),
            "a partition is one member's": len(held) == len(set(held)),
            "who holds partitions is known": set(held) == self.state.owner_epochs.keys(),
        }


def consumer_groups(groups: dict[str, Group]) -> dict[str, ConsumerGroup]:
    """Return the groups, for those who only meet consumer groups: what concerns another kind does not get to them."""
    return cast(dict[str, ConsumerGroup], groups)
