"""A small HTTP server in the event loop, for pages that programs read: one request on each connection, all bounded."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple, Self

logger = logging.getLogger("groupcoord.host")

HEAD_BYTES_MAX = 8_192
READ_TIMEOUT_S = 10.0
END_OF_HEAD = b"\r\n\r\n"


class HttpError(Exception):
    """A request that is answered with a status alone."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class HttpRequest(NamedTuple):
    """What somebody asks.

    Attributes:
        method: such as ``GET``.
        path: without what stands behind a question mark.
        headers: by their names in lower case.
        body: as many bytes as ``Content-Length`` says.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


class HttpResponse(NamedTuple):
    """What is answered."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = ""

    def encoded(self) -> bytes:
        """Return the bytes to send."""
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        if self.content_type:
            lines.append(f"Content-Type: {self.content_type}")
        lines += [f"Content-Length: {len(self.body)}", "Connection: close", "", ""]
        return "\r\n".join(lines).encode("latin-1") + self.body


class HttpServer(ABC):
    """Answers requests on a port of its own, in the event loop of the ``async with`` block that it is open for.

    Args:
        host: the address to listen on.
        port: the port to listen on; 0 takes a free one.
        purpose: what it is for, for the log.
        body_bytes_max: so long a body is read; a longer one is refused (413).
    """

    def __init__(self, host: str, port: int, purpose: str, body_bytes_max: int = 0) -> None:
        self._host = host
        self._port = port
        self._purpose = purpose
        self._body_bytes_max = body_bytes_max
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            OSError: the address is taken, or is not this machine's.
        """
        self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=HEAD_BYTES_MAX)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Listen no longer."""
        assert self._server is not None
        self._server.close()

    @abstractmethod
    def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer a request, at once; what this raises is logged and answered with 500."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                response = await self._respond(reader)
            writer.write(response.encoded())
            await asyncio.wait_for(writer.drain(), READ_TIMEOUT_S)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError) as error:
            logger.warning("a request for %s was not understood: %s", self._purpose, error or type(error).__name__)
        finally:
            writer.close()

    async def _respond(self, reader: asyncio.StreamReader) -> HttpResponse:
        try:
            method, path, headers = _read_head(await reader.readuntil(END_OF_HEAD))
            body = await reader.readexactly(self._body_size(headers))
            return self.answer(HttpRequest(method, path, headers, body))
        except HttpError as error:
            return HttpResponse(error.status)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            raise
        except Exception:
            logger.exception("a request for %s failed", self._purpose)
            return HttpResponse(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _body_size(self, headers: Mapping[str, str]) -> int:
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers:
            raise HttpError(HTTPStatus.NOT_IMPLEMENTED)
        if not (length.isascii() and length.isdigit()):
            raise HttpError(HTTPStatus.BAD_REQUEST)
        if len(length) > len(str(self._body_bytes_max)) or int(length) > self._body_bytes_max:
            raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return int(length)


def _read_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.removesuffix(END_OF_HEAD).decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise HttpError(HTTPStatus.BAD_REQUEST)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name.lower() in headers:
            raise HttpError(HTTPStatus.BAD_REQUEST)
        headers[name.lower()] = value.strip()
    return words[0], words[1].split("?", 1)[0], headers
