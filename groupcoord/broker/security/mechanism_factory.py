"""From settings to mechanisms: what begins a log-in by each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from groupcoord.broker.security.credentials import ScramCredentials
from groupcoord.broker.security.mechanisms import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, NewExchange
from groupcoord.broker.security.oauthbearer import ClaimChecks, OAuthBearerExchange, ValidateToken, unsecured_validator
from groupcoord.broker.security.plain import PlainExchange
from groupcoord.broker.security.scram import ScramExchange
from groupcoord.broker.security.settings import SecuritySettings
from groupcoord.broker.security.users import Users
from groupcoord.clock import Clock
from groupcoord.errors import ConfigError

_MILLISECONDS = 1_000


class MechanismFactory:
    """Makes the mechanisms of listeners, which share users and credentials.

    Args:
        passwords: by name.
        credentials: of SCRAM.
        clock: the broker's.
    """

    def __init__(self, passwords: Mapping[str, str], credentials: ScramCredentials, clock: Clock) -> None:
        self._users = Users(passwords)
        self._credentials = credentials
        self._clock = clock

    def new_exchange(self, mechanism: str, settings: SecuritySettings) -> NewExchange:
        """Return what begins a log-in.

        Raises:
            ConfigError: the keys of tokens can't be fetched.
        """
        if mechanism == PLAIN:
            return partial(PlainExchange, self._users)
        if mechanism == OAUTHBEARER:
            return partial(OAuthBearerExchange, self._token_validator(settings))
        return partial(ScramExchange, mechanism, self._credentials.find_or_feign)

    def _token_validator(self, settings: SecuritySettings) -> ValidateToken:
        checks = ClaimChecks(self._clock.now_ms, settings.sasl_oauthbearer_sub_claim_name)
        url = settings.sasl_oauthbearer_jwks_endpoint_url
        if not url:
            return unsecured_validator(checks)
        from groupcoord.broker.security.jwks import KeySet, signed_validator

        return signed_validator(
            KeySet(url, settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / _MILLISECONDS),
            checks._replace(clock_skew_ms=settings.sasl_oauthbearer_clock_skew_seconds * _MILLISECONDS),
            settings.sasl_oauthbearer_expected_audience,
            settings.sasl_oauthbearer_expected_issuer or None,
        )


def check_packages(mechanisms: set[str]) -> None:
    """Miss at the start what isn't installed, and not when the first client comes.

    Raises:
        ConfigError: a package is missing.
    """
    try:
        if mechanisms & {SCRAM_SHA_256, SCRAM_SHA_512}:
            import scramp  # noqa: F401
        if OAUTHBEARER in mechanisms:
            import jwt  # noqa: F401
    except ImportError as error:
        reason = f"{error.name} is not installed; install groupcoord[login]"
        raise ConfigError(f"setting 'sasl.enabled.mechanisms': {reason}") from None
