"""One socket of the server: bytes to and from its connection, and its end.

A peer that does not read is disconnected after ``DRAIN_TIMEOUT_S``, and one whose connection is being closed after
``CLOSE_TIMEOUT_S``. It counts for ``max.connections`` until its socket is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from typing import Protocol, cast

from groupcoord.broker.addresses import kafka_host
from groupcoord.broker.broker import Broker
from groupcoord.broker.connection import Connection
from groupcoord.broker.rate_limited_logger import RateLimitedLogger

WRITE_LIMIT_BYTES = 1024 * 1024
DRAIN_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 5.0

CLOSED = "closed the connection of %s: %s"


def forgets_limits(version: tuple[int, ...]) -> bool:
    """Return whether the transports of this Python version ignore the write limit in ``writelines`` (CVE-2024-12254).

    They do not report that the peer is slow, and its responses pile up.
    """
    return (3, 12) <= version < (3, 12, 9) or (3, 13) <= version < (3, 13, 2)


FORGETS_LIMITS = forgets_limits(sys.version_info[:3])


class PeerHost(Protocol):
    """Where a socket was accepted: a :class:`~groupcoord.host.server.Server`.

    Attributes:
        broker: whose clients they are.
        loop: the event loop.
        log: where it is told why connections are closed.
        turn_handle: the turn that will come; None if there is none.
    """

    broker: Broker
    loop: asyncio.AbstractEventLoop
    log: RateLimitedLogger
    turn_handle: asyncio.Handle | None

    def accept(self, peer: Peer, client_host: str, descriptor: int) -> Connection | None:
        """Return a connection for a socket, or None if it is refused."""

    def forget(self, connection: Connection) -> None:
        """A connection is closed."""

    def flush(self) -> None:
        """Send what there is to say."""

    def flush_soon(self) -> None:
        """Send what there is to say when all sockets were read, and handle what waits."""


class Peer(asyncio.Protocol):
    """One socket of a server.

    Args:
        server: the server.
        listener: the name of its listener, if there are several.
    """

    def __init__(self, server: PeerHost, listener: str = "") -> None:
        self._server = server
        self.listener = listener
        self._drain_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._is_reading = True
        self._is_closing = False
        self._has_ended = False
        self.connection: Connection | None = None
        self.transport: asyncio.Transport
        self.address = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection of a client."""
        # uvloop's transports are no subclasses of asyncio's, so there is nothing to assert here.
        self.transport = cast(asyncio.Transport, transport)
        peer_name = self.transport.get_extra_info("peername")
        if peer_name is None:  # the peer has disconnected already
            self.transport.abort()
            return
        self.address = f"{peer_name[0]}:{peer_name[1]}"
        sock = self.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.transport.set_write_buffer_limits(high=WRITE_LIMIT_BYTES)
        self.connection = self._server.accept(self, kafka_host(peer_name[0]), sock.fileno())
        if self.connection is None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes."""
        connection, server = self.connection, self._server
        if connection is None:
            return
        is_handled = connection.receive_data(data)
        if server.turn_handle is None:
            server.flush_soon()
        if is_handled:
            return
        if not connection.wants_reading:
            self._read_if_wanted()
        if server.broker.turns.is_over and server.broker.dirty:
            server.flush()  # send the responses of this turn without waiting for the rest

    def eof_received(self) -> bool:
        """Close after the received requests are handled, as Kafka's selector does."""
        connection = self.connection
        self._has_ended = True
        if connection is not None and (connection.is_busy or connection.output_bytes):
            self._arm_close_timer()
        else:
            self.disconnect("the peer has ended it", logging.DEBUG)
        return True

    def flush(self, now_s: float) -> None:
        """Send the responses of the connection, and close it if required.

        Args:
            now_s: the time of the broker's stopwatch.
        """
        connection = self.connection
        if connection is None:
            return
        parts = connection.take_output_parts()
        if parts:
            connection.active_at_s = now_s
        while parts:
            if len(parts) == 1:
                self.transport.write(parts[0])
            elif FORGETS_LIMITS and isinstance(self.transport, asyncio.Transport):
                self.transport.write(b"".join(parts))
            else:
                self.transport.writelines(parts)
            if not connection.output_bytes or self._drain_timer is not None:
                break
            parts = connection.take_output_parts()
        if self._is_closing:
            if not connection.output_bytes:
                self.transport.close()
        elif connection.closing is not None:
            self.disconnect(connection.closing, connection.closing_level)
        elif self._has_ended and not (connection.is_busy or connection.output_bytes):
            self.disconnect("the peer has ended it", logging.DEBUG)
        elif not self._is_reading:
            self._read_if_wanted()

    def pause_writing(self) -> None:
        """Stop handling requests until the peer reads its responses."""
        reason = f"did not read its answers for {DRAIN_TIMEOUT_S:g} s"
        self._drain_timer = self._server.loop.call_later(DRAIN_TIMEOUT_S, self.disconnect, reason)
        if self.connection is not None:
            self.connection.pause()
            self._read_if_wanted()

    def resume_writing(self) -> None:
        """Continue, because the peer reads again."""
        self._cancel_drain_timer()
        if self.connection is None:
            return
        self.connection.resume()
        self.flush(self._server.broker.now_s())
        self._server.flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._cancel_drain_timer()
        if self._close_timer is not None:
            self._close_timer.cancel()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
            self._server.forget(connection)

    def disconnect(self, reason: str, level: int = logging.WARNING) -> None:
        """Close the connection and log the reason.

        Earlier responses are still sent, unless the peer does not read.
        """
        connection = self.connection
        if connection is None or self._is_closing:
            return
        self._server.log.log(level, "closed connection", self._server.broker.now_s(), CLOSED, self.address, reason)
        self._is_closing = True
        connection.end(reason)
        if self._drain_timer is not None:
            self.transport.abort()
            return
        self._arm_close_timer()
        self._read_if_wanted()
        self.flush(self._server.broker.now_s())

    def _arm_close_timer(self) -> None:
        if self._close_timer is None:
            self._close_timer = self._server.loop.call_later(CLOSE_TIMEOUT_S, self.transport.abort)

    def _read_if_wanted(self) -> None:
        connection = self.connection
        if connection is None or self.transport.is_closing():
            return
        is_wanted = not self._is_closing and not self._has_ended and connection.wants_reading
        if is_wanted != self._is_reading:
            self._is_reading = is_wanted
            if is_wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def _cancel_drain_timer(self) -> None:
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
