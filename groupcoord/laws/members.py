"""What a member of a classic group makes of an answer: for the simulator, and for whoever tests a client's machine."""

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
"""Answered to who is no member, or not of this generation."""

PUT_OUT = OF_STRANGERS | {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.MEMBER_ID_REQUIRED}


def check_reaction(
    request: Request, response: Response, before: tuple[int, str], after: tuple[int, str] | None
) -> None:
    """Who learns that it is out stops (franz-go #1326), nobody else does, and who is given an id takes it.

    A rebalance that has begun puts nobody out (librdkafka #4059), and an error about another generation says nothing
    about this one (aiokafka #88): but that of a commit, after which the Java consumer of Kafka 4.4 joins anew all the
    same if no rebalance is under way. Of a member that asks for an id again, the first is awaited in vain
    (librdkafka #5569).

    Args:
        request: what the member had asked.
        response: the answer.
        before: the generation and the member id by which it was in its group when the answer came.
        after: the same when it has taken the answer; the generation is -1 if it is in none any more. None: it has
            ended, or is about to leave.

    Raises:
        LawBrokenError: it goes on in a generation that it is out of, has left one that it is in, or leaves its id.
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
