"""Laws of single responses, for random tests and histories."""

from __future__ import annotations

from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.consumer.group import ConsumerGroup
from groupcoord.core.groups.consumer.reconciliation import MemberState
from groupcoord.core.groups.consumer.records import ConsumerGroupCurrentMemberAssignmentRecord
from groupcoord.core.groups.group_types import as_classic_group
from groupcoord.core.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    Request,
    Response,
    TxnOffsetCommit,
)
from groupcoord.errors import ErrorCode
from groupcoord.laws.consumer_groups import consumer_group_of
from groupcoord.laws.coordinator import error_codes, require

__all__ = ["check_answer"]

OF_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH})


def check_answer(coordinator: GroupCoordinator, request: Request, response: Response | None) -> None:
    """Check that a response does not contradict the state of the coordinator.

    A join of a consumer group is not fenced for its epoch (KAFKA-19233). The leader in a response is a member
    (KIP-814). A producer that names no member is not refused for one (KAFKA-18060). A member of a consumer group waits
    for partitions of others, not for those that it must revoke itself (KAFKA-19449). A member that joins or rejoins a
    classic group has the timeouts of its request.

    Args:
        coordinator: the coordinator after the response.
        request: the request.
        response: the response, or None if there will be none.

    Raises:
        LawBrokenError: the response breaks a law.
    """
    match request, response:
        case JoinGroup(supports_skip_assignment=True), JoinGroupResponse(error_code=ErrorCode.NONE):
            partition = coordinator.partition(coordinator.partition_of(request.group_id))
            group = None if partition is None else as_classic_group(partition.groups.get(request.group_id))
            if group is not None and group.generation_id == response.generation_id:
                is_member = (
                    response.leader in group.members or not response.leader
                )  # after a conversion there is no leader
                require(is_member, "the leader of {!r} is said to be {!r}, which is no member", group, response.leader)
                if not request.member_id:
                    _check_time_outs(group, response.member_id, request)
        case TxnOffsetCommit(member_id="", generation_id=-1, group_instance_id=None), _ if response is not None:
            refused = OF_MEMBERS.intersection(error_codes(response))
            require(not refused, f"{request!r} names no member, and is answered {refused}")
        case ConsumerGroupHeartbeat(member_epoch=0), ConsumerGroupHeartbeatResponse():
            is_fenced = response.error_code is ErrorCode.FENCED_MEMBER_EPOCH
            require(not is_fenced, "{!r} joins, and is fenced for its epoch", request)
        case ConsumerGroupHeartbeat(), ConsumerGroupHeartbeatResponse(error_code=ErrorCode.NONE) if (
            response.member_epoch > 0
        ):
            joined = consumer_group_of(coordinator, request.group_id)
            if joined is not None and joined.writing is None and response.member_id:
                partition = coordinator.partition(coordinator.partition_of(request.group_id))
                records = {} if partition is None else partition.hard.groups.get(request.group_id, {})
                offset, _ = records.get(
                    ConsumerGroupCurrentMemberAssignmentRecord.key_of(response.member_id), (-1, None)
                )
                # Changes of others since then, even in the same append, are not what the response made the member wait
                # for.
                if all(other <= offset for other, _ in records.values()):
                    _check_waits_for_others(joined, response.member_id)


def _check_time_outs(group: GroupMetadata, member_id: str, request: JoinGroup) -> None:
    """Check that a member has the timeouts of its last request (KAFKA-14009)."""
    member = group.members.get(member_id)
    if member is not None:
        kept = (member.session_timeout_ms, member.rebalance_timeout_ms)
        said = (request.session_timeout_ms, request.rebalance_timeout_ms)
        require(kept == said, "{!r} of {!r} has the time-outs {} ms; it has said {} ms", member, group, kept, said)


def _check_waits_for_others(group: ConsumerGroup, member_id: str) -> None:
    """Check that a member with unreleased partitions waits for another member."""
    member = group.state.members.get(member_id)
    if member is None or member.assignment.state is not MemberState.UNRELEASED_PARTITIONS:
        return
    of_others = {
        partition
        for other_id, other in group.state.members.items()
        if other_id != member_id
        for partition in other.partitions()
    }
    target = {
        (topic_id, index) for topic_id, indexes in group.state.targets.get(member_id, {}).items() for index in indexes
    }
    is_waiting = not target.isdisjoint(of_others)
    require(is_waiting, f"{member_id!r} of {group!r} waits for partitions that nobody else has")
