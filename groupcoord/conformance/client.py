"""The client's end of one connection: requests out, responses in, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import frozen

from groupcoord.conformance.entities import Plain, ResponseError, decode_response, encode_request
from groupcoord.conformance.frames import Frames
from groupcoord.conformance.targets import Server
from groupcoord.core.messages import Node
from groupcoord.errors import GroupcoordError

_ASK_TIMEOUT_MS = 20_000


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


class Client:
    """A client on one connection. Requests may be sent without waiting; responses come in the order of requests.

    Args:
        server: the server.
        client_id: the client id of its requests.
        node: the node to connect to; None is the bootstrap address.
    """

    def __init__(self, server: Server, client_id: str, node: Node | None = None) -> None:
        self._stream = server.connect() if node is None else server.connect(node)
        self._frames = Frames(self._stream, server.now_ms)
        self._now_ms: Callable[[], float] = server.now_ms
        self._client_id = client_id
        self._correlation_id = 0
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
        self._frames.send(frame)

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
        frame = self._frames.receive(timeout_ms)
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
        frame = self._frames.receive(duration_ms)
        if frame is None:
            if self._frames.begun_bytes:
                raise ResponseError(f"{self._frames.begun_bytes} bytes of a response arrived")
            return None
        if not self._unanswered:
            raise ResponseError("a response arrived, but no request waits for one")
        request = self._unanswered.popleft()
        return decode_response(request.api, request.version, frame)[1]

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()


@contextmanager
def open_client(server: Server, node: Node | None = None) -> Iterator[Client]:
    """Connect to a server, or to one of its nodes, for questions about itself.

    Raises:
        ConnectionClosedError: the server can't be reached.
    """
    client = Client(server, "groupcoord-conformance", node)
    try:
        yield client
    finally:
        client.close()
