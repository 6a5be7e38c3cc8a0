"""Attacks on file descriptors: none left for clients, idle connections."""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import time

from tests.attack.amplify import exchange
from tests.attack.layouts import every_layout
from tests.attack.mutations import WAITING
from tests.attack.rig import Attack, Result, Server
from tests.client import Client, api_versions
from tests.ports import free_port
from tests.processes import wait_until

SPARE, CLIENTS, CLIENTS_S = 20, 200, 3.0
IDLE_PAGES, IDLE_SPARE, PATIENCE_S = 240, 70, 10.0
LINES_MAX = 20


def take_descriptors(server: Server, result: Result) -> None:
    """Leave no descriptor for new clients: connected ones are served, others in time when there is room again."""
    with server.connect() as known, contextlib.ExitStack() as held:
        assert is_served(known)
        server.limit(resource.RLIMIT_NOFILE, server.descriptor_count() + SPARE)
        deadline_s = time.monotonic() + CLIENTS_S
        served = refused = 0
        while time.monotonic() < deadline_s or refused + served < CLIENTS:
            client = server.connect()
            if is_served(client, 0.3):
                served += 1
                held.enter_context(client)
            else:
                refused += 1
                client.close()
            if not is_served(known):
                result.fault("a client that was connected before is not served")
                break
        result.count("clients refused", refused)
        result.count("clients served", served)
    for limit in (server.descriptor_count() + SPARE, None):
        server.limit(resource.RLIMIT_NOFILE, limit)
        wait_until(lambda: _serves_a_new_client(server), PATIENCE_S, "a new client is served")
    expect_few_lines(server, result, "too many open files")


NO_DESCRIPTORS = Attack("no descriptor left", take_descriptors, connects=False)


def idle_pages() -> Attack:
    """Return an attack by idle connections to the metrics, while each API is used for the first time."""
    port = free_port(1)

    def act(server: Server, result: Result) -> None:
        server.limit(resource.RLIMIT_NOFILE, server.descriptor_count() + IDLE_SPARE)
        with contextlib.ExitStack() as stack:
            for _ in range(IDLE_PAGES):
                stack.enter_context(_page(port))
            for request in every_layout():
                if request.api_key not in WAITING:
                    _, is_whole = exchange(server, request.data, PATIENCE_S)
                    result.count("requests answered" if is_whole else "connections closed")
                    result.expect(is_whole is not False, f"no answer to API {request.api_key} v{request.version}")
            with _page(port) as page:
                page.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                result.expect(page.recv(100).startswith(b"HTTP/1.1 200"), "the metrics can't be read any more")
        result.count("idle connections", IDLE_PAGES)
        server.limit(resource.RLIMIT_NOFILE, None)
        expect_few_lines(server, result, "the oldest connection for metrics")

    return Attack("idle pages", act, words=("--metrics", str(port)), ends_by_signal=True)


def is_served(client: Client, patience_s: float = 5.0) -> bool:
    with contextlib.suppress(ConnectionError):
        client.socket.sendall(api_versions().encode())
        if select.select([client.socket], [], [], patience_s)[0]:
            return bool(client.socket.recv(65_536))
    return False


def _serves_a_new_client(server: Server) -> bool:
    with server.connect() as client:
        return is_served(client)


def expect_few_lines(server: Server, result: Result, reason: str) -> None:
    """Check that the log holds a line with this reason, and not one for each occurrence."""
    lines = [line for line in server.last_words if reason.lower() in line.lower()]
    result.expect(0 < len(lines) <= LINES_MAX, f"{len(lines)} lines in the log say {reason!r}")


def _page(port: int) -> socket.socket:
    """Connect to an HTTP port, which opens a little later than the server's own."""
    found: list[socket.socket] = []

    def connects() -> bool:
        with contextlib.suppress(ConnectionRefusedError):
            found.append(socket.create_connection(("127.0.0.1", port), 30.0))
        return bool(found)

    wait_until(connects, PATIENCE_S, f"port {port} is open")
    return found[0]
