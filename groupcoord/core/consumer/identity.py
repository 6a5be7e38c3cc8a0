"""Whom a heartbeat of a consumer group is from: dynamic and static members, and the epochs that they may send.

Sources: ``GroupMetadataManager`` (``getOrMaybeSubscribeDynamicConsumerMember``, ``…StaticConsumerMember``,
``throwIfConsumerGroupMemberEpochIsInvalid``) of Apache Kafka 4.4; KIP-345 for static members.
"""

from __future__ import annotations

from attrs import evolve

from groupcoord.core.consumer.assignors import Partitions
from groupcoord.core.consumer.draft import ConsumerDraft
from groupcoord.core.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
)
from groupcoord.core.consumer.state import ConsumerMember, ConsumerState, assignment_record
from groupcoord.core.events import MemberReplaced
from groupcoord.core.messages import JOIN_GROUP_MEMBER_EPOCH, ConsumerGroupHeartbeat
from groupcoord.core.modern.refusal import RefusedError
from groupcoord.core.modern.topic_partitions import TopicPartitions
from groupcoord.core.records import GroupTombstone
from groupcoord.errors import ErrorCode


def find_member(state: ConsumerState, member_id: str) -> ConsumerMember:
    """Return a member.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID.
    """
    member = state.members.get(member_id)
    if member is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {state.group_id}."
        )
    return member


def find_static_member(state: ConsumerState, instance_id: str, member_id: str) -> ConsumerMember:
    """Return the static member with an instance id, if it is known under this member id.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID for an unknown instance, FENCED_INSTANCE_ID if another member has taken it.
    """
    known_id = state.static_members.get(instance_id)
    if known_id is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown in group {state.group_id}."
        )
    if known_id != member_id:
        raise RefusedError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {known_id}.",
        )
    return state.members[member_id]


def check_epoch(member: ConsumerMember, epoch: int, owned: tuple[TopicPartitions, ...] | None) -> None:
    """Check the epoch that a member sends.

    One that has not learned of its last change may still send the epoch before, if it has nothing that was taken from
    it. A member that lost its place in time joins again with epoch 0 and keeps what it has (KAFKA-19233).

    Raises:
        RefusedError: FENCED_MEMBER_EPOCH.
    """
    assignment = member.assignment
    if epoch in (JOIN_GROUP_MEMBER_EPOCH, assignment.member_epoch):
        return
    if epoch > assignment.member_epoch:
        raise RefusedError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The member epoch {epoch} is larger than the one that the coordinator knows ({assignment.member_epoch}).",
        )
    if epoch != assignment.previous_member_epoch or owned is None or not _is_assigned(member, owned):
        raise RefusedError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The member epoch {epoch} is smaller than the one that the coordinator knows ({assignment.member_epoch}).",
        )


def _is_assigned(member: ConsumerMember, owned: tuple[TopicPartitions, ...]) -> bool:
    assigned = member.assignment.assigned
    return all(partition in assigned.get(topic_id, ()) for topic_id, partitions in owned for partition in partitions)


def resolve_member(draft: ConsumerDraft, request: ConsumerGroupHeartbeat, member_id: str) -> ConsumerMember:
    """Return whom a heartbeat is from: a member, or a new one that no record knows yet.

    A static member that comes back under another id takes the place of the old one, which is written to ``draft``.

    Raises:
        RefusedError: it is nobody's, or not this one's.
    """
    state, joins = draft.state, request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
    if request.instance_id is None:
        member = state.members.get(member_id)
        if member is None:
            if not joins:
                find_member(state, member_id)
            return new_member(state, member_id)
        check_epoch(member, request.member_epoch, request.topic_partitions)
        return member
    if not joins:
        member = find_static_member(state, request.instance_id, member_id)
        check_epoch(member, request.member_epoch, request.topic_partitions)
        return member
    known_id = state.static_members.get(request.instance_id)
    if known_id is None:
        return state.members.get(member_id) or new_member(state, member_id)
    member = state.members[known_id]
    if not member.has_left and not member.uses_classic_protocol:
        raise RefusedError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} can't join: instance id {request.instance_id} is owned by member {known_id}.",
        )
    return replace_member(draft, member, member_id)


def new_member(state: ConsumerState, member_id: str) -> ConsumerMember:
    """Return somebody of whom nothing is known yet."""
    metadata = ConsumerGroupMemberMetadataRecord(
        state.group_id, member_id, None, None, "", "", subscribed_topic_regex=""
    )
    return ConsumerMember(metadata)


def replace_member(draft: ConsumerDraft, member: ConsumerMember, member_id: str) -> ConsumerMember:
    """Give a member's place to another id: subscription, target and partitions go with it, its epoch starts at 0.

    Returns:
        The member under its new id.
    """
    group_id = draft.state.group_id
    target = draft.state.targets.get(member.member_id, {})
    replacement = ConsumerMember(
        evolve(member.metadata, member_id=member_id, raw_value=None),
        evolve(member.assignment, member_epoch=JOIN_GROUP_MEMBER_EPOCH, previous_member_epoch=JOIN_GROUP_MEMBER_EPOCH),
    )
    draft.write(
        *tombstones_of(group_id, member.member_id),
        replacement.metadata,
        target_record(group_id, member_id, target),
        assignment_record(group_id, member_id, replacement.assignment),
    )
    draft.tell(MemberReplaced, member.member_id, member_id, member.metadata.instance_id)
    return replacement


def target_record(group_id: str, member_id: str, target: Partitions) -> ConsumerGroupTargetAssignmentMemberRecord:
    """Return the record of what a member is to have in the end."""
    topics = tuple(TopicPartitions(topic_id, tuple(partitions)) for topic_id, partitions in target.items())
    return ConsumerGroupTargetAssignmentMemberRecord(group_id, member_id, topics)


def tombstones_of(group_id: str, member_id: str) -> tuple[GroupTombstone, ...]:
    """Return the tombstones of a member's records, in Kafka's order."""
    return (
        GroupTombstone(group_id, ConsumerGroupCurrentMemberAssignmentRecord.key_of(member_id)),
        GroupTombstone(group_id, ConsumerGroupTargetAssignmentMemberRecord.key_of(member_id)),
        GroupTombstone(group_id, ConsumerGroupMemberMetadataRecord.key_of(member_id)),
    )
