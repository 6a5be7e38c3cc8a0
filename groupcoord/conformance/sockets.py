"""Server at an address: TCP connections in real time."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Mapping

from groupcoord.config.client_properties import ClientProperties, parse_address
from groupcoord.conformance.client import log_in
from groupcoord.conformance.targets import WALL_TIME, ConnectionClosedError, Settings, TargetError, Tolerance
from groupcoord.core.messages import Node

_CONNECT_TIMEOUT_SECONDS = 10.0
_CHUNK_BYTES = 1 << 18


class SocketStream:
    """TCP connection, optionally with TLS."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_SECONDS)
        except OSError as error:
            raise ConnectionClosedError(f"can't connect to {host}:{port}: {error.strerror or error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._encrypt(tls, host, port)

    def _encrypt(self, tls: ssl.SSLContext, host: str, port: int) -> None:
        try:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:  # including ssl.SSLError
            self._socket.close()
            raise ConnectionClosedError(f"no TLS with {host}:{port}: {error.strerror or error}") from error

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise ConnectionClosedError(f"can't send: {error}") from error

    def receive(self, timeout_ms: float) -> bytes:
        if not self._has_decrypted():
            poll = select.poll()  # unlike select(), it accepts any descriptor
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
        self._socket.close()

    def _has_decrypted(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0


class SocketServer:
    """Server at an address, which others start and stop; ``properties`` has its TLS and SASL settings."""

    def __init__(self, host: str, port: int, properties: ClientProperties | None = None) -> None:
        self._host = host
        self._port = port
        self._properties = properties
        self._tls = properties.tls_context() if properties is not None and properties.uses_tls else None

    def connect(self, node: Node | None = None) -> SocketStream:
        host, port = (self._host, self._port) if node is None else (node.host, node.port)
        stream = SocketStream(host, port, self._tls)
        if self._properties is not None and self._properties.uses_sasl:
            try:
                log_in(stream, self._properties)
            except ConnectionClosedError:
                stream.close()
                raise
        return stream

    def wall_ms(self) -> float:
        return time.time() * 1000

    def now_ms(self) -> float:
        return time.monotonic() * 1000

    def sleep(self, duration_ms: float) -> None:
        time.sleep(duration_ms / 1000)

    def restart(self) -> None:
        raise TargetError("a server at an address cannot be restarted; use --launch")

    def stop(self) -> None:
        """Do nothing: others stop the server."""


class AddressTarget:
    """Running server; its settings are its owner's, and transcripts that restart it are skipped.

    Args:
        host: host name or address.
        port: TCP port.
        properties: TLS and SASL settings, or None.
        settings: known settings by Kafka's keys; others are queried.
        tolerance: see :class:`Target`.

    Raises:
        ConfigError: certificates or keys cannot be read.
    """

    shared = True
    can_restart = False

    def __init__(
        self,
        host: str,
        port: int,
        *,
        properties: ClientProperties | None = None,
        settings: Mapping[str, str] | None = None,
        tolerance: Tolerance = WALL_TIME,
    ) -> None:
        self._server = SocketServer(host, port, properties)
        self.own_settings: Mapping[str, str] = dict(settings or {})
        self.tolerance = tolerance

    @classmethod
    def from_text(
        cls, address: str, *, properties: ClientProperties | None = None, settings: Mapping[str, str] | None = None
    ) -> AddressTarget:
        """Return a target for ``HOST:PORT``; IPv6 addresses are in brackets, and the port defaults to 9092.

        Raises:
            ConfigError: the text has another form.
        """
        host, port = parse_address(address)
        return cls(host, port, properties=properties, settings=settings)

    def sets(self, key: str) -> bool:
        """Return False: the settings are the server owner's."""
        return False

    def start(self, settings: Settings, nodes: int = 1) -> SocketServer:
        """Return the server with its own settings."""
        self.check()
        return self._server

    def check(self) -> None:
        """Check that the server accepts a connection and a log-in.

        Raises:
            ConnectionClosedError: it does not.
        """
        self._server.connect().close()
