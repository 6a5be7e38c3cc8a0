"""How members of streams groups go: by themselves, or because they were silent or kept tasks for too long.

Sources: ``GroupMetadataManager`` (``streamsGroupLeave``, ``streamsGroupStaticMemberGroupLeave``,
``streamsGroupFenceMember``) of Apache Kafka 4.4; KIP-1071.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import evolve

from groupcoord.core.events import Cause, MemberRemoved, Trigger
from groupcoord.core.groups.base.member_lookup import find_sender
from groupcoord.core.groups.base.state import LEFT_MEMBER_EPOCH
from groupcoord.core.groups.streams.draft import StreamsDraft
from groupcoord.core.groups.streams.reconciliation import NO_TASKS, HeldTasks
from groupcoord.core.groups.streams.records import StreamsGroupTargetAssignmentMetadataRecord
from groupcoord.core.groups.streams.state import assignment_record
from groupcoord.core.messages import (
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
)
from groupcoord.errors import ErrorCode


def leave(draft: StreamsDraft, request: StreamsGroupHeartbeat) -> StreamsGroupHeartbeatResponse:
    """Take the heartbeat of a member that leaves, for good or, if it is static, for a while.

    Raises:
        RefusedError: it is no member, or another has its place.
    """
    state = draft.state
    member = find_sender(state, request.member_id, request.instance_id)
    if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        had = member.assignment.assigned
        assigned = HeldTasks(dict.fromkeys(had.active, 0), had.standby, had.warmup)
        assignment = evolve(
            member.assignment, member_epoch=LEFT_MEMBER_EPOCH, assigned=assigned, pending_revocation=NO_TASKS
        )
        draft.write(assignment_record(state.group_id, member.member_id, assignment))
    else:
        remove_members(draft, (member.member_id,), Cause.LEAVE)
    return StreamsGroupHeartbeatResponse(ErrorCode.NONE, None, request.member_id, request.member_epoch)


def remove_members(draft: StreamsDraft, member_ids: Collection[str], cause: Cause) -> None:
    """Write that members are gone, and the group's next epoch. Nobody looks at its topics for that."""
    state = draft.state
    group_id = state.group_id
    for member_id in member_ids:
        draft.tell(MemberRemoved, member_id, state.members[member_id].metadata.instance_id, cause)
        draft.write(*state.member_tombstones(member_id))
    draft.begin_epoch(state.metadata_hash, Trigger(cause, next(iter(member_ids))))
    if not draft.state.members:
        draft.write(StreamsGroupTargetAssignmentMetadataRecord(group_id, draft.state.epoch, 0))
