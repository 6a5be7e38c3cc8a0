"""Requests of every kind, and what their answers allow: for somebody who may do nothing."""

from __future__ import annotations

from groupcoord import ErrorCode
from groupcoord.messages import (
    CoordinatorType,
    DeleteGroups,
    DeleteGroupsResponse,
    DescribeGroups,
    DescribeGroupsResponse,
    FindCoordinator,
    FindCoordinatorResponse,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    ListGroupsResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    Request,
    Response,
    SyncGroup,
    TopicToCommit,
    TopicToDelete,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)

TOPICS = (TopicToCommit("orders", (OffsetToCommit(0, 1),)),)
DENIED = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def requests_of_every_kind(group_id: str, member_id: str) -> list[Request]:
    """Return one request of each kind that speaks for a group."""
    return [
        JoinGroup(group_id, member_id, protocols=(JoinProtocol("range", b""),)),
        SyncGroup(group_id, 1, member_id),
        Heartbeat(group_id, 1, member_id),
        LeaveGroup(group_id, (LeavingMember(member_id),)),
        OffsetCommit(group_id, TOPICS),
        TxnOffsetCommit(group_id, TOPICS, 7, 0, "tx"),
        OffsetDelete(group_id, (TopicToDelete("orders", (0,)),)),
        OffsetFetch((GroupToFetch(group_id),)),
        DescribeGroups((group_id,)),
        DeleteGroups((group_id,)),
        ListGroups(),
        FindCoordinator(CoordinatorType.GROUP, (group_id,)),
        FindCoordinator(CoordinatorType.TRANSACTION, ("tx",)),
    ]


def allowed_in(response: Response) -> bool:
    """Tell whether an answer gives or does anything."""
    match response:
        case OffsetCommitResponse() | TxnOffsetCommitResponse():
            codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
        case OffsetFetchResponse() | DescribeGroupsResponse():
            codes = {group.error_code for group in response.groups}
        case DeleteGroupsResponse():
            codes = {result.error_code for result in response.results}
        case FindCoordinatorResponse():
            codes = {found.error_code for found in response.coordinators}
        case ListGroupsResponse():
            return bool(response.groups)
        case _:
            codes = {response.error_code}
    return not codes <= DENIED
