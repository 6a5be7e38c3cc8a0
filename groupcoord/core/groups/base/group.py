"""Groups with logged state: dependencies, durable state, soft state, offset commits, and timers of members."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

from attrs import field

from groupcoord.config import Config, GroupType
from groupcoord.config.group_settings import GroupSettings
from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.groups.base.state import Draft, StateT
from groupcoord.core.groups.group import BEFORE_ALL_APPENDS
from groupcoord.core.log.records import CommitKind, Record, RecordsOfGroup
from groupcoord.core.messages import (
    GroupToFetch,
    ListedGroup,
    OffsetCommit,
    Reply,
    Token,
    TopicToCommit,
    TxnOffsetCommit,
    Waiting,
)
from groupcoord.core.messages.commits import accept_metadata
from groupcoord.core.messages.request import RefusedError
from groupcoord.core.timers import Timer, TimerKey, TimerKind, TimerQueue
from groupcoord.core.topics import KnownTopics
from groupcoord.errors import NO_ERROR, ErrorCode, InvariantError

SettingsT = TypeVar("SettingsT", bound=GroupSettings)
AssignorT = TypeVar("AssignorT")


@define(eq=False)
class GroupEnvironment(Generic[SettingsT, AssignorT]):
    """Dependencies of all groups of one type of one coordinator; the first assignor is the default."""

    NOT_STATE = ("assignors", "default_assignor")

    config: Config
    topics: KnownTopics
    assignors: Mapping[str, AssignorT]
    settings_of: Callable[[str], SettingsT]
    default_assignor: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.default_assignor = next(iter(self.assignors))

    def assignor(self, name: str) -> AssignorT:
        """Return an assignor by the name that members select.

        Raises:
            RefusedError: the assignor of a loaded group is no longer configured.
        """
        assignor = self.assignors.get(name)
        if assignor is None:
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return assignor


@frozen(eq=False)
class SteadyHeartbeat:
    """Heartbeat that changed nothing, with its response for the next equal one, valid up to ``until_ms``."""

    NOT_COUNTED = ("topics_version", "writes")

    request: Any
    response: Any
    writes: int
    settings: GroupSettings
    session_timeout_ms: int
    topics_version: int
    until_ms: int
    session_timer: Timer


MEMBER_TIMERS = (TimerKind.MEMBER_SESSION, TimerKind.REVOCATION, TimerKind.MEMBER_JOIN, TimerKind.MEMBER_SYNC)


class ModernGroup(ABC, Generic[StateT]):
    """One group of one log partition.

    Attributes:
        writing: the draft in flight, or None. Nothing else is written for the group meanwhile.
        writes: number of writes since the group was created or loaded.
        steady: member id → its last heartbeat, if that changed nothing.
        waiting, answers, overdue: requests, answers of the host and fired timers that wait for the write in flight.
        is_topics_look_due: subscribed topics may have changed, so the next heartbeat compares them.
        fencing: timers of members with a removal in flight.
        revoking_epochs: member id → its epoch when it last had to revoke something.
    """

    NOT_COUNTED = ("environment", "_partition", "_proof", "_timers", "writes")  # "_timers": the armed ones count

    TYPE: ClassVar[GroupType]
    STATE: ClassVar[type[Any]]
    may_expire: ClassVar[bool] = True

    def __init__(self, group_id: str, partition: int, environment: GroupEnvironment[Any, Any]) -> None:
        self.group_id = group_id
        self.first_append = BEFORE_ALL_APPENDS
        self.state: StateT = self.STATE(group_id)
        self.writing: Draft[StateT] | None = None
        self.writes = 0
        self.steady: dict[str, SteadyHeartbeat] = {}
        self.waiting: list[Waiting] = []
        self.is_topics_look_due = True
        self.answers: list[Any] = []
        self.is_dead = False
        self.overdue: list[TimerKey] = []
        self.fencing: list[TimerKey] = []
        self.revoking_epochs: dict[str, int] = {}
        self._timers: dict[tuple[TimerKind, str], Timer] = {}
        self._proof: tuple[list[int], StateT] | None = None
        self.environment = environment
        self._partition = partition

    @property
    @abstractmethod
    def group_state(self) -> Enum:
        """State of the group, as Kafka names it."""

    @property
    @abstractmethod
    def is_rebalancing(self) -> bool:
        """True until all members have their target assignment."""

    # ------------------------------------------------------------ what waits for a write

    def take_waiting(self) -> list[Waiting]:
        waiting, self.waiting = self.waiting, []
        self.overdue.clear()
        self.answers.clear()
        return waiting

    @property
    def newest_state(self) -> StateT:
        return self.state if self.writing is None else self.writing.state

    # ------------------------------------------------------------ timers

    def timer(self, kind: TimerKind, member_id: str) -> Timer:
        timer = self._timers.get((kind, member_id))
        if timer is None:
            # Created at first use: most members never revoke anything.
            timer = Timer(TimerKey(kind, self._partition, self.group_id, member_id))
            self._timers[kind, member_id] = timer
        return timer

    def drop_timers(self, member_id: str) -> Iterator[Timer]:
        """Forget the soft state of a member that is gone, and yield its timers."""
        self.revoking_epochs.pop(member_id, None)
        self.steady.pop(member_id, None)
        for kind in MEMBER_TIMERS:
            timer = self._timers.pop((kind, member_id), None)
            if timer is not None:
                yield timer

    def timers(self) -> Iterator[Timer]:
        yield from self._timers.values()

    # ------------------------------------------------------------ interface of all groups

    @property
    def is_empty(self) -> bool:
        # A write in flight may add a member, so the group must not be deleted meanwhile.
        return not self.state.members and self.writing is None

    def uses_topic(self, topic: str) -> bool:
        # Both count: the log may still refuse the draft.
        return self.state.has_subscribers(topic) or self.newest_state.has_subscribers(topic)

    def topics_changed(self, names: Collection[str]) -> None:
        if any(map(self.newest_state.has_subscribers, names)):
            self.is_topics_look_due = True

    def tombstones(self) -> list[Record]:
        return list(self.state.tombstones())

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, self.TYPE.value, self.group_state.value, self.TYPE.value)

    def end(self, now_ms: int) -> None:
        self.is_dead = True

    def refuse_waiting(self, error_code: ErrorCode, *, names_members: bool = True) -> list[Reply]:
        return []

    # ------------------------------------------------------------ inspection

    def parked_tokens(self) -> list[Token]:
        return [entry.token for entry in self.waiting]

    def member_ids(self) -> Collection[str]:
        return self.state.members.keys()

    def counted_size(self) -> int:
        return len(self.state.members)

    def check(self) -> None:
        for rule, holds in self._invariants().items():
            if not holds:
                raise InvariantError(f"group {self.group_id!r} in {self.group_state.value}: {rule}")

    def _invariants(self) -> dict[str, bool]:
        state = self.state
        epochs = [member.member_epoch for member in state.members.values()]
        fenced = {key.member_id for key in self.fencing}
        return {
            "the target is not newer than the group": state.assignment_epoch <= state.epoch,
            "a member is not newer than the target": all(epoch <= state.assignment_epoch for epoch in epochs),
            "answers wait for a write only": self.writing is not None or not self.answers,
            "what is written builds on what is durable": self.writing is None or self.writing.durable is state,
            # The timer of a member has fired if its removal is in flight.
            "members have sessions": self.is_dead
            or bool(self.overdue)
            or all(
                self.timer(TimerKind.MEMBER_SESSION, member_id).deadline_ms is not None
                for member_id in state.members.keys() - fenced
            ),
        }

    def check_durable(self, records: RecordsOfGroup | None) -> None:
        entries = (records or {}).values()
        log_offsets = [log_offset for log_offset, _ in entries]
        if self._proof is None or self._proof[0] != log_offsets:
            # The same log offsets hold the same records, so the fold is cached.
            self._proof = log_offsets, type(self.state).of(self.group_id, [record for _, record in entries])
        if self._proof[1].facts() != self.state.facts():
            raise InvariantError(f"group {self.group_id!r} differs from its records")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.group_id!r}, {self.group_state.value}, epoch={self.state.epoch})"


class CommittingGroup(ModernGroup[StateT]):
    """Group with logged state and committed offsets: a consumer or streams group."""

    STATES: ClassVar[Any]

    @property
    def group_state(self) -> Any:
        state: Any = self.state
        if self.is_dead:
            return self.STATES.DEAD
        if not state.members:
            return self.STATES.EMPTY
        # Kafka's order: an invalid topology hides all later states, and a due target hides that members reconcile.
        if not state.is_ready:
            return self.STATES.NOT_READY
        if state.epoch > state.assignment_epoch:
            return self.STATES.ASSIGNING
        return self.STATES.STABLE if all(map(state.is_settled, state.members.values())) else self.STATES.RECONCILING

    @property
    def is_rebalancing(self) -> bool:
        return self.group_state not in (self.STATES.STABLE, self.STATES.EMPTY)

    def uses_classic_protocol(self, member: Any) -> bool:
        return False

    @abstractmethod
    def held_since(self, member: Any, topic: TopicToCommit) -> Callable[[int], int | None]:
        """Return a function from a partition to the epoch since which a member has it, or None."""

    def _stale(self, member: Any) -> ErrorCode:
        return ErrorCode.ILLEGAL_GENERATION if self.uses_classic_protocol(member) else ErrorCode.STALE_MEMBER_EPOCH

    def commit_error(
        self, request: OffsetCommit, topics: tuple[TopicToCommit, ...], timers: TimerQueue, now_ms: int
    ) -> ErrorCode:
        if request.generation_id < 0 and not self.state.members:
            # Administrators and consumers without a group commit to an empty group.
            return ErrorCode.NONE
        member = self.state.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not request.supports_member_epoch and not self.uses_classic_protocol(member):
            # Before version 9 the number in the request can't be an epoch (KIP-848).
            return ErrorCode.UNSUPPORTED_VERSION
        # Renews no session: only heartbeats do in this protocol (KIP-848).
        return self._epoch_error(member, request.generation_id, topics)

    def transactional_commit_error(self, request: TxnOffsetCommit) -> ErrorCode:
        if request.generation_id < 0 and not self.state.members:
            return ErrorCode.NONE
        # Producers before KIP-447 name no member, and may always commit.
        if request.generation_id == -1 and not request.member_id and request.group_instance_id is None:
            return ErrorCode.NONE
        member = self.state.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self._epoch_error(member, request.generation_id, request.topics)

    def _epoch_error(self, member: Any, epoch: int, topics: tuple[TopicToCommit, ...]) -> ErrorCode:
        # The current epoch may commit any partition, even unassigned.
        member_epoch = member.assignment.member_epoch
        if epoch == member_epoch:
            return NO_ERROR
        if epoch > member_epoch:
            return self._stale(member)
        # An older epoch is valid for partitions that the member has had since (KIP-1251, KAFKA-20066).
        limit = self.environment.config.offset_metadata_max_bytes
        for topic in topics:
            held_since = self.held_since(member, topic)
            columns, _ = accept_metadata(topic.columns, limit)  # larger metadata is refused anyway
            # Each partition once: a request may name few of them a million times.
            for partition in set(columns.partition_indexes):
                since = held_since(partition)
                if since is None or epoch < since:
                    return self._stale(member)
        return ErrorCode.NONE

    def fetch_error(self, wanted: GroupToFetch) -> ErrorCode:
        # Kafka has no specific error for an epoch without member id.
        if wanted.member_id is None:
            return ErrorCode.NONE if wanted.member_epoch < 0 else ErrorCode.UNKNOWN_SERVER_ERROR
        member = self.state.members.get(wanted.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        # Unlike commits (KIP-1251), fetches accept no older epoch.
        return ErrorCode.NONE if wanted.member_epoch == member.member_epoch else self._stale(member)

    def offset_deletion_error(self) -> ErrorCode:
        # Checked for each topic instead: subscriptions are known in any state.
        return ErrorCode.NONE

    def offset_age_base_ms(self, commit: CommitKind) -> int | None:
        # Unlike in classic groups, the time at which the group became empty does not count.
        return None if self.uses_topic(commit.topic) else commit.commit_timestamp_ms


GroupT = TypeVar("GroupT", bound=ModernGroup[Any])
