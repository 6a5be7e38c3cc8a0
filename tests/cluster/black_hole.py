"""A way to a server on which nothing gets through when that is wanted, and nobody is told."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType

BYTES_AT_ONCE = 65_536


class BlackHole:
    """Carries connections to a server. ``async with`` opens and closes it.

    Args:
        server_port: where the server is, on the loopback address.

    Attributes:
        port: where clients find this.
        swallows: what comes is thrown away, in both directions, and on connections that are opened meanwhile.
            A connection that has lost something carries nothing more, ever.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.swallows = False

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

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
            try:
                ways = (self._carry(reader, to_server[1]), self._carry(to_server[0], writer))
                await asyncio.wait([asyncio.ensure_future(way) for way in ways], return_when=asyncio.FIRST_COMPLETED)
            finally:
                to_server[1].close()
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes one way until an end closes; once some were lost, only wait for that."""
        has_lost = False
        with suppress(ConnectionError):
            while content := await reader.read(BYTES_AT_ONCE):
                has_lost = has_lost or self.swallows
                if not has_lost:
                    writer.write(content)
                    await writer.drain()
