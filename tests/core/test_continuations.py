"""Continuations of appends, and refusals of the answers that wait for them."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode
from groupcoord.core.log.append_failures import refused
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    CompleteTransactionResponse,
    DeletedGroup,
    DeleteGroupsResponse,
    LeaveGroupResponse,
    LeftMember,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    PartitionResult,
    Reply,
    Response,
    TopicResult,
    TxnOffsetCommitResponse,
)
from tests.tables import as_one_test


def results(*errors: ErrorCode) -> tuple[TopicResult, ...]:
    return (TopicResult("t", ZERO_UUID, tuple(PartitionResult(index, error) for index, error in enumerate(errors))),)


NONE, TOO_LARGE = ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
LOG_ERROR, SEEN = ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE


@as_one_test
@pytest.mark.parametrize(
    ("response", "refusal"),
    [
        (OffsetCommitResponse(results(NONE, UNKNOWN)), OffsetCommitResponse(results(SEEN, UNKNOWN))),
        (OffsetCommitResponse(results(NONE, TOO_LARGE)), OffsetCommitResponse(results(SEEN, SEEN))),
        (TxnOffsetCommitResponse(results(TOO_LARGE, NONE)), TxnOffsetCommitResponse(results(SEEN, SEEN))),
        (LeaveGroupResponse(NONE, (LeftMember("m", None, NONE),)), LeaveGroupResponse(SEEN)),
        (OffsetDeleteResponse(NONE, results(NONE)), OffsetDeleteResponse(SEEN)),
        (
            DeleteGroupsResponse((DeletedGroup("a", NONE), DeletedGroup("b", ErrorCode.NON_EMPTY_GROUP))),
            DeleteGroupsResponse((DeletedGroup("a", SEEN), DeletedGroup("b", SEEN))),
        ),
        # A transaction coordinator knows partitions and their leaders: the log's own error is passed on.
        (CompleteTransactionResponse(NONE), CompleteTransactionResponse(LOG_ERROR)),
    ],
    ids=lambda response: type(response).__name__,
)
def test_what_a_refused_request_is_answered(response: Response, refusal: Response) -> None:
    """All errors become those that clients see; results found before are kept."""
    assert refused(Reply("token", response), LOG_ERROR) == Reply("token", refusal)
