"""A consumer group (KIP-848): its durable state, and what a restart may forget of it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import cast
from uuid import UUID

from groupcoord.config import Config
from groupcoord.core.consumer.environment import ConsumerGroupEnvironment
from groupcoord.core.consumer.state import ConsumerMember, ConsumerState, group_tombstones
from groupcoord.core.consumer.votes import preferred_assignor
from groupcoord.core.groups import Group
from groupcoord.core.messages import (
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedPartitions,
    GroupToFetch,
    ListedGroup,
    MemberType,
    OffsetCommit,
    TopicToCommit,
    TxnOffsetCommit,
)
from groupcoord.core.modern.group import BEFORE_ALL_APPENDS, ModernGroup, described_partitions
from groupcoord.core.offsets.drafting import accept_metadata
from groupcoord.core.records import CommitKind, Record
from groupcoord.core.timers import TimerKind, TimerQueue
from groupcoord.errors import NO_ERROR, ErrorCode

CONSUMER_GROUP_TYPE = "consumer"
CONSUMER_PROTOCOL_TYPE = "consumer"


class ConsumerGroupState(Enum):
    """Where a consumer group stands, by Kafka's names."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup(ModernGroup[ConsumerState]):
    """One group of one log partition.

    Attributes:
        is_resolving: the host was asked to match regular expressions, and has not answered.
    """

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
        self._environment = environment

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

    def commit_error(
        self, request: OffsetCommit, topics: tuple[TopicToCommit, ...], timers: TimerQueue, now_ms: int
    ) -> ErrorCode:
        """Return NONE if the request may commit. A commit is no sign of life: heartbeats are (KIP-848)."""
        if request.generation_id < 0 and not self.state.members:
            return ErrorCode.NONE
        member = self.state.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not member.uses_classic_protocol and not request.supports_member_epoch:
            return ErrorCode.UNSUPPORTED_VERSION
        return self._epoch_error(member, request.generation_id, topics)

    def transactional_commit_error(self, request: TxnOffsetCommit) -> ErrorCode:
        """Return NONE if the request may commit in its producer's transaction. It need not name a member."""
        if request.generation_id < 0 and not self.state.members:
            return ErrorCode.NONE
        if request.generation_id == -1 and not request.member_id and request.group_instance_id is None:
            return ErrorCode.NONE
        member = self.state.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self._epoch_error(member, request.generation_id, request.topics)

    def _epoch_error(self, member: ConsumerMember, epoch: int, topics: tuple[TopicToCommit, ...]) -> ErrorCode:
        """Return NONE if a member may commit with an epoch.

        An epoch that is over is good for partitions that the member has had since then (KIP-1251, Kafka 4.3).
        """
        assignment = member.assignment
        if epoch == assignment.member_epoch:
            return NO_ERROR
        stale = ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
        if epoch > assignment.member_epoch:
            return stale
        limit = self._environment.config.offset_metadata_max_bytes
        for topic in topics:
            assigned = assignment.assigned.get(topic.topic_id, {})
            pending = assignment.pending_revocation.get(topic.topic_id, {})
            columns, _ = accept_metadata(topic.columns, limit)  # others are refused for that
            # Each partition once: a request may name few of them a million times.
            for partition in set(columns.partition_indexes):
                since = assigned.get(partition, pending.get(partition))
                if since is None or epoch < since:
                    return stale
        return ErrorCode.NONE

    def fetch_error(self, wanted: GroupToFetch) -> ErrorCode:
        """Return NONE if the request may see the offsets: it names no member, or one with its epoch."""
        if wanted.member_id is None:
            return ErrorCode.NONE if wanted.member_epoch < 0 else ErrorCode.UNKNOWN_SERVER_ERROR
        member = self.state.members.get(wanted.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if wanted.member_epoch == member.assignment.member_epoch:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH

    def offset_deletion_error(self) -> ErrorCode:
        """Return NONE: what members use is known."""
        return ErrorCode.NONE

    def offset_age_base_ms(self, commit: CommitKind) -> int | None:
        """Return the moment of the commit; None for topics that members subscribe to, whose offsets don't expire."""
        return None if self.uses_topic(commit.topic) else commit.commit_timestamp_ms

    def listed(self) -> ListedGroup:
        """Return the group as ListGroups shows it."""
        return ListedGroup(self.group_id, CONSUMER_PROTOCOL_TYPE, self.group_state.value, CONSUMER_GROUP_TYPE)

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

    def tombstones(self) -> list[Record]:
        """Return the tombstones of all that the log has of the group but its offsets, in Kafka's order."""
        return list(group_tombstones(self.state))

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
