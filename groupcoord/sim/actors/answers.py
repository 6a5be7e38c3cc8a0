"""The errors in an answer."""

from __future__ import annotations

from groupcoord.errors import ErrorCode
from groupcoord.messages import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    FindCoordinatorResponse,
    HeartbeatResponse,
    LeaveGroupResponse,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
    Response,
    TxnOffsetCommitResponse,
)

NONE = ErrorCode.NONE


def errors_of(response: Response) -> list[str]:
    """Return the names of the errors in an answer, each once, in order; none of a heartbeat or commit that is taken."""
    match response:
        case HeartbeatResponse():
            codes = [response.error_code]
        case OffsetCommitResponse() | TxnOffsetCommitResponse():
            codes = [result.error_code for topic in response.topics for result in topic.partitions]
        case OffsetFetchResponse():
            codes = [group.error_code for group in response.groups]
        case FindCoordinatorResponse():
            codes = [found.error_code for found in response.coordinators]
        case LeaveGroupResponse():
            codes = [response.error_code, *(member.error_code for member in response.members)]
        case OffsetDeleteResponse():
            results = [result for topic in response.topics for result in topic.partitions]
            codes = [response.error_code, *(result.error_code for result in results)]
        case DeleteGroupsResponse():
            codes = [result.error_code for result in response.results]
        case DescribeGroupsResponse():
            codes = [group.error_code for group in response.groups]
        case _:
            codes = [response.error_code]
    return [code.name for code in dict.fromkeys(codes) if code is not NONE]
