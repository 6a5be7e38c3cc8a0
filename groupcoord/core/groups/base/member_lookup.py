"""Lookup of the member that sent a request: dynamic members by id, static ones (KIP-345) also by instance id.

Sources: ``GroupMetadataManager`` (``getOrMaybe…Member``, ``throwIf…MemberEpochIsInvalid``) of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from groupcoord.config import GroupType
from groupcoord.core.events import MemberReplaced
from groupcoord.core.groups.base.state import Draft, MemberT, ModernGroupState
from groupcoord.core.messages import JOIN_GROUP_MEMBER_EPOCH
from groupcoord.core.messages.request import RefusedError
from groupcoord.errors import ErrorCode


def check_capacity(state: ModernGroupState[Any, Any], group_type: GroupType, max_size: int) -> None:
    """Check that a group has room for a new member, or fail with GROUP_MAX_SIZE_REACHED."""
    if len(state.members) >= max_size:
        message = f"The {group_type} group has reached its maximum capacity of {max_size} members."
        raise RefusedError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def find_member(state: ModernGroupState[MemberT, Any], member_id: str) -> MemberT:
    """Return a member, or fail with UNKNOWN_MEMBER_ID."""
    member = state.members.get(member_id)
    if member is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {state.group_id}."
        )
    return member


def find_static_member(state: ModernGroupState[MemberT, Any], instance_id: str, member_id: str) -> MemberT:
    """Return the static member with these ids.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID for an unknown instance, FENCED_INSTANCE_ID if another member has taken it.
    """
    known_id = state.static_members.get(instance_id)
    if known_id is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown in group {state.group_id}."
        )
    # The client stops on this error, so two processes do not fence each other forever.
    if known_id != member_id:
        raise RefusedError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {known_id}.",
        )
    return state.members[member_id]


def find_sender(state: ModernGroupState[MemberT, Any], member_id: str, instance_id: str | None) -> MemberT:
    """Return the member with these ids; a static member may omit its instance id."""
    if instance_id is None:
        return find_member(state, member_id)
    return find_static_member(state, instance_id, member_id)


def check_epoch(member: MemberT, epoch: int, lost_nothing: Callable[[MemberT], bool]) -> None:
    """Check the epoch that a member sends; raise RefusedError with FENCED_MEMBER_EPOCH."""
    known_epoch, previous_epoch = member.member_epoch, member.assignment.previous_member_epoch
    if epoch in (JOIN_GROUP_MEMBER_EPOCH, known_epoch):  # a live member may join again (KAFKA-19233)
        return
    # No coordinator has sent this epoch, unless it lost acknowledged records.
    if epoch > known_epoch:
        raise RefusedError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The member epoch {epoch} is larger than the one that the coordinator knows ({known_epoch}).",
        )
    # The response to the last heartbeat was lost. It would be wrong to accept if partitions were revoked since.
    if epoch != previous_epoch or not lost_nothing(member):
        raise RefusedError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The member epoch {epoch} is smaller than the one that the coordinator knows ({known_epoch}).",
        )


def identify(
    state: ModernGroupState[MemberT, Any],
    member_id: str,
    epoch: int,
    instance_id: str | None,
    *,
    lost_nothing: Callable[[MemberT], bool],
    may_be_replaced: Callable[[MemberT], bool],
) -> tuple[MemberT | None, bool]:
    """Return the sender of a heartbeat, None for a new member, and whether the request replaces that static member.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH or UNRELEASED_INSTANCE_ID.
    """
    joins = epoch == JOIN_GROUP_MEMBER_EPOCH
    # Clients choose their member id (KIP-1082), so an unknown one with epoch 0 is a new member.
    if joins and instance_id is None and member_id not in state.members:
        return None, False
    if instance_id is None or not joins:
        member = find_sender(state, member_id, instance_id)
        check_epoch(member, epoch, lost_nothing)
        return member, False
    known_id = state.static_members.get(instance_id)
    if known_id is None:
        # A dynamic member may become static by joining again under its own id.
        return state.members.get(member_id), False
    member = state.members[known_id]
    # Another instance is alive. Kafka refuses the newcomer here, unlike in classic groups, which fence the old one.
    if not may_be_replaced(member):
        raise RefusedError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} can't join: instance id {instance_id} is owned by member {known_id}.",
        )
    return member, True


def replace_member(draft: Draft[Any], member: MemberT, member_id: str, *, no_target: Any) -> MemberT:
    """Write that a member gets another id: metadata, target and assignment stay, its epoch is 0."""
    state = draft.state
    # ``raw_value`` may hold the old metadata, so it is dropped.
    replacement = evolve(
        member,
        metadata=evolve(member.metadata, member_id=member_id, raw_value=None),
        # Epoch 0 is older than any target, so the member is reconciled next even with the same one.
        assignment=evolve(
            member.assignment, member_epoch=JOIN_GROUP_MEMBER_EPOCH, previous_member_epoch=JOIN_GROUP_MEMBER_EPOCH
        ),
    )
    draft.write(
        # Kafka's order: the old member goes before the new one comes.
        *state.member_tombstones(member.member_id),
        replacement.metadata,
        state.target_record(member_id, state.targets.get(member.member_id, no_target)),
        state.assignment_record(member_id, replacement.assignment),
    )
    draft.add_event(MemberReplaced, member.member_id, member_id, member.metadata.instance_id)
    return replacement
