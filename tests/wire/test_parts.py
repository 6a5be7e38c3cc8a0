"""Answers in parts, kept answers, and newest schemas loaded early."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest

from groupcoord.core.columns import OffsetColumns
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    FetchedGroup,
    FetchedTopic,
    OffsetFetchResponse,
    Response,
    StreamsGroupHeartbeatResponse,
)
from groupcoord.core.messages.commits import FetchedOffsets
from groupcoord.errors import ErrorCode
from groupcoord.schema.primitives import MAX_ARRAY_LENGTH
from groupcoord.wire import (
    ProtocolError,
    RequestHeader,
    api,
    decode_request,
    encode_response,
    encode_response_parts,
)
from groupcoord.wire.api import KeptAnswers
from groupcoord.wire.broker_messages import FetchedPartitionData, FetchResponse, TopicNameOrIdEntry
from groupcoord.wire.fetch import COPIED_BYTES
from tests.tables import as_one_test
from tests.wire.kio_client import request_frame


def test_the_longest_array() -> None:
    """An array of a million entries is read; a longer one is refused without reading it, as Kafka 4.4 does."""
    header = request_frame(15, 4, {"groups": [], "include_authorized_operations": False})[:-5]
    longest = header + struct.pack(">i", MAX_ARRAY_LENGTH) + bytes(2 * MAX_ARRAY_LENGTH) + b"\x00"
    _, request = decode_request(longest, "/127.0.0.1")
    assert len(request.group_ids) == MAX_ARRAY_LENGTH  # type: ignore[union-attr]
    too_long = header + struct.pack(">i", MAX_ARRAY_LENGTH + 1) + bytes(2 * MAX_ARRAY_LENGTH + 2) + b"\x00"
    with pytest.raises(ProtocolError, match="claims 1000001 entries; the longest has 1000000"):
        decode_request(too_long, "/127.0.0.1")


def wide_answer(count: int) -> OffsetFetchResponse:
    columns = FetchedOffsets(OffsetColumns(tuple(range(600)), tuple(range(600)), (5,) * 600))
    group = FetchedGroup("g", ErrorCode.NONE, (FetchedTopic("t", ZERO_UUID, columns),))
    return OffsetFetchResponse((group,) * count)


@as_one_test
@pytest.mark.parametrize("version", [1, 4, 5, 6, 8, 10])
def test_an_answer_in_parts_is_the_same(version: int) -> None:
    header, response = RequestHeader(9, version, 77), wide_answer(3 if version >= 8 else 1)
    assert b"".join(encode_response_parts(header, response)) == encode_response(header, response)


def test_what_is_said_many_times_takes_memory_once() -> None:
    """A group that an answer holds a thousand times is written once."""
    answer_parts = encode_response_parts(RequestHeader(9, 8, 1), wide_answer(1_000))
    assert len(answer_parts) > 1_000
    assert len({id(part) for part in answer_parts}) < 10


def test_an_answer_that_takes_too_much_memory_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Different groups are counted; one that repeats is not."""
    monkeypatch.setattr(api, "ANSWER_MEMORY_MAX_BYTES", 100_000)
    header = RequestHeader(9, 8, 1)
    encode_response_parts(header, wide_answer(1_000))
    groups = tuple(wide_answer(1).groups[0] for _ in range(10))
    with pytest.raises(ProtocolError, match="larger than 100000 bytes"):
        encode_response_parts(header, OffsetFetchResponse(groups))


@as_one_test
@pytest.mark.parametrize("version", range(4, 19))
def test_records_go_out_as_they_are_kept(version: int) -> None:
    """An answer to Fetch in parts is the answer in one piece, and many records are not copied into it."""
    records = (memoryview(bytes(COPIED_BYTES)), memoryview(b"few"), memoryview(bytes(COPIED_BYTES + 1)))
    partitions = (
        FetchedPartitionData(3, ErrorCode.NONE, 9, 8, 1, ((7, 2),), -1, records),
        FetchedPartitionData(4, ErrorCode.NONE, 5, 5, 0, None),
        FetchedPartitionData(5, ErrorCode.NONE, 5, 5, 0, None, -1, records[1:2]),
    )
    response = FetchResponse(ErrorCode.NONE, 77, (TopicNameOrIdEntry("orders", ZERO_UUID, partitions),))
    header = RequestHeader(1, version, 7)
    found = encode_response_parts(header, response)
    assert b"".join(found) == encode_response(header, response)
    assert [part for part in found if isinstance(part, memoryview)] == [records[0], records[2]]
    assert len(found) == 5


@as_one_test
@pytest.mark.parametrize("version", range(4, 19))
def test_few_records_go_out_in_one_part(version: int) -> None:
    """An answer to Fetch of little is one piece; of very many partitions it is in some, none of them large."""
    few, *more = (FetchedPartitionData(index, ErrorCode.NONE, 5, 5, 0, None) for index in range(1_000))
    for partitions in ((), (few,), (few, *more)):
        response = FetchResponse(ErrorCode.NONE, 77, (TopicNameOrIdEntry("orders", ZERO_UUID, tuple(partitions)),))
        header = RequestHeader(1, version, 7)
        found = encode_response_parts(header, response)
        assert b"".join(found) == encode_response(header, response)
        assert len(found) == 1 or len(partitions) > 1
        assert max(map(len, found)) < 10_000


# ---------------------------------------------------------------- kept answers


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


# ---------------------------------------------------------------- loading


CODE = """
import sys
from groupcoord.wire import decode_request, load_newest
from groupcoord.wire.registry import APIS
steps = list(load_newest())
loaded = set(sys.modules)
heartbeat = bytes.fromhex("000c0004 00000007 0001 63 00 0267 00000001 026d 00 00")
join = bytes.fromhex("000b0009 00000007 0001 63 00 0267 00002710 00002710 01 00 02 78 01 00 00")
for frame in (heartbeat, join):
    decode_request(frame, "/127.0.0.1")
print(len(steps) == len(APIS), sorted(set(sys.modules) - loaded))
"""


def test_nothing_is_left_for_the_first_request() -> None:
    """There is a step for each API, and afterwards requests of the newest versions load nothing more."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == "True []\n"
