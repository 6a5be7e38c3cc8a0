"""A server at an address: TCP connections, and the time on the wall."""

from __future__ import annotations

import select
import socket
import time

from groupcoord.conformance.targets import WALL_TIME, ConnectionClosedError, Settings, TargetError, Tolerance

_CONNECT_TIMEOUT_SECONDS = 10.0
_CHUNK_BYTES = 1 << 18


class SocketStream:
    """A TCP connection."""

    def __init__(self, host: str, port: int) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_SECONDS)
        except OSError as error:
            raise ConnectionClosedError(f"can't connect to {host}:{port}: {error.strerror or error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        """Send ``data``. See :meth:`Stream.send`."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise ConnectionClosedError(f"can't send: {error}") from error

    def receive(self, timeout_ms: float) -> bytes:
        """Return what has arrived within ``timeout_ms``. See :meth:`Stream.receive`."""
        poll = select.poll()  # unlike select(), it takes descriptors of any number
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(max(timeout_ms, 0)):
            return b""
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except OSError as error:
            raise ConnectionClosedError(f"the connection broke: {error}") from error
        if not data:
            raise ConnectionClosedError("the server closed the connection")
        return data

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class SocketServer:
    """A server that listens at an address. Somebody else starts and stops it."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    def connect(self) -> SocketStream:
        """Open a connection. See :meth:`Server.connect`."""
        return SocketStream(self._host, self._port)

    def now_ms(self) -> float:
        """Return the monotonic clock's time in milliseconds."""
        return time.monotonic() * 1000

    def sleep(self, duration_ms: float) -> None:
        """Sleep for ``duration_ms``."""
        time.sleep(duration_ms / 1000)

    def restart(self) -> None:
        """Refuse: the server is not ours."""
        raise TargetError("a server at an address can't be restarted; launch it instead")

    def stop(self) -> None:
        """Leave the server as it is."""


class AddressTarget:
    """A server that runs already. Its settings are its owner's; transcripts that restart it are skipped.

    Args:
        host: host name or address.
        port: TCP port.
        tolerance: see :class:`Target`.
    """

    shared = True
    can_restart = False

    def __init__(self, host: str, port: int, *, tolerance: Tolerance = WALL_TIME) -> None:
        self._host = host
        self._port = port
        self.tolerance = tolerance

    @classmethod
    def from_text(cls, address: str) -> AddressTarget:
        """Make a target from ``HOST:PORT``; an IPv6 address stands in brackets.

        Raises:
            ValueError: the text is not of that form.
        """
        host, colon, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"an address is HOST:PORT, not {address!r}")
        return cls(host, int(port))

    def start(self, settings: Settings) -> SocketServer:
        """Return the server, as it is: ``settings`` are its owner's business."""
        self.check()
        return SocketServer(self._host, self._port)

    def check(self) -> None:
        """Make sure that something listens there.

        Raises:
            ConnectionClosedError: nothing does.
        """
        SocketStream(self._host, self._port).close()
