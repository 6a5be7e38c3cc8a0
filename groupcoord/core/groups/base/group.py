"""A group whose state is in the log: what is durable, and what a restart may forget of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from typing import Any, ClassVar, Generic
from uuid import UUID

from attrs import frozen

from groupcoord.config import GroupType
from groupcoord.core.groups.base.draft import Draft, StateT
from groupcoord.core.groups.base.environment import GroupEnvironment, MemberSettings
from groupcoord.core.groups.base.known_topics import KnownTopics
from groupcoord.core.log.hard_state import RecordsOfGroup
from groupcoord.core.log.records import Record
from groupcoord.core.messages import DescribedPartitions, ListedGroup
from groupcoord.core.replies import Reply, Token, Waiting
from groupcoord.core.timers import Timer, TimerKey, TimerKind
from groupcoord.errors import ErrorCode, InvariantError

BEFORE_ALL_APPENDS = -1


@frozen(eq=False)
class SteadyHeartbeat:
    """A heartbeat that changed nothing, and what it was answered: the next one like it is answered the same.

    Attributes:
        request: the heartbeat.
        response: its answer.
        writes: how often something had been written for the group.
        settings: what held for the group's members.
        session_timeout_ms: how long the member's session was then.
        topics_version: of the topics that there were.
        until_ms: when time alone makes a difference.
        session_timer: of the member.
    """

    request: Any
    response: Any
    writes: int
    settings: MemberSettings
    session_timeout_ms: int
    topics_version: int
    until_ms: int
    session_timer: Timer


class ModernGroup(ABC, Generic[StateT]):
    """One group of one log partition. Each kind names its class of state, and the kinds of its members' timers.

    Attributes:
        group_id: its id.
        first_append: readers see the group when the append with this number or a later one is durable.
        state: what the log says of it.
        writing: what is on its way to the log; None if nothing is. Nothing else is written for the group meanwhile.
        writes: how often something was written for the group, since it was made or loaded.
        steady: member id → its last heartbeat, if that changed nothing.
        waiting: requests that may have to write, in their order: they wait until the log has answered.
        is_topics_look_due: the subscribed topics have to be looked at by the next heartbeat: they may have changed.
        answers: what the host has found out for the group meanwhile.
        overdue: timers that have fired meanwhile.
        fencing: timers that have fired, and whose consequence is on its way to the log.
        revoking_epochs: member id → its epoch when it was last told to give something back.
    """

    TYPE: ClassVar[GroupType]
    """How ListGroups names this kind (KIP-848)."""
    STATE: ClassVar[type[Any]]
    """The class of its state."""
    SESSION: ClassVar[TimerKind]
    """Put out a member that is silent for too long."""
    REVOCATION: ClassVar[TimerKind | None] = None
    """Put out a member that keeps for too long what it has to give back; None if nobody has to."""
    MEMBER_TIMERS: ClassVar[tuple[TimerKind, ...]]
    """The kinds of timers that a member can have."""

    may_expire: ClassVar[bool] = True

    def __init__(
        self,
        group_id: str,
        partition: int,
        environment: GroupEnvironment[Any, Any],
        *,
        first_append: int = BEFORE_ALL_APPENDS,
    ) -> None:
        self.group_id = group_id
        self.first_append = first_append
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
        self._environment = environment
        self._partition = partition

    @property
    @abstractmethod
    def group_state(self) -> Enum:
        """Where the group stands, by Kafka's names."""

    @property
    @abstractmethod
    def is_rebalancing(self) -> bool:
        """True as long as members have not got what they are to have."""

    # ------------------------------------------------------------ what waits for a write

    def take_waiting(self) -> list[Waiting]:
        """Return the requests that wait for a write; nothing follows it any more but its own outcome."""
        waiting, self.waiting = self.waiting, []
        self.overdue.clear()
        self.answers.clear()
        return waiting

    @property
    def newest_state(self) -> StateT:
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
        for kind in self.MEMBER_TIMERS:
            timer = self._timers.pop((kind, member_id), None)
            if timer is not None:
                yield timer

    def timers(self) -> Iterator[Timer]:
        """Return all timers of the group, armed or not."""
        yield from self._timers.values()

    # ------------------------------------------------------------ what is asked of any kind of group

    @property
    def is_empty(self) -> bool:
        """True without members, if none is on its way."""
        return not self.state.members and self.writing is None

    def uses_topic(self, topic: str) -> bool:
        """Tell whether members subscribe to a topic, or will if the log takes what is on its way."""
        return self.state.has_subscribers(topic) or self.newest_state.has_subscribers(topic)

    def topics_changed(self, names: Collection[str]) -> None:
        """Topics came, grew or went: if members subscribe to one of them, the next heartbeat looks at all."""
        if any(map(self.newest_state.has_subscribers, names)):
            self.is_topics_look_due = True

    def tombstones(self) -> list[Record]:
        """Return the tombstones of all that the log has of the group but its offsets, in Kafka's order."""
        return list(self.state.tombstones())

    def listed(self) -> ListedGroup:
        """Return the group as ListGroups shows it: these kinds are called like the protocols that they speak."""
        return ListedGroup(self.group_id, self.TYPE.value, self.group_state.value, self.TYPE.value)

    def end(self, now_ms: int) -> None:
        """The group is gone from this coordinator."""
        self.is_dead = True

    def refuse_waiting(self, error_code: ErrorCode, *, names_members: bool = True) -> list[Reply]:
        """Return no refusal: members don't wait for each other."""
        return []

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

    def check(self) -> None:
        """Prove the group's invariants.

        Raises:
            InvariantError: one does not hold.
        """
        for rule, holds in self._invariants().items():
            if not holds:
                raise InvariantError(f"group {self.group_id!r} in {self.group_state.value}: {rule}")

    def _invariants(self) -> dict[str, bool]:
        """Return what must hold in each kind of group, and whether it does."""
        state = self.state
        epochs = [member.member_epoch for member in state.members.values()]
        fenced = {key.member_id for key in self.fencing}
        return {
            "the target is not newer than the group": state.assignment_epoch <= state.epoch,
            "a member is not newer than the target": all(epoch <= state.assignment_epoch for epoch in epochs),
            "requests wait for a write only": self.writing is not None or not (self.waiting or self.answers),
            "what is written builds on what is durable": self.writing is None or self.writing.durable is state,
            "members have sessions": self.is_dead
            or bool(self.overdue)
            or all(
                self.timer(self.SESSION, member_id).deadline_ms is not None
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
            self._proof = log_offsets, type(self.state).of(self.group_id, [record for _, record in entries])
        if self._proof[1].facts() != self.state.facts():
            raise InvariantError(f"group {self.group_id!r} differs from its records")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.group_id!r}, {self.group_state.value}, epoch={self.state.epoch})"


def described_partitions(
    partitions: Iterable[tuple[UUID, int]], topics: KnownTopics
) -> tuple[DescribedPartitions, ...]:
    """Return partitions by topic, as administrators see them; topics that are gone are left out."""
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, partition in partitions:
        by_topic.setdefault(topic_id, []).append(partition)
    return tuple(
        DescribedPartitions(topic_id, name, tuple(sorted(indexes)))
        for topic_id, indexes in by_topic.items()
        if (name := topics.topic_name(topic_id)) is not None
    )
