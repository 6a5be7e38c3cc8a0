"""Whom a heartbeat of a streams group is from, and what is written of a member that is new or takes another's place.

Sources: ``GroupMetadataManager`` (``getOrMaybeCreate…StreamsGroupMember``, ``replaceStreamsMember``) of Apache
Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable

from groupcoord.core.groups.base.member_lookup import identify, replace_member
from groupcoord.core.groups.streams.assignors import MemberTasks
from groupcoord.core.groups.streams.draft import StreamsDraft
from groupcoord.core.groups.streams.reconciliation import HeldTasks
from groupcoord.core.groups.streams.records import TaskIds
from groupcoord.core.groups.streams.soft_state import StreamsMemory
from groupcoord.core.groups.streams.state import StreamsMember, assignment_record, target_record, task_set
from groupcoord.core.messages import StreamsGroupHeartbeat


def owned_tasks(request: StreamsGroupHeartbeat) -> HeldTasks | None:
    """Return the tasks that a member says it runs; None if it doesn't say."""
    if request.active_tasks is None:
        return None
    return HeldTasks(
        dict.fromkeys(task_set(request.active_tasks), 0),
        task_set(request.standby_tasks),
        task_set(request.warmup_tasks),
    )


def named_tasks(request: StreamsGroupHeartbeat) -> Iterable[TaskIds]:
    """Return the tasks that a heartbeat names as its member's, in whatever role."""
    return *(request.active_tasks or ()), *(request.standby_tasks or ()), *(request.warmup_tasks or ())


def resolve_member(draft: StreamsDraft, memory: StreamsMemory, request: StreamsGroupHeartbeat) -> StreamsMember:
    """Return whom a heartbeat is from: a member, or a new one that no record knows yet.

    A static member that comes back takes the place of what it was, which is written to ``draft``.

    Raises:
        RefusedError: it is nobody's, or not this one's.
    """

    def lost_nothing(member: StreamsMember) -> bool:
        owned = owned_tasks(request)
        return owned is not None and member.assignment.assigned.has_all(owned)

    holder_id = draft.state.static_members.get(request.instance_id or "")
    if holder_id is not None:
        # So does Kafka before it looks whether the place is free, or whether anybody comes to take it.
        memory.replace_member(holder_id, request.member_id)
    member, takes_place = identify(
        draft.state,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        lost_nothing=lost_nothing,
        may_be_replaced=lambda member: member.has_left,
    )
    if member is None:
        return StreamsMember(draft.state.no_metadata(request.member_id))
    if not takes_place:
        return member
    target = draft.state.targets.get(member.member_id, MemberTasks())
    return replace_member(
        draft,
        member,
        request.member_id,
        target=target,
        target_record=target_record,
        assignment_record=assignment_record,
    )
