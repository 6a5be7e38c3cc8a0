"""SASL/OAUTHBEARER (RFC 7628, KIP-255): JSON Web Tokens, unsecured or signed, and their keys (JWKS, KIP-768).

Unsecured tokens are for tests and development. Sources: ``OAuthBearerSaslServer``,
``OAuthBearerUnsecuredValidatorCallbackHandler``, ``BrokerJwtValidator`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.request import urlopen

from groupcoord.broker.security.sasl import (
    OAUTHBEARER,
    BrokenExchangeError,
    LoginFailedError,
    Step,
    invalid_credentials,
    is_other_authorization_id,
)
from groupcoord.broker.security.settings import SecuritySettings
from groupcoord.config.files import parse_json
from groupcoord.errors import ConfigError

INVALID_TOKEN = '{"status":"invalid_token"}'
_GIVEN_UP = b"\x01"
# RFC 7628: a GS2 header, then key=value pairs, each ended by %x01.
_CLIENT_RESPONSE = re.compile(
    rb"n,(?:a=(?P<authorization_id>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    rb"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTHORIZATION = re.compile(rb"(\w+) +([-_.a-zA-Z0-9]+) *")
_MILLISECONDS = 1_000


class InvalidTokenError(Exception):
    """The token is not trusted. The client does not get the message."""


class Bearer(NamedTuple):
    """User of a token, and its expiry in milliseconds since the epoch."""

    user: str
    expires_at_ms: int


ValidateToken = Callable[[str], Bearer]
"""Returns the bearer of a token; raises :class:`InvalidTokenError`."""


class OAuthBearerExchange:
    """Log-in by OAUTHBEARER."""

    def __init__(self, validate: ValidateToken) -> None:
        self._validate = validate
        self._has_refused = False

    def evaluate(self, token: bytes) -> Step:
        # RFC 7628: the client confirms the error with one byte.
        if self._has_refused and token == _GIVEN_UP:
            raise LoginFailedError(INVALID_TOKEN)
        self._has_refused = False
        authorization_id, bearer_token = _read(token)
        try:
            bearer = self._validate(bearer_token)
        except InvalidTokenError as error:
            self._has_refused = True
            return Step(INVALID_TOKEN.encode(), refusal=str(error))
        if is_other_authorization_id(authorization_id, bearer.user):
            raise LoginFailedError(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({bearer.user})",
                bearer.user,
            )
        return Step(b"", bearer.user, bearer.expires_at_ms)


def _read(token: bytes) -> tuple[str, str]:
    response = _CLIENT_RESPONSE.fullmatch(token)
    pairs = dict(pair.split(b"=", 1) for pair in response["pairs"].split(b"\x01") if pair) if response else {}
    authorization = _AUTHORIZATION.fullmatch(pairs.get(b"auth", b""))
    if response is None or authorization is None:
        raise LoginFailedError(invalid_credentials(OAUTHBEARER))
    if authorization[1].lower() != b"bearer":
        raise BrokenExchangeError("an OAUTHBEARER token of another scheme than Bearer")
    return (response["authorization_id"] or b"").decode("ascii"), authorization[2].decode("ascii")


class ClaimChecks(NamedTuple):
    """Checks of a token's claims, with a tolerated skew of the issuer's clock."""

    now_ms: Callable[[], int]
    subject_claim: str = "sub"
    clock_skew_ms: int = 0

    def bearer(self, claims: dict[str, Any]) -> Bearer:
        user, expires_at_s = claims.get(self.subject_claim), claims.get("exp")
        if not isinstance(user, str) or not user.strip():
            raise InvalidTokenError(f"it has no claim {self.subject_claim!r}")
        if expires_at_s is None or not _is_time(expires_at_s):
            raise InvalidTokenError("it has no valid claim 'exp'")
        now_ms = self.now_ms()
        expires_at_ms = int(expires_at_s * _MILLISECONDS)
        if expires_at_ms + self.clock_skew_ms <= now_ms:
            raise InvalidTokenError("it has expired")
        for begins_at_s in (claims.get("iat", 0), claims.get("nbf", 0)):
            if not _is_time(begins_at_s) or begins_at_s * _MILLISECONDS > now_ms + self.clock_skew_ms:
                raise InvalidTokenError("it is not valid yet (iat, nbf)")
        return Bearer(user, expires_at_ms)


def _is_time(claim: Any) -> bool:
    # True is an int in Python; above 2**53 floats are not exact.
    return isinstance(claim, int | float) and not isinstance(claim, bool) and 0 <= claim < 2**53


def unsecured_validator(checks: ClaimChecks) -> ValidateToken:
    """Return a validator that trusts all tokens with algorithm ``none`` and no signature."""

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


def token_validator(settings: SecuritySettings, now_ms: Callable[[], int]) -> ValidateToken:
    """Return the validator of a listener: of signed tokens if the settings name a URL of keys."""
    checks = ClaimChecks(now_ms, settings.sasl_oauthbearer_sub_claim_name)
    url = settings.sasl_oauthbearer_jwks_endpoint_url
    if not url:
        return unsecured_validator(checks)
    return signed_validator(
        KeySet(url, settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / _MILLISECONDS),
        checks._replace(clock_skew_ms=settings.sasl_oauthbearer_clock_skew_seconds * _MILLISECONDS),
        settings.sasl_oauthbearer_expected_audience,
        settings.sasl_oauthbearer_expected_issuer or None,
    )


SIGNED = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Trusted algorithms: the server needs only public keys."""

FETCH_TIMEOUT_S = 10.0
FETCH_PAUSE_S = 10.0
"""Shortest time between two fetches of keys."""

JWKS_BYTES_MAX = 1024 * 1024

logger = logging.getLogger("groupcoord.host")


class KeySet:
    """Keys of a URL, fetched again after ``refresh_s`` and when a token names an unknown one; ConfigError if the first
    fetch fails.
    """

    def __init__(self, url: str, refresh_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._refresh_s = refresh_s
        self._now_s = now_s
        self._fetching: threading.Thread | None = None
        self._fetched_at_s = now_s()
        try:
            self._keys = _fetch(url)
        except (OSError, ValueError) as error:
            raise ConfigError(f"setting 'sasl.oauthbearer.jwks.endpoint.url': {url}: {error}") from None

    def find(self, key_id: str | None) -> Any:
        # RFC 7515: kid is optional.
        key = next(iter(self._keys.values())) if key_id is None and len(self._keys) == 1 else self._keys.get(key_id)
        age_s = self._now_s() - self._fetched_at_s
        # Clients can invent key ids.
        if age_s >= self._refresh_s or (key is None and age_s >= FETCH_PAUSE_S):
            self._fetch_soon()
        if key is None:
            raise InvalidTokenError(f"its key is unknown (kid {key_id!r})")
        return key

    def _fetch_soon(self) -> None:
        if self._fetching is None or not self._fetching.is_alive():
            # A failing URL is not fetched again at once.
            self._fetched_at_s = self._now_s()
            # Meanwhile the old keys hold.
            self._fetching = threading.Thread(target=self._fetch_again, name="groupcoord-jwks", daemon=True)
            self._fetching.start()

    def _fetch_again(self) -> None:
        try:
            self._keys = _fetch(self._url)
        except (OSError, ValueError) as error:
            logger.warning("the keys of %s could not be fetched again: %s", self._url, error)


def _fetch(url: str) -> dict[str | None, Any]:
    import jwt

    with urlopen(url, timeout=FETCH_TIMEOUT_S) as answer:
        content = answer.read(JWKS_BYTES_MAX + 1)
    if len(content) > JWKS_BYTES_MAX:
        raise ValueError(f"more than {JWKS_BYTES_MAX} bytes")
    try:
        keys = jwt.PyJWKSet.from_dict(parse_json(content.decode())).keys
    # AttributeError: JSON that is not an object.
    except (jwt.PyJWTError, AttributeError) as error:
        raise ValueError(f"is no set of keys: {error}") from None
    return {key.key_id: key for key in keys}


def signed_validator(
    keys: KeySet, checks: ClaimChecks, audiences: tuple[str, ...] = (), issuer: str | None = None
) -> ValidateToken:
    """Return a validator of signed tokens, for one of the audiences and by the issuer if given."""

    def validate(token: str) -> Bearer:
        import jwt

        # Times are checked by the server's clock, which tests can set.
        options: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": bool(audiences)}
        try:
            key = keys.find(jwt.get_unverified_header(token).get("kid"))
            claims = jwt.decode(token, key, SIGNED, options=options, audience=audiences or None, issuer=issuer)
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise InvalidTokenError(str(error)) from None
        return checks.bearer(claims)

    return validate
