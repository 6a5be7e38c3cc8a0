"""What the log says of a share group (KIP-932): its records, and what follows from them.

Sources: ``ShareGroup`` and the ``replay`` methods of ``GroupMetadataManager`` in Apache Kafka 4.4.
"""

from __future__ import annotations

from itertools import chain
from uuid import UUID

from attrs import field, frozen

from groupcoord.core.groups.base.assignor import Partitions, SubscriptionType
from groupcoord.core.groups.base.state import ModernGroupState, ModernMember, count
from groupcoord.core.groups.base.target import subscription_type
from groupcoord.core.groups.base.topics import TopicPartitions
from groupcoord.core.groups.share.records import (
    ShareGroupCurrentMemberAssignmentRecord,
    ShareGroupMemberMetadataRecord,
    ShareGroupMetadataRecord,
    ShareGroupStatePartitionMetadataRecord,
    ShareGroupTargetAssignmentMemberRecord,
    ShareGroupTargetAssignmentMetadataRecord,
)
from groupcoord.core.groups.share.state_partitions import NO_STATE_PARTITIONS, StatePartitions
from groupcoord.core.log.records import GroupTombstone

NEW_MEMBER_EPOCH = 0
NO_PREVIOUS_EPOCH = -1
STABLE = 0
"""The only state of a member, in its record."""


@frozen
class ShareAssignment:
    """Where a member's assignment stands: what its record of type 14 says."""

    member_epoch: int = NEW_MEMBER_EPOCH
    previous_member_epoch: int = NO_PREVIOUS_EPOCH
    assigned: Partitions = field(factory=dict)

    def by_topic(self) -> tuple[TopicPartitions, ...]:
        """Return what the member has, as records and answers name it."""
        return topic_partitions(self.assigned)


NEW_ASSIGNMENT = ShareAssignment()


@frozen
class ShareMember(ModernMember):
    """A member of a share group; whoever leaves is gone, and nobody is static.

    Attributes:
        metadata: its record of type 10.
        assignment: what its record of type 14 says.
    """

    metadata: ShareGroupMemberMetadataRecord
    assignment: ShareAssignment = NEW_ASSIGNMENT


class ShareState(ModernGroupState[ShareMember, Partitions]):
    """The facts about one share group.

    Attributes:
        name_subscribers: topic name → how many members name it.
        state_partitions: for which partitions the share coordinator has a state.
    """

    __slots__ = ("name_subscribers", "state_partitions")

    MEMBER = ShareMember
    NEW_ASSIGNMENT = NEW_ASSIGNMENT
    RECORDS_OF_MEMBER = (
        ShareGroupCurrentMemberAssignmentRecord,
        ShareGroupTargetAssignmentMemberRecord,
        ShareGroupMemberMetadataRecord,
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.name_subscribers: dict[str, int] = {}
        self.state_partitions: StatePartitions = NO_STATE_PARTITIONS

    def _copy_to(self, copy: ShareState) -> None:
        copy.name_subscribers = self.name_subscribers.copy()
        copy.state_partitions = self.state_partitions

    # ------------------------------------------------------------ records

    def _apply_state_partitions(self, record: ShareGroupStatePartitionMetadataRecord) -> None:
        self.state_partitions = StatePartitions.of(record)

    def _forget_state_partitions(self, _: str) -> None:
        self.state_partitions = NO_STATE_PARTITIONS

    def tombstones(self) -> list[GroupTombstone]:
        """Return the tombstones of all that the log may have of a group, in Kafka's order."""
        keys = (
            ShareGroupTargetAssignmentMetadataRecord.key,
            ShareGroupStatePartitionMetadataRecord.key,
            ShareGroupMetadataRecord.key,
        )
        return [
            *chain.from_iterable(map(self.member_tombstones, {**self.members, **self.targets})),
            *(GroupTombstone(self.group_id, key) for key in keys),
        ]

    # ------------------------------------------------------------ what follows from them

    def no_metadata(self, member_id: str) -> ShareGroupMemberMetadataRecord:
        """Stand in for a member's record of type 10 that is not there, or not yet."""
        return ShareGroupMemberMetadataRecord(self.group_id, member_id, None, "", "")

    def _assignment_of(self, record: ShareGroupCurrentMemberAssignmentRecord) -> ShareAssignment:
        return ShareAssignment(record.member_epoch, record.previous_member_epoch, dict(record.assigned_partitions))

    def _count(self, member: ShareMember, change: int) -> None:
        for name in member.metadata.subscribed_topic_names:
            count(self.name_subscribers, name, change)

    # ------------------------------------------------------------ questions

    def has_subscribers(self, topic: str) -> bool:
        """Tell whether anybody subscribes to a topic."""
        return topic in self.name_subscribers

    def subscription_type(self) -> SubscriptionType:
        """Tell whether all members subscribe to the same topics."""
        return subscription_type(len(self.members), self.name_subscribers, {})

    def is_initialized_assigned(self) -> bool:
        """Tell whether what members are to have is all that the group reads of the topics that they subscribe to."""
        initialized = {
            topic_id: partitions
            for topic_id, (name, partitions) in self.state_partitions.initialized.items()
            if name in self.name_subscribers
        }
        if not initialized or not self.members:
            return True
        assigned: dict[UUID, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return all(assigned.get(topic_id, set()) == partitions for topic_id, partitions in initialized.items())


def topic_partitions(partitions: Partitions) -> tuple[TopicPartitions, ...]:
    """Return partitions as records and answers name them."""
    return tuple([TopicPartitions(topic_id, tuple(indexes)) for topic_id, indexes in partitions.items()])


def assignment_record(
    group_id: str, member_id: str, assignment: ShareAssignment
) -> ShareGroupCurrentMemberAssignmentRecord:
    """Return the record of what a member has."""
    return ShareGroupCurrentMemberAssignmentRecord(
        group_id,
        member_id,
        assignment.member_epoch,
        assignment.previous_member_epoch,
        STABLE,
        assignment.by_topic(),
    )


ShareState.APPLY = {
    ShareGroupMemberMetadataRecord: ShareState._apply_member,
    ShareGroupMetadataRecord: ShareState._apply_group,
    ShareGroupTargetAssignmentMetadataRecord: ShareState._apply_target_epoch,
    ShareGroupTargetAssignmentMemberRecord: ShareState._apply_target,
    ShareGroupCurrentMemberAssignmentRecord: ShareState._apply_assignment,
    ShareGroupStatePartitionMetadataRecord: ShareState._apply_state_partitions,
}

ShareState.FORGET = {
    10: ShareState._forget_member,
    11: ShareState._forget_group,
    12: ShareState._forget_target_epoch,
    13: ShareState._forget_target,
    14: ShareState._forget_assignment,
    15: ShareState._forget_state_partitions,
}
