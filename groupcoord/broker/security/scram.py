"""SASL/SCRAM (RFC 5802, RFC 7677): the client proves that it knows the password, and so does the server.

A user that there isn't gets a salt all the same, always the same one, and fails with the proof, as a wrong password
does. Kafka refuses an unknown user at once, and so tells which users there are.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

from groupcoord.broker.security.mechanisms import (
    OTHER_AUTHORIZATION_ID,
    LoginFailedError,
    Step,
    invalid_credentials,
    is_other_authorization_id,
)

ITERATIONS = 4_096
"""How often a password is hashed for a user of a file, and for nobody."""

SALT_BYTES = 24
SHORTEST_SALT_BYTES = 12
"""Whoever has a shorter salt can't log in: scramp takes none."""


class ScramCredential(NamedTuple):
    """What the server has to know of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


FindCredential = Callable[[str, str], ScramCredential | None]
"""Returns the credential of a mechanism and a user."""


def hash_of(mechanism: str) -> str:
    """Return the hash of a mechanism, as hashlib calls it."""
    return mechanism.removeprefix("SCRAM-").replace("-", "").lower()


def credential_of_salted(mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """Return the credential that a salted password stands for."""
    import hashlib

    hash_name = hash_of(mechanism)
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted_password, b"Server Key", hash_name), iterations)


def credential_of_password(mechanism: str, password: str) -> ScramCredential:
    """Return a credential for a password, with a salt of its own. It takes some milliseconds."""
    from scramp import ScramMechanism

    salt = secrets.token_bytes(SALT_BYTES)
    return ScramCredential(*ScramMechanism(mechanism).make_auth_info(password, ITERATIONS, salt))


class Nobody:
    """Credentials of users that there aren't."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(SALT_BYTES)

    def credential(self, mechanism: str, user: str) -> ScramCredential:
        """Return a credential that no proof fits, the same one each time."""
        seed = hmac.digest(self._secret, f"{mechanism} {user}".encode("utf-8", "surrogatepass"), "sha512")
        salt, key = seed[:SALT_BYTES], hmac.digest(self._secret, seed, hash_of(mechanism))
        return ScramCredential(salt, key, key, ITERATIONS)


class ScramExchange:
    """One log-in by SCRAM.

    Args:
        mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        find: the credentials that there are.
        nobody: those of everybody else.
    """

    def __init__(self, mechanism: str, find: FindCredential, nobody: Nobody) -> None:
        from scramp import ScramMechanism

        self._mechanism = mechanism
        self._find = find
        self._nobody = nobody
        self._user: str | None = None
        self._server: Any = ScramMechanism(mechanism).make_server(self._credential)

    def evaluate(self, token: bytes) -> Step:
        """See :class:`~groupcoord.broker.security.mechanisms.Exchange`."""
        from scramp import ScramException

        try:
            message = token.decode("utf-8")
            if self._user is None:
                return Step(self._first(message))
            self._server.set_client_final(message)
            return Step(self._server.get_server_final().encode(), self._user)
        except (ScramException, ValueError):
            raise LoginFailedError(invalid_credentials(self._mechanism), self._user or "") from None

    def _first(self, message: str) -> bytes:
        # scramp knows no authorization ids: whoever names another user is told so, as in Kafka.
        _, authorization_id, name, *_ = message.split(",") + [""] * 2
        if is_other_authorization_id(authorization_id.removeprefix("a="), name.removeprefix("n=")):
            raise LoginFailedError(OTHER_AUTHORIZATION_ID)
        self._server.set_client_first(message)
        first: str = self._server.get_server_first()
        return first.encode()

    def _credential(self, user: str) -> ScramCredential:
        self._user = user
        # Both are looked up for everybody, so that it takes the same time.
        nobody, found = self._nobody.credential(self._mechanism, user), self._find(self._mechanism, user)
        return nobody if found is None or len(found.salt) < SHORTEST_SALT_BYTES else found
