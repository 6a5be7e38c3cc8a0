"""A server in a test makes its own certificates, and clients of them get in."""

from __future__ import annotations

import socket
import ssl
import sys
from pathlib import Path

import pytest

from groupcoord.testing import ServerThread


def handshake(server: ServerThread, context: ssl.SSLContext) -> bytes:
    """Shake hands with a server, ask it for its API versions, and return the first bytes of its answer."""
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(bytes.fromhex("0000000b0012000000000007000161"))
        return connection.recv(8)[4:]


def test_who_trusts_the_authority_gets_in() -> None:
    """A client that trusts the authority is answered, one that does not is refused; another server has another."""
    with ServerThread(tls=True) as server, ServerThread(tls=True) as other:
        assert server.certificates is not None
        assert handshake(server, server.certificates.ssl_context()) == bytes.fromhex("00000007")
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(other, server.certificates.ssl_context())


def test_a_client_is_known_by_its_certificate(tmp_path: Path) -> None:
    with ServerThread(tls=True, settings={"ssl.client.auth": "required"}) as server:
        assert server.certificates is not None
        folder = server.certificates.write_to(tmp_path, "ann")
        context = ssl.create_default_context(cafile=str(folder / "authority.pem"))
        context.load_cert_chain(folder / "ann.pem")

        assert handshake(server, context) == bytes.fromhex("00000007")
        assert server.certificates.client_pem("ann") == (folder / "ann.pem").read_text("ascii")


def test_with_log_in_it_is_over_tls() -> None:
    """With SASL mechanisms, the listener is SASL_SSL; a test may name its own listeners."""
    mechanisms = {"sasl.enabled.mechanisms": "PLAIN"}
    with ServerThread(tls=True, settings=mechanisms, users={"ann": "secret"}) as server:
        assert server.bootstrap_of("SASL_SSL") == server.bootstrap
    with ServerThread(
        tls=True,
        settings={
            "listeners": "INSIDE://127.0.0.1:0,SSL://127.0.0.1:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,SSL:SSL",
        },
    ) as server:
        assert server.bootstrap_of("INSIDE") == server.bootstrap


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library that makes certificates, the extra that brings it is named."""
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'groupcoord\[serve,login\]'"):
        ServerThread(tls=True)
