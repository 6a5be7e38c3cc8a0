"""Listening sockets of an event loop: each accepted connection reaches its server, also while the server stops.

In CPython 3.11, a server of asyncio that closes in the turn of such a connection leaves it to the garbage collector.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable

ACCEPT_PAUSE_S = 0.1
"""Pause after a failed accept: descriptors or memory have run out, and the socket stays readable."""


async def bind(host: str, port: int) -> list[socket.socket]:
    """Return a bound socket for each address of a host; ``""`` stands for all addresses of this machine.

    Raises:
        OSError: the address is taken, or does not belong to this machine.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    socks: list[socket.socket] = []
    for family, _, _, _, address in dict.fromkeys(found):
        try:
            socks.append(socket.create_server(address, family=family))
        except OSError as error:
            if error.errno == errno.EAFNOSUPPORT and len(found) > 1:  # a machine without IPv6
                continue
            for sock in socks:
                sock.close()
            raise
    return socks


class Listening:
    """Bound sockets that accept connections in the running event loop until they are closed.

    Args:
        socks: the bound sockets.
        backlog: the number of connections that wait to be accepted.
        accepted: receives each new socket, which does not block.
        failed: receives the error of an accept, which is tried again after a pause.
    """

    def __init__(
        self,
        socks: Iterable[socket.socket],
        backlog: int,
        accepted: Callable[[socket.socket], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socks = list(socks)
        self._accepted = accepted
        self._failed = failed
        for sock in self._socks:
            sock.setblocking(False)
            sock.listen(backlog)
            self._loop.add_reader(sock, self._accept, sock)

    @property
    def port(self) -> int:
        """The port of the first socket."""
        port: int = self._socks[0].getsockname()[1]
        return port

    def close(self) -> None:
        """Stop accepting and close the listening sockets."""
        for sock in self._socks:
            self._loop.remove_reader(sock)
            sock.close()

    def _accept(self, listening: socket.socket) -> None:
        # One at a time: a burst must not take the descriptors that are reserved for the log.
        try:
            sock, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._loop.remove_reader(listening)
            self._loop.call_later(ACCEPT_PAUSE_S, self._resume, listening)
            self._failed(error)
            return
        sock.setblocking(False)
        self._accepted(sock)

    def _resume(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening, self._accept, listening)
