"""SASL/SCRAM (RFC 5802, RFC 7677) and its credentials (KIP-554), which administrators change and describe.

An unknown user gets a salt like those of known users, always the same, and fails at the proof. Kafka refuses an
unknown user at once, which reveals the known ones. Sources: ``ScramControlManager``, ``KafkaApis`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from groupcoord.broker.json_file import DataFileError, Document, JsonFile, Place
from groupcoord.broker.security.sasl import (
    OTHER_AUTHORIZATION_ID,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    LoginFailedError,
    Step,
    invalid_credentials,
    is_other_authorization_id,
)
from groupcoord.core.router.authorization import Operation, Permissions
from groupcoord.errors import ErrorCode
from groupcoord.wire.security_messages import (
    AlteredUser,
    AlterUserScramCredentials,
    AlterUserScramCredentialsResponse,
    DescribedUser,
    DescribeUserScramCredentials,
    DescribeUserScramCredentialsResponse,
    ScramCredentialInfo,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)

ITERATIONS = 4_096
SHORTEST_SALT_BYTES = 12
"""Shortest salt that scramp accepts; users with shorter ones can't log in."""

SECRET_BYTES = 32
SHAPES_MAX = 16

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_JAVA_SALT_BITS = 130
_JAVA_SALT = re.compile(rb"[0-9a-z]{20,26}")
"""Salt of Kafka's Java clients: a number of 130 bits in base 36."""


class ScramCredential(NamedTuple):
    """Server's part of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class Shape(NamedTuple):
    """Salt and iterations. ``salt_bytes`` is None for salts of Kafka's Java clients."""

    salt_bytes: int | None
    iterations: int


FindCredential = Callable[[str, str], ScramCredential]
"""Returns the credential of a user for a mechanism, or a feigned one that no proof fits."""


def hash_of(mechanism: str) -> str:
    return mechanism.removeprefix("SCRAM-").replace("-", "").lower()


def credential_of_salted(mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    hash_name = hash_of(mechanism)
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted_password, b"Server Key", hash_name), iterations)


def credential_of_password(mechanism: str, password: str, salt: bytes) -> ScramCredential:
    """Return the credential of a password. It takes some milliseconds."""
    from scramp import ScramMechanism

    return ScramCredential(*ScramMechanism(mechanism).make_auth_info(password, ITERATIONS, salt))


class Nobody:
    """Feigned credentials of unknown users.

    Each name has one of the shapes of existing users, with their frequency, and mostly keeps it when users are added.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._shapes: dict[str, list[tuple[Shape, int]]] = {}

    def resemble(self, mechanism: str, credentials: Iterable[ScramCredential]) -> None:
        # Each log-in compares all shapes.
        self._shapes[mechanism] = Counter(map(_shape_of, credentials)).most_common(SHAPES_MAX)

    def salt(self, mechanism: str, user: str) -> bytes:
        """Return the salt of a name, like one of Kafka's Java clients."""
        return _java_salt(self._seed(mechanism, user))

    def credential(self, mechanism: str, user: str) -> ScramCredential:
        """Return the credential of a name."""
        seed = self._seed(mechanism, user)
        # From the stored secret, which a restart keeps.
        key = hmac.digest(self._secret, seed, hash_of(mechanism))
        shapes = self._shapes.get(mechanism) or [(Shape(None, ITERATIONS), 1)]
        # Weighted rendezvous hashing: a new shape moves few names.
        (salt_bytes, iterations), _ = min(shapes, key=lambda counted: _distance(seed, *counted))
        salt = _java_salt(seed) if salt_bytes is None else hashlib.shake_256(seed).digest(salt_bytes)
        return ScramCredential(salt, key, key, iterations)

    def _seed(self, mechanism: str, user: str) -> bytes:
        return hmac.digest(self._secret, f"{mechanism} {user}".encode("utf-8", "surrogatepass"), "sha512")


def _shape_of(credential: ScramCredential) -> Shape:
    is_java = _JAVA_SALT.fullmatch(credential.salt) is not None
    return Shape(None if is_java else len(credential.salt), credential.iterations)


def _distance(seed: bytes, shape: Shape, count: int) -> float:
    # An exponential variable with the rate count: each shape has the smallest one in proportion to its count.
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
    """Log-in by SCRAM."""

    def __init__(self, mechanism: str, find: FindCredential) -> None:
        from scramp import ScramMechanism

        self._mechanism = mechanism
        self._find = find
        self._user: str | None = None
        self._server: Any = ScramMechanism(mechanism).make_server(self._credential)

    def evaluate(self, token: bytes) -> Step:
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
        # scramp has no authorization ids, and refuses malformed messages below.
        _, authorization_id, name, *_ = message.split(",") + [""] * 2
        if is_other_authorization_id(authorization_id.removeprefix("a="), name.removeprefix("n=")):
            raise LoginFailedError(OTHER_AUTHORIZATION_ID)
        self._server.set_client_first(message)
        first: str = self._server.get_server_first()
        return first.encode()

    def _credential(self, user: str) -> ScramCredential:
        self._user = user
        return self._find(self._mechanism, user)


FILE_NAME = "scram-credentials.json"
NAME_OF = {ScramMechanism.SCRAM_SHA_256: SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512: SCRAM_SHA_512}
NUMBER_OF = {name: number for number, name in NAME_OF.items()}
FEWEST_ITERATIONS, MOST_ITERATIONS = 4_096, 16_384

DUPLICATE = "A user credential cannot be altered twice in the same request"
NOT_THERE = "Attempt to delete a user credential that does not exist"
BYTE_FIELDS = ("salt", "stored_key", "server_key")
NOT_WRITTEN = "The credentials could not be written."

Change = ScramDeletion | ScramUpsertion

Credentials = dict[tuple[str, str], ScramCredential]
"""By user and mechanism."""


class _Kept(NamedTuple):
    credentials: Credentials
    secret: bytes


class CredentialFileError(DataFileError):
    """Unreadable or malformed file of credentials."""


class ScramCredentials(Document):
    """Credentials of a file of users, which are fixed, and those that administrators have created."""

    def __init__(
        self,
        place: Place | None = None,
        passwords: Mapping[str, str] | None = None,
        mechanisms: tuple[str, ...] = (),
    ) -> None:
        self._fixed: Credentials = {}
        self._use(_Kept({}, secrets.token_bytes(SECRET_BYTES)))
        super().__init__(JsonFile(place, FILE_NAME, "credentials of users", CredentialFileError, is_secret=True))
        self._fixed = {
            (user, mechanism): credential_of_password(mechanism, password, self._nobody.salt(mechanism, user))
            for user, password in (passwords or {}).items()
            for mechanism in mechanisms
            if mechanism in NUMBER_OF
        }
        self._set(self._altered)

    def _load(self, content: dict[str, Any]) -> None:
        self._use(_parsed(content))

    def _use(self, kept: _Kept) -> None:
        self._secret, self._nobody = kept.secret, Nobody(kept.secret)
        self._set(kept.credentials)

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        key = (user, mechanism)
        return self._altered.get(key) or self._fixed.get(key)

    def find_or_feign(self, mechanism: str, user: str) -> ScramCredential:
        """Return a user's credential, or a feigned one for users without a usable one."""
        # Both are computed, so that the time is the same.
        feigned, found = self._nobody.credential(mechanism, user), self.find(mechanism, user)
        return feigned if found is None or len(found.salt) < SHORTEST_SALT_BYTES else found

    def answer_alter(self, request: AlterUserScramCredentials) -> AlterUserScramCredentialsResponse:
        """Change credentials, at most one per user, each independently of the others."""
        changes: tuple[Change, ...] = (*request.deletions, *request.upsertions)
        users = Counter(change.name for change in changes)
        altered = dict(self._altered)
        results: dict[str, AlteredUser] = {}
        for change in changes:
            # As in ScramControlManager, before duplicates.
            error, message = _refusal(change)
            if error is ErrorCode.NONE and users[change.name] > 1:
                error, message = ErrorCode.DUPLICATE_RESOURCE, DUPLICATE
            if error is ErrorCode.NONE:
                error, message = _apply(change, altered)
            # Malformed changes win over duplicates of the same user.
            if change.name not in results or results[change.name].error_code is ErrorCode.DUPLICATE_RESOURCE:
                results[change.name] = AlteredUser(change.name, error, message)
        if altered != self._altered and not self._keep(altered):
            failed = ErrorCode.UNKNOWN_SERVER_ERROR
            results = {
                user: AlteredUser(user, failed, NOT_WRITTEN) if result.error_code is ErrorCode.NONE else result
                for user, result in results.items()
            }
        return AlterUserScramCredentialsResponse(tuple(results.values()))

    def answer_describe(
        self, request: DescribeUserScramCredentials, permissions: Permissions
    ) -> DescribeUserScramCredentialsResponse:
        if not permissions.on_cluster(Operation.DESCRIBE):
            denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return DescribeUserScramCredentialsResponse((DescribedUser("", denied, None),), denied, None)
        infos: dict[str, list[ScramCredentialInfo]] = {}
        # Users of the file are settings.
        for (user, mechanism), credential in self._altered.items():
            infos.setdefault(user, []).append(ScramCredentialInfo(NUMBER_OF[mechanism], credential.iterations))
        # KIP-554: null or no users stand for all.
        users = Counter(request.users or list(infos))
        return DescribeUserScramCredentialsResponse(
            tuple(_described(user, count, infos.get(user)) for user, count in list(users.items()))
        )

    def _keep(self, altered: Credentials) -> bool:
        try:
            self.file.write(partial(_content, _Kept(altered, self._secret)))
        except OSError:
            return False
        self._set(altered)
        return True

    def _set(self, altered: Credentials) -> None:
        self._altered = altered
        for mechanism in NUMBER_OF:
            usable = (
                credential
                for (_, own), credential in (self._fixed | altered).items()
                if own == mechanism and len(credential.salt) >= SHORTEST_SALT_BYTES
            )
            self._nobody.resemble(mechanism, usable)


def _refusal(change: Change) -> tuple[ErrorCode, str | None]:
    if not change.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if change.mechanism not in NAME_OF:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if isinstance(change, ScramUpsertion):
        # KIP-554.
        if change.iterations < FEWEST_ITERATIONS:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
        if change.iterations > MOST_ITERATIONS:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
        if not change.salted_password:
            return ErrorCode.UNKNOWN_SERVER_ERROR, None
    return ErrorCode.NONE, None


def _apply(change: Change, credentials: Credentials) -> tuple[ErrorCode, str | None]:
    mechanism = NAME_OF[ScramMechanism(change.mechanism)]
    key = (change.name, mechanism)
    if isinstance(change, ScramUpsertion):
        credentials[key] = credential_of_salted(mechanism, change.salt, change.salted_password, change.iterations)
    elif credentials.pop(key, None) is None:
        return ErrorCode.RESOURCE_NOT_FOUND, NOT_THERE
    return ErrorCode.NONE, None


def _described(user: str, count: int, infos: list[ScramCredentialInfo] | None) -> DescribedUser:
    if count > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return DescribedUser(user, ErrorCode.DUPLICATE_RESOURCE, message)
    if infos is None:
        message = f"Attempt to describe a user credential that does not exist: {user}"
        return DescribedUser(user, ErrorCode.RESOURCE_NOT_FOUND, message)
    return DescribedUser(user, credential_infos=tuple(infos))


def _content(kept: _Kept) -> dict[str, object]:
    entries = [
        {"user": user, "mechanism": mechanism, "iterations": credential.iterations}
        | {field: getattr(credential, field).hex() for field in BYTE_FIELDS}
        for (user, mechanism), credential in kept.credentials.items()
    ]
    return {"secret": kept.secret.hex(), "credentials": entries}


def _parsed(content: dict[str, Any]) -> _Kept:
    credentials: Credentials = {}
    for entry in content["credentials"]:
        if entry["mechanism"] not in NUMBER_OF:
            raise ValueError(f"there is no mechanism {entry['mechanism']!r}")
        salt, stored_key, server_key = (bytes.fromhex(entry[field]) for field in BYTE_FIELDS)
        credential = ScramCredential(salt, stored_key, server_key, int(entry["iterations"]))
        credentials[entry["user"], entry["mechanism"]] = credential
    # A file without a secret gets one with the next write.
    return _Kept(credentials, bytes.fromhex(content.get("secret", "")) or secrets.token_bytes(SECRET_BYTES))
