"""Laws of membership: members, fencing and waiting."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator

from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.groups.classic.group import GroupMetadata, GroupState
from groupcoord.core.groups.classic.rebalance import WhenAssigned, WhenReplaced
from groupcoord.core.groups.consumer.records import ConsumerGroupMemberMetadataRecord
from groupcoord.core.groups.group_types import as_classic_group
from groupcoord.core.log.records import GroupMetadataRecord
from groupcoord.core.partition import Partition
from groupcoord.laws.coordinator import check_size, check_tokens, require, served_partitions
from groupcoord.log_store import LogStore


def check_every_step(
    coordinator: GroupCoordinator, outstanding: Iterable[Hashable], taken_back: Collection[str] = ()
) -> None:
    """Check the laws that the random tests, the exploration and the simulator all check after each step.

    Args as in :func:`check_tokens` and :func:`check_members_are_durable`.

    Raises:
        LawBrokenError: it does not hold.
    """
    check_tokens(coordinator, outstanding)
    check_size(coordinator)
    check_members_are_durable(coordinator, taken_back)
    check_nobody_waits_for_nobody(coordinator)
    check_every_wait_ends(coordinator)


def check_members_are_durable(coordinator: GroupCoordinator, taken_back: Collection[str] = ()) -> None:
    """Check that the members of a Stable group are those of its record, unless a replacement is in flight
    (KAFKA-10284).

    Args:
        taken_back: ids that static members got and lost again, because the log took too long for their replacement
            (:func:`ids_taken_back`). The log may hold them nevertheless, as in Kafka.

    Raises:
        LawBrokenError: it does not hold.
    """
    for partition, group in _classic_groups(coordinator):
        if group.state is not GroupState.STABLE or _is_writing(WhenReplaced, partition, group):
            continue
        record = partition.hard.classic_record(group.group_id)
        durable = () if record is None else record.members
        # The group has the instance's present id instead of one that was taken back.
        written = {
            group.static_members.get(member.group_instance_id or "", "")
            if member.member_id in taken_back
            else member.member_id
            for member in durable
        }
        require(
            written == group.members.keys(),
            "{!r} has the members {}; a restart would make {} of them",
            group,
            [*group.members],
            [member.member_id for member in durable],
        )


def ids_taken_back(coordinator: GroupCoordinator) -> set[str]:
    """Return ids in flight to the log that static members have lost again, for :func:`check_members_are_durable`.

    Call it after each step: once the log has answered, they are unknown.
    """
    return {
        written.new_member_id
        for partition in served_partitions(coordinator)
        for append in partition.writer.in_flight
        if isinstance(written := append.continuation, WhenReplaced)
        if written.new_member_id not in written.group.members
    }


def check_nobody_waits_for_nobody(coordinator: GroupCoordinator) -> None:
    """Check that no member waits in a rebalance in which all members have joined (KAFKA-7909).

    Raises:
        LawBrokenError: it does not hold.
    """
    for _, group in _classic_groups(coordinator):
        # The first rebalance waits for others (KIP-134).
        if group.state is GroupState.PREPARING_REBALANCE and not group.is_initial_rebalance:
            is_over = (
                # A refusal with GROUP_MAX_SIZE_REACHED completes no rebalance (transcript
                # size/late_static_member_of_a_full_group_is_put_out).
                0 < group.waiting_joins < coordinator.config.group_max_size
                and group.all_joined
                # Members that list a protocol twice may leave none to choose.
                and group.select_protocol() is not None
            )
            require(not is_over, "all of {} have joined, and {!r} still waits", [*group.members], group)


def check_every_wait_ends(coordinator: GroupCoordinator) -> None:
    """Check that join and sync phases, pending member ids and sessions without a waiting request have deadlines.

    Without one the wait would never end (KAFKA-9752, KAFKA-12890). No member of a Stable group may be new.

    Raises:
        LawBrokenError: it does not hold.
    """
    for partition, group in _classic_groups(coordinator):
        if group.group_id in partition._context.writings:
            continue  # a due timer may wait for the log
        if group.state is GroupState.PREPARING_REBALANCE:
            # Kafka chooses no protocol for a single member that lists its only one twice, and never answers it.
            has_end = group.join_timer.deadline_ms is not None or group.select_protocol() is None
            require(has_end, "{!r} waits without end for its members to join", group)
        if group.state is GroupState.COMPLETING_REBALANCE:
            has_end = group.sync_timer.deadline_ms is not None or _is_writing(WhenAssigned, partition, group)
            require(has_end, "{!r} waits without end for its assignment", group)
        for member_id, timer in group.pending_members.items():
            has_end = timer.deadline_ms is not None
            require(has_end, "{!r} waits without end for {!r} to return", group, member_id)
        for member in group.members.values():
            if not member.keeps_session:
                has_end = member.session_timer.deadline_ms is not None
                require(has_end, "the session of {!r} in {!r} never ends", member, group)
            if group.state is GroupState.STABLE:
                # The five minutes for new members no longer apply.
                require(not member.is_new, "{!r} has a generation, and is new in {!r} all the same", member, group)


def check_fenced(log_store: LogStore, partition: int, group_id: str, member_id: str) -> None:
    """Check that the log never held a static member that got FENCED_INSTANCE_ID without a successor.

    Raises:
        LawBrokenError: it does not hold.
    """
    # The log gets a returning member's id with the assignments; if the coordinator moves before, it holds the previous
    # id (transcript load/static_restart_in_an_unfinished_round_is_fenced).
    is_written = _has_had_member(log_store, partition, group_id, member_id)
    require(not is_written, f"{member_id!r} of group {group_id!r} is fenced without a successor")


def _has_had_member(log_store: LogStore, partition: int, group_id: str, member_id: str) -> bool:
    for entry in log_store.read(partition):
        match entry.record:
            case GroupMetadataRecord(members=members) as record:
                if record.group_id == group_id and any(member.member_id == member_id for member in members):
                    return True
            case ConsumerGroupMemberMetadataRecord() as joined:
                if (joined.group_id, joined.member_id) == (group_id, member_id):
                    return True
    return False


def _is_writing(kind: type[WhenReplaced | WhenAssigned], partition: Partition, group: GroupMetadata) -> bool:
    continuations = (append.continuation for append in partition.writer.in_flight)
    return any(isinstance(each, kind) and each.group is group for each in continuations)


def _classic_groups(coordinator: GroupCoordinator) -> Iterator[tuple[Partition, GroupMetadata]]:
    for partition in served_partitions(coordinator):
        for group in partition.groups.values():
            if (classic := as_classic_group(group)) is not None:
                yield partition, classic
