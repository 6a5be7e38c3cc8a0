"""Laws of a classic member's reactions to responses, for the simulator and for tests of clients."""

from __future__ import annotations

from groupcoord.core.messages import (
    UNKNOWN_GENERATION_ID,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    OffsetCommit,
    Request,
    Response,
    SyncGroup,
)
from groupcoord.errors import ErrorCode
from groupcoord.laws.coordinator import error_codes, require

__all__ = ["check_reaction"]

OF_STRANGERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""Errors for a client that is no member, or not of this generation."""

PUT_OUT = OF_STRANGERS | {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.MEMBER_ID_REQUIRED}


def check_reaction(
    request: Request, response: Response, before: tuple[int, str], after: tuple[int, str] | None
) -> None:
    """Check that a fenced member stops (franz-go #1326), no other member does, and a member id in a response is used.

    A rebalance ends no membership (librdkafka #4059), and an error about another generation does not concern this one
    (aiokafka #88), except that of a commit, after which the Java consumer of Kafka 4.4 rejoins if no rebalance is in
    progress. If a member requests an id again, the group waits for the first id in vain (librdkafka #5569).

    Args:
        request: the member's request.
        response: the response.
        before: the generation and the member id before the response.
        after: the same after the response. The generation is -1 if it is in none any more; None if the member has ended
            or is about to leave.

    Raises:
        LawBrokenError: it continues in a lost generation, has left a valid one, or ignores its id.
    """
    generation_id, member_id = before
    if after is None:
        return
    errors = frozenset(error_codes(response))
    if not member_id and isinstance(response, JoinGroupResponse) and ErrorCode.MEMBER_ID_REQUIRED in errors:
        require(after[1] == response.member_id, "it is given {!r}, and is {!r}", response.member_id, after[1])
    if generation_id == UNKNOWN_GENERATION_ID:
        return
    is_own = isinstance(request, Heartbeat | SyncGroup | OffsetCommit) and (
        (request.generation_id, request.member_id) == before
    )
    may_be_out = is_own or isinstance(request, OffsetCommit)
    if isinstance(request, JoinGroup):
        may_be_out = request.member_id == member_id
    if is_own and errors <= OF_STRANGERS:
        goes_on = after[0] == generation_id
        require(not goes_on, "{} is answered that it is out of its group, and goes on: {!r}", before, request)
    elif not (may_be_out and errors & PUT_OUT):
        is_lost = after[0] == UNKNOWN_GENERATION_ID
        require(not is_lost, "{} is answered {}, and gives all up: {!r}", before, errors, request)
