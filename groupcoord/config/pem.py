"""Certificates and keys as text in PEM format (KIP-651)."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path


def load_identity(context: ssl.SSLContext, key: str, certificate_chain: str, password: str) -> None:
    """Load a certificate and its key into a TLS context. A ``password`` of "" keeps the ssl module from prompting.

    Raises:
        ssl.SSLError: invalid PEM, or key and certificate do not match.
    """
    # The ssl module reads keys from files only. The file is gone before the first connection.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "key.pem")
        path.touch(mode=0o600)
        path.write_text(f"{key}\n{certificate_chain}\n")
        context.load_cert_chain(path, password=password)
