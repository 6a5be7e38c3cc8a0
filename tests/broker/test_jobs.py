"""Jobs that decode large requests and encode large responses, and the connection's state meanwhile."""

from __future__ import annotations

import asyncio
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from groupcoord import Config, ManualClock, MemoryLogStore
from groupcoord.broker.broker import Broker, make_broker
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.work import Answer, Job, Work, do_whole, each, each_long, run_in_executor
from groupcoord.errors import InvariantError
from groupcoord.host.process import SWITCH_INTERVAL_S, JobThread
from groupcoord.host.server import Server
from tests.broker.driving import LateJobs, drain, feed
from tests.broker.kafka_bytes import correlation_ids, frame, heartbeat, string
from tests.host.test_server import loop_factories

COUNT = 3_000


def describe(correlation_id: int, count: int = COUNT, length: int | None = None) -> bytes:
    """Return a DescribeGroups of many groups; ``length`` is what its array claims to be."""
    names = struct.pack(">i", count if length is None else length) + string("group") * count
    return frame(15, 0, correlation_id, names)


def new_broker() -> Broker:
    return make_broker(config=Config(), clock=ManualClock(), log_store=MemoryLogStore(), topics=TopicRegistry())


@pytest.fixture
def broker() -> Broker:
    return new_broker()


def test_answers_keep_their_order(broker: Broker) -> None:
    """Requests behind a large one wait for its response, however late its jobs finish."""
    jobs, connection = LateJobs(broker), broker.connect("/127.0.0.1")
    feed(connection, heartbeat(1) + describe(2) + heartbeat(3) + describe(4) + heartbeat(5))
    answers = correlation_ids(drain(connection))
    assert answers == [1]
    while jobs.do_next():
        broker.handle_waiting()
        answers += correlation_ids(drain(connection))
    assert answers == [1, 2, 3, 4, 5]


def test_a_connection_that_waits_for_a_job_costs_no_turn(broker: Broker) -> None:
    """It is not queued, is busy, and continues when the job is done."""
    jobs, connection = LateJobs(broker), broker.connect("/127.0.0.1")
    assert not connection.receive_data(describe(1))
    assert (connection.is_queued, connection.is_busy, connection.is_waiting) == (False, True, True)
    assert not broker.run_turn()
    jobs.do_next()
    assert connection.is_queued


@pytest.mark.parametrize("done", [0, 1])
def test_a_peer_that_leaves_while_a_job_waits(broker: Broker, done: int) -> None:
    """A job that had not begun is dropped; the result of a running one is ignored."""
    jobs, connection = LateJobs(broker), broker.connect("/127.0.0.1")
    connection.receive_data(describe(1))
    (job,) = jobs.waiting
    if done:
        job.run()
    connection.close()
    assert jobs.do_next()
    assert broker.turns.waiting == 0
    assert not connection.is_waiting
    assert connection.take_output() == b""
    assert (job.result() is not None) == bool(done)


def test_a_large_request_that_is_none(broker: Broker) -> None:
    """A malformed large request closes the connection with the message of a small one."""
    jobs, connection = LateJobs(broker), broker.connect("/127.0.0.1")
    connection.receive_data(describe(1, length=COUNT + 1))
    assert connection.closing is None
    jobs.do_next()
    broker.handle_waiting()
    assert "DescribeGroups version 0" in (connection.closing or "")


def test_a_job_that_breaks_closes_its_connection(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in what a job calls is logged, and costs the connection that it was for."""

    def break_down(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("groupcoord.broker.work.decode_request", break_down)
    connection, other = broker.connect("/127.0.0.1"), broker.connect("/127.0.0.2")
    feed(connection, describe(1))
    assert connection.closing == "internal error: a request could not be handled"
    assert other.closing is None
    assert "ZeroDivisionError" in caplog.text


def test_work_in_one_go() -> None:
    """Jobs are done in place, results come in order, and errors of jobs reach the work; no answer can be waited for."""

    def divide(number: int) -> Work[float]:
        return (yield from run_in_executor(float.__truediv__, 12.0, float(number)))

    def add() -> Work[tuple[Any, ...]]:
        divided = yield from each_long((1, 2, 3), divide)
        return (yield from each(divided, int))

    assert do_whole(add()) == (12, 6, 4)
    with pytest.raises(ZeroDivisionError):
        do_whole(divide(0))
    with pytest.raises(InvariantError):
        do_whole(_waiting())


def _waiting() -> Work[None]:
    yield Answer()


@pytest.fixture
def thread() -> JobThread:
    return JobThread()


def test_the_thread_does_one_job_after_the_other(thread: JobThread) -> None:
    """In order, in one thread that isn't this one; the interpreter switches soon while it works, and as before then."""
    before_s = sys.getswitchinterval()
    seen: list[tuple[int, str, bool]] = []
    done = threading.Event()

    def note(number: int) -> None:
        is_soon = abs(sys.getswitchinterval() - SWITCH_INTERVAL_S) < 1e-6
        seen.append((number, threading.current_thread().name, is_soon))

    for number in range(3):
        thread.start(Job(note, number), done.set if number == 2 else bool)
    assert done.wait(20)
    assert seen == [(number, "groupcoord-jobs", True) for number in range(3)]
    assert sys.getswitchinterval() == before_s


def test_a_loop_that_is_closed_ends_no_thread(thread: JobThread) -> None:
    """A job whose server is gone is ignored, and the next one is done."""
    loop, done = asyncio.new_event_loop(), threading.Event()
    loop.close()
    thread.start(Job(bool), lambda: loop.call_soon_threadsafe(bool))
    thread.start(Job(bool), done.set)
    assert done.wait(20)


@pytest.mark.parametrize("loop_factory", loop_factories())
def test_a_server_ends_while_a_job_is_done(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """It does not wait for the job; clients see their connections closed."""
    begun, may_end = threading.Event(), threading.Event()

    def take_long(*arguments: object) -> None:
        begun.set()
        may_end.wait(20)

    async def test() -> None:
        server = Server(new_broker(), port=0)
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(describe(1))
        await asyncio.to_thread(begun.wait, 20)
        await server.stop()
        assert await reader.read() == b""
        writer.close()

    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=loop_factory) as runner:
        patch.setattr("groupcoord.broker.work.decode_request", take_long)
        try:
            runner.run(asyncio.wait_for(test(), 20))
        finally:
            may_end.set()
