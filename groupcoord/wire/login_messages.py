"""Requests and responses of the log-in: SASL, and the credentials of users. No bytes, no versions."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from groupcoord.errors import ErrorCode

# ---------------------------------------------------------------- SASL (KIP-43, KIP-152, KIP-368)


class SaslHandshake(NamedTuple):
    """Choose a mechanism (API key 17).

    ``uses_requests``: what follows are SaslAuthenticate requests, and not the mechanism's tokens as they are.
    """

    mechanism: str
    uses_requests: bool = True

    def refused(self, error_code: ErrorCode, message: str | None = None) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code)


class SaslHandshakeResponse(NamedTuple):
    """Whether the mechanism can be used, and those that can."""

    error_code: ErrorCode
    mechanisms: tuple[str, ...] = ()


class SaslAuthenticate(NamedTuple):
    """A token of the chosen mechanism (API key 36)."""

    auth_bytes: bytes

    def __repr__(self) -> str:
        """Show what may be shown."""
        return f"SaslAuthenticate({len(self.auth_bytes)} bytes)"

    def refused(self, error_code: ErrorCode, message: str | None = None) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(error_code)


class SaslAuthenticateResponse(NamedTuple):
    """The mechanism's answer. ``session_lifetime_ms``: when to log in again; 0: never."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0


# ---------------------------------------------------------------- credentials of users (KIP-554)


class ScramMechanism(IntEnum):
    """The SCRAM mechanisms, by Kafka's numbers."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class ScramDeletion(NamedTuple):
    """A credential that shall go. ``mechanism``: a :class:`ScramMechanism`, or an unknown number."""

    name: str
    mechanism: int


class ScramUpsertion(NamedTuple):
    """A credential that shall be. ``mechanism``: a :class:`ScramMechanism`, or an unknown number."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        """Show what may be shown."""
        return f"ScramUpsertion({self.name!r}, {self.mechanism}, {self.iterations})"


class AlterUserScramCredentials(NamedTuple):
    """Change the credentials of users (API key 51)."""

    deletions: tuple[ScramDeletion, ...] = ()
    upsertions: tuple[ScramUpsertion, ...] = ()

    def refused(self, error_code: ErrorCode, message: str | None = None) -> AlterUserScramCredentialsResponse:
        deleted, upserted = (entry.name for entry in self.deletions), (entry.name for entry in self.upsertions)
        users = dict.fromkeys([*deleted, *upserted])
        return AlterUserScramCredentialsResponse(tuple([AlteredUser(user, error_code) for user in users]))


class AlteredUser(NamedTuple):
    """What became of a user's change."""

    user: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class AlterUserScramCredentialsResponse(NamedTuple):
    """One entry for each user."""

    results: tuple[AlteredUser, ...]


class DescribeUserScramCredentials(NamedTuple):
    """Describe the credentials of users (API key 50). None, or no name: of all users."""

    users: tuple[str, ...] | None

    def refused(self, error_code: ErrorCode, message: str | None = None) -> DescribeUserScramCredentialsResponse:
        return DescribeUserScramCredentialsResponse((), error_code)


class ScramCredentialInfo(NamedTuple):
    """What is told of a credential."""

    mechanism: int
    iterations: int


class DescribedUser(NamedTuple):
    """A user's credentials, or why they aren't told."""

    user: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = ""
    credential_infos: tuple[ScramCredentialInfo, ...] = ()


class DescribeUserScramCredentialsResponse(NamedTuple):
    """One entry for each user, or why none is told."""

    results: tuple[DescribedUser, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = ""


# ---------------------------------------------------------------- delegation tokens (KIP-48)


class CreateDelegationToken(NamedTuple):
    """Make a token for somebody (API key 38); no owner: for oneself."""

    owner_principal_type: str | None = None
    owner_principal_name: str | None = None
    max_lifetime_ms: int = -1

    def refused(self, error_code: ErrorCode, message: str | None = None) -> CreateDelegationTokenResponse:
        return CreateDelegationTokenResponse(error_code)


class CreateDelegationTokenResponse(NamedTuple):
    """Why there is no token, and for whom it was asked."""

    error_code: ErrorCode
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""
    issue_timestamp_ms: int = -1
    expiry_timestamp_ms: int = -1
    max_timestamp_ms: int = -1


class RenewDelegationToken(NamedTuple):
    """Let a token hold for longer (API key 39)."""

    hmac: bytes
    renew_period_ms: int

    def refused(self, error_code: ErrorCode, message: str | None = None) -> DelegationTokenResponse:
        return DelegationTokenResponse(error_code)


class ExpireDelegationToken(NamedTuple):
    """Let a token end earlier (API key 40)."""

    hmac: bytes
    expiry_time_period_ms: int

    def refused(self, error_code: ErrorCode, message: str | None = None) -> DelegationTokenResponse:
        return DelegationTokenResponse(error_code)


class DelegationTokenResponse(NamedTuple):
    """Why a token holds no other time than before."""

    error_code: ErrorCode
    expiry_timestamp_ms: int = -1


class TokenOwner(NamedTuple):
    """Whose tokens are meant."""

    principal_type: str
    principal_name: str


class DescribeDelegationToken(NamedTuple):
    """Describe tokens (API key 41). None: those of everybody."""

    owners: tuple[TokenOwner, ...] | None

    def refused(self, error_code: ErrorCode, message: str | None = None) -> DescribeDelegationTokenResponse:
        return DescribeDelegationTokenResponse(error_code)


class DescribeDelegationTokenResponse(NamedTuple):
    """Why no token is described."""

    error_code: ErrorCode


TokenRequest = CreateDelegationToken | RenewDelegationToken | ExpireDelegationToken | DescribeDelegationToken
TokenResponse = CreateDelegationTokenResponse | DelegationTokenResponse | DescribeDelegationTokenResponse
LoginRequest = (
    SaslHandshake | SaslAuthenticate | AlterUserScramCredentials | DescribeUserScramCredentials | TokenRequest
)

LoginResponse = (
    SaslHandshakeResponse
    | SaslAuthenticateResponse
    | AlterUserScramCredentialsResponse
    | DescribeUserScramCredentialsResponse
    | TokenResponse
)
