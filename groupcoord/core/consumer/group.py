"""A consumer group (KIP-848): its durable state, and what a restart may forget of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from typing import cast
from uuid import UUID

from attrs import frozen

from groupcoord.config import Config
from groupcoord.config.group_settings import ConsumerGroupSettings
from groupcoord.core.consumer.draft import Draft
from groupcoord.core.consumer.environment import GroupEnvironment
from groupcoord.core.consumer.state import ConsumerMember, ConsumerState, group_tombstones
from groupcoord.core.consumer.votes import preferred_assignor
from groupcoord.core.groups import Group
from groupcoord.core.hard_state import RecordsOfGroup
from groupcoord.core.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
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
from groupcoord.core.offsets.drafting import accept_metadata
from groupcoord.core.questions import ResolvedRegexes
from groupcoord.core.records import CommitKind, Record
from groupcoord.core.replies import Reply, Token, Waiting
from groupcoord.core.timers import Timer, TimerKey, TimerKind, TimerQueue
from groupcoord.errors import NO_ERROR, ErrorCode, InvariantError

BEFORE_ALL_APPENDS = -1

MEMBER_TIMERS = (TimerKind.CONSUMER_SESSION, TimerKind.REVOCATION, TimerKind.MEMBER_JOIN, TimerKind.MEMBER_SYNC)
"""The kinds of timers that a member can have."""

CONSUMER_GROUP_TYPE = "consumer"
CONSUMER_PROTOCOL_TYPE = "consumer"


class ConsumerGroupState(Enum):
    """Where a consumer group stands, by Kafka's names."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@frozen(eq=False)
class SteadyHeartbeat:
    """A heartbeat that changed nothing, and what it was answered: the next one like it is answered the same.

    Attributes:
        request: the heartbeat.
        response: its answer.
        writes: how often something had been written for the group.
        settings: what held for the group's members.
        session_timeout_ms: how long the member's session was then.
        topics_version: of the topics against which regular expressions were matched.
        until_ms: when those are to be matched again.
        session_timer: of the member.
    """

    request: ConsumerGroupHeartbeat
    response: ConsumerGroupHeartbeatResponse
    writes: int
    settings: ConsumerGroupSettings
    session_timeout_ms: int
    topics_version: int
    until_ms: int
    session_timer: Timer


class ConsumerGroup:
    """One group of one log partition.

    Attributes:
        group_id: its id.
        first_append: readers see the group when the append with this number or a later one is durable.
        state: what the log says of it.
        writing: what is on its way to the log; None if nothing is. Nothing else is written for the group meanwhile.
        writes: how often something was written for the group, since it was made or loaded.
        steady: member id → its last heartbeat, if that changed nothing.
        waiting: requests that may have to write, in their order: they wait until the log has answered.
        is_topics_look_due: the subscribed topics have to be looked at by the next heartbeat: they may have changed.
        is_resolving: the host was asked to match regular expressions, and has not answered.
        resolved: what has been matched meanwhile.
        overdue: timers that have fired meanwhile.
        fencing: timers that have fired, and whose consequence is on its way to the log.
        revoking_epochs: member id → its epoch when it was last told to give something back.
    """

    def __init__(
        self, group_id: str, partition: int, environment: GroupEnvironment, *, first_append: int = BEFORE_ALL_APPENDS
    ) -> None:
        self.group_id = group_id
        self.first_append = first_append
        self.state = ConsumerState(group_id)
        self.writing: Draft | None = None
        self.writes = 0
        self.steady: dict[str, SteadyHeartbeat] = {}
        self.waiting: list[Waiting] = []
        self.is_topics_look_due = True
        self.is_resolving = False
        self.resolved: ResolvedRegexes | None = None
        self.is_dead = False
        self.overdue: list[TimerKey] = []
        self.fencing: list[TimerKey] = []
        self._timers: dict[tuple[TimerKind, str], Timer] = {}
        self.revoking_epochs: dict[str, int] = {}
        self._proof: tuple[list[int], ConsumerState] | None = None
        self._environment = environment
        self._partition = partition

    # ------------------------------------------------------------ what waits for a write

    def take_waiting(self) -> list[Waiting]:
        """Return the requests that wait for a write; nothing follows it any more but its own outcome."""
        waiting, self.waiting = self.waiting, []
        self.overdue.clear()
        self.resolved = None
        return waiting

    @property
    def newest_state(self) -> ConsumerState:
        """What the log will say if it takes what is on its way."""
        return self.state if self.writing is None else self.writing.state

    # ------------------------------------------------------------ timers

    def timer(self, kind: TimerKind, member_id: str) -> Timer:
        """Return the timer of this kind of a member."""
        timer = self._timers.get((kind, member_id))
        if timer is None:
            timer = Timer(TimerKey(kind, self._partition, self.group_id, member_id))
            self._timers[kind, member_id] = timer
        return timer

    def known_timer(self, kind: TimerKind, member_id: str) -> Timer | None:
        """Return the timer of this kind of a member; None if nobody ever asked for it, so that it isn't armed."""
        return self._timers.get((kind, member_id))

    def drop_timers(self, member_id: str) -> Iterator[Timer]:
        """Forget the timers of a member that is gone, and return them to be cancelled."""
        self.revoking_epochs.pop(member_id, None)
        self.steady.pop(member_id, None)
        for kind in MEMBER_TIMERS:
            timer = self._timers.pop((kind, member_id), None)
            if timer is not None:
                yield timer

    def timers(self) -> Iterator[Timer]:
        """Return all timers of the group, armed or not."""
        yield from self._timers.values()

    # ------------------------------------------------------------ what is asked of any kind of group

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
    def is_empty(self) -> bool:
        """True without members, if none is on its way."""
        return not self.state.members and self.writing is None

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

    def uses_topic(self, topic: str) -> bool:
        """Tell whether members subscribe to a topic, or will if the log takes what is on its way."""
        return self.state.has_subscribers(topic) or self.newest_state.has_subscribers(topic)

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
        """Return partitions by topic; topics that are gone are left out."""
        by_topic: dict[UUID, list[int]] = {}
        for topic_id, partition in partitions:
            by_topic.setdefault(topic_id, []).append(partition)
        return tuple(
            DescribedPartitions(topic_id, name, tuple(sorted(indexes)))
            for topic_id, indexes in by_topic.items()
            if (name := self._environment.topics.topic_name(topic_id)) is not None
        )

    def tombstones(self) -> list[Record]:
        """Return the tombstones of all that the log has of the group but its offsets, in Kafka's order."""
        return list(group_tombstones(self.state))

    def end(self, now_ms: int) -> None:
        """The group is gone from this coordinator."""
        self.is_dead = True

    def refuse_waiting(self, error_code: ErrorCode, *, names_members: bool = True) -> list[Reply]:
        """Return no refusal: members don't wait for each other."""
        return []

    def topics_changed(self, names: Collection[str]) -> None:
        """Topics came, grew or went: if members subscribe to one of them, the next heartbeat looks at all."""
        if any(map(self.newest_state.has_subscribers, names)):
            self.is_topics_look_due = True

    # ------------------------------------------------------------ looking inside

    def parked_tokens(self) -> list[Token]:
        """Return the tokens of all requests that wait in the group."""
        return [entry.token for entry in self.waiting]

    def member_ids(self) -> Collection[str]:
        """Return the ids of all members."""
        return self.state.members.keys()

    def counted_size(self) -> int:
        """Return how many members count for the limit of the group's size."""
        return len(self.state.members)

    def max_size(self, config: Config) -> int:
        """Return ``group.consumer.max.size``."""
        return config.group_consumer_max_size

    def check(self) -> None:
        """Prove the group's invariants.

        Raises:
            InvariantError: one does not hold.
        """
        for rule, holds in self._invariants().items():
            if not holds:
                raise InvariantError(f"group {self.group_id!r} in {self.group_state.value}: {rule}")

    def _invariants(self) -> dict[str, bool]:
        state = self.state
        held = [partition for member in state.members.values() for partition in member.partitions()]
        epochs = [member.assignment.member_epoch for member in state.members.values()]
        fenced = {key.member_id for key in self.fencing}
        return {
            "a partition is one member's": len(held) == len(set(held)),
            "who holds partitions is known": set(held) == state.owner_epochs.keys(),
            "the target is not newer than the group": state.assignment_epoch <= state.epoch,
            "a member is not newer than the target": all(epoch <= state.assignment_epoch for epoch in epochs),
            "requests wait for a write only": self.writing is not None or not self.waiting,
            "what is written builds on what is durable": self.writing is None or self.writing.durable is state,
            "members have sessions": self.is_dead
            or bool(self.overdue)
            or all(
                self.timer(TimerKind.CONSUMER_SESSION, member_id).deadline_ms is not None
                for member_id in state.members.keys() - fenced
            ),
        }

    def check_durable(self, records: RecordsOfGroup | None) -> None:
        """Prove that the group is what its records say.

        Raises:
            InvariantError: it isn't.
        """
        entries = (records or {}).values()
        log_offsets = [log_offset for log_offset, _ in entries]
        if self._proof is None or self._proof[0] != log_offsets:
            # The same places in the log hold the same records: what they say need not be worked out each time.
            self._proof = log_offsets, ConsumerState.of(self.group_id, [record for _, record in entries])
        if self._proof[1].facts() != self.state.facts():
            raise InvariantError(f"group {self.group_id!r} differs from its records")

    def __repr__(self) -> str:
        return f"ConsumerGroup({self.group_id!r}, {self.group_state.value}, epoch={self.state.epoch})"


def consumer_groups(groups: dict[str, Group]) -> dict[str, ConsumerGroup]:
    """Return the groups, for those who only meet consumer groups: what concerns another kind does not get to them."""
    return cast(dict[str, ConsumerGroup], groups)
