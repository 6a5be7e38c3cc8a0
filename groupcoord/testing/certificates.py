"""Certificates for a server in a test and for its clients, from an authority that nobody else trusts."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Certificates"]

HOST = "127.0.0.1"
TO_INSTALL = "certificates of its own need pip install 'groupcoord[serve,login]'"


class Certificates:
    """An authority, the server's certificate and those of clients, as PEM texts: ``ServerThread(tls=True)`` has one.

    ``{"ssl.ca.pem": certificates.authority_pem}`` is all that a client of confluent-kafka needs; others take an
    :meth:`ssl_context`, or files (:meth:`write_to`).

    Raises:
        ModuleNotFoundError: ``trustme`` isn't installed.

    Attributes:
        authority_pem: the certificate of the authority, for those who shall trust it.
        server_key_pem: the server's key.
        server_chain_pem: the server's certificate, for ``127.0.0.1`` and ``localhost``.
    """

    def __init__(self) -> None:
        try:
            import trustme
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"{TO_INSTALL}: {error}", name=error.name) from None
        self._authority = trustme.CA()
        self._clients: dict[str, str] = {}
        server = self._authority.issue_cert(HOST, "localhost")
        self.authority_pem = self._authority.cert_pem.bytes().decode()
        self.server_key_pem = server.private_key_pem.bytes().decode()
        self.server_chain_pem = "".join(blob.bytes().decode() for blob in server.cert_chain_pems)

    def settings(self, protocol: str) -> Mapping[str, str]:
        """Return the settings of a server that listens on a free port with them, and knows clients by theirs.

        Args:
            protocol: ``SSL``, or ``SASL_SSL`` where clients log in.
        """
        return {
            "listeners": f"{protocol}://{HOST}:0",
            "ssl.keystore.key": self.server_key_pem,
            "ssl.keystore.certificate.chain": self.server_chain_pem,
            "ssl.truststore.certificates": self.authority_pem,
        }

    def client_pem(self, name: str) -> str:
        """Return the key and the certificates of a client, which is ``User:`` and its subject, ``…,CN=name``."""
        if name not in self._clients:
            identity = self._authority.issue_cert(f"{name}@example.org", common_name=name)
            self._clients[name] = identity.private_key_and_cert_chain_pem.bytes().decode()
        return self._clients[name]

    def write_to(self, folder: str | Path, *names: str) -> Path:
        """Write ``authority.pem``, and for each name of a client ``NAME.pem`` with its key, and return the folder."""
        path = Path(folder)
        (path / "authority.pem").write_text(self.authority_pem, "ascii")
        for name in names:
            (path / f"{name}.pem").write_text(self.client_pem(name), "ascii")
        return path

    def ssl_context(self) -> ssl.SSLContext:
        """Return what a client in Python connects with that trusts the authority, and has no certificate itself."""
        return ssl.create_default_context(cadata=self.authority_pem)
