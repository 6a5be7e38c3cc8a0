"""Whom a heartbeat of a consumer group is from, and what is written of a member that is new or takes another's place.

Sources: ``GroupMetadataManager`` (``getOrMaybeSubscribeDynamicConsumerMember``, ``…StaticConsumerMember``) of Apache
Kafka 4.4; KIP-345 for static members.
"""

from __future__ import annotations

from groupcoord.core.groups.base import member_lookup as modern_identity
from groupcoord.core.groups.base.topics import TopicPartitions
from groupcoord.core.groups.consumer.assignors import Partitions
from groupcoord.core.groups.consumer.draft import ConsumerDraft
from groupcoord.core.groups.consumer.records import (
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
)
from groupcoord.core.groups.consumer.state import ConsumerMember, ConsumerState, assignment_record
from groupcoord.core.messages import ConsumerGroupHeartbeat


def resolve_member(draft: ConsumerDraft, request: ConsumerGroupHeartbeat, member_id: str) -> ConsumerMember:
    """Return whom a heartbeat is from: a member, or a new one that no record knows yet.

    A static member that comes back under another id takes the place of the old one, which is written to ``draft``.

    Raises:
        RefusedError: it is nobody's, or not this one's.
    """
    member, takes_place = modern_identity.identify(
        draft.state,
        member_id,
        request.member_epoch,
        request.instance_id,
        lost_nothing=lambda member: _is_assigned(member, request.topic_partitions),
        may_be_replaced=lambda member: member.has_left or member.uses_classic_protocol,
    )
    if member is None:
        return new_member(draft.state, member_id)
    return replace_member(draft, member, member_id) if takes_place else member


def _is_assigned(member: ConsumerMember, owned: tuple[TopicPartitions, ...] | None) -> bool:
    assigned = member.assignment.assigned
    return owned is not None and all(
        partition in assigned.get(topic_id, ()) for topic_id, partitions in owned for partition in partitions
    )


def new_member(state: ConsumerState, member_id: str) -> ConsumerMember:
    """Return somebody of whom nothing is known yet."""
    metadata = ConsumerGroupMemberMetadataRecord(
        state.group_id, member_id, None, None, "", "", subscribed_topic_regex=""
    )
    return ConsumerMember(metadata)


def replace_member(draft: ConsumerDraft, member: ConsumerMember, member_id: str) -> ConsumerMember:
    """Give a member's place to another id, and return the member under that."""
    target = draft.state.targets.get(member.member_id, {})
    return modern_identity.replace_member(
        draft, member, member_id, target=target, target_record=target_record, assignment_record=assignment_record
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> ConsumerGroupTargetAssignmentMemberRecord:
    """Return the record of what a member is to have in the end."""
    topics = tuple(TopicPartitions(topic_id, tuple(partitions)) for topic_id, partitions in target.items())
    return ConsumerGroupTargetAssignmentMemberRecord(group_id, member_id, topics)
