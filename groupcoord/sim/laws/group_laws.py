"""Laws of groups: admin responses match the log; in consumer groups (KIP-848) also heartbeats and targets do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from groupcoord.config import GroupType
from groupcoord.coordinator import ConsumerGroupState, GroupState
from groupcoord.core.consumer_protocol import TopicPartition, decode_assignment
from groupcoord.core.groups.consumer.assignors import SubscriptionType
from groupcoord.core.groups.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
)
from groupcoord.core.groups.consumer.state import ConsumerState
from groupcoord.core.groups.share.group import ShareGroupState
from groupcoord.core.groups.streams.group import StreamsGroupState
from groupcoord.core.log.hard_state import HardState
from groupcoord.core.log.records import GroupRecord, GroupTombstone
from groupcoord.errors import ErrorCode
from groupcoord.laws import require
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsResponse,
    DescribedConsumerGroup,
    DescribedGroup,
    ListGroupsResponse,
)
from groupcoord.sim.cluster.topics import indices_of

STATES = {state.value for state in GroupState if state is not GroupState.DEAD}
STATES_BY_TYPE: dict[str, set[str]] = {
    GroupType.CLASSIC: STATES,
    GroupType.CONSUMER: {state.value for state in ConsumerGroupState if state is not ConsumerGroupState.DEAD},
    GroupType.SHARE: {state.value for state in ShareGroupState if state is not ShareGroupState.DEAD},
    GroupType.STREAMS: {state.value for state in StreamsGroupState if state is not StreamsGroupState.DEAD},
}

IsKnown = Callable[[str], bool | None]
"""Function that returns whether the log has a group, or None if the node may know more or less than the log."""


def check_listed(response: ListGroupsResponse, is_known: IsKnown) -> None:
    """Check that every group is listed once, in a valid state, and is in the log."""
    names = [group.group_id for group in response.groups]
    require(len(names) == len(set(names)), f"a group is listed twice: {names}")
    for group in response.groups:
        require(group.group_state in STATES_BY_TYPE.get(group.group_type, ()), f"listed is {group!r}")
        require(is_known(group.group_id) is not False, f"listed is {group!r}, of which the log knows nothing")


def check_described(group: DescribedGroup, gone: set[str]) -> None:
    """Check that members are distinct and not ``gone``, and that a partition has one owner in a generation."""
    if group.error_code is not ErrorCode.NONE:
        return
    require(group.group_state in STATES, f"described is {group!r}")
    ids = [member.member_id for member in group.members]
    require(len(ids) == len(set(ids)), f"a member is described twice: {ids}")
    require(not gone.intersection(ids), f"{group.group_id!r} is described with {gone.intersection(ids)}, who are out")
    require(not ids or group.group_state != GroupState.EMPTY.value, f"described is {group!r}")
    if group.group_state == GroupState.STABLE.value:
        owned: list[TopicPartition] = []
        for member in group.members:
            owned += decode_assignment(member.member_assignment).partitions if member.member_assignment else ()
        require(len(owned) == len(set(owned)), f"in {group.group_id!r} a partition is assigned twice: {sorted(owned)}")


def check_deleted(response: DeleteGroupsResponse, has_just_removed: Callable[[str], bool]) -> None:
    for result in response.results:
        require(
            result.error_code is not ErrorCode.NONE or has_just_removed(result.group_id),
            f"{result.group_id!r} was reported as deleted, but the log has it",
        )


def assignment_in(hard: HardState, group_id: str, member_id: str) -> ConsumerGroupCurrentMemberAssignmentRecord | None:
    """Return the current assignment of a member in the log, or None if it is no member."""
    key = ConsumerGroupCurrentMemberAssignmentRecord.key_of(member_id)
    _, record = hard.groups.get(group_id, {}).get(key, (None, None))
    return record if isinstance(record, ConsumerGroupCurrentMemberAssignmentRecord) else None


def check_heartbeat_response(
    records: Sequence[ConsumerGroupCurrentMemberAssignmentRecord],
    request: ConsumerGroupHeartbeat,
    response: ConsumerGroupHeartbeatResponse,
) -> None:
    """Check that a heartbeat response holds only durable epochs and partitions.

    ``records`` are the current assignment of the member in the log, and those that it has just replaced.
    """
    member_id = response.member_id or ""
    if response.error_code is not ErrorCode.NONE or response.member_epoch <= 0:
        return
    reported = indices_of(response.assignment or ())
    holds = any(
        record.member_epoch >= response.member_epoch and reported <= indices_of(record.assigned_partitions)
        for record in records
    )
    require(holds, f"{member_id} of {request.group_id!r} is told {response!r}, the log has {records!r}")


def check_described_consumer_group(group: DescribedConsumerGroup) -> None:
    """Check that members are distinct, member epoch ≤ assignment epoch ≤ group epoch, and a partition has one owner."""
    if group.error_code is not ErrorCode.NONE:
        return
    ids = [member.member_id for member in group.members]
    require(len(ids) == len(set(ids)), f"a member is described twice: {ids}")
    epochs = [member.member_epoch for member in group.members]
    require(
        max(epochs, default=0) <= group.assignment_epoch <= group.group_epoch,
        f"the epochs of {group.group_id!r} are {group.group_epoch} and {group.assignment_epoch}, of members {epochs}",
    )
    owned = [
        (topic.topic_name, index)
        for member in group.members
        for topic in member.assignment
        for index in topic.partitions
    ]
    require(len(owned) == len(set(owned)), f"in {group.group_id!r} a partition is assigned twice: {sorted(owned)}")


Shares = dict[str, frozenset[tuple[UUID, int]]]
"""Target partitions by member id."""

TARGET_OF_MEMBER, _ = ConsumerGroupTargetAssignmentMemberRecord.key_of("")
"""Record type of the target assignment of a member."""


class TargetLaws:
    """Laws of the target assignments of a log partition.

    The uniform assignor is checked where all members subscribe to the same topics and none requests another assignor.
    """

    def __init__(self, assignor: str) -> None:
        self._is_uniform = assignor == "uniform"
        self._before: dict[str, Shares] = {}
        self._now: dict[str, Shares] = {}

    def take(self, record: GroupRecord | GroupTombstone, hard: HardState) -> None:
        """Check the next record of a group: a new target is balanced and moves no partition without need."""
        group_id = record.group_id
        if isinstance(record, ConsumerGroupTargetAssignmentMemberRecord):
            share = frozenset((topic_id, index) for topic_id, indexes in record.topic_partitions for index in indexes)
            # New members, and replacements of static ones, have this target as their first.
            self._before.setdefault(group_id, {}).setdefault(record.member_id, share)
            self._now.setdefault(group_id, {})[record.member_id] = share
        elif isinstance(record, ConsumerGroupTargetAssignmentMetadataRecord):
            # This record follows the members' records of a new target. Its timestamp is 0 if no assignor was called.
            now = self._now.get(group_id, {})
            before, self._before[group_id] = self._before.get(group_id, {}), dict(now)
            if record.assignment_timestamp_ms and self._is_judged(group_id, hard):
                check_shares(group_id, before, now)
        elif isinstance(record, GroupTombstone) and record.key[0] == TARGET_OF_MEMBER:
            for shares in (self._before, self._now):
                shares.get(group_id, {}).pop(record.key[1], None)

    def _is_judged(self, group_id: str, hard: HardState) -> bool:
        state = ConsumerState.of(group_id, [entry for _, entry in hard.groups.get(group_id, {}).values()])
        found = {state.subscription_type(), state.last_seen_subscriptions()}
        return self._is_uniform and not state.votes and found == {SubscriptionType.HOMOGENEOUS}


def check_shares(group_id: str, before: Mapping[str, frozenset[object]], now: Mapping[str, frozenset[object]]) -> None:
    """Check that a target is balanced and moves no partition without need.

    ``before`` holds the previous targets of the present members; for new ones the present target.
    """
    sizes = [len(share) for share in now.values()]
    require(max(sizes, default=0) - min(sizes, default=0) <= 1, f"targets of {group_id!r} have the sizes {sizes}")
    there_are = frozenset[object]().union(*now.values())
    for member_id, share in now.items():
        had = before.get(member_id, share)
        # A partition that is in no target any more was not lost to another member.
        lost, gained = (had & there_are) - share, share - had
        require(
            not (lost and gained), f"{member_id} of {group_id!r} is to have {set(gained)}, and others have {set(lost)}"
        )
