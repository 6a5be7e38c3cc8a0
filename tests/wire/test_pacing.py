"""Pauses in long work: where it stops, that it goes on, and that it comes to the same result."""

from __future__ import annotations

import gc
import struct
import weakref
from collections.abc import Generator
from contextlib import nullcontext
from typing import Any

import pytest

from groupcoord.core.columns import OffsetColumns
from groupcoord.core.messages import FetchedGroup, FetchedTopic, OffsetCommitResponse, OffsetFetchResponse, TopicResult
from groupcoord.core.messages.commits import PartitionResults
from groupcoord.core.messages.fetches import FetchedOffsets
from groupcoord.core.records import ZERO_UUID
from groupcoord.errors import ErrorCode
from groupcoord.wire import ProtocolError, RequestHeader, decode_request, encode_response, encode_response_parts, parts
from groupcoord.wire.pacing import SHORT, NotShortError, Pace, if_short, in_portions, paced
from groupcoord.wire.primitives import MANY_NUMBERS, MAX_ARRAY_LENGTH, write_uvarint
from tests.tables import as_one_test
from tests.wire.kio_client import request_frame


def steps(limit: int) -> Pace:
    """Return a pace that says after so many looks at the clock that time is up."""
    looks = 0

    def now_s() -> float:
        nonlocal looks
        looks += 1
        return float(looks % limit == 0)

    pace = Pace(now_s)
    pace.until_s = 1.0
    return pace


def drive(work: Generator[None, None, Any]) -> tuple[Any, int]:
    """Return what work comes to, and how often it has paused."""
    pauses = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1


def total(numbers: range) -> int:
    result = 0
    for number in paced(numbers):
        result += number
    return result


def test_work_pauses_and_goes_on() -> None:
    """Control comes back each time that time is up, and the result is that of one go."""
    assert drive(in_portions(steps(100), total, range(1_000))) == (sum(range(1_000)), 10)


def test_short_work_does_not_look_at_the_clock() -> None:
    """A few entries are handed out as they are, and nothing pauses outside of portions."""
    few, many = range(SHORT), range(SHORT + 1)
    assert paced(few) is few
    assert paced(many) is many
    assert drive(in_portions(steps(1), total, few)) == (sum(few), 0)


def test_only_short_work_is_done_in_one_go() -> None:
    """What passes over many entries is not begun; what comes after it is as it was before."""
    assert if_short(total, range(SHORT)) == sum(range(SHORT))
    with pytest.raises(NotShortError):
        if_short(total, range(SHORT + 1))
    assert total(range(1_000)) == sum(range(1_000))


def test_large_arrays_let_others_go_in_between() -> None:
    """A request of a few topics with a great many partitions each is read a topic at a time."""
    indexes = struct.pack(f">{MANY_NUMBERS + 1}i", *range(MANY_NUMBERS + 1))
    topic = b"\x00\x01t" + struct.pack(">i", MANY_NUMBERS + 1) + indexes
    frame = struct.pack(">hhih", 9, 5, 1, -1) + b"\x00\x01g" + struct.pack(">i", 3) + 3 * topic
    (_, request), pauses = drive(in_portions(steps(1), decode_request, frame, "/127.0.0.1"))
    assert [len(topic.partition_indexes) for topic in request.groups[0].topics] == [MANY_NUMBERS + 1] * 3
    assert pauses == 3


def test_tagged_fields_let_others_go_in_between() -> None:
    """A request that is nothing but a great many tagged fields is read bit by bit, too."""
    count = 10_000
    head = struct.pack(">hhih", 12, 4, 1, -1) + b"\x00\x02g" + bytes(4) + b"\x02m\x00"
    frame = head + write_uvarint(count) + b"\x01\x00" * count
    (_, request), pauses = drive(in_portions(steps(100), decode_request, frame, "/127.0.0.1"))
    assert request == decode_request(frame, "/127.0.0.1")[1]
    assert pauses == count // 100


def test_work_that_is_given_up_ends() -> None:
    """Closing the generator ends the function where it stands, and what it has to put in order is put in order."""
    ended = []

    def endless() -> None:
        try:
            while True:
                total(range(1_000))
        finally:
            ended.append(True)

    work = in_portions(steps(10), endless)
    next(work)
    assert not ended
    work.close()
    assert ended


def test_an_error_comes_out() -> None:
    """What the function raises is raised where it is driven from."""

    def fail() -> None:
        total(range(1_000))
        raise ProtocolError("no")

    with pytest.raises(ProtocolError, match="no"):
        list(in_portions(steps(50), fail))


class Tracked(Pace):
    """A pace, or an argument, of which it can be told whether it is still there."""


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_kept_of_work_that_is_over(fails: bool) -> None:
    """What a function was given goes when it is over, also after an error, and the greenlets go with their pace."""

    def work_with(numbers: range, given: Tracked) -> int:
        if fails:
            raise ProtocolError("no")
        return total(numbers)

    pace, given = Tracked(), Tracked()
    kept = [weakref.ref(given), weakref.ref(pace)]
    with nullcontext() if not fails else pytest.raises(ProtocolError):
        drive(in_portions(pace, work_with, range(1_000), given))
    assert len(pace.idle) == (0 if fails else 1)
    del given
    gc.collect()
    assert kept[0]() is None
    del pace
    gc.collect()
    assert kept[1]() is None


def test_two_works_in_turns() -> None:
    """Works that are driven in turns don't disturb each other."""
    works = [in_portions(steps(10 + number), total, range(number, 500)) for number in range(3)]
    results: dict[int, int] = {}
    while len(results) < len(works):
        for number, work in enumerate(works):
            if number not in results:
                try:
                    next(work)
                except StopIteration as done:
                    results[number] = done.value
    assert results == {number: sum(range(number, 500)) for number in range(3)}


def names(count: int) -> bytes:
    return request_frame(15, 4, {"groups": ["g"] * count, "include_authorized_operations": False})


def test_a_request_read_in_portions_is_the_same() -> None:
    """Reading a long request with pauses gives what reading it at once gives."""
    frame = names(5_000)
    read, pauses = drive(in_portions(steps(100), decode_request, frame, "/127.0.0.1"))
    assert read == decode_request(frame, "/127.0.0.1")
    assert pauses > 10


def test_the_longest_array() -> None:
    """An array of a million entries is read; a longer one is refused without reading it, as Kafka 4.4 does."""
    header = names(0)[:-5]
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
    """Joined, the parts of an answer are the answer."""
    header, response = RequestHeader(9, version, 77), wide_answer(3 if version >= 8 else 1)
    assert b"".join(encode_response_parts(header, response)) == encode_response(header, response)


def test_the_answer_to_a_refused_commit_is_written_in_portions() -> None:
    """So is each of its hundred thousand partitions, with pauses, and the bytes are those of one go."""
    count = 100_000
    results = PartitionResults((7,) * count, (ErrorCode.UNKNOWN_SERVER_ERROR,) * count)
    header, response = RequestHeader(8, 6, 77), OffsetCommitResponse((TopicResult("t", ZERO_UUID, results),))
    written, pauses = drive(in_portions(steps(10), encode_response, header, response))
    assert written == encode_response(header, response)
    assert written.endswith(struct.pack(">ih", 7, ErrorCode.UNKNOWN_SERVER_ERROR) * count)
    assert pauses > 10


def test_what_is_said_many_times_takes_memory_once() -> None:
    """A group that an answer holds a thousand times is written once."""
    answer_parts = encode_response_parts(RequestHeader(9, 8, 1), wide_answer(1_000))
    assert len(answer_parts) > 1_000
    assert len({id(part) for part in answer_parts}) < 10


def test_an_answer_that_takes_too_much_memory_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Different groups are counted; one that repeats is not."""
    monkeypatch.setattr(parts, "ANSWER_MEMORY_MAX_BYTES", 100_000)
    header = RequestHeader(9, 8, 1)
    encode_response_parts(header, wide_answer(1_000))
    groups = tuple(wide_answer(1).groups[0] for _ in range(10))
    with pytest.raises(ProtocolError, match="larger than 100000 bytes"):
        encode_response_parts(header, OffsetFetchResponse(groups))
