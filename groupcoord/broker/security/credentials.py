"""The SCRAM credentials of users (KIP-554): kept in one file of the data directory, changed and described by
administrators. Sources: ``ScramControlManager``, ``KafkaApis`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from groupcoord.broker.json_file import DataFileError, JsonFile, Place
from groupcoord.broker.security.mechanisms import SCRAM_SHA_256, SCRAM_SHA_512
from groupcoord.broker.security.scram import (
    SECRET_BYTES,
    SHORTEST_SALT_BYTES,
    Nobody,
    ScramCredential,
    credential_of_password,
    credential_of_salted,
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
    """What the file holds."""

    credentials: Credentials
    secret: bytes


class CredentialFileError(DataFileError):
    """The file of credentials can't be read or does not hold what it should; the message names file and reason."""


class ScramCredentials:
    """The credentials that there are: those of a file of users, and those that administrators have made.

    Args:
        place: where ``scram-credentials.json`` lies or will lie; None keeps everything in memory.
        passwords: of users that are always there, by name. Administrators can't see or change these.
        mechanisms: for which such users get credentials.

    Raises:
        CredentialFileError: the file is there but can't be read or does not hold credentials.
    """

    def __init__(
        self,
        place: Place | None = None,
        passwords: Mapping[str, str] | None = None,
        mechanisms: tuple[str, ...] = (),
    ) -> None:
        self._file = JsonFile(place, FILE_NAME, "credentials of users", CredentialFileError, is_secret=True)
        kept = self._file.read(_parsed) or _Kept({}, secrets.token_bytes(SECRET_BYTES))
        self._secret = kept.secret
        self._nobody = Nobody(kept.secret)
        self._fixed: Credentials = {
            (user, mechanism): credential_of_password(mechanism, password, self._nobody.salt(mechanism, user))
            for user, password in (passwords or {}).items()
            for mechanism in mechanisms
            if mechanism in NUMBER_OF
        }
        self._set(kept.credentials)

    def reload(self) -> None:
        """Read the file again if another process has written it.

        Raises:
            CredentialFileError: it can't be read.
        """
        kept = self._file.read_if_changed(_parsed)
        if kept is not None:
            self._secret, self._nobody = kept.secret, Nobody(kept.secret)
            self._set(kept.credentials)

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return a user's credential for a mechanism, if there is one."""
        key = (user, mechanism)
        return self._altered.get(key) or self._fixed.get(key)

    def find_or_feign(self, mechanism: str, user: str) -> ScramCredential:
        """Return a user's credential, or for everybody else one that looks like a user's and that no proof fits."""
        # Both are looked up for everybody, so that it takes the same time.
        feigned, found = self._nobody.credential(mechanism, user), self.find(mechanism, user)
        return feigned if found is None or len(found.salt) < SHORTEST_SALT_BYTES else found

    def answer_alter(
        self, request: AlterUserScramCredentials, permissions: Permissions
    ) -> AlterUserScramCredentialsResponse:
        """Change credentials: of each user one or none, and each user's whether or not another's can be."""
        changes: tuple[Change, ...] = (*request.deletions, *request.upsertions)
        users = Counter(change.name for change in changes)
        if not permissions.on_cluster(Operation.ALTER):
            denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return AlterUserScramCredentialsResponse(tuple(AlteredUser(user, denied) for user in users))
        altered = dict(self._altered)
        results: dict[str, AlteredUser] = {}
        for change in changes:
            error, message = _refusal(change)
            if error is ErrorCode.NONE and users[change.name] > 1:
                error, message = ErrorCode.DUPLICATE_RESOURCE, DUPLICATE
            if error is ErrorCode.NONE:
                error, message = _apply(change, altered)
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
        """Tell the mechanisms and iterations of users, of all of them if none is named."""
        if not permissions.on_cluster(Operation.DESCRIBE):
            denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return DescribeUserScramCredentialsResponse((DescribedUser("", denied, None),), denied, None)
        infos: dict[str, list[ScramCredentialInfo]] = {}
        for (user, mechanism), credential in self._altered.items():
            infos.setdefault(user, []).append(ScramCredentialInfo(NUMBER_OF[mechanism], credential.iterations))
        asked = Counter(request.users or list(infos))
        return DescribeUserScramCredentialsResponse(
            tuple(_described(user, count, infos.get(user)) for user, count in list(asked.items()))
        )

    def _keep(self, altered: Credentials) -> bool:
        try:
            self._file.write(partial(_content, _Kept(altered, self._secret)))
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
    """Return what is wrong with the form of a change."""
    if not change.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if change.mechanism not in NAME_OF:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if isinstance(change, ScramUpsertion):
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
    return _Kept(credentials, bytes.fromhex(content.get("secret", "")) or secrets.token_bytes(SECRET_BYTES))
