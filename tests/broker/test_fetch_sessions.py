"""Fetch sessions (KIP-227): full requests make them, incremental ones go on, and all of them are bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from groupcoord.broker.records import fetch_sessions
from groupcoord.broker.records.fetch import plan_fetch
from groupcoord.broker.records.fetch_sessions import EVICTION_MS, FetchContext, FetchSessions, Target
from groupcoord.broker.work import PORTION, do_whole
from groupcoord.errors import ErrorCode
from groupcoord.wire.broker_messages import Fetch, FetchResponse, TopicNameOrIdEntry
from tests.broker.data_world import NO_ID, DataWorld, batch, fetch_of, part, partitions_of


@pytest.fixture
def world() -> DataWorld:
    return DataWorld()


class Reader:
    """A client with a session."""

    def __init__(self, world: DataWorld, *indexes: int) -> None:
        self.world = world
        self.epoch = 0
        self.session_id = 0
        self.session_id = self.fetch(fetch_of(*map(part, indexes))).session_id

    def fetch(self, request: Fetch, *forgotten: int) -> FetchResponse:
        request.session_id, request.session_epoch = self.session_id, self.epoch
        request.max_wait_ms = 0
        request.forgotten_topics = (TopicNameOrIdEntry("two", NO_ID, forgotten),)
        response: FetchResponse = self.world.ask(request)
        self.epoch += 1
        return response

    def poll(self) -> list[int]:
        """Fetch with an empty request; return of which partitions there is news."""
        response = self.fetch(Fetch(()))
        assert response.session_id == self.session_id
        return [data.partition_index for data in partitions_of(response)]


def test_only_news_are_told(world: DataWorld) -> None:
    """Records, a new high watermark, a new start and errors are; a partition without news is left out."""
    reader = Reader(world, 0, 1)
    assert reader.session_id > 0
    assert reader.poll() == []
    world.produce(batch(b"a"), "two", 1)
    assert reader.poll() == [1]
    assert reader.poll() == [1]  # still at offset 0, so there are records again
    reader.fetch(fetch_of(part(1, 1)))
    assert reader.poll() == []
    world.produce(batch(b"a"), "two", 0)
    assert reader.poll() == [0]


def test_partitions_come_and_go(world: DataWorld) -> None:
    """A request may add partitions, move them on and leave them; when none is left, the session is gone."""
    reader = Reader(world, 0)
    for index in (0, 1):
        world.produce(batch(b"a"), "two", index)
    assert [data.partition_index for data in partitions_of(reader.fetch(fetch_of(part(1))))] == [0, 1]
    assert [data.partition_index for data in partitions_of(reader.fetch(Fetch(()), 0))] == [1]
    last = reader.fetch(Fetch(()), 1)
    assert (last.session_id, last.topics) == (0, ())
    assert reader.fetch(Fetch(())).error_code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_those_with_news_come_last_next_time(world: DataWorld) -> None:
    """So that each gets its turn when the limit of bytes is low."""
    reader = Reader(world, 0, 1)
    for index in (0, 1):
        world.produce(batch(b"x" * 500), "two", index)
    served = []
    for _ in range(4):
        response = reader.fetch(Fetch((), max_bytes=100))
        served += [data.partition_index for data in partitions_of(response) if data.records]
    assert served == [0, 1, 0, 1]


def test_errors(world: DataWorld) -> None:
    """A wrong epoch, another kind of names, and a session that was closed; each with session id 0 and nothing else."""
    reader = Reader(world, 0)
    by_id = fetch_of(part(0), name=None, topic_id=world.topics.topic_id("two"))  # type: ignore[arg-type]
    by_id.session_id, by_id.session_epoch = reader.session_id, reader.epoch
    assert world.ask(by_id) == FetchResponse(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    reader.epoch += 1
    assert reader.fetch(Fetch(())) == FetchResponse(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    closed = world.ask(fetch_of(session_id=reader.session_id, session_epoch=-1))
    assert (closed.error_code, closed.session_id) == (ErrorCode.NONE, 0)
    assert reader.fetch(Fetch(())) == FetchResponse(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


def test_a_session_waits_with_few_words(world: DataWorld) -> None:
    reader = Reader(world, 0, 1)
    request = Fetch((), session_id=reader.session_id, session_epoch=reader.epoch, max_wait_ms=500)
    connection = world.send(request)
    assert not connection.answers
    world.produce(batch(b"a"), "two", 1)
    (response,) = connection.answers
    assert [data.partition_index for data in partitions_of(response)] == [1]


# ---------------------------------------------------------------- bounds


def sessions(slots: int, now_ms: Callable[[], int]) -> FetchSessions:
    numbers = iter(range(1, 1_000))
    return FetchSessions(slots, now_ms, lambda *_: next(numbers))


def open_session(sessions: FetchSessions, *indexes: int, **fields: Any) -> int:
    context = do_whole(sessions.open(fetch_of(*map(part, indexes), **{"session_epoch": 0, **fields})))
    assert isinstance(context, FetchContext)
    return do_whole(context.respond([])).session_id


@pytest.mark.parametrize(("count", "pauses"), [(PORTION, 0), (PORTION + 1, 2)])
def test_pauses_between_many_partitions(world: DataWorld, count: int, pauses: int) -> None:
    targets = [(Target("two", NO_ID, index), part(index)) for index in range(count)]
    assert len(list(plan_fetch(fetch_of(), targets, world.data))) == pauses


def test_slots() -> None:
    """When all slots are taken there is no session, until the one used least lately is two minutes idle."""
    time_ms = [0]
    held = sessions(2, lambda: time_ms[0])
    assert [open_session(held, 0) for _ in range(3)] == [1, 2, 0]
    time_ms[0] = EVICTION_MS
    assert isinstance(do_whole(held.open(Fetch((), session_id=1, session_epoch=1))), FetchContext)
    time_ms[0] += 1
    assert [open_session(held, 0) for _ in range(2)] == [3, 0]
    assert do_whole(held.open(Fetch((), session_id=2, session_epoch=1))) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(held) == 2


def test_partitions_of_all_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sessions together hold a bounded number of partitions, whether added at once or later."""
    monkeypatch.setattr(fetch_sessions, "SESSION_PARTITIONS_MAX", 5)
    held = sessions(10, lambda: 0)
    assert [open_session(held, *range(count)) for count in (3, 3, 2, 1)] == [1, 0, 2, 0]
    growing = fetch_of(*map(part, range(4)), session_id=1, session_epoch=1)
    assert do_whole(held.open(growing)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert open_session(held, 0, 1, 2) == 3
