"""Reconciliation of a consumer group member: from its current to its target assignment, one assignment at a time.

Positions are committed (with automatic commits), lost partitions revoked, new ones assigned, and then the assignment is
acknowledged. So no partition has two readers. Source: KIP-848 and the Java consumer's ``AbstractMembershipManager``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from uuid import UUID

from attrs import define, field

from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.member.consumer.heartbeats import NO_ASSIGNMENT, ConsumerMembership, LocalAssignment, Partitions
from groupcoord.member.coordinator_link import NEVER_MS
from groupcoord.member.membership import MemberState
from groupcoord.member.offsets import Commit, CommitKind
from groupcoord.member.outputs import MetadataNeeded, PartitionsAssigned, PartitionsLost, PartitionsRevoked
from groupcoord.member.protocol import Parts
from groupcoord.member.subscription import SubscriptionState


class _Step(Enum):
    NONE = "nothing: there is none"
    COMMITTING = "the positions are being committed; then revoke"
    REVOKING = "the listener deals with what is revoked; then assign"
    ASSIGNING = "the listener deals with what is new; then acknowledge"
    LOSING = "the listener deals with what is lost; then join again"


@define(eq=False, repr=False)
class Reconciliation:
    """Current and target assignment of a member.

    Attributes:
        current: the partitions that the member owns and acknowledges.
        target: the partitions that it should own.
        is_lossy: whether the member must report its partitions as lost: it was fenced, has failed, or was not polled.
    """

    _parts: Parts
    _membership: ConsumerMembership
    _subscription: SubscriptionState
    _names: dict[UUID, str] = field(factory=dict, init=False)  # metadata may lose a topic before it is revoked
    _commit: Commit | None = field(default=None, init=False)
    _step: _Step = field(default=_Step.NONE, init=False)
    _towards: LocalAssignment = field(default=NO_ASSIGNMENT, init=False)  # the target of the reconciliation in progress
    _is_waiting: bool = field(default=False, init=False)  # for the names of topics
    _retry_ms: int = field(default=0, init=False)
    current: LocalAssignment = field(default=NO_ASSIGNMENT, init=False)
    target: LocalAssignment = field(default=NO_ASSIGNMENT, init=False)
    is_lossy: bool = field(default=False, init=False)

    @property
    def is_busy(self) -> bool:
        return self._step is not _Step.NONE

    @property
    def is_done(self) -> bool:
        return self.target == self.current

    # ------------------------------------------------------------ what the coordinator tells

    def assigned(self, partitions: Partitions) -> None:
        self.target = self.target.replaced_by(partitions)
        if not self.is_done:
            self._membership.move(MemberState.RECONCILING)

    def begin_anew(self) -> None:
        """Drop the target assignment, because the member joins."""
        self.target = NO_ASSIGNMENT
        self._names.clear()
        self._is_waiting = False

    # ------------------------------------------------------------ in the application's poll

    def progress(self, now_ms: int) -> None:
        while not self._parts.gate.is_shut:
            if self.is_busy and self._step is not _Step.LOSING:
                self._abort_if_out_of_place()
            if self._step is _Step.COMMITTING:
                if self._commit is not None and self._commit.outcome is None:
                    return
                self._revoke()
            elif self._step is _Step.REVOKING:
                self._assign()
            elif self._step is _Step.ASSIGNING:
                self._acknowledge(now_ms)
            elif self._step is _Step.LOSING:
                self.clear()
            elif self.is_lossy:
                self._lose()
            elif self._membership.state is not MemberState.RECONCILING or not self._begin(now_ms):
                return

    def _abort_if_out_of_place(self) -> None:
        if self._membership.state is MemberState.RECONCILING:
            return
        if self._step is _Step.REVOKING:
            gone = set(self._revoked())
            self._subscription.take([partition for partition in self._subscription.positions if partition not in gone])
        self._step = _Step.NONE

    def _begin(self, now_ms: int) -> bool:
        resolved = self._resolve(now_ms)
        if not self.current.is_none and resolved == self.current.partitions:
            if self.target.number == self.current.number:
                return False  # the rest waits for the names of its topics
            self.current = LocalAssignment(self.target.number, resolved)
            self._membership.move(MemberState.ACKNOWLEDGING)
            return True
        self._towards = LocalAssignment(self.target.number, resolved)
        self._step = _Step.COMMITTING
        self._commit = None
        self._subscription.withhold(self._revoked())
        config = self._parts.config
        if config.enable_auto_commit:
            deadline_ms = now_ms + config.max_poll_interval_ms
            self._commit = self._parts.commits.begin_all(CommitKind.BEFORE_REVOCATION, now_ms, deadline_ms)
        return True

    def _resolve(self, now_ms: int) -> Partitions:
        """Return the part of the target whose topics have names; request metadata for the others."""
        metadata = self._parts.topic_metadata
        for topic_id in self.target.partitions:
            name = metadata.names.get(topic_id)
            if name is not None:
                self._names[topic_id] = name
        resolved = {id_: numbers for id_, numbers in self.target.partitions.items() if id_ in self._names}
        self._is_waiting = len(resolved) < len(self.target.partitions)
        if self._is_waiting and not metadata.is_asked and now_ms >= self._retry_ms:
            metadata.is_asked = True
            self._retry_ms = now_ms + self._parts.config.retry_backoff_ms
            self._parts.outputs.append(MetadataNeeded(self._subscription.metadata_topics()))
        return resolved

    def _named(self, assignment: LocalAssignment) -> Iterable[TopicPartition]:
        for topic_id, numbers in assignment.partitions.items():
            for number in numbers:
                yield TopicPartition(self._names[topic_id], number)

    def _revoked(self) -> tuple[TopicPartition, ...]:
        wanted = set(self._named(self._towards))
        return tuple(partition for partition in self._subscription.positions if partition not in wanted)

    def _revoke(self) -> None:
        self._step = _Step.REVOKING
        revoked = self._revoked()
        if revoked:
            self._parts.gate.tell(PartitionsRevoked(revoked))

    def _assign(self) -> None:
        wanted = set(self._named(self._towards))
        added = tuple(sorted(wanted.difference(self._subscription.positions)))
        self._subscription.take(wanted)
        self._subscription.withhold(added)
        self._step = _Step.ASSIGNING
        self._parts.gate.tell(PartitionsAssigned(added))

    def _acknowledge(self, now_ms: int) -> None:
        self._step = _Step.NONE
        self._subscription.withhold(())
        self.current = self._towards
        self._names = {id_: name for id_, name in self._names.items() if id_ in self.current.partitions}
        self._parts.commits.restart_interval(now_ms)
        self._membership.move(MemberState.ACKNOWLEDGING)

    # ------------------------------------------------------------ out of the group

    def begin_losing(self) -> None:
        self.is_lossy = True
        self.current = self.target = NO_ASSIGNMENT

    def _lose(self) -> None:
        self._step = _Step.LOSING
        owned = tuple(self._subscription.positions)
        if owned:
            self._subscription.withhold(owned)
            self._parts.gate.tell(PartitionsLost(owned))

    def lose_nothing(self) -> None:
        if self.is_lossy and not self.is_busy and not self._subscription.positions:
            self.clear()

    def drop_all(self) -> None:
        """Report all partitions as revoked or lost, except those that were reported already."""
        positions = self._subscription.positions
        owned = tuple(positions)
        if self._step is _Step.LOSING:
            owned = ()
        elif self._step is _Step.REVOKING:
            gone = set(self._revoked())
            owned = tuple(partition for partition in positions if partition not in gone)
        self._step = _Step.NONE
        self.is_lossy = False
        if owned and self._subscription.is_auto_assigned:
            self._parts.gate.tell(PartitionsRevoked(owned) if self._membership.has_epoch else PartitionsLost(owned))

    def clear(self) -> None:
        self._step = _Step.NONE
        self._commit = None
        self.is_lossy = False
        self.current = self.target = NO_ASSIGNMENT
        self._names.clear()
        self._is_waiting = False
        if self._subscription.is_auto_assigned:
            self._subscription.take(())

    # ------------------------------------------------------------ time

    def deadline_ms(self) -> int:
        if self._membership.state is not MemberState.RECONCILING or self.is_busy or not self._is_waiting:
            return NEVER_MS
        return NEVER_MS if self._parts.topic_metadata.is_asked else self._retry_ms
