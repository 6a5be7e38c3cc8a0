"""The errors in an answer."""

from __future__ import annotations

from groupcoord.errors import ErrorCode
from groupcoord.messages import (
    FindCoordinatorResponse,
    LeaveGroupResponse,
    OffsetCommitResponse,
    OffsetFetchResponse,
    Response,
)


def errors_of(response: Response) -> list[str]:
    """Return the names of the errors in an answer, each once, in order; none of a heartbeat or commit that is taken."""
    match response:
        case OffsetCommitResponse():
            codes = [result.error_code for topic in response.topics for result in topic.partitions]
        case OffsetFetchResponse():
            codes = [group.error_code for group in response.groups]
        case FindCoordinatorResponse():
            codes = [found.error_code for found in response.coordinators]
        case LeaveGroupResponse():
            codes = [response.error_code, *(member.error_code for member in response.members)]
        case _:
            codes = [getattr(response, "error_code", ErrorCode.NONE)]
    return [code.name for code in dict.fromkeys(codes) if code is not ErrorCode.NONE]
