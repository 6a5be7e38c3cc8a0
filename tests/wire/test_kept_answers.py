"""Bytes of answers that are given again and again are kept, and of no others."""

from __future__ import annotations

import pytest

from groupcoord.core.messages import Response, StreamsGroupHeartbeatResponse
from groupcoord.errors import ErrorCode
from groupcoord.wire import RequestHeader, encode_response
from groupcoord.wire.api import KeptAnswers

HEADER = RequestHeader(88, 1, 7, "client")


class Writer:
    """Counts what it writes."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.count = 0

    def write(self, response: Response, header: RequestHeader) -> bytes:
        self.count += 1
        return self.body


@pytest.mark.parametrize(
    ("body", "is_repeated", "count"), [(b"b" * 256, True, 1), (b"b" * 257, True, 2), (b"", False, 2)]
)
def test_a_short_answer_that_is_given_again_is_written_once(body: bytes, is_repeated: bool, count: int) -> None:
    writer, response = Writer(body), StreamsGroupHeartbeatResponse(ErrorCode.NONE)
    answers = KeptAnswers(writer.write, lambda _: is_repeated)
    assert [answers.encode(response, HEADER) for _ in range(2)] == [body, body]
    assert writer.count == count


def test_an_equal_answer_is_another_one() -> None:
    """The object counts: a new one may stand where an old one stood in memory."""
    writer = Writer(b"")
    answers = KeptAnswers(writer.write, lambda _: True)
    for _ in range(3):
        answers.encode(StreamsGroupHeartbeatResponse(ErrorCode.NONE), HEADER)
    assert writer.count == 3


def test_each_version_keeps_its_own() -> None:
    """The same answer to heartbeats of both versions is as each of them has it."""
    response = StreamsGroupHeartbeatResponse(ErrorCode.NONE, member_id="m", member_epoch=3, acceptable_recovery_lag=9)
    headers = RequestHeader(88, 0, 7, "client"), HEADER
    first, second = ([encode_response(header, response) for header in headers] for _ in range(2))
    assert first == second
    assert first[0] != first[1]
