"""SASL on a listener: mechanisms, PLAIN (RFC 4616) with its users, and log lines about failed log-ins.

Sources: ``SaslServerAuthenticator``, ``KafkaChannel``, ``PlainSaslServer`` of Apache Kafka 4.4 (KIP-43, KIP-152,
KIP-255, KIP-368), as recorded.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from groupcoord.broker.log_lines import RateLimitedLogger
from groupcoord.broker.work import Timers
from groupcoord.config.files import read_text
from groupcoord.errors import ConfigError

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
SCRAM_SHA_256, SCRAM_SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)

OTHER_AUTHORIZATION_ID = "Authentication failed: Client requested an authorization id that is different from username"


class LoginFailedError(Exception):
    """The log-in failed; the message is sent to the client, ``user`` is for the server's log."""

    def __init__(self, message: str, user: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.user = user


class BrokenExchangeError(Exception):
    """The token closes the connection without a response. The message is for the server's log."""


class Step(NamedTuple):
    """Reaction to a token: bytes for the client; after the last step also the user and the expiry of the credentials,
    if any. ``refusal`` is for the server's log.
    """

    challenge: bytes
    user: str | None = None
    expires_at_ms: int | None = None
    refusal: str | None = None


class Exchange(Protocol):
    """Log-in by one mechanism."""

    def evaluate(self, token: bytes) -> Step:
        """Take a token of the client.

        Raises:
            LoginFailedError: it is refused.
            BrokenExchangeError: it is malformed, and gets no response.
        """


NewExchange = Callable[[], Exchange]


def invalid_credentials(mechanism: str) -> str:
    return f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"


def is_other_authorization_id(authorization_id: str, user: str) -> bool:
    return authorization_id not in ("", user)


ADDRESSES_MAX = 256
logger = logging.getLogger("groupcoord.host")


class FailedLogins:
    """Log lines about failed log-ins, rate-limited by address."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._log = RateLimitedLogger(logger)
        self._now_s = now_s
        self._addresses: set[str] = set()

    def warn(self, client_host: str, mechanism: str, user: str, reason: str) -> None:
        # An attacker may have any number of addresses.
        if len(self._addresses) < ADDRESSES_MAX:
            self._addresses.add(client_host)
        whose = client_host if client_host in self._addresses else "other addresses"
        message = "log-in from %s failed: %s as %r: %s"
        self._log.warning(f"failed log-ins from {whose}", self._now_s(), message, client_host, mechanism, user, reason)

    def report(self, *, ends: bool = False) -> None:
        self._log.report(self._now_s(), ends=ends)
        self._addresses.clear()


class SaslServer(NamedTuple):
    """SASL of one listener.

    Attributes:
        mechanisms: the functions that start an exchange, by mechanism.
        refusals: timers of the delayed refusals.
        max_receive_bytes: ``sasl.server.max.receive.size``.
        failure_delay_ms: ``connection.failed.authentication.delay.ms``.
        max_reauth_ms: ``connections.max.reauth.ms``; 0 until the credentials expire.
    """

    mechanisms: Mapping[str, NewExchange]
    now_ms: Callable[[], int]
    refusals: Timers
    failures: FailedLogins
    max_receive_bytes: int = 524_288
    failure_delay_ms: int = 100
    max_reauth_ms: int = 0

    def session_lifetime_ms(self, expires_at_ms: int | None) -> int:
        """Return the lifetime of a session that begins now; 0 without a limit."""
        if expires_at_ms is None:
            return self.max_reauth_ms
        left_ms = max(expires_at_ms - self.now_ms(), 0)
        return min(left_ms, self.max_reauth_ms) if self.max_reauth_ms else left_ms


_KEY_BYTES = 32


class Users:
    """Digests of passwords by user."""

    def __init__(self, passwords: Mapping[str, str] | None = None) -> None:
        # Digests under a random key have no use outside of this process.
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._digests = {name: self._digest(password) for name, password in (passwords or {}).items()}
        self._nobody = secrets.token_bytes(_KEY_BYTES)

    def has(self, name: str, password: str) -> bool:
        # The same time for existing and unknown users.
        return hmac.compare_digest(self._digests.get(name, self._nobody), self._digest(password))

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), "sha256")


def read_users(file_name: str) -> dict[str, str]:
    """Parse a file of lines such as ``alice:secret``; ConfigError if it can't be read, or a line is malformed."""
    if not file_name:
        return {}
    path = Path(file_name)
    try:
        lines = read_text(path).splitlines()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError(f"setting 'sasl.users.file': {path}: {reason}") from None
    passwords: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not (name and colon and password):
            # The line itself may hold a password.
            raise ConfigError(f"setting 'sasl.users.file': {path}: line {number} is not NAME:PASSWORD")
        if name in passwords:
            raise ConfigError(f"setting 'sasl.users.file': {path}: line {number} names a user a second time")
        passwords[name] = password
    return passwords


_PARTS = 3


class PlainExchange:
    """Log-in by PLAIN."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def evaluate(self, token: bytes) -> Step:
        # As in Java, malformed UTF-8 is replaced, and fails later as a wrong password.
        parts = token.decode("utf-8", "replace").split("\0")
        if len(parts) != _PARTS:
            raise LoginFailedError(f"Invalid SASL/PLAIN response: expected {_PARTS} tokens, got {len(parts)}")
        authorization_id, user, password = parts
        # PlainSaslServer's order of checks.
        if not user:
            raise LoginFailedError("Authentication failed: username not specified")
        if not password:
            raise LoginFailedError("Authentication failed: password not specified", user)
        if not self._users.has(user, password):
            raise LoginFailedError("Authentication failed: Invalid username or password", user)
        if is_other_authorization_id(authorization_id, user):
            raise LoginFailedError(OTHER_AUTHORIZATION_ID, user)
        return Step(b"", user)
