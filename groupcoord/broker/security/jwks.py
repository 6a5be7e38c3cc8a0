"""Signed tokens: the keys of ``sasl.oauthbearer.jwks.endpoint.url``, and what has to hold of a token (KIP-768)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

from groupcoord.broker.security.oauthbearer import Bearer, ClaimChecks, InvalidTokenError, ValidateToken
from groupcoord.config.files import parse_json
from groupcoord.errors import ConfigError

SIGNED = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""The algorithms that are trusted: those of which the server needs no secret."""

FETCH_TIMEOUT_S = 10.0
FETCH_PAUSE_S = 10.0
"""So long at least keys aren't fetched again, whatever tokens name."""

JWKS_BYTES_MAX = 1024 * 1024

logger = logging.getLogger("groupcoord.host")


class KeySet:
    """The keys at an address, which are fetched again from time to time, and when a token names one that isn't there.

    The first time they are fetched at once; later in a thread, so that nobody waits: until then the old ones hold.

    Args:
        url: ``https:``, ``http:`` or ``file:``.
        refresh_s: when keys are old, in seconds.
        now_s: a clock that never goes back.

    Raises:
        ConfigError: the keys can't be fetched.
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
        """Return a key by its id, or the only key for tokens that name none.

        Raises:
            InvalidTokenError: there is none.
        """
        key = next(iter(self._keys.values())) if key_id is None and len(self._keys) == 1 else self._keys.get(key_id)
        age_s = self._now_s() - self._fetched_at_s
        if age_s >= self._refresh_s or (key is None and age_s >= FETCH_PAUSE_S):
            self._fetch_soon()
        if key is None:
            raise InvalidTokenError(f"it is signed with a key that isn't known ({key_id!r})")
        return key

    def _fetch_soon(self) -> None:
        if self._fetching is None or not self._fetching.is_alive():
            self._fetched_at_s = self._now_s()
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
    except (jwt.PyJWTError, AttributeError) as error:
        raise ValueError(f"is no set of keys: {error}") from None
    return {key.key_id: key for key in keys}


def signed_validator(
    keys: KeySet, checks: ClaimChecks, audiences: tuple[str, ...] = (), issuer: str | None = None
) -> ValidateToken:
    """Return what trusts the tokens that are signed with one of the keys.

    Args:
        keys: the keys.
        checks: what the claims have to say.
        audiences: for one of these a token must be; empty: for anybody.
        issuer: who must have made it; None: whoever has a key.
    """

    def validate(token: str) -> Bearer:
        import jwt

        # Times are checked by the server's own clock.
        options: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": bool(audiences)}
        try:
            key = keys.find(jwt.get_unverified_header(token).get("kid"))
            claims = jwt.decode(token, key, SIGNED, options=options, audience=audiences or None, issuer=issuer)
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise InvalidTokenError(str(error)) from None
        return checks.bearer(claims)

    return validate
