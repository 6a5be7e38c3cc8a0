"""Laws of all groups with state in the log: consistent states after any subset of accepted appends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.groups.base.kind import WhenDrafted
from groupcoord.core.groups.base.state import ModernGroupState
from groupcoord.core.groups.consumer.group import ConsumerState
from groupcoord.core.groups.conversion import WhenConverted
from groupcoord.core.groups.group_types import as_consumer_group, as_modern_group
from groupcoord.core.groups.share.group import ShareState
from groupcoord.core.groups.streams.assignors import Task
from groupcoord.core.groups.streams.group import StreamsMember, StreamsState
from groupcoord.core.log.record_keys import RecordKey
from groupcoord.core.log.records import (
    CLASSIC_GROUP_KEY,
    ConsumerGroupMetadataRecord,
    GroupRecord,
    GroupTombstone,
    Record,
)
from groupcoord.laws.consumer_groups import (
    OF_NO_GROUP,
    check_is_no_classic_group,
    check_is_not_ahead_when_empty,
    check_sound_consumer_group,
    check_sound_epochs,
)
from groupcoord.laws.coordinator import require, served_partitions


def check_sound_streams_group(state: StreamsState) -> None:
    """Check that a task is active in one member, and no other member of its process has a copy, revoked tasks included.

    Raises:
        LawBrokenError: it does not hold.
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
        # Within a member a task may change its role at once, so it may have a copy that it must still revoke.
        beside = [name for name in copies.get((member.metadata.process_id, task), ()) if name != member.member_id]
        require(
            not beside,
            f"{task} of {state.group_id!r} is active at {member.member_id!r}, and {beside} of its process are standby",
        )
    statics = {m.metadata.instance_id: member_id for member_id, m in state.members.items() if m.metadata.instance_id}
    require(statics == state.static_members, f"static members of {state.group_id!r}: {state.static_members}")


SOUND: dict[type[ModernGroupState[Any, Any]], Callable[[Any], None]] = {
    ConsumerState: check_sound_consumer_group,
    ShareState: check_sound_epochs,
    StreamsState: check_sound_streams_group,
}


def check_writes_in_flight(coordinator: GroupCoordinator) -> None:
    """Check that a group has one write in flight, based on durable state, and is consistent with and without it.

    Raises:
        LawBrokenError: it does not hold.
    """
    for partition in served_partitions(coordinator):
        writes: dict[str, Sequence[Record]] = {}
        drafted: set[str] = set()
        for append in partition.writer.in_flight:
            continuation = append.continuation
            groups = () if not isinstance(continuation, WhenDrafted) else continuation.groups
            drafted |= {group.group_id for group in groups}
            for group in (continuation.group,) if isinstance(continuation, WhenConverted) else groups:
                group_id = group.group_id
                require(group_id not in writes, f"group {group_id!r} has two writes in flight")
                writes[group_id] = [each for each in append.records if getattr(each, "group_id", group_id) == group_id]
        for group_id, group in partition.groups.items():
            if (modern := as_modern_group(group)) is not None:
                SOUND[type(modern.state)](modern.state)
                draft = modern.writing
                require(
                    (draft is not None) == (group_id in drafted) and (draft is None or draft.durable is modern.state),
                    "{!r} does not write its draft, or the draft is based on state that is not durable",
                    group,
                )
            if (consumer_group := as_consumer_group(group)) is not None and group_id not in writes:
                check_is_no_classic_group(coordinator, consumer_group)
        for group_id, records in writes.items():
            _check_sound_records(group_id, partition.hard.groups.get(group_id, {}).values(), records)


def check_holds_what_is_durable(
    coordinator: GroupCoordinator, group_id: str, member_id: str, epoch: int, active: Iterable[Task]
) -> None:
    """Check that a member of a streams or share group got only durable epochs, and no other can get its active tasks.

    Nothing is checked for former members, nor for a group that is not served here. ``epoch`` is the last one that the
    member got.

    Raises:
        LawBrokenError: it does not hold.
    """
    partition = coordinator.partition(coordinator.partition_of(group_id))
    group = None if partition is None else as_modern_group(partition.groups.get(group_id))
    member = None if group is None else group.state.members.get(member_id)
    if member is None or member.has_left:
        return
    is_durable = epoch <= member.member_epoch
    require(is_durable, "{!r} received epoch {}; durable is {}", member_id, epoch, member)
    if isinstance(member, StreamsMember):
        assignment = member.assignment
        lost = set(active) - assignment.assigned.active.keys() - assignment.pending_revocation.active.keys()
        require(not lost, f"{member_id!r} of group {group_id!r} has {lost}, which others can be given")


def check_members_are_served(coordinator: GroupCoordinator, group_id: str, member_ids: Collection[str]) -> None:
    """Check that, after faults have ended, live members have their targets, all tasks run, and each partition is read.

    ``member_ids`` are the live members of the streams or share group that fit into it; there must be no others.

    Raises:
        LawBrokenError: it does not hold.
    """
    partition = coordinator.partition(coordinator.partition_of(group_id))
    group = None if partition is None else partition.groups.get(group_id)
    if not member_ids:
        require(group is None or group.is_empty, f"no member is alive, but the group is {group!r}")
        return
    modern = as_modern_group(group)
    assert modern is not None, f"{group!r} has members"
    assert group is not None
    state = modern.state
    places = min(len(member_ids), group.max_size(coordinator.config))
    require(
        state.members.keys() <= set(member_ids) and len(state.members) == places,
        f"the members of {group_id!r} are {sorted(state.members)}; alive are {sorted(member_ids)}",
    )
    # States of a topic that was deleted while the log was not served: the epoch grows with each heartbeat, as in Kafka.
    if isinstance(state, ShareState) and not state.is_initialized_assigned():
        return
    epochs = {member.member_epoch for member in state.members.values()}
    require(epochs == {state.epoch} == {state.assignment_epoch}, f"{group!r} does not become stable: {state.facts()}")
    if isinstance(state, ShareState):
        topics = coordinator._environments.share.topics.existing(state.name_subscribers)
        wanted = {(topic.topic_id, index) for topic in topics.values() for index in range(topic.partition_count)}
        shares = [member.assignment.assigned.items() for member in state.members.values()]
        given = {(topic_id, index) for share in shares for topic_id, indexes in share for index in indexes}
        require(given == wanted, f"in {group!r} {wanted - given} have no reader, and {given - wanted} do not exist")
    elif isinstance(state, StreamsState):
        topics = coordinator._environments.streams.topics.existing(state.readers)
        count = max((topic.partition_count for topic in topics.values()), default=0) if state.is_ready else 0
        require(len(state.active) == count, f"of {count} tasks of {group!r} run {sorted(state.active)}")


def _check_sound_records(group_id: str, durable: Iterable[tuple[int, GroupRecord]], written: Iterable[Record]) -> None:
    left: dict[RecordKey, GroupRecord] = {record.key: record for _, record in durable}
    for record in written:
        if isinstance(record, GroupTombstone):
            left.pop(record.key, None)
        elif not isinstance(record, OF_NO_GROUP):
            left[record.key] = record
    if CLASSIC_GROUP_KEY in left:
        require(len(left) == 1, f"the write leaves group {group_id!r} with records of two types: {sorted(left)}")
        return
    kinds = [kind for kind in SOUND if any(type(record) in kind.APPLY for record in left.values())]
    require(len(kinds) <= 1, f"the write leaves group {group_id!r} with records of two types: {sorted(left)}")
    for kind in kinds:
        state = kind.of(group_id, left.values())
        SOUND[kind](state)
        if isinstance(state, ConsumerState) and any(isinstance(r, ConsumerGroupMetadataRecord) for r in written):
            check_is_not_ahead_when_empty(state)
