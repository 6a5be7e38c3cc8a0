"""Reconciliation of a member's assignment with its target: revocation first, then the partitions that others released.

Source: KIP-848, and ``CurrentAssignmentBuilder`` of Kafka's group coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from attrs import evolve, field

from groupcoord.core.fast_construct import frozen, plain_members
from groupcoord.core.log.record_keys import TopicPartitions
from groupcoord.core.messages.request import RefusedError
from groupcoord.errors import ErrorCode

PartitionEpochs = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, with the member's epoch at the assignment."""

NEW_MEMBER_EPOCH = 0
NO_MEMBER_EPOCH = -1


@plain_members
class MemberState(IntEnum):
    """Reconciliation state of a member, by the numbers in Kafka's records."""

    STABLE = 0
    """The member has its target assignment."""
    UNREVOKED_PARTITIONS = 1
    """The member has to revoke partitions, and has not confirmed it."""
    UNRELEASED_PARTITIONS = 2
    """The member has revoked everything, and waits for partitions that other members have not released."""
    UNKNOWN = 127
    """A state that a newer broker has written."""


STATES_BY_NUMBER = {state.value: state for state in MemberState}


@frozen
class MemberAssignment:
    """Assignment of a member: the value of its ConsumerGroupCurrentMemberAssignment record (type 8).

    Attributes:
        member_epoch: the epoch of the target assignment that it has reached or is on the way to.
        previous_member_epoch: its epoch before the last change, which a repeated request may have; -1 before the first.
        pending_revocation: the partitions that it has to revoke, which no other member gets before.
    """

    NEVER_CHANGES = True

    member_epoch: int = NEW_MEMBER_EPOCH
    previous_member_epoch: int = NO_MEMBER_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: PartitionEpochs = field(factory=dict)
    pending_revocation: PartitionEpochs = field(factory=dict)

    @property
    def is_revoking(self) -> bool:
        return self.state is MemberState.UNREVOKED_PARTITIONS

    def as_left(self, member_epoch: int) -> MemberAssignment:
        """Return the assignment of a static member that leaves temporarily, with its partitions."""
        # Kafka resets their epochs to 0.
        assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in self.assigned.items()}
        return evolve(self, member_epoch=member_epoch, assigned=assigned, pending_revocation={})

    def by_topic(self) -> tuple[TopicPartitions, ...]:
        return tuple([TopicPartitions(topic_id, tuple(sorted(epochs))) for topic_id, epochs in self.assigned.items()])


class Reconciliation(NamedTuple):
    """One step of one member towards its target.

    Attributes:
        current: its assignment before the heartbeat.
        owned: the partitions that it reports; None if it reports none.
        owner_epochs: partition → epoch of the member that owns it or has not released it.
    """

    current: MemberAssignment
    target_epoch: int
    target: Mapping[UUID, Collection[int]]
    subscribed: Set[UUID]
    subscribes_to_nothing: bool
    has_subscription_changed: bool
    owned: Mapping[UUID, Collection[int]] | None
    owner_epochs: Mapping[tuple[UUID, int], int]

    def result(self) -> MemberAssignment:
        """Return the member's assignment after the heartbeat, or fail with FENCED_MEMBER_EPOCH."""
        current, owned = self.current, self.owned
        match current.state:
            # Looked at with each heartbeat: other members may have released partitions since.
            case MemberState.UNRELEASED_PARTITIONS:
                return self._next_assignment(current.member_epoch)
            # Only a member without partitions can be moved on safely.
            case MemberState.UNKNOWN if owned is None or owned:
                raise RefusedError(ErrorCode.FENCED_MEMBER_EPOCH)
            case MemberState.UNKNOWN:
                return self._next_assignment(self.target_epoch)
            case MemberState.STABLE if current.member_epoch != self.target_epoch:
                return self._next_assignment(current.member_epoch)
            # The member has confirmed the revocation by the partitions that it still owns.
            case MemberState.UNREVOKED_PARTITIONS if not self._may_have(current.pending_revocation):
                return self._next_assignment(current.member_epoch)
        return self._without_unsubscribed() if self.has_subscription_changed else current

    def _may_have(self, revoked: PartitionEpochs) -> bool:
        """Return whether the member may still own some of these partitions."""
        if self.owned is None:
            # A heartbeat without partitions confirms nothing.
            return True
        return any(
            partition in revoked[topic_id]
            for topic_id, partitions in self.owned.items()
            if topic_id in revoked
            for partition in partitions
        )

    def _next_assignment(self, epoch_until_revoked: int) -> MemberAssignment:
        """Return the next step towards the target."""
        kept: dict[UUID, dict[int, int]] = {}
        revoked: dict[UUID, dict[int, int]] = {}
        added: dict[UUID, list[int]] = {}
        is_waiting = False
        for topic_id in {**self.target, **self.current.assigned}:
            # The target may be older than the subscription, or name deleted topics.
            wanted = dict.fromkeys(self.target.get(topic_id, ()) if topic_id in self.subscribed else ())
            had = self.current.assigned.get(topic_id, {})
            kept_here = {partition: epoch for partition, epoch in had.items() if partition in wanted}
            new = [partition for partition in wanted if partition not in had]
            # Partitions that the member itself gives back do not block it (KAFKA-19449).
            released = self.current.pending_revocation.get(topic_id, ())
            free = [index for index in new if (topic_id, index) not in self.owner_epochs or index in released]
            is_waiting = is_waiting or len(free) < len(new)
            if kept_here:
                kept[topic_id] = kept_here
            if len(kept_here) < len(had):
                # With their epochs: the member may commit them until it has revoked them.
                revoked[topic_id] = {p: epoch for p, epoch in had.items() if p not in kept_here}
            if free:
                added[topic_id] = free
        if revoked and self._may_have(revoked):
            # Nothing is added before the member confirms the revocation; until then it keeps its epoch.
            return self._moved(epoch_until_revoked, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
        for topic_id, partitions in added.items():
            # New partitions get the epoch from which commits may come (KIP-1251).
            kept.setdefault(topic_id, {}).update(dict.fromkeys(partitions, self.target_epoch))
        state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
        return self._moved(self.target_epoch, state, kept, {})

    def _without_unsubscribed(self) -> MemberAssignment:
        """Return the assignment without topics that the member no longer subscribes to (Kafka 4.2)."""
        current = self.current
        # At the same epoch, before the next target: the member must not fetch these any longer.
        kept = {topic_id: had for topic_id, had in current.assigned.items() if topic_id in self.subscribed}
        is_new = current.previous_member_epoch == NO_MEMBER_EPOCH
        if len(kept) == len(current.assigned) and (
            current.pending_revocation or is_new or not self.subscribes_to_nothing
        ):
            # A member that now subscribes to nothing, and had nothing, counts as changed: its previous epoch is. Not so
            # a new one: Kafka has the same empty map for it.
            return current
        revoked = dict(current.pending_revocation)
        for topic_id, had in current.assigned.items():
            if topic_id not in kept:
                revoked[topic_id] = {**revoked.get(topic_id, {}), **had}
        if revoked and self._may_have(revoked):
            return self._moved(current.member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
        return self._moved(current.member_epoch, current.state, kept, current.pending_revocation)

    def _moved(
        self, member_epoch: int, state: MemberState, assigned: PartitionEpochs, pending_revocation: PartitionEpochs
    ) -> MemberAssignment:
        return MemberAssignment(member_epoch, self.current.member_epoch, state, assigned, pending_revocation)
