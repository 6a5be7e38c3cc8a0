"""Floods: more requests at a time than can be answered at once, by peers that read their answers or don't."""

from __future__ import annotations

import contextlib
import dataclasses
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.attack.preparation import CROWDED, WIDE, prepare
from tests.attack.report import Result
from tests.attack.siege import Siege
from tests.attack.target import Target
from tests.crash.requests import frame, heartbeat, offset_fetch, string

DESCRIBE_GROUPS = 15
RECEIVE_BYTES = 1_048_576
PATIENCE_S = 120.0
PATIENCE_WITHOUT_READING_S = 5.0
CONNECTIONS_MAX = 60
IDLE_LOOK_S, IDLE_SHARE = 0.5, 0.3


@dataclass(frozen=True)
class Flood:
    """Many requests of one kind.

    Attributes:
        name: of the flood.
        connections: how many there are.
        requests: on each of them, pipelined.
        request: makes one of them.
        reads: whether the peers read their answers.
        ending: what a peer does in the end that doesn't read: ``close``, ``half`` (it closes its half and waits), or
            ``bad frame``.
        max_connections: what the server allows; the peers then come in waves of half as many, and stay. The first of a
            wave sends one request, the next two, and so on: one leaves as much unsent as must not be held for ever.
    """

    name: str
    connections: int
    requests: int
    request: Callable[[], bytes]
    reads: bool = True
    ending: str = "close"
    max_connections: int | None = None


def _heartbeat() -> bytes:
    return heartbeat(1, WIDE, 1, "nobody")


def _fetch() -> bytes:
    return offset_fetch(1, WIDE)


def _description() -> bytes:
    return frame(DESCRIBE_GROUPS, 0, 1, b"\0\0\0\1" + string(CROWDED))


FLOODS = (
    Flood("10 connections, 8,000 heartbeats each", 10, 8_000, _heartbeat),
    Flood("50 connections, 100 fetches of 2,000 offsets each", 50, 100, _fetch),
    Flood("10 connections, 8,000 heartbeats each, not read", 10, 8_000, _heartbeat, reads=False),
    Flood("50 connections, 100 fetches each, not read", 50, 100, _fetch, reads=False),
    *(
        Flood(
            f"240 peers that don't read, of 60 allowed, in the end: {ending}",
            240,
            40,
            _description,
            reads=False,
            ending=ending,
            max_connections=CONNECTIONS_MAX,
        )
        for ending in ("half", "bad frame")
    ),
)


def flood(siege: Siege, case: Flood, replay: str) -> Result:
    """Carry out one flood."""

    def attack(target: Target, result: Result) -> None:
        prepare(target)
        waves = 1 if case.max_connections is None else -(-case.connections // (case.max_connections // 2))
        crowd = _Crowd(target, result)
        try:
            for _ in range(waves):
                crowd.flood(case, case.connections // waves)
                if waves > 1:
                    _wait_until_idle(target)
            if case.max_connections is not None:
                _check_sockets(target, result, case.max_connections, siege.bounds.release_s)
        finally:
            crowd.leave()

    if case.max_connections is not None:
        # While peers that are being let go count, nobody else is accepted.
        settings = {**siege.settings, "max.connections": case.max_connections}
        siege = dataclasses.replace(siege, settings=settings, connects=False)
    return siege.run(Result("flood", case.name, replay), attack)


def _check_sockets(target: Target, result: Result, max_connections: int, release_s: float) -> None:
    """Closing connections count for ``max.connections``, and are let go though their peers don't read."""
    sockets, (_, memory_mib) = target.socket_count(), target.memory_mib()
    result.notes.append(f"{sockets} sockets were held at the end of the flood, {memory_mib:.0f} MiB")
    if sockets > max_connections:
        result.fault(f"{sockets} sockets are open where max.connections is {max_connections}")
    deadline_s = time.monotonic() + release_s
    while (sockets := target.socket_count()) > 2 and time.monotonic() < deadline_s:
        time.sleep(0.1)
    if sockets > 2:
        result.fault(f"{sockets - 1} closing connections whose peers don't read are held after {release_s:g} s")


def _wait_until_idle(target: Target) -> None:
    """Wait until the server has little to do: what the peers of one wave sent is answered, or held back."""
    deadline_s = time.monotonic() + PATIENCE_S
    before_s = target.processor_s()
    while time.monotonic() < deadline_s:
        time.sleep(IDLE_LOOK_S)
        now_s = target.processor_s()
        if now_s - before_s < IDLE_SHARE * IDLE_LOOK_S:
            return
        before_s = now_s


class _Crowd:
    """Peers that send all they have, as fast as it is taken."""

    def __init__(self, target: Target, result: Result) -> None:
        self._target = target
        self._result = result
        self._held: list[socket.socket] = []

    def flood(self, case: Flood, connections: int) -> None:
        """Send the requests of one wave, and read the answers or leave them."""
        selector = selectors.DefaultSelector()
        for number in range(connections):
            requests = case.requests if case.max_connections is None else 1 + number % case.requests
            data = case.request() * requests
            self._result.count("requests", requests)
            sock = self._target.connect()
            self._held.append(sock)
            if not case.reads:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sock.setblocking(False)
            events = selectors.EVENT_WRITE | (selectors.EVENT_READ if case.reads else 0)
            selector.register(sock, events, [data, 0])
        self._result.count("connections", connections)
        answered = self._talk(selector, case)
        if case.reads and answered < connections * case.requests:
            self._result.fault(f"{answered} of {connections * case.requests} requests were answered")
        for key in list(selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            self._end(key.fileobj, case)
        selector.close()

    def _talk(self, selector: selectors.BaseSelector, case: Flood) -> int:
        """Send everything; return how many answers there were."""
        answered = 0
        wanted = len(selector.get_map()) * case.requests
        counters: dict[int, _Answers] = {}
        patience_s = PATIENCE_S if case.reads else PATIENCE_WITHOUT_READING_S
        last_s = time.monotonic()
        while selector.get_map() and time.monotonic() - last_s < patience_s and (answered < wanted or not case.reads):
            progress = 0
            for key, events in selector.select(0.2):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                try:
                    if events & selectors.EVENT_WRITE:
                        progress += self._send(selector, sock, key.data, case)
                    if events & selectors.EVENT_READ:
                        part = sock.recv(RECEIVE_BYTES)
                        counted = counters.setdefault(key.fd, _Answers())
                        answered += counted.take(part)
                        progress += len(part)
                        if not part:
                            selector.unregister(sock)
                except BlockingIOError:
                    continue
                except ConnectionError:
                    selector.unregister(sock)
            if progress:
                last_s = time.monotonic()
            elif not case.reads and time.monotonic() - last_s > 1.0:
                break
        return answered

    def _send(self, selector: selectors.BaseSelector, sock: socket.socket, state: list[object], case: Flood) -> int:
        data, position = state
        assert isinstance(data, bytes)
        assert isinstance(position, int)
        sent = sock.send(data[position : position + RECEIVE_BYTES])
        state[1] = position + sent
        if position + sent == len(data):
            if case.reads:
                selector.modify(sock, selectors.EVENT_READ, state)
            else:
                selector.unregister(sock)
                self._end(sock, case)
        return sent

    def _end(self, sock: socket.socket, case: Flood) -> None:
        """The peer has sent what it could."""
        if case.reads:
            return
        with contextlib.suppress(OSError):
            if case.ending == "half":
                sock.shutdown(socket.SHUT_WR)
            elif case.ending == "bad frame":
                sock.send(b"\xff\xff\xff\xff")

    def leave(self) -> None:
        """Close everything."""
        for sock in self._held:
            sock.close()


class _Answers:
    """Counts the answers in a stream."""

    def __init__(self) -> None:
        self._left = 0
        self._start = b""

    def take(self, part: bytes) -> int:
        count = position = 0
        while position < len(part):
            if self._left:
                step = min(self._left, len(part) - position)
                self._left -= step
                position += step
                count += not self._left
                continue
            wanted = 4 - len(self._start)
            self._start += part[position : position + wanted]
            position += wanted
            if len(self._start) == 4:
                self._left = int.from_bytes(self._start, "big")
                self._start = b""
        return count
