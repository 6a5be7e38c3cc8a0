"""How members go: by themselves, or because they were silent or kept what they had to give back for too long.

Sources: ``GroupMetadataManager`` (``consumerGroupLeave``, ``consumerGroupStaticMemberGroupLeave``,
``consumerGroupFenceMembers``) of Apache Kafka 4.4; KIP-848.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import evolve

from groupcoord.core.events import Cause, MemberRemoved, Trigger
from groupcoord.core.groups.base.member_lookup import find_sender
from groupcoord.core.groups.base.state import LEFT_MEMBER_EPOCH
from groupcoord.core.groups.consumer.downgrade import can_downgrade, downgrade
from groupcoord.core.groups.consumer.draft import ConsumerDraft
from groupcoord.core.groups.consumer.environment import ConsumerGroupEnvironment
from groupcoord.core.groups.consumer.records import (
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
)
from groupcoord.core.groups.consumer.state import assignment_record
from groupcoord.core.log.records import GroupTombstone
from groupcoord.core.messages import (
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
)
from groupcoord.errors import ErrorCode


def leave(
    draft: ConsumerDraft, request: ConsumerGroupHeartbeat, environment: ConsumerGroupEnvironment, now_ms: int
) -> ConsumerGroupHeartbeatResponse:
    """Take the heartbeat of a member that leaves, for good or, if it is static, for a while.

    Raises:
        RefusedError: it is no member, or another has its place.
    """
    state = draft.state
    member = find_sender(state, request.member_id, request.instance_id)
    if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assignment.assigned.items()}
        assignment = evolve(member.assignment, member_epoch=LEFT_MEMBER_EPOCH, assigned=assigned, pending_revocation={})
        draft.write(assignment_record(state.group_id, member.member_id, assignment))
    else:
        remove_members(draft, (member.member_id,), Cause.LEAVE, environment, now_ms)
    return ConsumerGroupHeartbeatResponse(ErrorCode.NONE, None, request.member_id, request.member_epoch)


def remove_members(
    draft: ConsumerDraft, member_ids: Collection[str], cause: Cause, environment: ConsumerGroupEnvironment, now_ms: int
) -> None:
    """Write that members are gone, and the group's next epoch; or that it is a classic group again."""
    state = draft.state
    group_id = state.group_id
    for member_id in member_ids:
        draft.tell(MemberRemoved, member_id, state.members[member_id].metadata.instance_id, cause)
    trigger = Trigger(cause, next(iter(member_ids)))
    if can_downgrade(state, member_ids, environment):
        downgrade(draft, environment, trigger, now_ms, gone=member_ids)
        return
    regexes = sorted({state.members[member_id].regex for member_id in member_ids} - {""})
    for member_id in member_ids:
        draft.write(*state.member_tombstones(member_id))
    state = draft.state
    draft.write(
        *(
            GroupTombstone(group_id, ConsumerGroupRegularExpressionRecord.key_of(regex))
            for regex in regexes
            if regex not in state.regex_subscribers
        )
    )
    draft.begin_epoch(environment.topics.metadata_hash(state.subscribed_topics()), trigger)
    if not state.members:
        draft.write(ConsumerGroupTargetAssignmentMetadataRecord(group_id, draft.state.epoch, 0))
