"""A TCP proxy that counts the requests that pass through it, by API."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from types import TracebackType

HOST = "127.0.0.1"
FETCH, LIST_OFFSETS = 1, 2


class CountingProxy:
    """Proxy on a port of its own. The target is set later, as ``target_port``."""

    def __init__(self) -> None:
        self.target_port = 0
        self.port = 0
        self.requests: Counter[int] = Counter()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> CountingProxy:
        self._thread.start()
        starting = asyncio.start_server(self._pass_on, HOST, 0)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, self.target_port)
        answers = asyncio.create_task(self._copy(far_reader, writer))
        try:
            while True:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(int.from_bytes(size, "big"))
                self.requests[int.from_bytes(frame[:2], "big")] += 1
                far_writer.write(size + frame)
                await far_writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            answers.cancel()
            far_writer.close()
            writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()
