"""The server on real sockets, on asyncio's loop and on uvloop: slow, idle, too many and broken peers; stopping."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from groupcoord import Config, MemoryLogStore, SystemClock
from groupcoord.broker import work as work_module
from groupcoord.broker.broker import make_broker
from groupcoord.broker.connection import Connection
from groupcoord.broker.log_lines import BURST
from groupcoord.core.messages import Node
from groupcoord.host import process, server as server_module
from groupcoord.host.server import Server, kafka_host
from tests.broker.driving import wire_frame
from tests.broker.kafka_bytes import correlation_ids, fetch, heartbeat, join, metadata
from tests.broker.wire_world import COMMIT, offset
from tests.tables import as_one_test

DEADLINE_S = 10.0
WIDE_OFFSET = offset(0, metadata="m" * 4_000)


def loop_factories() -> list[Any]:
    factories: list[Any] = [pytest.param(asyncio.new_event_loop, id="asyncio")]
    try:
        import uvloop
    except ImportError:
        return factories
    return [*factories, pytest.param(uvloop.new_event_loop, id="uvloop")]


def on_each_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test with coroutines on asyncio's loop and on uvloop."""

    def run(loop_factory: Any, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(asyncio.wait_for(test(**fixtures), DEADLINE_S))

    signature = inspect.signature(test)
    loop = inspect.Parameter("loop_factory", inspect.Parameter.KEYWORD_ONLY)
    functools.update_wrapper(run, test, updated=()).__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), loop]
    )
    return pytest.mark.parametrize("loop_factory", loop_factories())(run)


@asynccontextmanager
async def serving(
    store: MemoryLogStore | None = None, *, send_buffer_bytes: int | None = None, **config: int
) -> AsyncIterator[Server]:
    broker = make_broker(
        config=Config(**config),
        clock=SystemClock(),
        log_store=store or MemoryLogStore(),
        node=Node(1, "127.0.0.1", 0),
    )
    with broker.topics.edit() as edit:
        edit.create("t", 1)
    connection = broker.connect("/127.0.0.1")
    connection.receive_data(wire_frame(8, 8, COMMIT | {"topics": ({"name": "t", "partitions": (WIDE_OFFSET,)},)}))
    connection.close()
    broker.handle_waiting()
    sock = socket.create_server(("127.0.0.1", 0))
    if send_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    async with Server(broker, sock=sock) as server:
        yield server


def wide_fetch(correlation_id: int, groups: int = 3_000) -> bytes:
    """Return a request of some kilobytes that is answered with 4 KB for each group."""
    wanted = [{"group_id": "g", "member_id": None, "member_epoch": -1, "topics": None}] * groups
    request = wire_frame(9, 8, {"groups": wanted, "require_stable": False})
    return request[:8] + struct.pack(">i", correlation_id) + request[12:]


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.002)


async def answers(reader: asyncio.StreamReader, count: int) -> list[int]:
    output = b""
    for _ in range(count):
        size = await reader.readexactly(4)
        output += size + await reader.readexactly(int.from_bytes(size, "big"))
    return correlation_ids(output)


def connect(server: Server) -> Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    return asyncio.open_connection("127.0.0.1", server.port)


@on_each_loop
async def test_round_trip() -> None:
    """Responses are in order, a free port is found, and clients get that port."""
    async with serving() as server:
        assert server.broker.node.port == server.port != 0
        reader, writer = await connect(server)
        writer.write(heartbeat(1) + heartbeat(2)[:9])
        assert await answers(reader, 1) == [1]
        writer.write(heartbeat(2)[9:] + metadata(3, "t"))
        assert await answers(reader, 2) == [2, 3]
        writer.close()
        await until(lambda: server.connection_count == 0)


@on_each_loop
async def test_answers_leave_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sockets that have something are read before the first answer is written, so that a client is woken once."""
    steps: list[str] = []
    receive_data, take_output = Connection.receive_data, Connection.take_output_parts

    def receive(self: Connection, data: bytes) -> None:
        steps.append("read")
        receive_data(self, data)

    def take(self: Connection) -> list[bytes | memoryview]:
        steps.append("write")
        return take_output(self)

    monkeypatch.setattr(work_module, "TURN_S", 10.0)
    monkeypatch.setattr(Connection, "receive_data", receive)
    monkeypatch.setattr(Connection, "take_output_parts", take)
    async with serving() as server:
        clients = [await connect(server) for _ in range(5)]
        await until(lambda: server.connection_count == 5)
        steps.clear()
        for _, writer in clients:
            writer.write(metadata(1))
        assert [await answers(reader, 1) for reader, _ in clients] == [[1]] * 5
        for _, writer in clients:
            writer.close()
    assert steps == ["read"] * 5 + ["write"] * 5


@on_each_loop
async def test_stopping_sends_the_answers_that_are_there() -> None:
    """A request that was read just before is answered."""
    async with serving() as server:
        reader, writer = await connect(server)
        await until(lambda: server.connection_count == 1)
        (peer,) = server._peers.values()
        peer.data_received(metadata(1))
    assert await answers(reader, 1) == [1]
    writer.close()


@on_each_loop
async def test_timers_wake_the_broker() -> None:
    """A join and a long poll are answered when their time has come, though nothing arrives meanwhile."""
    async with serving(group_initial_rebalance_delay_ms=30) as server:
        reader, writer = await connect(server)
        begin = time.monotonic()
        writer.write(join(1) + fetch(2, "t", 0, 40))
        assert await answers(reader, 2) == [1, 2]
        assert time.monotonic() - begin >= 0.065
        writer.close()


@on_each_loop
async def test_a_slow_reader_hurts_only_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server stops reading from a peer that does not read, then disconnects it with one log line; others are
    served.
    """
    monkeypatch.setattr(server_module, "DRAIN_TIMEOUT_S", 0.3)
    caplog.set_level(logging.INFO, "groupcoord.host")
    async with serving() as server:
        slow = socket.create_connection(("127.0.0.1", server.port))
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        sending = asyncio.create_task(loop.sock_sendall(slow, wide_fetch(1) * 200))
        reader, writer = await connect(server)
        await until(lambda: server.connection_count == 2)
        for number in range(20):
            writer.write(heartbeat(number))
            assert await answers(reader, 1) == [number]
        await until(lambda: server.connection_count == 1)
        await asyncio.gather(sending, return_exceptions=True)
        slow.close()
        writer.write(heartbeat(99))
        assert await answers(reader, 1) == [99]
        writer.close()
    (record,) = caplog.records
    assert "did not read its answers" in record.message
    assert "127.0.0.1:" in record.message


@on_each_loop
async def test_a_reader_that_catches_up_goes_on() -> None:
    """Answers larger than every buffer arrive complete and in order if the peer reads them late."""
    async with serving() as server:
        reader, writer = await connect(server)
        count = 4
        writer.write(b"".join(wide_fetch(number) for number in range(count)))
        await until(lambda: any(peer._drain_timer for peer in server._peers.values()))
        assert await answers(reader, count) == list(range(count))
        assert server.connection_count == 1
        writer.close()


@on_each_loop
async def test_a_closing_connection_that_does_not_read_is_let_go(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a bad frame a peer that reads nothing keeps its socket for a time-out only, and counts until then."""
    monkeypatch.setattr(server_module, "CLOSE_TIMEOUT_S", 0.3)
    async with serving(send_buffer_bytes=4_096, max_connections=2) as server:
        reader, writer = await connect(server)
        stuck = socket.create_connection(("127.0.0.1", server.port))
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stuck.sendall(wide_fetch(1, groups=200) + b"GET / HTTP/1.1\r\n\r\n")
        await until(lambda: "speaks HTTP" in caplog.text)
        assert server.connection_count == 2
        refused_reader, refused_writer = await connect(server)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await refused_reader.readexactly(1)
        refused_writer.close()
        await until(lambda: server.connection_count == 1)
        writer.write(heartbeat(1))
        assert await answers(reader, 1) == [1]
        writer.close()
        stuck.close()


@on_each_loop
async def test_a_half_closed_connection_is_answered_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_module, "TURN_S", 1e-6)
    async with serving() as server:
        reader, writer = await connect(server)
        writer.write(b"".join(heartbeat(number) for number in range(50)))
        writer.write_eof()
        assert await answers(reader, 50) == list(range(50))
        assert await reader.read() == b""
        await until(lambda: server.connection_count == 0)
        writer.close()


@on_each_loop
async def test_a_half_closed_connection_that_waits_is_let_go() -> None:
    """A peer that has ended its stream does not keep a waiting join."""
    async with serving() as server:
        _, writer = await connect(server)
        writer.write(join(1))
        await until(lambda: any(connection.is_waiting for connection in server._peers))
        writer.write_eof()
        await until(lambda: server.connection_count == 0)
        writer.close()


@on_each_loop
async def test_a_large_answer_takes_little_memory() -> None:
    """Twelve megabytes with three thousand repetitions reach the peer without being held as a whole."""
    async with serving() as server:
        reader, writer = await connect(server)
        writer.write(wide_fetch(7))
        size = int.from_bytes(await reader.readexactly(4), "big")
        assert size > 12_000_000
        largest = 0
        while size:
            size -= len(await reader.read(min(size, 65_536)))
            for peer in server._peers.values():
                largest = max(largest, peer.transport.get_write_buffer_size())
        assert largest < 2_000_000
        writer.close()


@as_one_test
@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ((3, 11, 14), False),
        ((3, 12, 0), True),
        ((3, 12, 8), True),
        ((3, 12, 9), False),
        ((3, 13, 1), True),
        ((3, 13, 2), False),
        ((3, 14, 0), False),
    ],
)
def test_pythons_that_forget_limits_are_known(version: tuple[int, int, int], expected: bool) -> None:
    """Those of CVE-2024-12254, whose transports ignore the write limit, and no fixed ones."""
    assert server_module.forgets_limits(version) == expected


def test_a_python_that_forgets_limits_is_handed_whole_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of answers are joined for it; to a peer that reads they are the same."""
    monkeypatch.setattr(server_module, "FORGETS_LIMITS", True)
    monkeypatch.setattr(asyncio.Transport, "writelines", lambda *_: pytest.fail("its limits would be forgotten"))

    async def test() -> None:
        async with serving() as server:
            reader, writer = await connect(server)
            writer.write(b"".join(heartbeat(number) for number in range(100)) + wide_fetch(100) + heartbeat(101))
            assert await answers(reader, 102) == list(range(102))
            writer.close()

    asyncio.run(asyncio.wait_for(test(), DEADLINE_S))


@on_each_loop
async def test_too_many_open_files(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Without free descriptors new connections are refused with a log line, and open ones continue."""
    async with serving() as server:
        reader, writer = await connect(server)
        await until(lambda: server.connection_count == 1)
        monkeypatch.setattr(process, "descriptor_limit", lambda: 4)
        for _ in range(BURST + 3):
            refused_reader, refused_writer = await connect(server)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await refused_reader.readexactly(1)
            refused_writer.close()
        writer.write(heartbeat(1))
        assert await answers(reader, 1) == [1]
        writer.close()
    assert len(caplog.records) == BURST + 1
    assert "too many open files" in caplog.records[0].message
    assert "3 lines left out" in caplog.records[-1].message


@on_each_loop
async def test_idle_connections_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    """After connections.max.idle.ms without a byte a connection is closed; one that talks stays."""
    caplog.set_level(logging.WARNING, "groupcoord.host")
    async with serving(connections_max_idle_ms=200) as server:
        idle_reader, idle_writer = await connect(server)
        reader, writer = await connect(server)
        await until(lambda: server.connection_count == 2)
        number = 0
        while server.connection_count == 2:
            number += 1
            writer.write(heartbeat(number))
            assert await answers(reader, 1) == [number]
            await asyncio.sleep(0.005)
        assert await idle_reader.read() == b""
        assert server.connection_count == 1
        for each in (writer, idle_writer):
            each.close()
    assert caplog.records == []


@on_each_loop
async def test_max_connections(caplog: pytest.LogCaptureFixture) -> None:
    """Above max.connections new ones are refused with a log line, until others are closed."""
    async with serving(max_connections=1) as server:
        reader, writer = await connect(server)
        writer.write(heartbeat(1))
        assert await answers(reader, 1) == [1]
        refused_reader, refused_writer = await connect(server)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await refused_reader.readexactly(1)
        refused_writer.close()
        writer.close()
        await until(lambda: server.connection_count == 0)
        reader, writer = await connect(server)
        writer.write(heartbeat(2))
        assert await answers(reader, 1) == [2]
        writer.close()
    (record,) = caplog.records
    assert "max.connections (1)" in record.message


@on_each_loop
async def test_a_bug_in_timed_work_does_not_stop_the_timers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception out of tick is logged, and the next tick comes."""
    monkeypatch.setattr(server_module, "RETRY_S", 0.02)
    async with serving() as server:
        reader, writer = await connect(server)
        with monkeypatch.context() as patch:
            patch.setattr(server.broker.coordinator, "tick", None)
            writer.write(fetch(1, "t", 0, 10))
            await until(lambda: "timed work failed" in caplog.text)
        writer.write(fetch(2, "t", 0, 10))
        assert await answers(reader, 2) == [1, 2]
        writer.close()
    assert "Traceback" in caplog.text


@on_each_loop
async def test_stop() -> None:
    """Stopping closes the listener, every connection, waiting or not, and the log store."""

    class ClosableStore(MemoryLogStore):
        is_closed = False

        def close(self) -> None:
            self.is_closed = True

    store = ClosableStore()
    async with serving(store) as server:
        reader, writer = await connect(server)
        waiting_reader, waiting_writer = await connect(server)
        waiting_writer.write(fetch(1, "t", 0, 60_000))
        writer.write(heartbeat(2))
        assert await answers(reader, 1) == [2]
        await until(lambda: any(connection.is_waiting for connection in server._peers))
        assert not store.is_closed
    assert store.is_closed
    assert await reader.read() == b""
    assert await waiting_reader.read() == b""
    with pytest.raises(ConnectionError):
        await connect(server)
    writer.close()
    waiting_writer.close()


@on_each_loop
async def test_the_store_is_flushed_by_time() -> None:
    """With log.flush.interval.ms the store is flushed whenever that is due."""

    class FlushingMemoryStore(MemoryLogStore):
        calls = 0

        def flush_due(self, now_ms: int) -> int | None:
            self.calls += 1
            return now_ms + 10 if self.calls % 2 else None

    store, lazy_store = FlushingMemoryStore(), FlushingMemoryStore()
    async with serving(store, log_flush_interval_ms=20), serving(lazy_store):
        await until(lambda: store.calls >= 4)
    assert lazy_store.calls == 0


@as_one_test
@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", "/127.0.0.1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("2001:db8::ff", "/2001:db8:0:0:0:0:0:ff"),
        ("::ffff:10.0.0.1", "/10.0.0.1"),
        ("fe80::1%eth0", "/fe80:0:0:0:0:0:0:1%eth0"),
        ("unknown", "/unknown"),
    ],
)
def test_client_hosts_in_kafkas_form(address: str, expected: str) -> None:
    """A client's host is written as Java writes it."""
    assert kafka_host(address) == expected
