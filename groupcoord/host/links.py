"""The sockets between the workers of a server: each asks the others over connections of its own, and is answered there.

They lie in a folder that nobody but the server's user can enter, and what goes over them are Python's own pickles: both
ends are the same program, of the same process. The sockets are bound before the workers start and stay so when one is
killed, so what is asked of it meanwhile waits until it is back. What was asked before is answered with None.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, cast

from groupcoord.broker.cluster.neighbours import Asker, Question, TakeAnswer, answer_neighbour
from groupcoord.host.server import Server

logger = logging.getLogger("groupcoord.host")

_HEAD = struct.Struct(">IQ")
UNANSWERED = 0
"""The number of a question that wants no answer; others are counted."""


class _Frames(asyncio.Protocol, ABC):
    """One end of a connection: what comes are numbers with a pickle each."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            size, number = _HEAD.unpack_from(self._buffer)
            end = _HEAD.size + size
            if len(self._buffer) < end:
                return
            content = bytes(memoryview(self._buffer)[_HEAD.size : end])
            del self._buffer[:end]
            self.take(number, pickle.loads(content))

    @abstractmethod
    def take(self, number: int, value: Any) -> None:
        """Take what has come."""

    def send(self, number: int, value: Any) -> None:
        """Send something, unless the connection is gone."""
        if self.transport is not None:
            content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
            self.transport.write(_HEAD.pack(len(content), number) + content)


class _Accepted(_Frames):
    """A connection by which another worker asks."""

    def __init__(self, server: Server, accepted: set[_Accepted]) -> None:
        super().__init__()
        self._server = server
        self._accepted = accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._accepted.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._accepted.discard(self)

    def take(self, number: int, value: Any) -> None:
        answer_neighbour(self._server.broker, value, partial(self._answer, number))
        self._server.notice()

    def _answer(self, number: int, response: Any) -> None:
        if number != UNANSWERED:
            self.send(number, response)


class _Link(_Frames):
    """The connection by which this worker asks another one."""

    def __init__(self, path: Path, server: Server) -> None:
        super().__init__()
        self._path = path
        self._server = server
        self._numbers = count(UNANSWERED + 1)
        self._waiting: dict[int, TakeAnswer] = {}
        self._unsent: list[tuple[int, Question]] = []
        self._connecting: asyncio.Task[None] | None = None

    def ask(self, question: Question, take: TakeAnswer | None) -> None:
        """Ask; None: no answer is wanted."""
        number = UNANSWERED if take is None else next(self._numbers)
        if take is not None:
            self._waiting[number] = take
        if self.transport is None:
            self._unsent.append((number, question))
            if self._connecting is None:
                self._connecting = asyncio.get_running_loop().create_task(self._connect())
        else:
            self.send(number, question)

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: self, str(self._path))
        except OSError as error:
            logger.error("another worker can't be asked: %s", error)
            self._fail()
        finally:
            self._connecting = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        unsent, self._unsent = self._unsent, []
        for number, question in unsent:
            self.send(number, question)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._buffer.clear()
        self._fail()

    def _fail(self) -> None:
        waiting, self._waiting, self._unsent = self._waiting, {}, []
        for take in waiting.values():
            take(None)
        self._server.notice()

    def take(self, number: int, value: Any) -> None:
        self._waiting.pop(number)(value)
        self._server.notice()

    def close(self) -> None:
        """Ask no more."""
        self._waiting.clear()
        if self._connecting is not None:
            self._connecting.cancel()
        if self.transport is not None:
            self.transport.abort()


class Links:
    """The other workers, as one of them reaches them: :class:`~groupcoord.broker.cluster.neighbours.Neighbours`.

    Args:
        node_id: of this worker.
        paths: where each worker can be asked, by its node's id. The first is the controller.

    Attributes:
        node_id: as given.
        controller_id: the node that writes what all read.
    """

    def __init__(self, node_id: int, paths: Mapping[int, Path]) -> None:
        self.node_id = node_id
        self.controller_id = min(paths)
        self._paths = paths
        self._links: dict[int, _Link] = {}
        self._asked_early: list[tuple[int, Question, TakeAnswer]] = []
        self._accepted: set[_Accepted] = set()
        self._listening: asyncio.Server | None = None

    def ask(self, node_id: int, question: Question, take: TakeAnswer) -> None:
        """See :class:`~groupcoord.broker.cluster.neighbours.Neighbours`."""
        if self._links:
            self._links[node_id].ask(question, take)
        else:
            self._asked_early.append((node_id, question, take))

    def tell_all(self, request: Any) -> None:
        """See :class:`~groupcoord.broker.cluster.neighbours.Neighbours`."""
        for link in self._links.values():
            link.ask(Question(request, Asker(self.node_id)), None)

    async def start(self, server: Server, sock: socket.socket) -> None:
        """Answer what is asked on a bound socket, and ask what was to be asked.

        Raises:
            OSError: that can't be.
        """
        others = {node_id: path for node_id, path in self._paths.items() if node_id != self.node_id}
        self._links = {node_id: _Link(path, server) for node_id, path in others.items()}
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_unix_server(lambda: _Accepted(server, self._accepted), sock=sock)
        early, self._asked_early = self._asked_early, []
        for node_id, question, take in early:
            self.ask(node_id, question, take)

    def close(self) -> None:
        """Answer and ask no more."""
        if self._listening is not None:
            self._listening.close()
        for accepted in list(self._accepted):
            if accepted.transport is not None:
                accepted.transport.close()
        for link in self._links.values():
            link.close()
