"""Certificates and keys that are given as text in the PEM format (KIP-651)."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path


def load_identity(context: ssl.SSLContext, key: str, certificate_chain: str, password: str) -> None:
    """Let one end of TLS connections show a certificate.

    Args:
        context: what its handshakes begin with.
        key: the private key, as text.
        certificate_chain: its certificate and those of the authorities in between, as text.
        password: of the key; empty: it has none. An empty one keeps the ssl module from asking at the terminal.

    Raises:
        ssl.SSLError: they are no PEM, or don't belong together.
    """
    # The ssl module reads keys from files only; this one is gone before anybody connects.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "key.pem")
        path.touch(mode=0o600)
        path.write_text(f"{key}\n{certificate_chain}\n")
        context.load_cert_chain(path, password=password)
