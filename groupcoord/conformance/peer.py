"""The client's end of one connection: requests out, responses in, in order."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import frozen

from groupcoord.conformance.entities import Plain, ResponseError, decode_response, encode_request
from groupcoord.conformance.targets import Server, Stream
from groupcoord.errors import GroupcoordError

_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_ASK_TIMEOUT_MS = 20_000
_LENGTH = struct.Struct(">i")


class NoResponseError(GroupcoordError):
    """No response came in time."""


@frozen
class Request:
    """A request that waits for its response. ``sent_ms`` is the server's time."""

    correlation_id: int
    api: str
    version: int
    sent_ms: float
    body: dict[str, Plain]

    def __str__(self) -> str:
        return f"{self.api} v{self.version}"


class Peer:
    """A client on one connection. Requests may be sent without waiting; responses come in the order of requests."""

    def __init__(self, server: Server, client_id: str) -> None:
        self._stream: Stream = server.connect()
        self._now_ms: Callable[[], float] = server.now_ms
        self._client_id = client_id
        self._correlation_id = 0
        self._buffer = bytearray()
        self._unanswered: deque[Request] = deque()

    def send(self, api: str, version: int, body: dict[str, Plain]) -> None:
        """Send a request.

        Raises:
            BodyError: the body does not fit the API and version.
            ConnectionClosedError: the connection is gone.
        """
        self._correlation_id += 1
        frame = encode_request(api, version, self._correlation_id, self._client_id, body)
        self._unanswered.append(Request(self._correlation_id, api, version, self._now_ms(), body))
        self._stream.send(_LENGTH.pack(len(frame)) + frame)

    @property
    def oldest_unanswered(self) -> Request:
        """The request whose response comes next."""
        return self._unanswered[0]

    def receive(self, timeout_ms: float) -> Plain:
        """Return the next response's body.

        Args:
            timeout_ms: how long to wait for it.

        Raises:
            NoResponseError: it did not come in time.
            ResponseError: what came is not the response of the oldest unanswered request.
            ConnectionClosedError: the connection is gone.
        """
        frame = self._frame(timeout_ms)
        if frame is None:
            raise NoResponseError(f"no response within {timeout_ms:.0f} ms")
        request = self._unanswered.popleft()
        correlation_id, body = decode_response(request.api, request.version, frame)
        if correlation_id != request.correlation_id:
            raise ResponseError(
                f"the response of {request} carries correlation id {correlation_id}, not {request.correlation_id}"
            )
        return body

    def ask(self, api: str, version: int, body: dict[str, Plain]) -> Any:
        """Send a request and return the body of its response, which has 20 seconds; raises as both do."""
        self.send(api, version, body)
        return self.receive(_ASK_TIMEOUT_MS)

    def unexpected(self, duration_ms: float) -> Plain | None:
        """Return the body of a response that arrives within ``duration_ms``, or None if all stays quiet.

        Raises:
            ResponseError: something else arrives.
            ConnectionClosedError: the connection is gone.
        """
        frame = self._frame(duration_ms)
        if frame is None:
            if self._buffer:
                raise ResponseError(f"{len(self._buffer)} bytes of a response arrived")
            return None
        if not self._unanswered:
            raise ResponseError("a response arrived, but no request waits for one")
        request = self._unanswered.popleft()
        return decode_response(request.api, request.version, frame)[1]

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def _frame(self, timeout_ms: float) -> bytes | None:
        deadline_ms = self._now_ms() + timeout_ms
        while (size := self._frame_size()) is None or len(self._buffer) < size:
            data = self._stream.receive(max(deadline_ms - self._now_ms(), 0))
            if not data:
                return None
            self._buffer += data
        frame = bytes(self._buffer[_LENGTH.size : size])
        del self._buffer[:size]
        return frame

    def _frame_size(self) -> int | None:
        """Return how many bytes the next response takes with its length, or None if that is not known yet."""
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if not 4 <= length <= _MAX_RESPONSE_BYTES:
            raise ResponseError(f"a response can't be {length} bytes long")
        return _LENGTH.size + int(length)


@contextmanager
def open_peer(server: Server) -> Iterator[Peer]:
    """Connect to a server for questions about itself.

    Raises:
        ConnectionClosedError: the server can't be reached.
    """
    peer = Peer(server, "groupcoord-conformance")
    try:
        yield peer
    finally:
        peer.close()
