"""Share group (KIP-932): durable state as the fold of its records, drafts, initialized partitions, and soft state.

Sources: ``ShareGroup``, the ``replay`` methods and ``ShareGroupStatePartitionMetadata…`` of ``GroupMetadataManager`` in
Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import Any, ClassVar, NamedTuple, TypeVar
from uuid import UUID

from attrs import evolve, field

from groupcoord.config import Config, GroupType
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.groups.base.assignor import Assignor, Partitions, SubscriptionType, subscription_type
from groupcoord.core.groups.base.group import GroupEnvironment, ModernGroup
from groupcoord.core.groups.base.state import Draft, ModernGroupState, ModernMember, count
from groupcoord.core.groups.group import Deletion
from groupcoord.core.groups.share.records import (
    NamedTopic,
    NamedTopicPartitions,
    ShareGroupCurrentMemberAssignmentRecord,
    ShareGroupMemberMetadataRecord,
    ShareGroupMetadataRecord,
    ShareGroupStatePartitionMetadataRecord,
    ShareGroupTargetAssignmentMemberRecord,
    ShareGroupTargetAssignmentMetadataRecord,
)
from groupcoord.core.javacompat import HashTable, uuid_hash
from groupcoord.core.log.record_keys import TopicPartitions
from groupcoord.core.log.records import CommitKind, GroupTombstone
from groupcoord.core.messages import (
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponse,
    DescribedPartitions,
    DescribedShareGroup,
    DescribedShareMember,
    GroupToFetch,
    OffsetCommit,
    Reply,
    Token,
    TopicToCommit,
    TxnOffsetCommit,
)
from groupcoord.core.messages.share_state import DeleteShareGroupState, InitializeShareGroupState
from groupcoord.core.timers import TimerQueue
from groupcoord.core.topics import KnownTopics
from groupcoord.errors import ErrorCode

T = TypeVar("T")

UNKNOWN_TOPIC_NAME = "<UNKNOWN>"


class NamedPartitions(NamedTuple):
    """Partitions of a topic, with its name."""

    name: str
    partitions: frozenset[int]


PartitionsByTopic = Mapping[UUID, frozenset[int]]


@frozen
class StatePartitions:
    """Share-partition states of a group at the share coordinator, by topic id.

    Attributes:
        initializing: partitions with a requested initialization.
        initialized: partitions with a state.
        deleting: names of topics with a requested deletion.
        is_written: the log has a record of it, maybe an empty one.
    """

    NEVER_CHANGES = True

    initializing: Mapping[UUID, NamedPartitions] = field(factory=dict)
    initialized: Mapping[UUID, NamedPartitions] = field(factory=dict)
    deleting: Mapping[UUID, str] = field(factory=dict)
    is_written: bool = True

    @classmethod
    def of(cls, record: ShareGroupStatePartitionMetadataRecord) -> StatePartitions:
        return cls(
            _by_topic(record.initializing_topics),
            _by_topic(record.initialized_topics),
            dict(record.deleting_topics),
        )

    def to_record(self, group_id: str) -> ShareGroupStatePartitionMetadataRecord:
        return ShareGroupStatePartitionMetadataRecord(
            group_id,
            _named_topics(self.initializing),
            _named_topics(self.initialized),
            # In the order of Java's hash maps, which the bytes of the record show.
            tuple([NamedTopic(topic_id, self.deleting[topic_id]) for topic_id in HashTable(uuid_hash, self.deleting)]),
        )

    # ------------------------------------------------------------ changes

    def begin(self, partitions: PartitionsByTopic, name_of: Callable[[UUID], str | None]) -> StatePartitions:
        return StatePartitions(
            _with(self.initializing, partitions, name_of),
            self.initialized,
            # A topic that is read again is no longer to be deleted.
            _other_than(partitions, self.deleting),
        )

    def complete(self, partitions: PartitionsByTopic, name_of: Callable[[UUID], str | None]) -> StatePartitions:
        return StatePartitions(
            _without(self.initializing, partitions), _with(self.initialized, partitions, name_of), self.deleting
        )

    def give_up(self, partitions: PartitionsByTopic) -> StatePartitions:
        """Remove partitions after a failed initialization."""
        return evolve(self, initializing=_without(self.initializing, partitions))

    def forgotten(self, topic_ids: Collection[UUID]) -> StatePartitions:
        """Remove topics after the deletion of their states."""
        return evolve(self, deleting=_other_than(topic_ids, self.deleting))

    def without_topics(self, topic_ids: Collection[UUID]) -> StatePartitions:
        return evolve(
            self,
            initializing=_other_than(topic_ids, self.initializing),
            initialized=_other_than(topic_ids, self.initialized),
            deleting=_other_than(topic_ids, self.deleting),
        )

    # ------------------------------------------------------------ questions

    def name_of(self, topic_id: UUID, name_of: Callable[[UUID], str | None]) -> str:
        """Return the name of a topic as logged, or the current one."""
        for topics in (self.initialized, self.initializing):
            if topic_id in topics:
                return topics[topic_id].name
        return self.deleting.get(topic_id) or name_of(topic_id) or UNKNOWN_TOPIC_NAME

    def knows(self, topic_id: UUID) -> bool:
        return topic_id in self.initialized or topic_id in self.initializing

    def missing(self, topic_id: UUID, partition_count: int, *, counts_initializing: bool) -> frozenset[int]:
        """Return the partitions of a topic for which states are to be made."""
        missing = set(range(partition_count)) - _partitions_of(self.initialized, topic_id)
        # After the retry interval a requested initialization counts as lost.
        return frozenset(missing - _partitions_of(self.initializing, topic_id) if counts_initializing else missing)


NO_STATE_PARTITIONS = StatePartitions(is_written=False)


def _other_than(gone: Collection[UUID], topics: Mapping[UUID, T]) -> dict[UUID, T]:
    return {topic_id: each for topic_id, each in topics.items() if topic_id not in gone}


def _by_topic(topics: Iterable[NamedTopicPartitions]) -> dict[UUID, NamedPartitions]:
    return {topic_id: NamedPartitions(name, frozenset(partitions)) for topic_id, name, partitions in topics}


def _named_topics(topics: Mapping[UUID, NamedPartitions]) -> tuple[NamedTopicPartitions, ...]:
    return tuple(
        [
            NamedTopicPartitions(topic_id, topics[topic_id].name, tuple(sorted(topics[topic_id].partitions)))
            for topic_id in HashTable(uuid_hash, topics)
        ]
    )


def _partitions_of(topics: Mapping[UUID, NamedPartitions], topic_id: UUID) -> frozenset[int]:
    found = topics.get(topic_id)
    return frozenset() if found is None else found.partitions


def _with(
    topics: Mapping[UUID, NamedPartitions], partitions: PartitionsByTopic, name_of: Callable[[UUID], str | None]
) -> dict[UUID, NamedPartitions]:
    changed = dict(topics)
    for topic_id, more in partitions.items():
        # Kafka writes this name if the topic was deleted meanwhile.
        name = name_of(topic_id) or UNKNOWN_TOPIC_NAME
        changed[topic_id] = NamedPartitions(name, _partitions_of(topics, topic_id) | more)
    return changed


def _without(topics: Mapping[UUID, NamedPartitions], partitions: PartitionsByTopic) -> dict[UUID, NamedPartitions]:
    left = {}
    for topic_id, (name, found) in topics.items():
        rest = found - partitions.get(topic_id, frozenset())
        # A topic that an alteration wrote without partitions stays.
        if rest or topic_id not in partitions:
            left[topic_id] = NamedPartitions(name, rest)
    return left


NEW_MEMBER_EPOCH = 0
NO_PREVIOUS_EPOCH = -1
STABLE = 0
"""The only state of a member, in its record."""


@frozen
class ShareAssignment:
    """Assignment of a member: the value of its record of type 14."""

    member_epoch: int = NEW_MEMBER_EPOCH
    previous_member_epoch: int = NO_PREVIOUS_EPOCH
    assigned: Partitions = field(factory=dict)

    is_revoking: ClassVar[bool] = False

    def by_topic(self) -> tuple[TopicPartitions, ...]:
        return tuple([TopicPartitions(topic_id, tuple(indexes)) for topic_id, indexes in self.assigned.items()])


NEW_ASSIGNMENT = ShareAssignment()


@frozen
class ShareMember(ModernMember):
    """A member of a share group; there are no static ones."""

    NEVER_CHANGES = True

    metadata: ShareGroupMemberMetadataRecord
    assignment: ShareAssignment = NEW_ASSIGNMENT


class ShareState(ModernGroupState[ShareMember, Partitions]):
    """Durable state of one share group.

    Attributes:
        name_subscribers: topic name → how many members name it.
    """

    SMALL = ("name_subscribers",)
    MEMBER = ShareMember
    NEW_ASSIGNMENT = NEW_ASSIGNMENT
    RECORDS: ClassVar[Mapping[Any, str]] = {
        ShareGroupMemberMetadataRecord: "member",
        ShareGroupMetadataRecord: "group",
        ShareGroupTargetAssignmentMetadataRecord: "target_epoch",
        ShareGroupTargetAssignmentMemberRecord: "target",
        ShareGroupCurrentMemberAssignmentRecord: "assignment",
        ShareGroupStatePartitionMetadataRecord: "state_partitions",
    }

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.name_subscribers: dict[str, int] = {}
        self.state_partitions: StatePartitions = NO_STATE_PARTITIONS

    # ------------------------------------------------------------ records

    def _apply_state_partitions(self, record: ShareGroupStatePartitionMetadataRecord) -> None:
        self.state_partitions = StatePartitions.of(record)

    def _forget_state_partitions(self, _: str) -> None:
        self.state_partitions = NO_STATE_PARTITIONS

    def tombstones(self) -> list[GroupTombstone]:
        keys = (
            ShareGroupTargetAssignmentMetadataRecord.key,
            ShareGroupStatePartitionMetadataRecord.key,
            ShareGroupMetadataRecord.key,
        )
        return [
            *self.member_tombstones(*{**self.members, **self.targets}),
            *(GroupTombstone(self.group_id, key) for key in keys),
        ]

    # ------------------------------------------------------------ what follows from them

    def no_metadata(self, member_id: str) -> ShareGroupMemberMetadataRecord:
        return ShareGroupMemberMetadataRecord(self.group_id, member_id, None, "", "")

    def _assignment_of(self, record: ShareGroupCurrentMemberAssignmentRecord) -> ShareAssignment:
        return ShareAssignment(record.member_epoch, record.previous_member_epoch, dict(record.assigned_partitions))

    def assignment_record(self, member_id: str, assignment: ShareAssignment) -> ShareGroupCurrentMemberAssignmentRecord:
        return ShareGroupCurrentMemberAssignmentRecord(
            self.group_id,
            member_id,
            assignment.member_epoch,
            assignment.previous_member_epoch,
            STABLE,
            assignment.by_topic(),
        )

    def _count(self, member: ShareMember, change: int) -> None:
        # Not the base method: share groups have no static members.
        for name in member.metadata.subscribed_topic_names:
            count(self.name_subscribers, name, change)

    # ------------------------------------------------------------ questions

    def has_subscribers(self, topic: str) -> bool:
        return topic in self.name_subscribers

    def topics_hash(self, topics: KnownTopics) -> int:
        return topics.metadata_hash(self.name_subscribers)

    def subscription_type(self) -> SubscriptionType:
        return subscription_type(len(self.members), self.name_subscribers, {})

    def is_initialized_assigned(self) -> bool:
        """Return whether targets have exactly the initialized partitions of subscribed topics that have any."""
        initialized = {
            topic_id: partitions
            for topic_id, (name, partitions) in self.state_partitions.initialized.items()
            if name in self.name_subscribers
        }
        if not initialized or not self.members:
            # Without members Kafka has no assignment to wait for.
            return True
        assigned: dict[UUID, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return all(assigned.get(topic_id, set()) == partitions for topic_id, partitions in initialized.items())


StateRequest = InitializeShareGroupState | DeleteShareGroupState

AwaitedResponse = AlterShareGroupOffsetsResponse | DeleteShareGroupOffsetsResponse


@define(eq=False)
class StateChange:
    """Query to the share coordinator, sent after the group has written its intention.

    Attributes:
        response: the response on success of the request that waits for it, if any.
        token: of that request; None after its timeout.
    """

    request: StateRequest
    response: AwaitedResponse | None = None
    token: Token = None
    deletion: Deletion | None = None

    def parked_tokens(self) -> list[Token]:
        token = self.token if self.deletion is None else self.deletion.token
        return [] if token is None else [token]

    def refuse(self, error_code: ErrorCode) -> list[Reply]:
        if self.deletion is not None:
            return self.deletion.refuse(error_code)
        # At most one response: the query may still be answered.
        token, self.token = self.token, None
        if token is None or self.response is None:
            return []
        return [Reply(token, type(self.response)(error_code))]


class ShareDraft(Draft[ShareState]):
    """Draft of a share group.

    Attributes:
        changes: queries to the share coordinator.
    """

    __slots__ = ("_marked_changes", "changes")

    def __init__(self, durable: ShareState) -> None:
        super().__init__(durable)
        self.changes: list[StateChange] = []
        self._marked_changes = 0

    def mark(self) -> None:
        super().mark()
        self._marked_changes = len(self.changes)

    def roll_back(self) -> None:
        super().roll_back()
        del self.changes[self._marked_changes :]


ShareGroupEnvironment = GroupEnvironment[ShareGroupSettings, Assignor]


class ShareGroupState(Enum):
    """States of a share group by Kafka's names."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


class ShareGroup(ModernGroup[ShareState]):
    """One share group of one log partition.

    Attributes:
        changes: unanswered queries to the share coordinator.
        state_partitions_ms: time of the last write or load of the record of initialized partitions.
    """

    TYPE = GroupType.SHARE
    STATE = ShareState

    may_expire: ClassVar[bool] = False
    """Kafka keeps share groups until they are deleted."""

    environment: ShareGroupEnvironment

    def __init__(self, group_id: str, partition: int, environment: ShareGroupEnvironment) -> None:
        super().__init__(group_id, partition, environment)
        self.changes: list[StateChange] = []
        self.state_partitions_ms = 0

    @property
    def group_state(self) -> ShareGroupState:
        if self.is_dead:
            return ShareGroupState.DEAD
        # Nothing is revoked with consent, so there are no states in between.
        return ShareGroupState.STABLE if self.state.members else ShareGroupState.EMPTY

    @property
    def is_rebalancing(self) -> bool:
        state = self.state
        # Kafka has no such state of share groups; observers do.
        return state.epoch > state.assignment_epoch or any(
            member.member_epoch != state.assignment_epoch for member in state.members.values()
        )

    # ------------------------------------------------------------ offsets, which share groups do not commit

    def commit_error(
        self, request: OffsetCommit, topics: tuple[TopicToCommit, ...], timers: TimerQueue, now_ms: int
    ) -> ErrorCode:
        # For commits a share group does not exist in Kafka.
        return ErrorCode.GROUP_ID_NOT_FOUND

    def transactional_commit_error(self, request: TxnOffsetCommit) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def fetch_error(self, wanted: GroupToFetch) -> ErrorCode:
        return ErrorCode.NONE

    def offset_deletion_error(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def offset_age_base_ms(self, commit: CommitKind) -> int | None:
        return commit.commit_timestamp_ms

    # ------------------------------------------------------------ administration

    def described(self) -> DescribedShareGroup:
        state, topics = self.state, self.environment.topics.resolver
        return DescribedShareGroup(
            self.group_id,
            group_state=self.group_state.value,
            group_epoch=state.epoch,
            assignment_epoch=state.assignment_epoch,
            assignor_name=self.environment.default_assignor,
            members=tuple(
                [
                    DescribedShareMember(
                        member.member_id,
                        member.metadata.rack_id,
                        member.member_epoch,
                        member.metadata.client_id,
                        member.metadata.client_host,
                        member.metadata.subscribed_topic_names,
                        # A topic of which the member has nothing left is shown, empty.
                        tuple(
                            [
                                DescribedPartitions(topic_id, name, tuple(sorted(partitions)))
                                for topic_id, partitions in member.assignment.assigned.items()
                                if (name := topics.topic_name(topic_id)) is not None
                            ]
                        ),
                    )
                    for member in state.members.values()
                ]
            ),
        )

    def refuse_waiting(self, error_code: ErrorCode, *, names_members: bool = True) -> list[Reply]:
        return [reply for change in self.changes for reply in change.refuse(error_code)]

    def max_size(self, config: Config) -> int:
        return config.group_share_max_size

    def parked_tokens(self) -> list[Token]:
        """Return the tokens of all requests that wait for the log or the share coordinator."""
        # A draft's queries join ``changes`` when it is durable.
        drafted = [] if self.writing is None else self.writing.changes  # type: ignore[attr-defined]
        waiting = [token for change in (*self.changes, *drafted) for token in change.parked_tokens()]
        return super().parked_tokens() + waiting
