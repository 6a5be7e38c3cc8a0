"""Log-in to NATS servers without a password: users with keys, and users signed by an operator."""

from __future__ import annotations

import json
import os
import time
from base64 import urlsafe_b64encode
from typing import Any

import nkeys  # type: ignore[import-untyped]

Claims = dict[str, Any]


class Identity:
    """Key owner: an operator, an account or a user. Args: kind: one of the ``PREFIX_BYTE_`` of nkeys; a user by
    default.
    """

    def __init__(self, kind: int = nkeys.PREFIX_BYTE_USER) -> None:
        self.seed: str = nkeys.encode_seed(os.urandom(32), kind).decode()
        self._pair = nkeys.from_seed(self.seed.encode())

    @property
    def name(self) -> str:
        """The public key."""
        name: str = self._pair.public_key.decode()
        return name

    def signed(self, subject: Identity, kind: str, **claims: Any) -> str:
        nats = {"type": kind, "version": 2, **claims}
        said = {"jti": kind, "iat": int(time.time()), "iss": self.name, "sub": subject.name, "name": kind, "nats": nats}
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        signed = f"{_encoded(json.dumps(head).encode())}.{_encoded(json.dumps(said).encode())}"
        return f"{signed}.{_encoded(self._pair.sign(signed.encode()))}"


def _encoded(part: bytes) -> str:
    return urlsafe_b64encode(part).rstrip(b"=").decode()


def signed_user() -> tuple[str, str]:
    """Return a server's configuration for a user of an account, and the user's file of credentials."""
    operator, user = Identity(nkeys.PREFIX_BYTE_OPERATOR), Identity()
    account, system = Identity(nkeys.PREFIX_BYTE_ACCOUNT), Identity(nkeys.PREFIX_BYTE_ACCOUNT)
    everything = dict.fromkeys(("subs", "data", "payload", "conn", "leaf", "imports", "exports"), -1)
    limits = {
        **everything,
        "wildcards": True,
        **dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1),
    }
    accounts = {
        account.name: operator.signed(account, "account", limits=limits),
        system.name: operator.signed(system, "account", limits=everything),
    }
    options = (
        f"operator: {operator.signed(operator, 'operator', system_account=system.name)}\n"
        f"system_account: {system.name}\nresolver: MEMORY\nresolver_preload: {json.dumps(accounts)}"
    )
    credentials = (
        f"-----BEGIN NATS USER JWT-----\n{account.signed(user, 'user', subs=-1, data=-1, payload=-1)}\n"
        "------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )
    return options, credentials
