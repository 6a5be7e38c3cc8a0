"""Small HTTP server in the event loop: one bounded request per connection."""

from __future__ import annotations

import asyncio
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import NamedTuple, Self

from groupcoord.broker.log_lines import RateLimitedLogger
from groupcoord.host.process import Listening, bind, is_reserved

logger = logging.getLogger("groupcoord.host")

HEAD_BYTES_MAX = 8_192
READ_TIMEOUT_S = 10.0
END_OF_HEAD = b"\r\n\r\n"
CONNECTIONS_MAX = 16
DRAINED_BYTES = 1_048_576
"""Most unread bytes of a request that are discarded before its socket is closed."""

Receive = Callable[[int], Awaitable[bytes]]


class HttpError(Exception):
    """A request that is answered with a status only."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class HttpRequest(NamedTuple):
    """A request, with header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


class HttpResponse(NamedTuple):
    """A response."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = ""

    def encoded(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        if self.content_type:
            lines.append(f"Content-Type: {self.content_type}")
        lines += [f"Content-Length: {len(self.body)}", "Connection: close", "", ""]
        return "\r\n".join(lines).encode("latin-1") + self.body


class HttpServer(ABC):
    """HTTP server on a port in the event loop, open within an ``async with`` block.

    Args:
        host, port: the address.
        purpose: the purpose of the server in log messages.
        body_bytes_max: the most bytes of a request's body.
    """

    def __init__(self, host: str, port: int, purpose: str, body_bytes_max: int = 0) -> None:
        self._host = host
        self._port = port
        self._purpose = purpose
        self._body_bytes_max = body_bytes_max
        self._listening: Listening
        self._serving: dict[asyncio.Task[None], None] = {}
        self._log = RateLimitedLogger(logger)

    @property
    def port(self) -> int:
        return self._listening.port

    async def __aenter__(self) -> Self:
        socks = await bind(self._host, self._port)
        self._listening = Listening(socks, CONNECTIONS_MAX, self._accept, self._fail_to_accept)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        for task in self._serving:
            task.cancel()
        self._log.report(asyncio.get_running_loop().time(), ends=True)

    @abstractmethod
    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the response to a request; an exception is logged and answered with 500."""

    def _fail_to_accept(self, error: OSError) -> None:
        self._warn("a connection could not be accepted", "no connection for %s: %s", error)

    def _accept(self, sock: socket.socket) -> None:
        if is_reserved(sock.fileno()):  # the log needs these descriptors
            sock.close()
            self._warn("too many open files", "refused a connection for %s: %s", "too many open files (ulimit -n)")
            return
        # A new client is more likely to ask something than the oldest one.
        if len(self._serving) >= CONNECTIONS_MAX:
            oldest = next(iter(self._serving))
            del self._serving[oldest]
            oldest.cancel()
            self._warn("too many connections", "closed the oldest connection for %s: %s", "another came")
        task = asyncio.get_running_loop().create_task(self._serve(sock))
        self._serving[task] = None
        task.add_done_callback(partial(self._end, sock))

    def _end(self, sock: socket.socket, task: asyncio.Task[None]) -> None:
        self._serving.pop(task, None)
        sock.close()  # a task that is cancelled before its first step closes nothing

    def _warn(self, kind: str, message: str, reason: object) -> None:
        self._log.warning(kind, asyncio.get_running_loop().time(), message, self._purpose, reason)

    async def _serve(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            response = await self._respond(partial(loop.sock_recv, sock))
            async with asyncio.timeout(READ_TIMEOUT_S):
                await loop.sock_sendall(sock, response.encoded())
        except (EOFError, TimeoutError, OSError) as error:
            self._warn("not understood", "a request for %s was not understood: %s", error or type(error).__name__)
        finally:
            with suppress(OSError):  # closing a socket that holds unread bytes would reset the connection
                sock.recv(DRAINED_BYTES)

    async def _respond(self, receive: Receive) -> HttpResponse:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                request = await self._receive(receive)
        except HttpError as error:
            return HttpResponse(error.status)
        try:
            return await self.answer(request)
        except Exception:
            logger.exception("a request for %s failed", self._purpose)
            return HttpResponse(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _receive(self, receive: Receive) -> HttpRequest:
        head, rest = await _receive_head(receive)
        method, path, headers = _read_head(head)
        size = self._body_size(headers)
        while len(rest) < size:
            rest += await _received(receive)
        return HttpRequest(method, path, headers, rest[:size])

    def _body_size(self, headers: Mapping[str, str]) -> int:
        length = headers.get("content-length", "0")
        # Chunks would need a parser; the clients of these ports send lengths.
        if "transfer-encoding" in headers:
            raise HttpError(HTTPStatus.NOT_IMPLEMENTED)
        # int() would accept signs, spaces and underscores.
        if not (length.isascii() and length.isdigit()):
            raise HttpError(HTTPStatus.BAD_REQUEST)
        # int() raises for thousands of digits.
        if len(length) > len(str(self._body_bytes_max)) or int(length) > self._body_bytes_max:
            raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return int(length)


async def _received(receive: Receive) -> bytes:
    data = await receive(HEAD_BYTES_MAX)
    if not data:
        raise EOFError("it ended too early")
    return data


async def _receive_head(receive: Receive) -> tuple[bytes, bytes]:
    """Return the head of a request, and the received part of its body."""
    data = b""
    while END_OF_HEAD not in data:
        if len(data) >= HEAD_BYTES_MAX:
            raise EOFError(f"its head has more than {HEAD_BYTES_MAX} bytes")
        data += await _received(receive)
    head, _, rest = data.partition(END_OF_HEAD)
    return head, rest


def _read_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise HttpError(HTTPStatus.BAD_REQUEST)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        # Repeated headers are how request smuggling begins.
        if not colon or name.lower() in headers:
            raise HttpError(HTTPStatus.BAD_REQUEST)
        headers[name.lower()] = value.strip()
    return words[0], words[1].split("?", 1)[0], headers
