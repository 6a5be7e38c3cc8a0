"""Requests and responses of the coordinator as values: no bytes, no versions.

A field has the meaning of its newest version in Kafka 4.4; what an older request version lacks is the field's
default, and what an older version does differently is a named flag. Times are milliseconds. Names are Kafka's.
What is listed here is public, as :mod:`groupcoord.messages`.
"""

from groupcoord.core.messages.administration import *
from groupcoord.core.messages.commits import *
from groupcoord.core.messages.coordinators import *
from groupcoord.core.messages.fetches import *
from groupcoord.core.messages.membership import *
from groupcoord.core.messages.request import *

Response = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | DescribeGroupsResponse
    | ListGroupsResponse
    | DeleteGroupsResponse
    | FindCoordinatorResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | OffsetDeleteResponse
    | TxnOffsetCommitResponse
    | CompleteTransactionResponse
)
"""Whatever a coordinator answers."""

__all__ = [
    "AUTHORIZED_OPERATIONS_OMITTED",
    "NO_NODE",
    "UNKNOWN_GENERATION_ID",
    "UNKNOWN_MEMBER_ID",
    "CompleteTransaction",
    "CompleteTransactionResponse",
    "CoordinatorType",
    "DeleteGroups",
    "DeleteGroupsResponse",
    "DeletedGroup",
    "DescribeGroups",
    "DescribeGroupsResponse",
    "DescribedGroup",
    "DescribedMember",
    "FetchedGroup",
    "FetchedOffset",
    "FetchedTopic",
    "FindCoordinator",
    "FindCoordinatorResponse",
    "FoundCoordinator",
    "GroupToFetch",
    "Heartbeat",
    "HeartbeatResponse",
    "JoinGroup",
    "JoinGroupResponse",
    "JoinProtocol",
    "JoinedMember",
    "LeaveGroup",
    "LeaveGroupResponse",
    "LeavingMember",
    "LeftMember",
    "ListGroups",
    "ListGroupsResponse",
    "ListedGroup",
    "Node",
    "OffsetCommit",
    "OffsetCommitResponse",
    "OffsetDelete",
    "OffsetDeleteResponse",
    "OffsetFetch",
    "OffsetFetchResponse",
    "OffsetToCommit",
    "PartitionResult",
    "Request",
    "Response",
    "SyncAssignment",
    "SyncGroup",
    "SyncGroupResponse",
    "TopicResult",
    "TopicToCommit",
    "TopicToDelete",
    "TopicToFetch",
    "TxnOffsetCommit",
    "TxnOffsetCommitResponse",
]
