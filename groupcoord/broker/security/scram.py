"""SASL/SCRAM (RFC 5802, RFC 7677): the client proves that it knows the password, and so does the server.

A user that there isn't gets a salt all the same, always the same one and of the kind that users have, and fails with
the proof, as a wrong password does. Kafka refuses an unknown user at once, and so tells which users there are.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from groupcoord.broker.security.mechanisms import (
    OTHER_AUTHORIZATION_ID,
    LoginFailedError,
    Step,
    invalid_credentials,
    is_other_authorization_id,
)

ITERATIONS = 4_096
"""How often a password is hashed for a user of a file."""

SHORTEST_SALT_BYTES = 12
"""Whoever has a shorter salt can't log in: scramp takes none."""

SECRET_BYTES = 32
SHAPES_MAX = 16

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_JAVA_SALT_BITS = 130
_JAVA_SALT = re.compile(rb"[0-9a-z]{20,26}")
"""Kafka's Java clients make a salt of a number of 130 bits, written to the base 36."""


class ScramCredential(NamedTuple):
    """What the server has to know of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class Shape(NamedTuple):
    """What can be told of a credential by looking at its salt and iterations."""

    salt_bytes: int | None
    """How long the salt is; None: it is one of Kafka's Java clients."""

    iterations: int


FindCredential = Callable[[str, str], ScramCredential]
"""Returns the credential of a mechanism and a user, and for everybody else one that no proof fits."""


def hash_of(mechanism: str) -> str:
    """Return the hash of a mechanism, as hashlib calls it."""
    return mechanism.removeprefix("SCRAM-").replace("-", "").lower()


def credential_of_salted(mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """Return the credential that a salted password stands for."""
    hash_name = hash_of(mechanism)
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted_password, b"Server Key", hash_name), iterations)


def credential_of_password(mechanism: str, password: str, salt: bytes) -> ScramCredential:
    """Return a credential for a password. It takes some milliseconds."""
    from scramp import ScramMechanism

    return ScramCredential(*ScramMechanism(mechanism).make_auth_info(password, ITERATIONS, salt))


class Nobody:
    """Credentials of users that there aren't, which look like those of users that there are.

    Each name is given one of the shapes that users have, as often as users have it, and keeps it when others come.

    Args:
        secret: without it nobody can tell a salt that is made here from a user's.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._shapes: dict[str, list[tuple[Shape, int]]] = {}

    def resemble(self, mechanism: str, credentials: Iterable[ScramCredential]) -> None:
        """From now on look like these users of a mechanism: like the shapes that most of them have."""
        self._shapes[mechanism] = Counter(map(_shape_of, credentials)).most_common(SHAPES_MAX)

    def salt(self, mechanism: str, user: str) -> bytes:
        """Return a salt like one of Kafka's Java clients, the same one each time."""
        return _java_salt(self._seed(mechanism, user))

    def credential(self, mechanism: str, user: str) -> ScramCredential:
        """Return a credential that no proof fits, the same one each time."""
        seed = self._seed(mechanism, user)
        key = hmac.digest(self._secret, seed, hash_of(mechanism))
        shapes = self._shapes.get(mechanism) or [(Shape(None, ITERATIONS), 1)]
        # Rendezvous hashing with weights: a shape that comes or goes moves those names only that it takes or leaves.
        (salt_bytes, iterations), _ = min(shapes, key=lambda counted: _distance(seed, *counted))
        salt = _java_salt(seed) if salt_bytes is None else hashlib.shake_256(seed).digest(salt_bytes)
        return ScramCredential(salt, key, key, iterations)

    def _seed(self, mechanism: str, user: str) -> bytes:
        return hmac.digest(self._secret, f"{mechanism} {user}".encode("utf-8", "surrogatepass"), "sha512")


def _shape_of(credential: ScramCredential) -> Shape:
    is_java = _JAVA_SALT.fullmatch(credential.salt) is not None
    return Shape(None if is_java else len(credential.salt), credential.iterations)


def _distance(seed: bytes, shape: Shape, count: int) -> float:
    drawn = int.from_bytes(hmac.digest(seed, repr(tuple(shape)).encode(), "sha256")[:8], "big")
    return -math.log((drawn + 1) / (1 << 64)) / count


def _java_salt(seed: bytes) -> bytes:
    number = int.from_bytes(hashlib.shake_256(b"java" + seed).digest(32), "big") % (1 << _JAVA_SALT_BITS)
    digits = []
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)).encode()


class ScramExchange:
    """One log-in by SCRAM.

    Args:
        mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        find: credentials, of users that there are and of others.
    """

    def __init__(self, mechanism: str, find: FindCredential) -> None:
        from scramp import ScramMechanism

        self._mechanism = mechanism
        self._find = find
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
        return self._find(self._mechanism, user)
