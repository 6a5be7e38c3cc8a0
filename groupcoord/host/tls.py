"""TLS on a listener: one handshake for each connection, worked on as bytes come, and its principal.

The handshake has a time limit, and a connection counts for ``max.connections`` from the moment it is accepted.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from typing import Any, cast

from groupcoord.broker.security.principals import ClientPrincipal, NewPrincipal, UnmappedNameError
from groupcoord.host.peer import Peer, PeerHost

HANDSHAKE_TIMEOUT_S = 10.0
_READ_BYTES = 256 * 1024


class TlsTransport:
    """A transport that encrypts: what a peer calls of one; all else is the socket's own.

    Args:
        transport: the socket's.
        tls: the connection's TLS.
        outgoing: where that leaves what is to be sent.
    """

    def __init__(self, transport: Any, tls: ssl.SSLObject, outgoing: ssl.MemoryBIO) -> None:
        self._transport = transport
        self._tls = tls
        self._outgoing = outgoing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes | memoryview) -> None:
        """Encrypt and send."""
        if not self._transport.is_closing():
            self._tls.write(data)
            self.send_pending()

    def writelines(self, parts: list[bytes | memoryview]) -> None:
        """Encrypt and send parts."""
        if not self._transport.is_closing():
            for part in parts:
                self._tls.write(part)
            self.send_pending()

    def send_pending(self) -> None:
        """Send what TLS itself has to say."""
        data = self._outgoing.read()
        if data:
            self._transport.write(data)

    def close(self) -> None:
        """Say that nothing more comes, and close."""
        if not self._transport.is_closing():
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self.send_pending()
        self._transport.close()


class TlsPeer(Peer):
    """One socket of a listener with TLS.

    Args:
        server: where it was accepted.
        listener: by which of its listeners.
        context: what the handshake begins with.
        new_principal: makes a principal of a client's certificate; None: the client logs in by SASL.
    """

    def __init__(
        self, server: PeerHost, listener: str, context: ssl.SSLContext, new_principal: NewPrincipal | None
    ) -> None:
        super().__init__(server, listener)
        self._incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._outgoing = outgoing
        self._tls = context.wrap_bio(self._incoming, outgoing, server_side=True)
        self._new_principal = new_principal
        self._is_shaking_hands = True
        self._timer: Any = None

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        super().connection_made(transport)
        if self.connection is not None:
            self.transport = cast(Any, TlsTransport(transport, self._tls, self._outgoing))
            reason = f"the TLS handshake took longer than {HANDSHAKE_TIMEOUT_S:g} s"
            self._timer = self._server.loop.call_later(HANDSHAKE_TIMEOUT_S, self._give_up, reason)

    def data_received(self, data: bytes) -> None:
        """Something has come."""
        if self.connection is None:
            return
        self._incoming.write(data)
        try:
            if self._is_shaking_hands:
                self._tls.do_handshake()
                self._finish_handshake()
            self._read()
        except ssl.SSLWantReadError:
            self._send_pending()
        except ssl.SSLError as error:
            self._send_pending()
            what = "the TLS handshake failed" if self._is_shaking_hands else "TLS failed"
            self._give_up(f"{what}: {error.reason or error}")
        except UnmappedNameError as error:
            self._give_up(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._cancel_timer()
        super().connection_lost(exc)

    def _finish_handshake(self) -> None:
        self._is_shaking_hands = False
        self._cancel_timer()
        self._send_pending()
        if self._new_principal is not None and self.connection is not None:
            principal = self._new_principal(self._tls.getpeercert())
            self.connection.principal = ClientPrincipal(principal, self.connection.client_host)

    def _read(self) -> None:
        """Pass on what was encrypted, until an error asks for more, or the peer has said that it is done."""
        while plain := self._tls.read(_READ_BYTES):
            super().data_received(plain)
        self.eof_received()

    def _send_pending(self) -> None:
        cast(Any, self.transport).send_pending()

    def _give_up(self, reason: str) -> None:
        self.disconnect(reason, logging.WARNING)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
