"""Consumer group (KIP-848): durable state as the fold of its records, drafts, soft state, and timers of its members.

Sources: ``ConsumerGroup`` (``preferredServerAssignor``, ``computePreferredServerAssignor``) and the ``replay`` methods
of ``GroupMetadataManager`` in Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from enum import Enum
from typing import Any, ClassVar
from uuid import UUID

from groupcoord.config import Config, GroupType
from groupcoord.config.group_settings import ConsumerGroupSettings
from groupcoord.core.events import Trigger
from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.groups.base.assignor import Assignor, Partitions, SubscriptionType, subscription_type
from groupcoord.core.groups.base.group import CommittingGroup, GroupEnvironment
from groupcoord.core.groups.base.state import Draft, ModernGroupState, ModernMember, count
from groupcoord.core.groups.consumer.reconciliation import (
    STATES_BY_NUMBER,
    MemberAssignment,
    MemberState,
    PartitionEpochs,
)
from groupcoord.core.groups.consumer.records import (
    AssignedTopicPartitions,
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
)
from groupcoord.core.javacompat import HashTable, buckets_of_copy, string_hash, timeline_map_order
from groupcoord.core.log.records import GroupTombstone
from groupcoord.core.messages import (
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedPartitions,
    JoinProtocol,
    MemberType,
    TopicToCommit,
)
from groupcoord.core.messages.request import RefusedError
from groupcoord.core.topics import KnownTopics, RegexResolver
from groupcoord.errors import ErrorCode


def preferred_assignor(votes: Mapping[str, int]) -> str | None:
    """Return the name with most votes, for descriptions; None without votes."""
    # A tie is decided by the order of Kafka's TimelineHashMap of votes.
    return _first_of_most(timeline_map_order(sorted(votes)), votes) if votes else None


def preferred_assignor_after(votes: Mapping[str, int], old_vote: str | None, new_vote: str | None) -> str | None:
    """Return the name with most votes after one member's change, for target assignments; None without votes."""
    if not votes and new_vote is None:
        return None
    after = dict(votes)
    # Kafka copies the votes into a HashMap here, so ties are broken in its order.
    names = HashTable(string_hash, timeline_map_order(sorted(votes)), buckets_of_copy(len(votes)) if votes else 16)
    if old_vote is not None:
        after[old_vote] -= 1
        if not after[old_vote]:
            del after[old_vote]
            names.discard(old_vote)
    if new_vote is not None:
        names.compute_if_absent(new_vote)
        after[new_vote] = after.get(new_vote, 0) + 1
    return _first_of_most(names, after)


def _first_of_most(names: Iterable[str], votes: Mapping[str, int]) -> str | None:
    most = max(votes.values(), default=0)
    return next((name for name in names if votes[name] == most), None)


NEW_ASSIGNMENT = MemberAssignment()

Partition = tuple[UUID, int]


@frozen
class ConsumerMember(ModernMember):
    """A member of a consumer group."""

    NEVER_CHANGES = True

    metadata: ConsumerGroupMemberMetadataRecord
    assignment: MemberAssignment = NEW_ASSIGNMENT

    @property
    def uses_classic_protocol(self) -> bool:
        return self.metadata.classic_member_metadata is not None

    @property
    def regex(self) -> str:
        """Subscribed regular expression; empty without one."""
        return self.metadata.subscribed_topic_regex or ""

    def partitions(self) -> list[Partition]:
        """Return the partitions that no other member may have: assigned or not released."""
        assignment = self.assignment
        return [
            (topic_id, partition)
            for held in (assignment.assigned, assignment.pending_revocation)
            for topic_id, epochs in held.items()
            for partition in epochs
        ]


class ConsumerState(ModernGroupState[ConsumerMember, Partitions]):
    """Durable state of one consumer group.

    Attributes:
        has_partition_metadata: a record of type 4 is in the log, which Kafka 4.1 and later remove.
        resolved: regular expression → record of its matching topics.
        name_subscribers, regex_subscribers, votes: number of members by topic name, expression, and assignor.
        owner_epochs: partition → epoch of the member that owns it or has not released it.
        seen_subscriptions: the type that Kafka keeps when expressions change; None after members do. Not in the log.
    """

    LARGE = frozenset({"members", "owner_epochs", "static_members", "targets"})
    SMALL = ("resolved", "name_subscribers", "regex_subscribers", "votes")
    NO_FACTS = frozenset({"seen_subscriptions", "shared"})
    MEMBER = ConsumerMember
    is_ready = True
    """Streams groups alone have a topology that may not be ready."""
    NEW_ASSIGNMENT = NEW_ASSIGNMENT
    RECORDS: ClassVar[Mapping[Any, str]] = {
        ConsumerGroupMetadataRecord: "group",
        ConsumerGroupPartitionMetadataRecord: "partition_metadata",
        ConsumerGroupMemberMetadataRecord: "member",
        ConsumerGroupTargetAssignmentMetadataRecord: "target_epoch",
        ConsumerGroupTargetAssignmentMemberRecord: "target",
        ConsumerGroupCurrentMemberAssignmentRecord: "assignment",
        ConsumerGroupRegularExpressionRecord: "regex",
    }

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.has_partition_metadata = False
        self.resolved: dict[str, ConsumerGroupRegularExpressionRecord] = {}
        self.name_subscribers: dict[str, int] = {}
        self.regex_subscribers: dict[str, int] = {}
        self.votes: dict[str, int] = {}
        self.classic_member_count = 0
        self.owner_epochs: MutableMapping[Partition, int] = {}
        self.seen_subscriptions: SubscriptionType | None = None

    # ------------------------------------------------------------ records

    def _apply_partition_metadata(self, record: ConsumerGroupPartitionMetadataRecord) -> None:
        # Kafka 3.7 to 4.0 wrote this record; the topics' hash has replaced it (KIP-1101).
        self.has_partition_metadata = True

    def _apply_regex(self, record: ConsumerGroupRegularExpressionRecord) -> None:
        # Kafka computes the type when members change, and keeps it when expressions do.
        self.seen_subscriptions = self.last_seen_subscriptions()
        self.resolved[record.regular_expression] = record

    def _forget_partition_metadata(self, _: str) -> None:
        self.has_partition_metadata = False

    def _forget_regex(self, regular_expression: str) -> None:
        self.seen_subscriptions = self.last_seen_subscriptions()
        # A downgrade may write this tombstone twice.
        self.resolved.pop(regular_expression, None)

    def tombstones(self, regexes: Iterable[str] | None = None) -> list[GroupTombstone]:
        regexes = self.resolved if regexes is None else regexes
        keys = [
            *(ConsumerGroupCurrentMemberAssignmentRecord.key_of(member_id) for member_id in self.members),
            *(
                ConsumerGroupTargetAssignmentMemberRecord.key_of(member_id)
                # A compacted log may hold a target without its member.
                for member_id in {**self.members, **self.targets}
            ),
            ConsumerGroupTargetAssignmentMetadataRecord.key,
            *(ConsumerGroupMemberMetadataRecord.key_of(member_id) for member_id in self.members),
            *(ConsumerGroupRegularExpressionRecord.key_of(regex) for regex in regexes),
            ConsumerGroupPartitionMetadataRecord.key,  # an older broker may have written one, so Kafka makes sure
            ConsumerGroupMetadataRecord.key,
        ]
        return [GroupTombstone(self.group_id, key) for key in keys]

    # ------------------------------------------------------------ what follows from them

    def no_metadata(self, member_id: str) -> ConsumerGroupMemberMetadataRecord:
        return ConsumerGroupMemberMetadataRecord(self.group_id, member_id, None, None, "", "")

    def _assignment_of(self, record: ConsumerGroupCurrentMemberAssignmentRecord) -> MemberAssignment:
        return MemberAssignment(
            record.member_epoch,
            record.previous_member_epoch,
            STATES_BY_NUMBER.get(record.state, MemberState.UNKNOWN),
            _epochs_of(record.assigned_partitions, record.member_epoch),
            _epochs_of(record.partitions_pending_revocation, record.member_epoch),
        )

    def assignment_record(
        self, member_id: str, assignment: MemberAssignment
    ) -> ConsumerGroupCurrentMemberAssignmentRecord:
        return ConsumerGroupCurrentMemberAssignmentRecord(
            self.group_id,
            member_id,
            assignment.member_epoch,
            assignment.previous_member_epoch,
            assignment.state,
            _topics_of(assignment.assigned),
            _topics_of(assignment.pending_revocation),
        )

    def _count(self, member: ConsumerMember, change: int) -> None:
        super()._count(member, change)
        metadata = member.metadata
        # A record may name a topic twice.
        for name in set(metadata.subscribed_topic_names):
            count(self.name_subscribers, name, change)
        if metadata.subscribed_topic_regex:
            count(self.regex_subscribers, metadata.subscribed_topic_regex, change)
        if metadata.server_assignor is not None:
            count(self.votes, metadata.server_assignor, change)
        if metadata.classic_member_metadata is not None:
            self.classic_member_count += change

    def _reassign(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        self.seen_subscriptions = None
        # Only the metadata changed.
        if before is not None and after is not None and before.assignment is after.assignment:
            return
        if before is not None and (before.assignment.assigned or before.assignment.pending_revocation):
            self._release(before)
        if after is not None and (after.assignment.assigned or after.assignment.pending_revocation):
            self._own("owner_epochs")
            # Kafka's index holds member epochs, not those of the assignments.
            self.owner_epochs.update(dict.fromkeys(after.partitions(), after.assignment.member_epoch))

    def _release(self, member: ConsumerMember) -> None:
        epoch = member.assignment.member_epoch
        # A newer owner's record may come before the release by this member (KAFKA-19862).
        gone = [partition for partition in member.partitions() if self.owner_epochs.get(partition) == epoch]
        if gone:
            self._own("owner_epochs")
            for partition in gone:
                del self.owner_epochs[partition]

    # ------------------------------------------------------------ questions

    def topics_of(self, member: ConsumerMember) -> set[str]:
        names = set(member.metadata.subscribed_topic_names)
        resolved = self.resolved.get(member.metadata.subscribed_topic_regex or "")
        return names if resolved is None else names.union(resolved.topics)

    def subscribed_topics(self) -> set[str]:
        names = set(self.name_subscribers)
        for record in self.resolved.values():
            names.update(record.topics)
        return names

    def has_subscribers(self, topic: str) -> bool:
        return topic in self.name_subscribers or any(topic in record.topics for record in self.resolved.values())

    def topics_hash(self, topics: KnownTopics) -> int:
        return topics.metadata_hash(self.subscribed_topics())

    def subscription_type(self) -> SubscriptionType:
        return subscription_type(len(self.members), self.name_subscribers, self.regex_subscribers)

    def last_seen_subscriptions(self) -> SubscriptionType:
        """Return the subscription type that Kafka computed last (``ConsumerGroup.subscriptionType``)."""
        if self.seen_subscriptions is not None:
            return self.seen_subscriptions
        # A member's tombstone comes before that of its expression, which Kafka still counts then.
        left_over = {
            topic
            for regex, record in self.resolved.items()
            if regex not in self.regex_subscribers
            for topic in record.topics
        }
        if self.regex_subscribers:
            used = {
                topic
                for regex in self.regex_subscribers
                if regex in self.resolved
                for topic in self.resolved[regex].topics
            }
            is_equal = left_over.isdisjoint(used)
        else:
            is_equal = all(self.name_subscribers.get(topic) == len(self.members) for topic in left_over)
        if not is_equal:
            return SubscriptionType.HETEROGENEOUS
        return self.subscription_type()

    def is_settled(self, member: ConsumerMember) -> bool:
        assignment = member.assignment
        return assignment.state is MemberState.STABLE and assignment.member_epoch == self.assignment_epoch


def _epochs_of(topics: Iterable[AssignedTopicPartitions], member_epoch: int) -> PartitionEpochs:
    found = {}
    for topic_id, partitions, epochs in topics:
        # Brokers before 4.3 wrote no assignment epochs: then the member's epoch counts.
        found[topic_id] = dict(zip(partitions, epochs or [member_epoch] * len(partitions), strict=True))
    return found


def _topics_of(partitions: PartitionEpochs) -> tuple[AssignedTopicPartitions, ...]:
    if not partitions:
        # The usual case of pending revocations.
        return ()
    return tuple(
        [
            AssignedTopicPartitions(topic_id, tuple(epochs), tuple(epochs.values()))
            for topic_id, epochs in partitions.items()
        ]
    )


@frozen
class Downgrade:
    """Continuation of a group as a classic one: the trigger of its rebalance, if any, and its members' protocols."""

    trigger: Trigger | None
    protocols: Mapping[str, tuple[JoinProtocol, ...]]


class ConsumerDraft(Draft[ConsumerState]):
    """A draft of a consumer group, which may become a classic one.

    ``joined`` are members that joined with the classic protocol, and have to sync.
    """

    __slots__ = ("downgrade", "joined")

    def __init__(self, durable: ConsumerState) -> None:
        super().__init__(durable)
        self.joined: list[str] = []
        self.downgrade: Downgrade | None = None

    def roll_back(self) -> None:
        # ``joined`` stays: a refused join has added no member.
        super().roll_back()
        self.downgrade = None


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

    environment: ConsumerGroupEnvironment

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
            assignor_name=preferred_assignor(state.votes) or self.environment.default_assignor,
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
            if (name := self.environment.topics.resolver.topic_name(topic_id)) is not None
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
