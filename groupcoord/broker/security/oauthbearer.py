"""SASL/OAUTHBEARER (RFC 7628, KIP-255): the client shows a token, a JSON web token here as in Kafka.

A token is either unsecured, which is for tests and development, or signed with a key of a set (JWKS, KIP-768). Sources:
``OAuthBearerSaslServer``, ``OAuthBearerUnsecuredValidatorCallbackHandler``, ``BrokerJwtValidator`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from groupcoord.broker.security.mechanisms import (
    OAUTHBEARER,
    BrokenExchangeError,
    LoginFailedError,
    Step,
    invalid_credentials,
    is_other_authorization_id,
)

INVALID_TOKEN = '{"status":"invalid_token"}'
_GIVEN_UP = b"\x01"
_CLIENT_RESPONSE = re.compile(
    rb"n,(?:a=(?P<authorization_id>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    rb"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTHORIZATION = re.compile(rb"(\w+) +([-_.a-zA-Z0-9]+) *")
_MILLISECONDS = 1_000


class InvalidTokenError(Exception):
    """A token can't be trusted. The message is for the server's log."""


class Bearer(NamedTuple):
    """Whom a token speaks for, and until when, in milliseconds since the epoch."""

    user: str
    expires_at_ms: int


ValidateToken = Callable[[str], Bearer]
"""Returns what a token says; raises :class:`InvalidTokenError`."""


class OAuthBearerExchange:
    """One log-in by OAUTHBEARER."""

    def __init__(self, validate: ValidateToken) -> None:
        self._validate = validate
        self._has_refused = False

    def evaluate(self, token: bytes) -> Step:
        """See :class:`~groupcoord.broker.security.mechanisms.Exchange`."""
        if self._has_refused and token == _GIVEN_UP:
            raise LoginFailedError(INVALID_TOKEN)
        self._has_refused = False
        authorization_id, bearer_token = _read(token)
        try:
            bearer = self._validate(bearer_token)
        except InvalidTokenError:
            self._has_refused = True  # the client answers this with one byte more, and has failed then
            return Step(INVALID_TOKEN.encode())
        if is_other_authorization_id(authorization_id, bearer.user):
            raise LoginFailedError(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({bearer.user})",
                bearer.user,
            )
        return Step(b"", bearer.user, bearer.expires_at_ms)


def _read(token: bytes) -> tuple[str, str]:
    """Return the authorization id and the bearer's token of a client's response."""
    response = _CLIENT_RESPONSE.fullmatch(token)
    pairs = dict(pair.split(b"=", 1) for pair in response["pairs"].split(b"\x01") if pair) if response else {}
    authorization = _AUTHORIZATION.fullmatch(pairs.get(b"auth", b""))
    if response is None or authorization is None:
        raise LoginFailedError(invalid_credentials(OAUTHBEARER))
    if authorization[1].lower() != b"bearer":
        raise BrokenExchangeError("an OAUTHBEARER token of another scheme than Bearer")
    return (response["authorization_id"] or b"").decode("ascii"), authorization[2].decode("ascii")


class ClaimChecks(NamedTuple):
    """What the claims of a token have to say.

    Attributes:
        now_ms: the time, in milliseconds since the epoch.
        subject_claim: the claim that names the user.
        clock_skew_ms: how far the clock of whoever has made the token may be off.
    """

    now_ms: Callable[[], int]
    subject_claim: str = "sub"
    clock_skew_ms: int = 0

    def bearer(self, claims: dict[str, Any]) -> Bearer:
        """Return whom the claims name.

        Raises:
            InvalidTokenError: they name nobody, or the token isn't good at this time.
        """
        user, expires_at_s = claims.get(self.subject_claim), claims.get("exp")
        if not isinstance(user, str) or not user.strip():
            raise InvalidTokenError(f"it has no claim {self.subject_claim!r}")
        if expires_at_s is None or not _is_time(expires_at_s):
            raise InvalidTokenError("it doesn't say when it expires")
        now_ms = self.now_ms()
        expires_at_ms = int(expires_at_s * _MILLISECONDS)
        if expires_at_ms + self.clock_skew_ms <= now_ms:
            raise InvalidTokenError("it has expired")
        for begins_at_s in (claims.get("iat", 0), claims.get("nbf", 0)):
            if not _is_time(begins_at_s) or begins_at_s * _MILLISECONDS > now_ms + self.clock_skew_ms:
                raise InvalidTokenError("it isn't good yet")
        return Bearer(user, expires_at_ms)


def _is_time(claim: Any) -> bool:
    return isinstance(claim, int | float) and not isinstance(claim, bool) and 0 <= claim < 2**53


def unsecured_validator(checks: ClaimChecks) -> ValidateToken:
    """Return what trusts every token that says that it has no signature, and has none."""

    def validate(token: str) -> Bearer:
        import jwt

        try:
            decoded = jwt.decode_complete(token, options={"verify_signature": False})
        except jwt.InvalidTokenError as error:
            raise InvalidTokenError(str(error)) from None
        if decoded["header"].get("alg") != "none" or decoded["signature"]:
            raise InvalidTokenError("it is signed, and no keys are set (sasl.oauthbearer.jwks.endpoint.url)")
        return checks.bearer(decoded["payload"])

    return validate
