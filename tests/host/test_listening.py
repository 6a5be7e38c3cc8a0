"""Connections that arrive while a server stops, on asyncio's loop and on uvloop: each socket is closed."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import pytest

from tests.host import test_descriptors
from tests.host.test_server import loop_factories, serving

TURNS = range(8)
"""Turns of the loop between a connection and the end of the server. It is accepted and served within five."""


@asynccontextmanager
async def broker(end: str) -> AsyncIterator[int]:
    """Run a server and end it by its method ``end``; yield its port."""
    async with serving() as server:
        yield server.port
        await getattr(server, end)()


@asynccontextmanager
async def page() -> AsyncIterator[int]:
    """Run an HTTP server, as the control port and the metrics have one; yield its port."""
    with test_descriptors.page() as server:
        yield server.server_port


@pytest.mark.parametrize("loop_factory", loop_factories())
@pytest.mark.parametrize(
    "running", [partial(broker, "stop"), partial(broker, "abort"), page], ids=["stop", "abort", "page"]
)
def test_a_server_that_stops_closes_what_it_accepts(
    running: Callable[[], AbstractAsyncContextManager[int]], loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """However many turns before the end connections arrive, each of their sockets is closed."""

    async def connect(turns: int) -> None:
        async with running() as port:
            clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
            for _ in range(turns):
                await asyncio.sleep(0)
        for client in clients:
            client.close()

    gc.collect()  # what other tests have left
    gc.freeze()  # a collection below visits only what this test makes, not the heap of all tests before it
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for turns in TURNS:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(connect(turns))
            gc.collect()

    assert [str(warning.message) for warning in caught] == []
