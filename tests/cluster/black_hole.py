"""Proxy that can silently drop all traffic."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any
from weakref import WeakSet

BYTES_AT_ONCE = 65_536


class BlackHole:
    """Carries connections to a server. ``async with`` opens and closes it.

    Args:
        server_port: where the server is, on the loopback address.

    Attributes:
        port: where clients find this.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: WeakSet[asyncio.StreamWriter] = WeakSet()
        self._server: asyncio.Server | None = None
        self._carries = asyncio.Event()
        self._carries.set()
        self.port = 0

    @property
    def swallows(self) -> bool:
        """What comes is thrown away, in both directions, and on connections that are opened meanwhile.

        A connection that has lost something carries nothing more, ever; and nobody hears before the end of this that
        the other end has closed it.
        """
        return not self._carries.is_set()

    @swallows.setter
    def swallows(self, swallows: bool) -> None:
        if swallows:
            self._carries.clear()
        else:
            self._carries.set()

    async def __aenter__(self) -> BlackHole:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        for writer in self._writers:
            writer.transport.abort()  # it was not served yet, or nobody takes what is left to be sent
        await asyncio.sleep(0)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._server is not None
        if not self._server.is_serving():
            writer.transport.abort()
            return
        self._writers.add(writer)
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection until one end closes it, and that gets through."""
        try:
            with suppress(ConnectionError):
                from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
                self._writers.add(to_server)
                try:
                    ways = (self._carry(reader, to_server), self._carry(from_server, writer))
                    await _until_one_is_done(*ways)
                finally:
                    to_server.close()
        finally:
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes one way until an end closes; once some were lost, only wait for that."""
        has_lost = False
        with suppress(ConnectionError):
            while content := await reader.read(BYTES_AT_ONCE):
                has_lost = has_lost or self.swallows
                if not has_lost:
                    writer.write(content)
                    await writer.drain()
        await self._carries.wait()


async def _until_one_is_done(*ways: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
