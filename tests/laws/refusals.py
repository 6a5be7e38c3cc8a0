"""Requests of every kind that are refused: for want of permission, for their form, or for where they are sent."""

from __future__ import annotations

from groupcoord import ErrorCode, PartitionStatus
from groupcoord.laws import error_codes
from groupcoord.messages import (
    CompleteTransaction,
    CoordinatorType,
    DeleteGroups,
    DescribeGroups,
    FindCoordinator,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    ListGroupsResponse,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    Request,
    Response,
    SyncGroup,
    TopicToCommit,
    TopicToDelete,
    TxnOffsetCommit,
)

TOPICS = (TopicToCommit("ledger", (OffsetToCommit(0, 1),)),)
DENIED = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


def requests_of_every_kind(group_id: str, member_id: str) -> list[Request]:
    return [
        JoinGroup(group_id, member_id, protocols=(JoinProtocol("range", b""),)),
        SyncGroup(group_id, 1, member_id),
        Heartbeat(group_id, 1, member_id),
        LeaveGroup(group_id, (LeavingMember(member_id),)),
        OffsetCommit(group_id, TOPICS),
        TxnOffsetCommit(group_id, TOPICS, 7, 0, "tx"),
        OffsetDelete(group_id, (TopicToDelete("ledger", (0,)),)),
        OffsetFetch((GroupToFetch(group_id),)),
        DescribeGroups((group_id,)),
        DeleteGroups((group_id,)),
        ListGroups(),
        FindCoordinator(CoordinatorType.GROUP, (group_id,)),
        FindCoordinator(CoordinatorType.TRANSACTION, ("tx",)),
        FindCoordinator(CoordinatorType.SHARE, ("g:AAAAAAAAAAAAAAAAAAAAAA:0",), supports_share_keys=True),
    ]


def is_allowed(response: Response) -> bool:
    """Return whether a response has data or effects, for a principal without permissions."""
    if isinstance(response, ListGroupsResponse):
        return bool(response.groups)
    return not DENIED.issuperset(error_codes(response))


def requests_that_are_wrong() -> list[tuple[Request, ErrorCode]]:
    """Return requests that are refused in every state of the coordinator, with the reason."""
    protocols = (JoinProtocol("range", b""),)
    no_group, no_session = ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_SESSION_TIMEOUT
    return [
        (JoinGroup("", protocols=protocols), no_group),
        (JoinGroup("delta", protocols=protocols, session_timeout_ms=1), no_session),
        (JoinGroup("kappa", protocols=protocols, session_timeout_ms=2**31 - 1), no_session),
        (SyncGroup("", 1, "nobody"), no_group),
        (Heartbeat("", 1, "nobody"), no_group),
        (LeaveGroup("", ()), no_group),
        (OffsetCommit(None, TOPICS), no_group),
        (TxnOffsetCommit("", TOPICS, 7, 0), no_group),
        (OffsetDelete("", (TopicToDelete("ledger", (0,)),)), no_group),
        (OffsetFetch((GroupToFetch(None),)), no_group),
        (DescribeGroups((None,)), no_group),
        (DeleteGroups((None,)), no_group),
    ]


def expected_refusal(request: Request, status: PartitionStatus, is_any_loading: bool) -> ErrorCode | None:
    """Return the error of a request for a log partition in this status; None if it does not depend on it."""
    is_loading = status is PartitionStatus.LOADING
    match request:
        case FindCoordinator() | ListGroups() if not is_any_loading or isinstance(request, FindCoordinator):
            return None
        case ListGroups():
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        case Heartbeat() if is_loading:
            return ErrorCode.NONE
        case CompleteTransaction():
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        case _:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR
