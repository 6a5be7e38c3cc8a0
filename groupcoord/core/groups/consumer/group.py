"""Consumer group (KIP-848): its durable state, its soft state, its environment and the timers of its members."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from uuid import UUID

from attrs import define

from groupcoord.config import Config, GroupType
from groupcoord.config.group_settings import ConsumerGroupSettings
from groupcoord.core.groups.base.assignor import Assignor
from groupcoord.core.groups.base.group import CommittingGroup, GroupEnvironment, MemberTimers
from groupcoord.core.groups.base.state import RefusedError
from groupcoord.core.groups.consumer.reconciliation import MemberState
from groupcoord.core.groups.consumer.state import ConsumerMember, ConsumerState, preferred_assignor
from groupcoord.core.messages import (
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedPartitions,
    MemberType,
    TopicToCommit,
)
from groupcoord.core.timers import TimerKind
from groupcoord.core.topics import RegexResolver
from groupcoord.errors import ErrorCode


@define(eq=False)
class ConsumerGroupEnvironment(GroupEnvironment[ConsumerGroupSettings, Assignor]):
    """Dependencies of all consumer groups of one coordinator."""

    regexes: RegexResolver

    def check_regex(self, regex: str) -> None:
        problem = self.regexes.problem(regex)
        if problem is not None:
            raise RefusedError(ErrorCode.INVALID_REGULAR_EXPRESSION, problem)


class ConsumerGroupState(Enum):
    """States of a consumer group by Kafka's names."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup(CommittingGroup[ConsumerState]):
    """One consumer group of one log partition.

    Attributes:
        is_resolving: a query for regular expressions is unanswered.
    """

    TYPE = GroupType.CONSUMER
    STATE = ConsumerState
    STATES = ConsumerGroupState
    SESSION = TimerKind.CONSUMER_SESSION
    REVOCATION = TimerKind.REVOCATION
    MEMBER_TIMERS = (TimerKind.CONSUMER_SESSION, TimerKind.REVOCATION, TimerKind.MEMBER_JOIN, TimerKind.MEMBER_SYNC)

    def __init__(self, group_id: str, partition: int, environment: ConsumerGroupEnvironment) -> None:
        super().__init__(group_id, partition, environment)
        self.is_resolving = False

    def uses_classic_protocol(self, member: ConsumerMember) -> bool:
        return member.uses_classic_protocol

    def held_since(self, member: ConsumerMember, topic: TopicToCommit) -> Callable[[int], int | None]:
        assigned = member.assignment.assigned.get(topic.topic_id, {})
        pending = member.assignment.pending_revocation.get(topic.topic_id, {})
        # A member may commit what it has to revoke until it has revoked it.
        return lambda partition: assigned.get(partition, pending.get(partition))

    def described(self) -> DescribedConsumerGroup:
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
            # As of Kafka 4.3 with partitions that the member has not revoked yet.
            self._described_partitions(member.partitions()),
            self._described_partitions(
                (topic_id, partition)
                for topic_id, partitions in self.state.targets.get(member.member_id, {}).items()
                for partition in partitions
            ),
            MemberType.CLASSIC if member.uses_classic_protocol else MemberType.CONSUMER,
        )

    def _described_partitions(self, partitions: Iterable[tuple[UUID, int]]) -> tuple[DescribedPartitions, ...]:
        by_topic: dict[UUID, list[int]] = {}
        for topic_id, partition in partitions:
            by_topic.setdefault(topic_id, []).append(partition)
        return tuple(
            DescribedPartitions(topic_id, name, tuple(sorted(indexes)))
            for topic_id, indexes in by_topic.items()
            if (name := self._environment.topics.topic_name(topic_id)) is not None
        )

    def max_size(self, config: Config) -> int:
        return config.group_consumer_max_size

    def _invariants(self) -> dict[str, bool]:
        held = [partition for member in self.state.members.values() for partition in member.partitions()]
        return {
            **super()._invariants(),
            "a partition is one member's": len(held) == len(set(held)),
            "who holds partitions is known": set(held) == self.state.owner_epochs.keys(),
        }


class ConsumerTimers(MemberTimers[ConsumerGroup, ConsumerMember]):
    """Timers of members of consumer groups."""

    __slots__ = ()

    def follow_assignment(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        # Classic members revoke by rejoining, within the timeout of their join timer.
        if member.metadata.classic_member_metadata is None:
            is_revoking = member.assignment.state is MemberState.UNREVOKED_PARTITIONS
            self.time_revocation(group, member, now_ms, is_revoking=is_revoking)

    def revive(self, group: ConsumerGroup, now_ms: int, *, uses_own_timeouts: bool = False) -> None:
        timeout_ms = self._environment.settings_of(group.group_id).session_timeout_ms
        for member_id, member in group.state.members.items():
            # A load uses the group's timeout for classic members, too; a conversion uses their own.
            if uses_own_timeouts:
                self.start_session(group, member, now_ms)
            else:
                self._timers.arm(group.timer(TimerKind.CONSUMER_SESSION, member_id), now_ms + timeout_ms)
            # Also for classic members, which have no revocation timer otherwise (``GroupMetadataManager.onLoaded``).
            is_revoking = member.assignment.state is MemberState.UNREVOKED_PARTITIONS
            self.time_revocation(group, member, now_ms, is_revoking=is_revoking)

    def start_session(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        classic = member.metadata.classic_member_metadata
        timeout_ms = self._environment.settings_of(group.group_id).session_timeout_ms
        if classic is not None:
            # A classic member has chosen its session timeout itself.
            timeout_ms = classic.session_timeout_ms
        self._timers.arm(group.timer(TimerKind.CONSUMER_SESSION, member.metadata.member_id), now_ms + timeout_ms)

    def await_join(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        timer = group.timer(TimerKind.MEMBER_JOIN, member.member_id)
        # Repeated heartbeats must not postpone the deadline for the rejoin.
        if timer.deadline_ms is None:
            self._timers.arm(timer, now_ms + member.metadata.rebalance_timeout_ms)

    def await_sync(self, group: ConsumerGroup, member_id: str, now_ms: int) -> None:
        member = group.state.members.get(member_id)
        if member is not None:
            self._timers.cancel(group.timer(TimerKind.MEMBER_JOIN, member_id))
            self.start_session(group, member, now_ms)
            sync_timer = group.timer(TimerKind.MEMBER_SYNC, member_id)
            self._timers.arm(sync_timer, now_ms + member.metadata.rebalance_timeout_ms)

    def synced(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        self._timers.cancel(group.timer(TimerKind.MEMBER_SYNC, member.member_id))
        self.start_session(group, member, now_ms)
