"""The laws of who is in a group, who is put out of it, and who waits: beside those of :mod:`groupcoord.laws`.

Each function raises :class:`~groupcoord.laws.LawBrokenError` with what it found. They are what historic bugs of Kafka
broke and no other law noticed: KAFKA-10284, where a failover forgot that a static member had come back, and
KAFKA-7909, where nobody looked whether all had joined.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.classic.rebalance import WhenAssigned, WhenReplaced
from groupcoord.core.groups.classic.state import GroupState
from groupcoord.core.groups.consumer.records import ConsumerGroupMemberMetadataRecord
from groupcoord.core.groups.group_types import as_classic_group
from groupcoord.core.log.records import GroupMetadataRecord
from groupcoord.core.partition import Partition
from groupcoord.laws.coordinator import require, served_partitions
from groupcoord.log_store import LogStore

__all__ = [
    "check_every_wait_ends",
    "check_fenced",
    "check_members_are_durable",
    "check_nobody_waits_for_nobody",
    "ids_taken_back",
]


def check_members_are_durable(coordinator: GroupCoordinator, taken_back: Collection[str] = ()) -> None:
    """The members of a Stable group are those of its record, unless a replacement is on its way (KAFKA-10284).

    Args:
        coordinator: the coordinator.
        taken_back: ids that static members were given and that were taken from them again, since the log took too long
            for their replacement (``offsets.commit.timeout.ms``). The log may have written it all the same, and then it
            has an id that the group has not, as in Kafka (:func:`ids_taken_back`).

    Raises:
        LawBrokenError: they are others: a restart would fence who is in the group, or bring back who is not.
    """
    for partition, group in _classic_groups(coordinator):
        if group.state is not GroupState.STABLE or _is_replacing(partition, group):
            continue
        record = partition.hard.classic_record(group.group_id)
        durable = () if record is None else record.members
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
    """Return the ids on their way to the log that static members have no more, for :func:`check_members_are_durable`.

    Look after each step: once the log has answered, nothing tells.
    """
    return {
        written.new_member_id
        for partition in served_partitions(coordinator)
        for append in partition.writer.in_flight
        if isinstance(written := append.continuation, WhenReplaced)
        if written.new_member_id not in written.group.members
    }


def check_nobody_waits_for_nobody(coordinator: GroupCoordinator) -> None:
    """Nobody waits in a round in which nobody is missing (KAFKA-7909).

    Some do in Kafka: in the first round of a group, which gives others the time to come (KIP-134); where there is no
    room for more, since nobody looks again after a member was sent away for that (GROUP_MAX_SIZE_REACHED; the packaged
    transcript ``size/late_static_member_of_a_full_group_is_put_out``); and where members list a protocol twice, so
    that there is none to choose.

    Raises:
        LawBrokenError: somebody does.
    """
    for _, group in _classic_groups(coordinator):
        if group.state is GroupState.PREPARING_REBALANCE and not group.is_initial_rebalance:
            is_over = (
                0 < group.waiting_joins < coordinator.config.group_max_size
                and group.all_joined
                and group.select_protocol() is not None
            )
            require(not is_over, "all of {} have joined, and {!r} still waits", [*group.members], group)


def check_every_wait_ends(coordinator: GroupCoordinator) -> None:
    """Nobody is awaited for ever: whoever is silent is missed at some moment that is set (KAFKA-9752, KAFKA-12890).

    A round to join ends at a moment, as does one to sync; an id that was handed out is good until one, and so is the
    session of each member that waits for nothing. A new member is told of its first round, however long that takes, or
    is gone after five minutes; from then on it is new no longer.

    Raises:
        LawBrokenError: somebody is.
    """
    for partition, group in _classic_groups(coordinator):
        if group.group_id in partition._context.writings:
            continue  # what has come due waits for the log
        if group.state is GroupState.COMPLETING_REBALANCE:
            has_end = group.sync_timer.deadline_ms is not None or _is_assigning(partition, group)
            require(has_end, "{!r} waits for ever for its assignment", group)
        for member_id, timer in group.pending_members.items():
            has_end = timer.deadline_ms is not None
            require(has_end, "{!r} waits for ever for {!r} to come back", group, member_id)
        for member in group.members.values():
            if not member.keeps_session:
                has_end = member.session_timer.deadline_ms is not None
                require(has_end, "the session of {!r} in {!r} never ends", member, group)
            if group.state is GroupState.STABLE:
                require(not member.is_new, "{!r} has a generation, and is new in {!r} all the same", member, group)


def check_fenced(log_store: LogStore, partition: int, group_id: str, member_id: str) -> None:
    """Who is fenced has a successor: somebody who is fenced although nobody came after it was never in the log.

    The latter happens in Kafka: who joins under an instance id is told its member id when the round is over, and the
    log hears of it when assignments are written. If the coordinator moves in between, the log has the id from before
    (the packaged transcript ``load/static_restart_in_an_unfinished_round_is_fenced``).

    Args:
        log_store: the log.
        partition: the log partition of the group.
        group_id: a group.
        member_id: of a static member that was told FENCED_INSTANCE_ID, although nobody has taken its place.

    Raises:
        LawBrokenError: the log has given the instance to it.
    """
    is_written = _has_had_member(log_store, partition, group_id, member_id)
    require(not is_written, f"{member_id!r} of group {group_id!r} is fenced, and nobody has taken its place")


def _has_had_member(log_store: LogStore, partition: int, group_id: str, member_id: str) -> bool:
    """Tell whether a log has ever had this member of a group, of whatever kind the group was."""
    for entry in log_store.read(partition):
        match entry.record:
            case GroupMetadataRecord(members=members) as record:
                if record.group_id == group_id and any(member.member_id == member_id for member in members):
                    return True
            case ConsumerGroupMemberMetadataRecord() as joined:
                if (joined.group_id, joined.member_id) == (group_id, member_id):
                    return True
    return False


def _is_replacing(partition: Partition, group: GroupMetadata) -> bool:
    return any(
        isinstance(append.continuation, WhenReplaced) and append.continuation.group is group
        for append in partition.writer.in_flight
    )


def _is_assigning(partition: Partition, group: GroupMetadata) -> bool:
    return any(
        isinstance(append.continuation, WhenAssigned) and append.continuation.group is group
        for append in partition.writer.in_flight
    )


def _classic_groups(coordinator: GroupCoordinator) -> Iterator[tuple[Partition, GroupMetadata]]:
    for partition in served_partitions(coordinator):
        for group in partition.groups.values():
            if (classic := as_classic_group(group)) is not None:
                yield partition, classic
