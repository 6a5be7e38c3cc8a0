"""Connections that cost a server something: slow senders, churn, too many, and no descriptor left for more."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import resource
import select
import socket
import struct
import tempfile
import time
from pathlib import Path

from tests.attack.amplify import exchange
from tests.attack.layouts import every_layout
from tests.attack.mutations import WAITING
from tests.attack.report import Result
from tests.attack.siege import Siege
from tests.attack.target import COMMAND, Target
from tests.crash.harness import ask
from tests.crash.requests import frame, heartbeat
from tests.ports import free_port

API_VERSIONS = 18
SLOW_SENDERS, SLOW_S = 200, 6.0
CHURN_AT_A_TIME = 50
DESCRIPTORS_SPARE, DESCRIPTOR_CLIENTS = 20, 200
DESCRIPTORS_S = 3.0
IDLE_PAGES, IDLE_SPARE, PATIENCE_S = 240, 70, 10.0
PASSING_S = 2.0
LINES_MAX = 20
CONNECTIONS_MAX, CONNECTIONS_TRIED = 50, 2_000
LINGER = struct.pack("ii", 1, 0)
"""Closing a socket with this resets the connection."""


def slow_senders(siege: Siege, replay: str, duration_s: float = SLOW_S) -> Result:
    """Many peers send a request a byte at a time, or half of one and nothing more."""

    def attack(target: Target, result: Result) -> None:
        request = heartbeat(7, "group", 1, "nobody")
        senders = [target.connect() for _ in range(SLOW_SENDERS)]
        places = [0] * SLOW_SENDERS
        deadline_s = time.monotonic() + duration_s
        while time.monotonic() < deadline_s:
            for number, sock in enumerate(senders):
                # A quarter of them stop in the middle, and stay.
                if number % 4 or places[number] < len(request) // 2:
                    place = places[number] % len(request)
                    sock.send(request[place : place + 1])
                    places[number] += 1
            result.count("bytes, one at a time", SLOW_SENDERS)
        answers = 0
        for number, sock in enumerate(senders):
            if number % 4:
                sock.sendall(request[places[number] % len(request) or len(request) :])
                answers += _read_answers(sock, -(-places[number] // len(request)))
            sock.close()
        result.count("requests", answers)

    return siege.run(Result("connections", "slow senders", replay), attack)


def _read_answers(sock: socket.socket, count: int) -> int:
    with sock.makefile("rb") as file:
        for _ in range(count):
            size = int.from_bytes(file.read(4), "big")
            assert len(file.read(size)) == size, "an answer to a slow sender breaks off"
    return count


def churn(siege: Siege, replay: str, connections: int, seed: int) -> Result:
    """Connections come and go by the thousand: they are closed, reset, or closed on one side, at any moment."""
    chance = random.Random(seed)

    def attack(target: Target, result: Result) -> None:
        request = heartbeat(7, "group", 1, "nobody")
        held: list[socket.socket] = []
        for number in range(connections):
            sock = target.connect()
            held.append(sock)
            with contextlib.suppress(ConnectionError):
                _come_and_go(sock, request, chance.randrange(7))
            if len(held) == CHURN_AT_A_TIME or number == connections - 1:
                chance.shuffle(held)
                for each in held:
                    each.close()
                held.clear()
        result.count("connections", connections)

    return siege.run(Result("connections", "churn", replay), attack)


def _come_and_go(sock: socket.socket, request: bytes, kind: int) -> None:
    if kind == 0:
        return
    if kind == 1:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
    elif kind == 2:
        sock.sendall(request)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
    elif kind == 3:
        sock.sendall(request * 10)
        sock.shutdown(socket.SHUT_WR)
    elif kind == 4:
        sock.sendall(request[:9])
        sock.shutdown(socket.SHUT_WR)
    elif kind == 5:
        sock.sendall(request)
        assert sock.recv(100), "no answer"
    else:
        sock.shutdown(socket.SHUT_RDWR)


def too_many(siege: Siege, replay: str) -> Result:
    """More connections than ``max.connections``: those beyond are refused, and who is in is served."""
    siege = dataclasses.replace(siege, settings={"max.connections": CONNECTIONS_MAX}, connects=False)

    def attack(target: Target, result: Result) -> None:
        held = [target.connect() for _ in range(CONNECTIONS_MAX - 1)]
        served = sum(_is_served(sock) for sock in held)
        if served != len(held):
            result.fault(f"{served} of {len(held)} connections are served where {CONNECTIONS_MAX} are allowed")
        for _ in range(CONNECTIONS_TRIED):
            with target.connect() as sock:
                if _is_served(sock):
                    result.fault("a connection beyond max.connections is served")
                    break
            result.count("connections refused")
        for sock in held:
            sock.close()
        _expect_service(target, result)
        _expect_few_lines(target, result, "max.connections")

    return siege.run(Result("connections", "more than max.connections", replay), attack)


def descriptors(siege: Siege, replay: str) -> Result:
    """The server has no descriptor left: who is connected is served, a line says why others aren't, and it recovers."""
    siege = dataclasses.replace(siege, connects=False)

    def attack(target: Target, result: Result) -> None:
        with target.connect() as known:
            assert _is_served(known)
            target.limit(resource.RLIMIT_NOFILE, target.descriptor_count() + DESCRIPTORS_SPARE)
            deadline_s = time.monotonic() + DESCRIPTORS_S
            held: list[socket.socket] = []
            served = refused = 0
            while time.monotonic() < deadline_s or refused + served < DESCRIPTOR_CLIENTS:
                sock = target.connect()
                is_served = _is_served(sock, 0.3)
                served, refused = served + is_served, refused + (not is_served)
                if is_served:
                    held.append(sock)
                else:
                    sock.close()
                if not _is_served(known):
                    result.fault("a client that was connected before is not served")
                    break
            result.count("clients refused", refused)
            result.count("clients served", served)
            for sock in held:
                sock.close()
            _expect_service(target, result)
            target.limit(resource.RLIMIT_NOFILE, -1)
            _expect_service(target, result)
            _expect_few_lines(target, result, "too many open files")

    return siege.run(Result("descriptors", "no descriptor left", replay), attack)


def idle_pages(siege: Siege, replay: str) -> Result:
    """Idle connections to the metrics; then each API is asked for the first time, whose modules must be found."""
    port = free_port(1)
    siege = dataclasses.replace(siege.ended_by_signal(), command=[*COMMAND, "--metrics-port", str(port)])

    def attack(target: Target, result: Result) -> None:
        target.limit(resource.RLIMIT_NOFILE, target.descriptor_count() + IDLE_SPARE)
        with contextlib.ExitStack() as stack:
            for _ in range(IDLE_PAGES):
                stack.enter_context(_page(port))
            for request in every_layout():
                if request.api_key not in WAITING:
                    asked = exchange(target, request.data, PATIENCE_S)[1]
                    result.count("requests answered" if asked else "connections closed")
                    if asked is False:
                        result.fault(f"no answer to API {request.api_key} of version {request.version}")
            with _page(port) as page:
                page.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                if not page.recv(100).startswith(b"HTTP/1.1 200"):
                    result.fault("nobody is shown the metrics any more")
        result.count("idle connections", IDLE_PAGES)
        target.limit(resource.RLIMIT_NOFILE, -1)
        _expect_few_lines(target, result, "the oldest connection for metrics")

    return siege.run(Result("descriptors", "idle pages", replay), attack)


def years_pass(siege: Siege, replay: str) -> Result:
    """Ten years pass at the control port's word, and appends fail by the billion; SIGTERM is obeyed meanwhile."""
    result = Result("control", "years pass", replay)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        port = free_port(1)
        target = Target(Path(folder), command=[*COMMAND, "--control", str(port)])
        target.start()
        stack.callback(target.kill)
        for path, body in (("fail_next_append", '{"times": 1000000000}'), ("advance", '{"duration_ms": 315360000000}')):
            sock = stack.enter_context(_page(port))
            head = f"POST /{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
            sock.sendall((head + body).encode())
            result.count("requests")
            if path == "fail_next_append" and not sock.recv(100).startswith(b"HTTP/1.1 400"):
                result.fault("a billion appends can be made to fail")
        deadline_s = time.monotonic() + PASSING_S
        with target.connect() as client:
            while time.monotonic() < deadline_s:
                begin_s = time.monotonic()
                if not _is_served(client):
                    result.fault("a client isn't answered while years pass")
                    break
                waited_ms = (time.monotonic() - begin_s) * 1000
                result.healthy_answers += 1
                result.slowest_ms["ApiVersions"] = max(result.slowest_ms.get("ApiVersions", 0.0), waited_ms)
        status, duration_s = target.end()
        if status != 0 or duration_s > siege.bounds.end_s:
            result.fault(f"SIGTERM: exit status {status} after {duration_s:.1f} s")
        if result.slowest[0] > siege.bounds.slowest_ms:
            result.fault(f"a client waited {result.slowest[0]:,.0f} ms while years pass")
        if "Traceback" in target.log():
            result.fault(f"a traceback in the log: {target.log()[-1_500:]}")
    return result


def _page(port: int) -> socket.socket:
    """Connect to a page; it is open a little later than the server's own port."""
    deadline_s = time.monotonic() + 10.0
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 30.0)
        except ConnectionRefusedError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


def _is_served(sock: socket.socket, patience_s: float = 5.0) -> bool:
    try:
        sock.sendall(frame(API_VERSIONS, 0, 1, b""))
        if not select.select([sock], [], [], patience_s)[0]:
            return False
        return bool(sock.recv(65_536))
    except ConnectionError:
        return False


def _expect_service(target: Target, result: Result) -> None:
    """Somebody who comes anew is served, once the server had time to notice that there is room."""
    deadline_s = time.monotonic() + 10.0
    while time.monotonic() < deadline_s:
        with target.connect() as sock:
            if _is_served(sock):
                ask(sock, heartbeat(2, "group", 1, "nobody"))
                return
        time.sleep(0.05)
    result.fault("nobody is served any more, though there is room again")


def _expect_few_lines(target: Target, result: Result, reason: str) -> None:
    """The log says what was wrong, and not once for each who was refused."""
    lines = [line for line in target.log().splitlines() if reason.lower() in line.lower()]
    if not lines:
        result.fault(f"no line in the log says {reason!r}")
    if len(lines) > LINES_MAX:
        result.fault(f"{len(lines)} lines in the log say {reason!r}")
