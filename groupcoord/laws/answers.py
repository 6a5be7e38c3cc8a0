"""Laws of responses: allowed errors, reactions of members, responses of a coordinator that is not the owner."""

from __future__ import annotations

from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.events import Cause, Event, GroupRemoved, OwnershipLost
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.consumer.group import ConsumerGroup
from groupcoord.core.groups.consumer.reconciliation import MemberState
from groupcoord.core.groups.consumer.records import ConsumerGroupCurrentMemberAssignmentRecord
from groupcoord.core.groups.group_types import as_classic_group
from groupcoord.core.messages import (
    UNKNOWN_GENERATION_ID,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    OffsetCommit,
    Request,
    Response,
    SyncGroup,
    TxnOffsetCommit,
)
from groupcoord.errors import ErrorCode
from groupcoord.laws.coordinator import error_codes, group_of, require
from groupcoord.laws.modern_groups import consumer_group_of

OF_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH})
"""Errors about the member of a commit."""


def check_answer(coordinator: GroupCoordinator, request: Request, response: Response | None) -> None:
    """Check that a response does not contradict the state that the coordinator has after it; None for no response.

    Raises:
        LawBrokenError: it does not hold.
    """
    match request, response:
        case JoinGroup(supports_skip_assignment=True), JoinGroupResponse(error_code=ErrorCode.NONE):
            group = as_classic_group(group_of(coordinator, request.group_id))
            if group is not None and group.generation_id == response.generation_id:
                is_member = (
                    response.leader in group.members or not response.leader
                )  # after a conversion there is no leader
                require(is_member, "the leader of {!r} is {!r}, which is no member", group, response.leader)
                if not request.member_id:
                    # Also a restarted static member has the timeouts of its request (KAFKA-14009).
                    _check_time_outs(group, response.member_id, request)
        # Without a member there is nothing to be wrong about it (KAFKA-18060).
        case TxnOffsetCommit(member_id="", generation_id=-1, group_instance_id=None), _ if response is not None:
            refused = OF_MEMBERS.intersection(error_codes(response))
            require(not refused, f"{request!r} names no member, and is answered {refused}")
        # A join is not fenced for its epoch (KAFKA-19233).
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
    member = group.members.get(member_id)
    if member is not None:
        kept = (member.session_timeout_ms, member.rebalance_timeout_ms)
        said = (request.session_timeout_ms, request.rebalance_timeout_ms)
        require(kept == said, "{!r} of {!r} has the timeouts {} ms, but sent {} ms", member, group, kept, said)


def _check_waits_for_others(group: ConsumerGroup, member_id: str) -> None:
    member = group.state.members.get(member_id)
    # A member does not wait for partitions that it must revoke itself (KAFKA-19449).
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
    require(is_waiting, f"{member_id!r} of {group!r} waits for partitions without another owner")


OF_STRANGERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""Errors for a client that is no member, or not of this generation."""

ENDS_MEMBERSHIP = OF_STRANGERS | {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.MEMBER_ID_REQUIRED}
"""Errors after which a member may leave its generation."""


def check_reaction(
    request: Request, response: Response, before: tuple[int, str], after: tuple[int, str] | None
) -> None:
    """Check that a fenced member stops (franz-go #1326), no other member does, and a member id in a response is used.

    Args:
        request: the member's request.
        response: the response.
        before: the generation and the member id before the response.
        after: the same after it, with generation -1 outside of any; None if the member has ended or is leaving.

    Raises:
        LawBrokenError: it does not hold.
    """
    generation_id, member_id = before
    if after is None:
        return
    errors = frozenset(error_codes(response))
    # The group waits for the first id in vain if the member requests another (librdkafka #5569).
    if not member_id and isinstance(response, JoinGroupResponse) and ErrorCode.MEMBER_ID_REQUIRED in errors:
        require(after[1] == response.member_id, "it is given {!r}, and is {!r}", response.member_id, after[1])
    if generation_id == UNKNOWN_GENERATION_ID:
        return
    # The request has the identity of the current membership, so that its errors concern it.
    is_own = isinstance(request, Heartbeat | SyncGroup | OffsetCommit) and (
        (request.generation_id, request.member_id) == before
    )
    # The Java consumer of Kafka 4.4 also rejoins after a commit of an earlier generation; other errors about it do not
    # count (aiokafka #88).
    may_be_out = is_own or isinstance(request, OffsetCommit)
    if isinstance(request, JoinGroup):
        may_be_out = request.member_id == member_id
    if is_own and errors <= OF_STRANGERS:
        goes_on = after[0] == generation_id
        require(not goes_on, "{} was fenced by the response, but continues: {!r}", before, request)
    # A rebalance ends no membership (librdkafka #4059).
    elif not (may_be_out and errors & ENDS_MEMBERSHIP):
        is_lost = after[0] == UNKNOWN_GENERATION_ID
        require(not is_lost, "{} is answered {}, and gives all up: {!r}", before, errors, request)


NOT_AS_OWNER = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        # detected before the group is looked up
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Responses that claim no ownership."""


class OwnerLaws:
    """Checks that owners of a log respond only during their lease and before later owners.

    Owners have numbers that grow with each take-over. Times are independent of the owners' clocks.

    Args:
        lease_ms: time for which an owner may answer after an ownership check.
    """

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._looked_ms: dict[int, int] = {}
        self._newest = 0

    def looked(self, owner: int, began_ms: int) -> None:
        """Record an ownership check or a read, begun at ``began_ms``, that confirmed this owner."""
        self._looked_ms[owner] = max(began_ms, self._looked_ms.get(owner, began_ms))

    def told(self, owner: int, said: Response | Event, now_ms: int) -> None:
        """Check a response or event of an owner: its lease lasts, and no later owner has responded.

        Raises:
            LawBrokenError: it does not hold.
        """
        if _claims_nothing(said):
            return
        looked_ms = self._looked_ms.get(owner)
        require(
            looked_ms is not None and now_ms < looked_ms + self._lease_ms,
            f"owner {owner} sent {said!r} at {now_ms}, but its last look began at {looked_ms}: its lease has expired",
        )
        require(owner >= self._newest, f"owner {owner} sent {said!r} after owner {self._newest} had responded")
        self._newest = owner


def _claims_nothing(said: Response | Event) -> bool:
    if isinstance(said, Event):
        return isinstance(said, OwnershipLost) or (isinstance(said, GroupRemoved) and said.cause is Cause.UNLOAD)
    return NOT_AS_OWNER.issuperset(error_codes(said))
