"""File descriptors: those that are kept for the log are taken by no port, and no request needs one for an import."""

from __future__ import annotations

import ast
import asyncio
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest

import groupcoord
from groupcoord.broker.log_lines import BURST
from groupcoord.host import process
from groupcoord.host.http import CONNECTIONS_MAX, HttpServer

REQUEST = b"GET / HTTP/1.1\r\n\r\n"
FOLDER = Path(groupcoord.__file__).parent
ROOMS_OF_REQUESTS = ("broker", "coordinator", "core", "records", "storage", "wire")
AT_THE_START = {
    "ctypes",
    "groupcoord.broker.records",
    "groupcoord.broker.security.oauthbearer",
    "groupcoord.broker.security.settings",
    "groupcoord.coordinator.composition",
}
"""Modules imported when a server is made, if its settings need them, like the packages for log-in and databases."""
PACKAGES_AT_THE_START = {"jwt", "psycopg", "scramp"}


def page() -> HttpServer:
    def answer(request: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        start_response("200 OK", [])
        return [b"here"]

    return HttpServer("127.0.0.1", 0, "pages", answer)


async def fetch(page: HttpServer) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", page.server_port)
    try:
        writer.write(REQUEST)
        return await reader.read()
    finally:
        writer.close()


def test_idle_connections_to_a_page_make_room(caplog: pytest.LogCaptureFixture) -> None:
    """With any number of them a request is answered, few are held, and the log lines are limited."""

    async def test() -> None:
        with page() as served, ExitStack() as stack:
            readers = []
            for _ in range(5 * CONNECTIONS_MAX):
                reader, writer = await asyncio.open_connection("127.0.0.1", served.server_port)
                stack.callback(writer.close)
                readers.append(reader)
            assert (await fetch(served)).endswith(b"here")
            for reader in readers[: 4 * CONNECTIONS_MAX]:
                assert await reader.read() == b""
            assert not any(reader.at_eof() for reader in readers[4 * CONNECTIONS_MAX + 1 :])

    asyncio.run(asyncio.wait_for(test(), 30.0))
    assert len(caplog.records) <= BURST + 1
    assert "4 lines left out" not in caplog.text
    assert "lines left out" in caplog.text


def test_a_page_leaves_the_descriptors_of_the_log_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its client is refused with a log line, and served when descriptors are available again."""

    async def test() -> None:
        with page() as served:
            with monkeypatch.context() as patch:
                patch.setattr(process, "descriptor_limit", lambda: 4)
                with suppress(ConnectionError):
                    assert await fetch(served) == b""
            assert (await fetch(served)).endswith(b"here")

    asyncio.run(asyncio.wait_for(test(), 30.0))
    assert "too many open files" in caplog.text


def imports_of_functions() -> dict[str, str]:
    found = {}
    for room in ROOMS_OF_REQUESTS:
        for path in (FOLDER / room).rglob("*.py"):
            for function in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    for node in ast.walk(function):
                        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                        if isinstance(node, ast.ImportFrom):
                            names = [str(node.module)]
                        found |= {name: f"{path.relative_to(FOLDER)}: {function.name}" for name in names}
    return found


def test_requests_find_their_modules_imported() -> None:
    """All imports of functions on a request's way are done by ``serve`` before its port opens."""
    asyncio.run(process.import_modules_of_requests())
    missing = {
        name: place
        for name, place in imports_of_functions().items()
        if name not in {*process.MODULES_OF_REQUESTS, *AT_THE_START}
        and name.partition(".")[0] not in PACKAGES_AT_THE_START
        and not place.startswith(("storage/stores/", "storage/data_directory.py"))
        and not place.endswith("_forks")  # a server makes no forks
    }
    assert not missing
    assert {*process.MODULES_OF_REQUESTS} <= {*sys.modules}
