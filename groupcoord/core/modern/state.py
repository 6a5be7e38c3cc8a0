"""What the log says of a group of whatever kind whose state is in the log: its records, and what follows from them.

A state changes by records alone, one at a time, in any order that a log or its compaction can leave: so what a live
group holds and what a load makes of the log is the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from groupcoord.core.modern.overlay import Overlay
from groupcoord.core.records import GroupRecord, GroupTombstone

FIRST_EPOCH = 1
"""The epoch of a group before anything changed (Kafka 4.3)."""


class ModernMember(Protocol):
    """A member, as far as all kinds have it: its id, and the epoch that is durable."""

    @property
    def member_id(self) -> str:
        """Its id."""

    @property
    def member_epoch(self) -> int:
        """Where it stands."""


MemberT = TypeVar("MemberT", bound=ModernMember)
TargetT = TypeVar("TargetT")


class ModernGroupState(ABC, Generic[MemberT, TargetT]):
    """The facts about one group. Copy it with :meth:`copy`; values inside are never changed, only replaced.

    A copy keeps its changes to what is large apart, and :meth:`settle` makes them where they belong. So a change costs
    the same in a large group as in a small one.

    Each kind names in ``LARGE`` the mappings that are as large as the group, and that most changes leave as they are;
    in ``APPLY`` by class of record, and in ``FORGET`` by its type in the log, what a record and its tombstone do; and
    in ``NO_FACTS`` what no record says. It changes what is large after :meth:`_own`, and copies its own attributes in
    :meth:`_copy_to`.

    Attributes:
        group_id: the group.
        epoch: the group's epoch.
        metadata_hash: stands for the subscribed topics as they were at that epoch.
        assignment_epoch: the epoch for which the target assignment was made.
        assignment_timestamp_ms: when that was; 0 if nobody knows.
        members: member id → member.
        targets: member id → what it is to have in the end.
        shared: the large ones that are another state's as well: changes to them are kept apart.
    """

    __slots__ = (
        "assignment_epoch",
        "assignment_timestamp_ms",
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "shared",
        "targets",
    )

    LARGE: ClassVar[frozenset[str]] = frozenset({"members", "targets"})
    APPLY: ClassVar[Mapping[type, Callable[..., None]]]
    FORGET: ClassVar[Mapping[int, Callable[..., None]]]
    NO_FACTS: ClassVar[frozenset[str]] = frozenset({"shared"})

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: MutableMapping[str, MemberT] = {}
        self.targets: MutableMapping[str, TargetT] = {}
        self.shared: frozenset[str] = frozenset()

    @classmethod
    def of(cls, group_id: str, records: Iterable[GroupRecord]) -> Self:
        """Return what these records say, one for each key, in any order."""
        state = cls(group_id)
        for record in records:
            if type(record) in cls.APPLY:  # a damaged log may have those of another kind
                state.apply(record)
        return state

    def copy(self) -> Self:
        """Return a state that can be changed without changing this one."""
        copy = type(self).__new__(type(self))
        copy.group_id = self.group_id
        copy.epoch = self.epoch
        copy.metadata_hash = self.metadata_hash
        copy.assignment_epoch = self.assignment_epoch
        copy.assignment_timestamp_ms = self.assignment_timestamp_ms
        copy.members = self.members
        copy.targets = self.targets
        copy.shared = self.shared = self.LARGE
        self._copy_to(copy)
        return copy

    def _copy_to(self, copy: Self) -> None:
        """Copy the attributes that only this kind has: what is large as it is, other mappings by their entries."""

    def _own(self, name: str) -> None:
        """Make sure that what is to be changed is this state's alone."""
        if name in self.shared:
            setattr(self, name, Overlay(getattr(self, name)))
            self.shared -= {name}

    def settle(self) -> None:
        """Make the changes that are kept apart where they belong: the states of which this is a copy are no more."""
        for name in self.LARGE:
            mapping = getattr(self, name)
            while type(mapping) is Overlay:  # quicker than to ask whether it is any kind of one, as mappings do that
                mapping = mapping.merge()
                setattr(self, name, mapping)

    def succeed(self, base: Self) -> None:
        """Keep the changes apart together with those of the state of which this is a copy: that one is no more."""
        for name in self.LARGE:
            mapping, below = getattr(self, name), getattr(base, name)
            if type(below) is Overlay and type(mapping) is Overlay and mapping.below is below:
                setattr(self, name, mapping.merge())

    # ------------------------------------------------------------ records

    def apply(self, record: Any) -> None:
        """Take over a record of this kind of group, or the tombstone of one."""
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

    def _forget_target(self, member_id: str) -> None:
        self._own("targets")
        self.targets.pop(member_id, None)

    # ------------------------------------------------------------ questions

    @abstractmethod
    def has_subscribers(self, topic: str) -> bool:
        """Tell whether anybody subscribes to a topic."""

    def is_target_due(self, interval_ms: int, now_ms: int) -> bool:
        """Tell whether the target is out of date, and a new one not too soon after the last (KIP-1263).

        Args:
            interval_ms: the least time between two of them.
            now_ms: the time.
        """
        if self.assignment_epoch >= self.epoch:
            return False
        last_ms = self.assignment_timestamp_ms
        return not (last_ms and interval_ms and now_ms < last_ms + interval_ms)

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values that compare equal for equal states."""
        names = {name for cls in type(self).__mro__ for name in getattr(cls, "__slots__", ())}
        return {name: getattr(self, name) for name in sorted(names - self.NO_FACTS)}


def count(counts: dict[str, int], key: str, change: int) -> None:
    """Count something in or out; what is not there any more is not counted with 0."""
    total = counts.get(key, 0) + change
    if total:
        counts[key] = total
    else:
        del counts[key]
