"""Durable state of a group as the fold of its records, drafts on top of it, and lookup of the sender of a request.

Only records change a state, so a live group and a loaded one have the same. Members are found by id, static ones
(KIP-345) also by instance id. Sources: ``GroupMetadataManager`` (``getOrMaybe…Member``,
``throwIf…MemberEpochIsInvalid``) of Apache Kafka 4.4.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, MutableMapping, ValuesView
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from attrs import evolve

from groupcoord.config import GroupType
from groupcoord.core.events import Cause, Event, MemberRemoved, MemberReplaced, RebalanceStarted, Trigger
from groupcoord.core.fast_construct import frozen
from groupcoord.core.log.record_keys import MemberRecord, TopicPartitions
from groupcoord.core.log.records import GroupRecord, GroupTombstone, Record
from groupcoord.core.messages import JOIN_GROUP_MEMBER_EPOCH, Reply
from groupcoord.core.messages.request import RefusedError
from groupcoord.core.topics import KnownTopics
from groupcoord.errors import ErrorCode

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


_MISSING: Any = object()


class Overlay(MutableMapping[KeyT, ValueT]):
    """Mapping with changes on top of another mapping, which must not change meanwhile.

    Its order is that of a ``dict`` with the same changes. Views are snapshots.
    """

    __slots__ = ("_changes", "_gone", "_length", "below")

    def __init__(self, below: MutableMapping[KeyT, ValueT]) -> None:
        self.below = below
        self._changes: dict[KeyT, ValueT] = {}
        self._gone: set[KeyT] = set()  # removed keys of the mapping below, also if they were set again
        self._length = len(below)

    def merge(self) -> MutableMapping[KeyT, ValueT]:
        """Apply the changes to the mapping below and return it; the overlay must not be used afterwards."""
        for key in self._gone:
            del self.below[key]
        # After the deletions: a key that was set again moves to the end, as in a dict.
        self.below.update(self._changes)
        return self.below

    def __getitem__(self, key: KeyT) -> ValueT:
        if key in self._changes:
            return self._changes[key]
        if key in self._gone:
            raise KeyError(key)
        return self.below[key]

    def get(self, key: KeyT, default: Any = None) -> Any:
        # Overridden: the method of the base class raises and catches KeyError.
        value = self._changes.get(key, _MISSING)
        if value is not _MISSING:
            return value
        return default if self._gone and key in self._gone else self.below.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._changes or (key not in self._gone and key in self.below)

    def __setitem__(self, key: KeyT, value: ValueT) -> None:
        changes = self._changes
        known = len(changes)
        changes[key] = value
        if len(changes) > known and (key in self._gone or key not in self.below):
            self._length += 1

    def update(self, other: Mapping[KeyT, ValueT]) -> None:  # type: ignore[override]
        changes, gone, below = self._changes, self._gone, self.below
        for key in other:
            if key not in changes and (key in gone or key not in below):
                self._length += 1
        changes.update(other)

    def __delitem__(self, key: KeyT) -> None:
        is_changed = self._changes.pop(key, _MISSING) is not _MISSING
        is_below = key in self.below
        if not is_changed and (not is_below or key in self._gone):
            raise KeyError(key)
        if is_below:
            self._gone.add(key)
        self._length -= 1

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[KeyT]:
        return iter(self._whole())

    def items(self) -> ItemsView[KeyT, ValueT]:
        return self._whole().items()

    def values(self) -> ValuesView[ValueT]:
        return self._whole().values()

    def __repr__(self) -> str:
        return f"Overlay({self._whole()!r})"

    def _whole(self) -> dict[KeyT, ValueT]:
        # Not dict(below), which would look up every key of a nested overlay.
        whole = dict(self.below.items())
        for key in self._gone:
            del whole[key]
        whole.update(self._changes)
        return whole


FIRST_EPOCH = 1
"""The epoch of a group before anything changed (Kafka 4.3)."""

LEFT_MEMBER_EPOCH = -2
"""The epoch of a static member that has left temporarily."""


@frozen
class ModernMember:
    """A member of a group with logged state: its metadata record, and the value of its assignment record."""

    metadata: Any
    assignment: Any

    @property
    def member_id(self) -> str:
        member_id: str = self.metadata.member_id
        return member_id

    @property
    def member_epoch(self) -> int:
        member_epoch: int = self.assignment.member_epoch
        return member_epoch

    @property
    def has_left(self) -> bool:
        return bool(self.assignment.member_epoch == LEFT_MEMBER_EPOCH)


MemberT = TypeVar("MemberT", bound=ModernMember)
TargetT = TypeVar("TargetT")


class ModernGroupState(ABC, Generic[MemberT, TargetT]):
    """Durable state of one group. Values inside are replaced, never changed.

    A :meth:`copy` keeps changes of large mappings apart until :meth:`settle`, so a change costs the same in a large
    group.

    Class attributes of each type:

    - ``LARGE``: mappings of the size of the group, which change only after :meth:`_own`;
    - ``SMALL``: small mappings that records change, which a copy does not share;
    - ``RECORDS``: by class of record, the end of the names of the methods that apply it and its tombstone;
    - ``NO_FACTS``: attributes that do not follow from records;
    - ``MEMBER`` and ``NEW_ASSIGNMENT``: class of its members, and the assignment of a new one.

    ``APPLY`` and ``FORGET`` are the methods by class of record and by record type.

    Attributes:
        assignment_timestamp_ms: time of the target assignment; 0 if unknown.
        shared: names of large mappings that belong to another state as well.
    """

    NOT_COUNTED = ("shared",)

    LARGE: ClassVar[frozenset[str]] = frozenset({"members", "static_members", "targets"})
    SMALL: ClassVar[tuple[str, ...]] = ()
    RECORDS: ClassVar[Mapping[Any, str]]
    APPLY: ClassVar[Mapping[type, Callable[..., None]]]
    FORGET: ClassVar[Mapping[int, Callable[..., None]]]
    NO_FACTS: ClassVar[frozenset[str]] = frozenset({"shared"})
    MEMBER: ClassVar[Callable[..., Any]]
    NEW_ASSIGNMENT: ClassVar[Any]
    RECORDS_OF_MEMBER: ClassVar[tuple[type[MemberRecord], ...]]
    """In the order of their tombstones."""
    GROUP: ClassVar[Callable[..., Any]]
    TARGET: ClassVar[Callable[..., Any]]
    TARGET_EPOCH: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls) -> None:
        records = {name: record for record, name in cls.RECORDS.items()}
        cls.APPLY = {record: getattr(cls, f"_apply_{name}") for record, name in cls.RECORDS.items()}
        cls.FORGET = {record.RECORD_TYPE: getattr(cls, f"_forget_{name}") for record, name in cls.RECORDS.items()}
        cls.RECORDS_OF_MEMBER = records["assignment"], records["target"], records["member"]
        cls.GROUP, cls.TARGET, cls.TARGET_EPOCH = records["group"], records["target"], records["target_epoch"]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: MutableMapping[str, MemberT] = {}
        self.static_members: MutableMapping[str, str] = {}
        self.targets: MutableMapping[str, TargetT] = {}
        self.shared: frozenset[str] = frozenset()

    @classmethod
    def of(cls, group_id: str, records: Iterable[GroupRecord]) -> Self:
        """Return the state of these records, one for each key, in any order."""
        state = cls(group_id)
        for record in records:
            if type(record) in cls.APPLY:  # a damaged log may have records of another type
                state.apply(record)
        return state

    def copy(self) -> Self:
        copy = type(self).__new__(type(self))
        # Large mappings stay shared until one of both states changes them.
        copy.__dict__.update(self.__dict__)
        # In both states: the durable one is read until the append completes.
        copy.shared = self.shared = self.LARGE
        for name in self.SMALL:
            setattr(copy, name, getattr(self, name).copy())
        return copy

    def _own(self, name: str) -> None:
        if name in self.shared:
            setattr(self, name, Overlay(getattr(self, name)))
            self.shared -= {name}

    def settle(self) -> None:
        """Merge all changes into the mappings of the states below, which are no longer used."""
        for name in self.LARGE:
            mapping = getattr(self, name)
            while type(mapping) is Overlay:  # faster than isinstance, which is slow for mappings
                mapping = mapping.merge()
                setattr(self, name, mapping)

    def succeed(self, base: Self) -> None:
        """Merge own changes into those of the state below, which is no longer used."""
        for name in self.LARGE:
            mapping, below = getattr(self, name), getattr(base, name)
            if type(below) is Overlay and type(mapping) is Overlay and mapping.below is below:
                setattr(self, name, mapping.merge())

    # ------------------------------------------------------------ records

    def apply(self, record: Any) -> None:
        if isinstance(record, GroupTombstone):
            kind, name = record.key
            self.FORGET[kind](self, name)
        else:
            self.APPLY[type(record)](self, record)

    def _apply_group(self, record: Any) -> None:
        self.epoch, self.metadata_hash = record.epoch, record.metadata_hash

    def _forget_group(self, _: str) -> None:
        self.epoch, self.metadata_hash = FIRST_EPOCH, 0

    def _apply_target_epoch(self, record: Any) -> None:
        self.assignment_epoch = record.assignment_epoch
        self.assignment_timestamp_ms = record.assignment_timestamp_ms

    def _forget_target_epoch(self, _: str) -> None:
        self.assignment_epoch, self.assignment_timestamp_ms = FIRST_EPOCH, 0

    def _apply_target(self, record: Any) -> None:
        self._own("targets")
        # An empty target is a target: a member without one gets a record.
        self.targets[record.member_id] = self._target_of(record)

    def _forget_target(self, member_id: str) -> None:
        self._own("targets")
        # Removed members get this tombstone even without a target.
        self.targets.pop(member_id, None)

    def _apply_member(self, record: Any) -> None:
        before = self.members.get(record.member_id)
        # A heartbeat may write this record alone, so the assignment stays.
        self._put(before, self.MEMBER(record, self.NEW_ASSIGNMENT if before is None else before.assignment))

    def _forget_member(self, member_id: str) -> None:
        before = self.members.get(member_id)
        if before is not None:
            # Compaction may leave a member's records in any order, so a member exists while any of them does
            # (KAFKA-17306).
            has_assignment = before.assignment != self.NEW_ASSIGNMENT
            self._put(before, self.MEMBER(self.no_metadata(member_id), before.assignment) if has_assignment else None)

    def _apply_assignment(self, record: Any) -> None:
        before = self.members.get(record.member_id)
        # The metadata may follow, or be gone already (KAFKA-17306).
        metadata = self.no_metadata(record.member_id) if before is None else before.metadata
        self._put(before, self.MEMBER(metadata, self._assignment_of(record)))

    def _forget_assignment(self, member_id: str) -> None:
        before = self.members.get(member_id)
        if before is not None:
            has_metadata = before.metadata != self.no_metadata(member_id)
            self._put(before, self.MEMBER(before.metadata, self.NEW_ASSIGNMENT) if has_metadata else None)

    @abstractmethod
    def no_metadata(self, member_id: str) -> Any:
        """Return a placeholder for a missing metadata record."""

    def _target_of(self, record: Any) -> Any:
        return dict(record.topic_partitions)

    @abstractmethod
    def _assignment_of(self, record: Any) -> Any:
        """Return the assignment of a record."""

    @abstractmethod
    def tombstones(self) -> list[GroupTombstone]:
        """Return the tombstones of all records of the group but its offsets, in Kafka's order."""

    def member_tombstones(self, *member_ids: str) -> list[GroupTombstone]:
        return [
            GroupTombstone(self.group_id, record.key_of(member_id))
            for member_id in member_ids
            for record in self.RECORDS_OF_MEMBER
        ]

    @abstractmethod
    def assignment_record(self, member_id: str, assignment: Any) -> Any:
        """Return the record of a member's assignment."""

    def target_record(self, member_id: str, target: Any) -> Any:
        topics = tuple([TopicPartitions(topic_id, tuple(partitions)) for topic_id, partitions in target.items()])
        return self.TARGET(self.group_id, member_id, topics)

    # ------------------------------------------------------------ derived state

    def _put(self, before: MemberT | None, after: MemberT | None) -> None:
        # Checked here as well, to save a call for each record.
        if "members" in self.shared:
            self._own("members")
        if after is not None:
            self.members[after.metadata.member_id] = after
        elif before is not None:
            del self.members[before.metadata.member_id]
        # Counts depend on the metadata only, so a new assignment leaves them.
        if before is None or after is None or before.metadata is not after.metadata:
            if before is not None:
                self._count(before, -1)
            if after is not None:
                self._count(after, 1)
        self._reassign(before, after)

    def _count(self, member: MemberT, change: int) -> None:
        """Add a member's metadata to the counts, or remove it with -1."""
        instance_id = member.metadata.instance_id
        if instance_id is not None and change > 0:
            self._own("static_members")
            self.static_members[instance_id] = member.member_id
        # Not if the instance id belongs to its replacement already: tombstones may follow it.
        elif instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            self._own("static_members")
            del self.static_members[instance_id]

    def _reassign(self, before: MemberT | None, after: MemberT | None) -> None:
        """Update what depends on a member's assignment."""

    # ------------------------------------------------------------ queries

    @abstractmethod
    def has_subscribers(self, topic: str) -> bool:
        """Return whether a member subscribes to a topic."""

    @abstractmethod
    def topics_hash(self, topics: KnownTopics) -> int:
        """Return the metadata hash of the subscribed topics as they are now."""

    def is_target_due(self, interval_ms: int, now_ms: int) -> bool:
        """Return whether the target is out of date, and a new one not too early (KIP-1263)."""
        if self.assignment_epoch >= self.epoch:
            return False
        # 0 after the last member left or from older brokers: no interval to wait for.
        last_ms = self.assignment_timestamp_ms
        return not (last_ms and interval_ms and now_ms < last_ms + interval_ms)

    def facts(self) -> dict[str, Any]:
        """Return the state as plain values that compare equal for equal states."""
        return {name: value for name, value in vars(self).items() if name not in self.NO_FACTS}


def count(counts: dict[str, int], key: str, change: int) -> None:
    """Add to a count; a count of 0 is removed."""
    total = counts.get(key, 0) + change
    if total:
        counts[key] = total
    else:
        del counts[key]


StateT = TypeVar("StateT", bound=ModernGroupState[Any, Any])


class DraftedEvent(NamedTuple):
    """Event that occurs when its draft is durable: a class, and its arguments after the group's id and the time."""

    event: Callable[..., Event]
    facts: tuple[Any, ...]


class Draft(Generic[StateT]):
    """Uncommitted changes on top of durable state.

    Requests share an append. A mark is set before each; a refused one is rolled back to it.
    ``base`` is the state at the mark, ``state`` that with all records; ``held`` responses wait for these.
    """

    NOT_COUNTED = ("events",)

    __slots__ = ("_marked", "base", "durable", "events", "held", "records", "state")

    def __init__(self, durable: StateT) -> None:
        self.durable = self.base = self.state = durable
        self.records: list[Record] = []
        self.held: list[Reply] = []
        self.events: list[DraftedEvent] = []
        self._marked = (0, 0)

    def mark(self) -> None:
        # Otherwise each request would add a layer to the mappings.
        if self.base is not self.durable and self.state is not self.base:
            self.state.succeed(self.base)
        self.base = self.state
        self._marked = (len(self.records), len(self.events))

    def roll_back(self) -> None:
        record_count, event_count = self._marked
        del self.records[record_count:], self.events[event_count:]
        self.state = self.base

    def write(self, *records: Record) -> None:
        if self.state is self.base:
            # The first record of a request; most requests write none, and copy nothing.
            self.state = self.base.copy()
        state, apply = self.state, self.state.APPLY
        for record in records:
            kind = type(record)
            # Records are far more frequent than tombstones.
            if kind in apply:
                apply[kind](state, record)
            else:
                state.apply(record)
        self.records += records

    def add_event(self, event: Callable[..., Event], *facts: Any) -> None:
        self.events.append(DraftedEvent(event, facts))

    def write_targets(self, targets: Mapping[str, Any], now_ms: int) -> None:
        """Add changed targets by member id, and the epoch of the target assignment."""
        state = self.state
        self.write(
            *[state.target_record(member_id, target) for member_id, target in targets.items()],
            state.TARGET_EPOCH(state.group_id, state.epoch, now_ms),
        )

    def add_removals(self, member_ids: Iterable[str], cause: Cause) -> None:
        for member_id in member_ids:
            self.add_event(MemberRemoved, member_id, self.state.members[member_id].metadata.instance_id, cause)

    def begin_epoch(self, metadata_hash: int, trigger: Trigger) -> None:
        epoch = self.state.epoch
        self.write(self.epoch_record(epoch + 1, metadata_hash))
        self.add_event(RebalanceStarted, epoch, trigger)

    def begin_epoch_if_changed(self, metadata_hash: int, reason: Trigger | None) -> bool:
        """Begin a new epoch if there is a reason or the subscribed topics have changed; return whether one began."""
        if reason is None and metadata_hash == self.state.metadata_hash:
            return False
        self.begin_epoch(metadata_hash, reason or Trigger(Cause.TOPIC_CHANGE))
        return True

    def begin_epoch_without_members(self, metadata_hash: int, trigger: Trigger) -> None:
        self.begin_epoch(metadata_hash, trigger)
        if not self.state.members:
            # An empty group's target is current, so descriptions show no pending assignment (KAFKA-20442).
            # Time 0: the next join does not wait for the assignment interval.
            self.write_targets({}, 0)

    def epoch_record(self, epoch: int, metadata_hash: int) -> Any:
        return self.state.GROUP(self.state.group_id, epoch, metadata_hash)


def check_capacity(state: ModernGroupState[Any, Any], group_type: GroupType, max_size: int) -> None:
    """Check that a group has room for a new member, or fail with GROUP_MAX_SIZE_REACHED."""
    if len(state.members) >= max_size:
        message = f"The {group_type} group has reached its maximum capacity of {max_size} members."
        raise RefusedError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def find_member(state: ModernGroupState[MemberT, Any], member_id: str) -> MemberT:
    """Return a member, or fail with UNKNOWN_MEMBER_ID."""
    member = state.members.get(member_id)
    if member is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {state.group_id}."
        )
    return member


def find_static_member(state: ModernGroupState[MemberT, Any], instance_id: str, member_id: str) -> MemberT:
    """Return the static member with these ids.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID for an unknown instance, FENCED_INSTANCE_ID if another member has taken it.
    """
    known_id = state.static_members.get(instance_id)
    if known_id is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown in group {state.group_id}."
        )
    # The client stops on this error, so two processes do not fence each other forever.
    if known_id != member_id:
        raise RefusedError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {known_id}.",
        )
    return state.members[member_id]


def find_sender(state: ModernGroupState[MemberT, Any], member_id: str, instance_id: str | None) -> MemberT:
    """Return the member with these ids; a static member may omit its instance id."""
    if instance_id is None:
        return find_member(state, member_id)
    return find_static_member(state, instance_id, member_id)


def check_epoch(member: MemberT, epoch: int, lost_nothing: Callable[[MemberT], bool]) -> None:
    """Check the epoch that a member sends; raise RefusedError with FENCED_MEMBER_EPOCH."""
    known_epoch, previous_epoch = member.member_epoch, member.assignment.previous_member_epoch
    if epoch in (JOIN_GROUP_MEMBER_EPOCH, known_epoch):  # a live member may join again (KAFKA-19233)
        return
    # No coordinator has sent this epoch, unless it lost acknowledged records.
    if epoch > known_epoch:
        raise RefusedError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The member epoch {epoch} is larger than the one that the coordinator knows ({known_epoch}).",
        )
    # The response to the last heartbeat was lost. It would be wrong to accept if partitions were revoked since.
    if epoch != previous_epoch or not lost_nothing(member):
        raise RefusedError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The member epoch {epoch} is smaller than the one that the coordinator knows ({known_epoch}).",
        )


def identify(
    state: ModernGroupState[MemberT, Any],
    member_id: str,
    epoch: int,
    instance_id: str | None,
    *,
    lost_nothing: Callable[[MemberT], bool],
    may_be_replaced: Callable[[MemberT], bool],
) -> tuple[MemberT | None, bool]:
    """Return the sender of a heartbeat, None for a new member, and whether the request replaces that static member.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH or UNRELEASED_INSTANCE_ID.
    """
    joins = epoch == JOIN_GROUP_MEMBER_EPOCH
    # Clients choose their member id (KIP-1082), so an unknown one with epoch 0 is a new member.
    if joins and instance_id is None and member_id not in state.members:
        return None, False
    if instance_id is None or not joins:
        member = find_sender(state, member_id, instance_id)
        check_epoch(member, epoch, lost_nothing)
        return member, False
    known_id = state.static_members.get(instance_id)
    if known_id is None:
        # A dynamic member may become static by joining again under its own id.
        return state.members.get(member_id), False
    member = state.members[known_id]
    # Another instance is alive. Kafka refuses the newcomer here, unlike in classic groups, which fence the old one.
    if not may_be_replaced(member):
        raise RefusedError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} can't join: instance id {instance_id} is owned by member {known_id}.",
        )
    return member, True


def replace_member(draft: Draft[Any], member: MemberT, member_id: str, *, no_target: Any) -> MemberT:
    """Write that a member gets another id: metadata, target and assignment stay, its epoch is 0."""
    state = draft.state
    # ``raw_value`` may hold the old metadata, so it is dropped.
    replacement = evolve(
        member,
        metadata=evolve(member.metadata, member_id=member_id, raw_value=None),
        # Epoch 0 is older than any target, so the member is reconciled next even with the same one.
        assignment=evolve(
            member.assignment, member_epoch=JOIN_GROUP_MEMBER_EPOCH, previous_member_epoch=JOIN_GROUP_MEMBER_EPOCH
        ),
    )
    draft.write(
        # Kafka's order: the old member goes before the new one comes.
        *state.member_tombstones(member.member_id),
        replacement.metadata,
        state.target_record(member_id, state.targets.get(member.member_id, no_target)),
        state.assignment_record(member_id, replacement.assignment),
    )
    draft.add_event(MemberReplaced, member.member_id, member_id, member.metadata.instance_id)
    return replacement
