"""What administrators are told is true."""

from __future__ import annotations

from collections.abc import Callable

from groupcoord.config import GroupType
from groupcoord.coordinator import ConsumerGroupState, GroupState
from groupcoord.core.consumer_protocol import TopicPartition, decode_assignment
from groupcoord.core.groups.share.group import ShareGroupState
from groupcoord.core.groups.streams.group import StreamsGroupState
from groupcoord.errors import ErrorCode
from groupcoord.laws import require
from groupcoord.messages import DeleteGroupsResponse, DescribedGroup, ListGroupsResponse

STATES = {state.value for state in GroupState if state is not GroupState.DEAD}
STATES_BY_TYPE: dict[str, set[str]] = {
    GroupType.CLASSIC: STATES,
    GroupType.CONSUMER: {state.value for state in ConsumerGroupState if state is not ConsumerGroupState.DEAD},
    GroupType.SHARE: {state.value for state in ShareGroupState if state is not ShareGroupState.DEAD},
    GroupType.STREAMS: {state.value for state in StreamsGroupState if state is not StreamsGroupState.DEAD},
}

IsKnown = Callable[[str], bool | None]
"""Whether the log has a group; None if it need not, or if the node that answers need not know."""


def check_listed(response: ListGroupsResponse, is_known: IsKnown) -> None:
    """Every group is listed once, in a state that there is, and the log knows it."""
    names = [group.group_id for group in response.groups]
    require(len(names) == len(set(names)), f"a group is listed twice: {names}")
    for group in response.groups:
        require(group.group_state in STATES_BY_TYPE.get(group.group_type, ()), f"listed is {group!r}")
        require(is_known(group.group_id) is not False, f"listed is {group!r}, of which the log knows nothing")


def check_described(group: DescribedGroup, gone: set[str]) -> None:
    """A group's members are all different, none of them is out, and within a generation a partition has one owner."""
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
    """A group that counts as deleted is gone from the log."""
    for result in response.results:
        require(
            result.error_code is not ErrorCode.NONE or has_just_removed(result.group_id),
            f"{result.group_id!r} is said to be deleted, and yet the log has it",
        )
