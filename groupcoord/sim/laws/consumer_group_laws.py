"""What consumers and administrators are told of consumer groups (KIP-848) is true, and durable."""

from __future__ import annotations

from collections.abc import Sequence

from groupcoord.core.groups.consumer.records import ConsumerGroupCurrentMemberAssignmentRecord
from groupcoord.core.log.hard_state import HardState
from groupcoord.errors import ErrorCode
from groupcoord.laws import require
from groupcoord.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse, DescribedConsumerGroup
from groupcoord.sim.cluster.topics import indices_of


def assignment_in(hard: HardState, group_id: str, member_id: str) -> ConsumerGroupCurrentMemberAssignmentRecord | None:
    """Return what the log has given to a member of a consumer group; None if it is no member."""
    key = ConsumerGroupCurrentMemberAssignmentRecord.key_of(member_id)
    _, record = hard.groups.get(group_id, {}).get(key, (None, None))
    return record if isinstance(record, ConsumerGroupCurrentMemberAssignmentRecord) else None


def check_told(
    records: Sequence[ConsumerGroupCurrentMemberAssignmentRecord],
    request: ConsumerGroupHeartbeat,
    response: ConsumerGroupHeartbeatResponse,
) -> None:
    """A member is told no epoch and no partition that is not durable.

    Args:
        records: what the log gives to the member, or gave to it at this moment.
        request: a member's heartbeat.
        response: its answer, which is about to leave.

    Raises:
        LawBrokenError: it is.
    """
    member_id = response.member_id or ""
    if response.error_code is not ErrorCode.NONE or response.member_epoch <= 0:
        return
    told = indices_of(response.assignment or ())
    holds = any(
        record.member_epoch >= response.member_epoch and told <= indices_of(record.assigned_partitions)
        for record in records
    )
    require(holds, f"{member_id} of {request.group_id!r} is told {response!r}, the log has {records!r}")


def check_described_consumer_group(group: DescribedConsumerGroup) -> None:
    """Members are all different, no epoch is ahead of what it follows, and a partition has one owner.

    Raises:
        LawBrokenError: it isn't so.
    """
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
