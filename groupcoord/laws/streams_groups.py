"""The laws of streams groups (KIP-1071): a task runs in one place at a time, and its copies are elsewhere."""

from __future__ import annotations

from groupcoord.core.streams.reconciliation import Task
from groupcoord.core.streams.state import StreamsMember, StreamsState
from groupcoord.laws.coordinator import require
from groupcoord.laws.epochs import check_sound_epochs


def check_sound_streams_group(state: StreamsState) -> None:
    """A task is active at one member, and no other member of its process has a copy: given up tasks count, too.

    Within a member a task may change its role at once, so that it has a copy of what it still has to give up.

    Raises:
        LawBrokenError: it isn't so; or epochs or static members don't fit.
    """
    check_sound_epochs(state)
    active: dict[Task, StreamsMember] = {}
    copies: dict[tuple[str, Task], list[str]] = {}
    for member_id, member in state.members.items():
        assigned, pending = member.assignment.assigned, member.assignment.pending_revocation
        require(
            assigned.active.keys().isdisjoint(assigned.standby | assigned.warmup)
            and assigned.standby.isdisjoint(assigned.warmup),
            f"{member_id!r} of {state.group_id!r} has a task twice: {assigned}",
        )
        for task in (*assigned.active, *pending.active):
            other = active.setdefault(task, member)
            require(other is member, f"{task} of {state.group_id!r} is active at {other.member_id!r} and {member_id!r}")
        for task in assigned.standby | pending.standby | assigned.warmup | pending.warmup:
            copies.setdefault((member.metadata.process_id, task), []).append(member_id)
    for task, member in active.items():
        beside = [name for name in copies.get((member.metadata.process_id, task), ()) if name != member.member_id]
        require(
            not beside,
            f"{task} of {state.group_id!r} is active at {member.member_id!r}, and {beside} of its process copy it",
        )
    statics = {m.metadata.instance_id: member_id for member_id, m in state.members.items() if m.metadata.instance_id}
    require(statics == state.static_members, f"static members of {state.group_id!r}: {state.static_members}")
