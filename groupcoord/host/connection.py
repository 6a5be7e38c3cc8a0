"""One client's connection without its socket: bytes in, bytes out.

Requests of a connection are handled one at a time and in order, as a Kafka broker does: while one waits for its
answer (a join, a long poll), the frames behind it wait as well. Sources: ``NetworkReceive``, ``SocketServer`` of
Apache Kafka 4.4.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

from groupcoord.core.front.authorization import Principal
from groupcoord.wire import ProtocolError, RequestHeader, WireResponse, decode_request, encode_response

if TYPE_CHECKING:
    from groupcoord.host.broker import Broker

logger = logging.getLogger("groupcoord.host")

SIZE_BYTES = 4
TLS_PREFIX = b"\x16\x03"
HTTP_PREFIXES = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI")

_SIZE_FROM = struct.Struct(">I").unpack_from

BACKLOG_LIMIT_BYTES = 256 * 1024
"""While a request waits, reading goes on until this many bytes lie behind it."""

OUTPUT_LIMIT_BYTES = 1024 * 1024
"""No further request is handled while this many bytes of answers have not been taken."""


class Connection:
    """A connection as :meth:`Broker.connect` makes it.

    Feed it with :meth:`receive_data`, write what :meth:`take_output` gives, and when :attr:`closing` is set, write
    the rest and close. An answer may come at any time: :meth:`Broker.take_dirty` names the connections that have
    output.

    Attributes:
        client_host: where the client is, in Kafka's form (``/127.0.0.1``).
        principal: for whom it speaks.
        closing: why the host must close the connection; None while it may go on.
    """

    __slots__ = (
        "_broker",
        "_buffer",
        "_header",
        "_is_dirty",
        "_is_handling",
        "_is_paused",
        "_max_request_bytes",
        "_output",
        "_output_bytes",
        "client_host",
        "closing",
        "principal",
    )

    def __init__(self, broker: Broker, client_host: str, principal: Principal, max_request_bytes: int) -> None:
        self.client_host = client_host
        self.principal = principal
        self.closing: str | None = None
        self._broker = broker
        self._max_request_bytes = max_request_bytes
        self._buffer = bytearray()
        self._header: RequestHeader | None = None  # of the request that has no answer yet
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._is_dirty = False
        self._is_handling = False
        self._is_paused = False

    # ------------------------------------------------------------ for the host

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the peer and handle every whole request among them that may be handled now."""
        # Nearly always this is exactly one request, and nothing waits.
        size = len(data) - SIZE_BYTES
        if (
            self._header is None
            and not self._buffer
            and 0 < size <= self._max_request_bytes
            and _SIZE_FROM(data)[0] == size
            and self._output_bytes < OUTPUT_LIMIT_BYTES
            and not self._is_paused
            and self.closing is None
        ):
            self._handle(data[SIZE_BYTES:])
        elif self.closing is None:
            self._buffer += data
            self.handle_backlog()
        if self._broker.ready:
            self._broker.handle_ready()

    def take_output(self) -> bytes:
        """Return the bytes to send now, once; empty if there are none.

        Requests that were held back because there was too much output are handled then, so call it until it returns
        nothing.
        """
        self._is_dirty = False
        output = self._output
        if not output:
            return b""
        taken = output[0] if len(output) == 1 else b"".join(output)
        output.clear()
        self._output_bytes = 0
        if len(taken) >= OUTPUT_LIMIT_BYTES:
            self.handle_backlog()
        return taken

    @property
    def wants_reading(self) -> bool:
        """False while the host should not read: paused, or too many bytes wait behind an unanswered request."""
        return not self._is_paused and (len(self._buffer) < BACKLOG_LIMIT_BYTES or not self._is_blocked())

    @property
    def is_waiting(self) -> bool:
        """True while a request has no answer yet."""
        return self._header is not None

    def pause(self) -> None:
        """Handle no further request: the peer does not take its answers."""
        self._is_paused = True

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        self._is_paused = False
        self.handle_backlog()
        if self._broker.ready:
            self._broker.handle_ready()

    def close(self) -> None:
        """Forget everything: the peer is gone. The answer to a waiting request will be dropped."""
        self.closing = "closed"
        self._header = None
        self._buffer.clear()
        self._output = []
        self._broker.disconnected(self)

    # ------------------------------------------------------------ for the broker

    def answer(self, response: WireResponse | None) -> None:
        """Answer the waiting request.

        None stands for *never answered*: the connection then waits until it is closed.
        """
        header = self._header
        if response is None or header is None:
            return
        try:
            frame = encode_response(header, response)
        except ProtocolError as error:
            self.refuse(str(error))
            return
        except Exception:
            self._fail("the answer could not be encoded")
            return
        self._header = None
        self._output.append(frame)
        self._output_bytes += len(frame)
        self._mark_dirty()
        if self._buffer and not self._is_handling:
            self._broker.ready.append(self)

    def skip_answer(self) -> None:
        """Take the request that is being handled as done: its client wants no answer."""
        self._header = None

    def refuse(self, reason: str) -> None:
        """Have the connection closed: its request is none, or can't be answered."""
        self.closing = reason
        self._buffer.clear()
        self._mark_dirty()

    def handle_backlog(self) -> None:
        """Handle the whole requests that lie in the buffer, as far as they may be handled now."""
        buffer = self._buffer
        start, end = 0, len(buffer)
        self._is_handling = True
        while not self._is_blocked() and end - start >= SIZE_BYTES:
            size = int.from_bytes(buffer[start : start + SIZE_BYTES], "big", signed=True)
            if not 0 <= size <= self._max_request_bytes:
                self.refuse(_bad_size(size, bytes(buffer[start : start + SIZE_BYTES]), self._max_request_bytes))
                break
            if end - start - SIZE_BYTES < size:
                break
            start += SIZE_BYTES + size
            self._handle(bytes(memoryview(buffer)[start - size : start]))
        self._is_handling = False
        del buffer[:start]

    # ------------------------------------------------------------ inside

    def _mark_dirty(self) -> None:
        if not self._is_dirty:
            self._is_dirty = True
            self._broker.dirty.append(self)

    def _is_blocked(self) -> bool:
        return (
            self._header is not None
            or self._is_paused
            or self._output_bytes >= OUTPUT_LIMIT_BYTES
            or self.closing is not None
        )

    def _handle(self, frame: bytes) -> None:
        try:
            self._header, request = decode_request(frame, self.client_host)
            self._broker.handle(self, request)
        except ProtocolError as error:
            self.refuse(str(error))
        except Exception:
            self._fail("a request could not be handled")

    def _fail(self, what: str) -> None:
        logger.exception("%s, so the connection of %s is closed", what, self.client_host)
        self.refuse(f"internal error: {what}")


def _bad_size(size: int, prefix: bytes, max_request_bytes: int) -> str:
    if prefix[:2] == TLS_PREFIX:
        return "this is not Kafka's protocol: the peer speaks TLS"
    if prefix in HTTP_PREFIXES:
        return "this is not Kafka's protocol: the peer speaks HTTP"
    if size < 0:
        return f"a request of negative size ({size})"
    return f"a request of {size} bytes is larger than socket.request.max.bytes ({max_request_bytes})"
