"""Laws of consumer, share and streams groups, which keep their state in the log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any
from uuid import UUID

from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.groups.base.kind import WhenDrafted
from groupcoord.core.groups.base.state import ModernGroupState
from groupcoord.core.groups.consumer.group import (
    ConsumerDraft,
    ConsumerGroup,
    ConsumerGroupState,
    ConsumerMember,
    ConsumerState,
)
from groupcoord.core.groups.consumer.heartbeat import handle_heartbeat
from groupcoord.core.groups.conversion import WhenConverted
from groupcoord.core.groups.group_types import as_consumer_group, as_modern_group
from groupcoord.core.groups.share.group import ShareState
from groupcoord.core.groups.streams.assignors import Task
from groupcoord.core.groups.streams.group import StreamsMember, StreamsState
from groupcoord.core.log.record_keys import RecordKey
from groupcoord.core.log.records import (
    CLASSIC_GROUP_KEY,
    CommitRecords,
    ConsumerGroupMetadataRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    GroupMetadataRecord,
    GroupRecord,
    GroupTombstone,
    OffsetCommitRecord,
    OffsetTombstone,
    OpaqueRecord,
    Record,
    TransactionMarker,
)
from groupcoord.core.messages import ConsumerGroupHeartbeat, DescribeGroups
from groupcoord.core.messages.request import RefusedError
from groupcoord.laws.coordinator import group_of, require, served_partitions
from groupcoord.log_store import LogStore


def check_sound_epochs(state: ModernGroupState[Any, Any]) -> None:
    """Check that no member is ahead of the target, nor the target of the group, and no target of a former member is
    kept.

    Raises:
        LawBrokenError: it does not hold.
    """
    for member in state.members.values():
        epochs = member.member_epoch, state.assignment_epoch, state.epoch
        is_in_order = tuple(sorted(epochs)) == epochs
        require(is_in_order, "epochs of group {!r} are {}, of {}", state.group_id, epochs, member)
    require(
        state.targets.keys() <= state.members.keys(),
        f"group {state.group_id!r} remembers {[*state.targets]} of members {[*state.members]}",
    )


UNIFORM = "uniform"
STRANGER = "a-stranger"
OF_NO_GROUP = (OffsetCommitRecord, OffsetTombstone, CommitRecords, TransactionMarker, OpaqueRecord)
"""Records that do not concern a group itself."""


def consumer_group_of(coordinator: GroupCoordinator, group_id: str) -> ConsumerGroup | None:
    """Return the consumer group with an id as requests see it, or None if it does not exist or is not served."""
    return as_consumer_group(group_of(coordinator, group_id))


# ---------------------------------------------------------------- what is written


def check_append(records: Iterable[Record]) -> None:
    """Check that an append concerns one group, and that one that converts a group leaves its offsets alone.

    Raises:
        LawBrokenError: it does not hold.
    """
    kinds: dict[str, set[tuple[bool, bool]]] = {}
    with_offsets = set()
    for record in records:
        if isinstance(record, OffsetCommitRecord | OffsetTombstone):
            # A conversion leaves the group's offsets alone (KIP-848).
            with_offsets.add(record.group_id)
        elif not isinstance(record, OF_NO_GROUP):
            is_tombstone = isinstance(record, GroupTombstone)
            kinds.setdefault(record.group_id, set()).add((record.key == CLASSIC_GROUP_KEY, is_tombstone))
    for group_id, found in kinds.items():
        for is_classic in (False, True):
            is_converted = {(is_classic, True), (not is_classic, False)} <= found
            require(
                not is_converted or (group_id not in with_offsets and len(kinds) == 1),
                f"one append makes another kind of group of {group_id!r}, and concerns offsets or other groups",
            )


def check_is_no_classic_group(coordinator: GroupCoordinator, group: ConsumerGroup) -> None:
    """Check that a group becomes classic with the last member of the consumer protocol (KAFKA-17317), if it may."""
    count, config = len(group.state.members), coordinator.config
    is_classic = (
        0 < count <= config.group_max_size
        and group.state.classic_member_count == count
        and config.group_consumer_migration_policy.allows_downgrade
    )
    require(not is_classic, "all members of {!r} use the classic protocol, and it is a consumer group", group)


def check_is_not_ahead_when_empty(state: ConsumerState) -> None:
    """Check that a group has a target of its epoch after its last member left (KAFKA-20442)."""
    require(
        bool(state.members) or state.assignment_epoch == state.epoch,
        f"{state.group_id!r} is empty, of epoch {state.epoch}, and its target is of {state.assignment_epoch}",
    )


def check_sound_consumer_group(state: ConsumerState) -> None:
    """Check that partitions have one owner, static members are indexed, and no regular expression of a former member is
    kept.

    Raises:
        LawBrokenError: it does not hold.
    """
    check_sound_epochs(state)
    owners: dict[tuple[UUID, int], str] = {}
    for member_id, member in state.members.items():
        for partition in member.partitions():
            other = owners.setdefault(partition, member_id)
            require(other == member_id, f"{partition} in group {state.group_id!r} is of {other!r} and {member_id!r}")
    statics = {m.metadata.instance_id: member_id for member_id, m in state.members.items() if m.metadata.instance_id}
    require(statics == state.static_members, f"static members of {state.group_id!r}: {state.static_members}")
    require(
        state.resolved.keys() <= state.regex_subscribers.keys(),
        f"group {state.group_id!r} remembers {[*state.resolved]} of members {[*state.members]}",
    )


def check_epochs_grow(log_store: LogStore, partition: int) -> None:
    """Check that the epochs of a consumer group and of its target never decrease in the log while the group lives.

    Raises:
        LawBrokenError: it does not hold.
    """
    epochs: dict[str, int] = {}
    targets: dict[str, int] = {}
    for entry in log_store.read(partition):
        record = entry.record
        match record:
            case ConsumerGroupMetadataRecord(group_id=group_id, epoch=epoch):
                # A classic group that has not completed a rebalance yet becomes a consumer group of epoch 0.
                holds, epochs[group_id] = epoch > epochs.get(group_id, -1), epoch
            case ConsumerGroupTargetAssignmentMetadataRecord(group_id=group_id, assignment_epoch=epoch):
                holds = targets.get(group_id, 0) <= epoch <= epochs.get(group_id, epoch)
                targets[group_id] = epoch
            case GroupTombstone(group_id=group_id, key=ConsumerGroupMetadataRecord.key):
                holds = True
                epochs.pop(group_id, None)
            case GroupTombstone(group_id=group_id, key=ConsumerGroupTargetAssignmentMetadataRecord.key):
                holds = True
                targets.pop(group_id, None)
            case GroupMetadataRecord(group_id=group_id):
                holds = group_id not in epochs
            case _:
                continue
        require(holds, f"log partition {partition}, offset {entry.offset}: {record!r} has a smaller or skipped epoch")


# ---------------------------------------------------------------- members, and restarts


def check_member_sees_what_is_durable(
    coordinator: GroupCoordinator, group_id: str, member_id: str, epoch: int, owned: Iterable[tuple[UUID | str, int]]
) -> None:
    """Check that a member got only durable state, and that no other member can get what it owns.

    Nothing is checked for former members, nor for a group that is not served here or is a classic group.

    Args:
        coordinator: the coordinator.
        group_id: the group.
        member_id: the member.
        epoch: the last epoch that it got.
        owned: a consumer's partitions, by topic id and index; the active tasks of a member of a streams group; nothing
            in a share group.

    Raises:
        LawBrokenError: it does not hold.
    """
    group = as_modern_group(group_of(coordinator, group_id))
    member = None if group is None else group.state.members.get(member_id)
    if member is None or member.has_left:
        return
    is_durable = epoch <= member.member_epoch
    require(is_durable, "{!r} received epoch {}; durable is {}", member_id, epoch, member)
    kept: set[Any] = set()
    if isinstance(member, ConsumerMember):
        kept.update(member.partitions())
    elif isinstance(member, StreamsMember):
        kept.update(member.assignment.assigned.active, member.assignment.pending_revocation.active)
    lost = set(owned) - kept
    require(not lost, f"{member_id!r} of group {group_id!r} has {lost}, which others can be given")


def check_restart_writes_the_same(coordinator: GroupCoordinator, requests: Iterable[ConsumerGroupHeartbeat]) -> None:
    """Check that a group loaded from its records, in any order, writes the same as the live one.

    ``requests`` are drafted for both and have no effect.

    Raises:
        LawBrokenError: it does not hold.
    """
    for request in requests:
        group = consumer_group_of(coordinator, request.group_id)
        if group is None or group.writing is not None:
            continue
        partition = coordinator.partition(coordinator.partition_of(request.group_id))
        assert partition is not None
        # Compaction may change the order between keys, so the loaded group gets them reversed.
        records = [record for _, record in partition.hard.groups.get(request.group_id, {}).values()]
        live = _drafted(coordinator, group.state, request)
        loaded = _drafted(coordinator, ConsumerState.of(request.group_id, reversed(records)), request)
        require(live == loaded, "for {!r}, {!r} writes {}; after a load {}", request, group, live, loaded)


def stranger(group_id: str, topics: Collection[str]) -> ConsumerGroupHeartbeat:
    """Return the join of a new member, for :func:`check_restart_writes_the_same`."""
    return ConsumerGroupHeartbeat(
        group_id, STRANGER, rebalance_timeout_ms=60_000, subscribed_topic_names=tuple(topics), topic_partitions=()
    )


def _drafted(coordinator: GroupCoordinator, state: ConsumerState, request: ConsumerGroupHeartbeat) -> object:
    group, draft = ConsumerGroup(state.group_id, 0, coordinator._environments.consumer), ConsumerDraft(state)
    try:
        response, _ = handle_heartbeat(group, draft, request, request.member_id, coordinator.clock.now_ms())
    except RefusedError as error:
        return error.error_code
    return response, draft.records


# ---------------------------------------------------------------- at the end


def check_consumer_group_is_served(coordinator: GroupCoordinator, group_id: str, member_ids: Collection[str]) -> None:
    """Check that, after faults have ended, members own their targets and every partition has an owner.

    ``member_ids`` are the live members that fit into the group; there must be no others.

    Raises:
        LawBrokenError: it does not hold.
    """
    group = consumer_group_of(coordinator, group_id)
    assert group is not None
    state, environment = group.state, coordinator._environments.consumer
    (described,) = coordinator.call(DescribeGroups((group_id,))).groups
    require(described.group_state == "Dead", f"{group_id!r} is described as a classic group: {described!r}")
    _check_members(state, environment.config.group_consumer_max_size, member_ids)
    if state.members and state.classic_member_count == len(state.members):
        # Leaving makes a new epoch but no new target, and heartbeats of the classic protocol make none either.
        return
    expected = ConsumerGroupState.STABLE if state.members else ConsumerGroupState.EMPTY
    require(group.group_state is expected, f"{group!r} does not become stable: {state.facts()}")
    given = sorted(state.owner_epochs)
    topics = environment.topics.existing(state.subscribed_topics()).values()
    wanted = sorted((topic.topic_id, index) for topic in topics for index in range(topic.partition_count))
    # A static member's restart may have converted the group: members then keep their leader's assignment.
    is_assigned = state.assignment_timestamp_ms > 0
    require(
        given == wanted or (not is_assigned and set(given) <= set(wanted)),
        f"in {group!r} {set(wanted) - set(given)} have no owner, {set(given) - set(wanted)} do not exist",
    )
    sizes = [len(list(member.partitions())) for member in state.members.values()]
    is_uniform = (
        is_assigned
        and environment.default_assignor == UNIFORM
        and not state.votes
        and state.subscription_type().name == "HOMOGENEOUS"
    )
    require(not is_uniform or max(sizes, default=0) - min(sizes, default=0) <= 1, f"{group!r} has shares of {sizes}")


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


def check_members_are_served(coordinator: GroupCoordinator, group_id: str, member_ids: Collection[str]) -> None:
    """Check that, after faults have ended, live members have their targets, all tasks run, and each partition is read.

    ``member_ids`` are the live members of the streams or share group that fit into it; there must be no others.

    Raises:
        LawBrokenError: it does not hold.
    """
    group = group_of(coordinator, group_id)
    if not member_ids:
        require(group is None or group.is_empty, f"no member is alive, but the group is {group!r}")
        return
    modern = as_modern_group(group)
    assert modern is not None, f"{group!r} has members"
    assert group is not None
    state = modern.state
    _check_members(state, group.max_size(coordinator.config), member_ids)
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


def _check_members(state: ModernGroupState[Any, Any], max_size: int, member_ids: Collection[str]) -> None:
    members = state.members.keys()
    require(
        members <= set(member_ids) and len(members) == min(len(member_ids), max_size),
        f"the members of {state.group_id!r} are {sorted(members)}; alive are {sorted(member_ids)}",
    )


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
