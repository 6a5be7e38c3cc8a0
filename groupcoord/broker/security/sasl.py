"""SASL on a listener: mechanisms, PLAIN (RFC 4616) with its users, and refusal of failed log-ins.

Sources: ``SaslServerAuthenticator``, ``KafkaChannel``, ``PlainSaslServer`` of Apache Kafka 4.4 (KIP-43, KIP-152,
KIP-255, KIP-368), as recorded.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from groupcoord.broker.log_lines import RateLimitedLogger
from groupcoord.broker.work import Waker
from groupcoord.config.files import read_text
from groupcoord.errors import ConfigError
from groupcoord.wire import WireResponse

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
SCRAM_SHA_256, SCRAM_SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)

OTHER_AUTHORIZATION_ID = "Authentication failed: Client requested an authorization id that is different from username"


class LoginFailedError(Exception):
    """A log-in has failed.

    Args:
        told: what the client is told, which must not say what of its credentials was wrong.
        user: whom it said to be, for the server's log; empty where that isn't known.
    """

    def __init__(self, told: str, user: str = "") -> None:
        super().__init__(told)
        self.told = told
        self.user = user


class BrokenExchangeError(Exception):
    """A token that ends the connection at once, without an answer. The message is for the server's log."""


class Step(NamedTuple):
    """What an exchange says to a token.

    Attributes:
        challenge: what the client is sent.
        user: who it is, when the log-in is done; None: the client has to say more.
        expires_at_ms: until when its credentials are good, in milliseconds since the epoch; None: no end is known.
    """

    challenge: bytes
    user: str | None = None
    expires_at_ms: int | None = None


class Exchange(Protocol):
    """One log-in by one mechanism."""

    def evaluate(self, token: bytes) -> Step:
        """Take a token of the client.

        Raises:
            LoginFailedError: it is refused.
            BrokenExchangeError: it isn't even answered.
        """


NewExchange = Callable[[], Exchange]


def invalid_credentials(mechanism: str) -> str:
    """Return what a client is told of whatever is wrong with its tokens."""
    return f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"


def is_other_authorization_id(authorization_id: str, user: str) -> bool:
    """Tell whether a client wants to act for somebody else, which nobody may."""
    return authorization_id not in ("", user)


ADDRESSES_MAX = 256
"""Failed log-ins are counted for so many addresses, each by itself; those of all others together."""

logger = logging.getLogger("groupcoord.host")


class Refusal(NamedTuple):
    """The last answer to a connection that is then closed, and when it is due.

    Attributes:
        turn_away: sends the response, if there is one, and has the connection closed for the reason.
    """

    deadline_ms: int
    turn_away: Callable[[WireResponse | None, str], None]
    response: WireResponse | None
    reason: str


class Refusals(Waker):
    """Log-ins that have failed, and whose clients are to wait for the answer."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[Refusal] = deque()

    def add(self, refusal: Refusal) -> None:
        """Wait with a refusal. All wait equally long, so that the last one is due last."""
        self._waiting.append(refusal)
        self.wake_earlier()

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`tick` is wanted, in milliseconds of the clock; None if nobody waits."""
        return self._waiting[0].deadline_ms if self._waiting else None

    def tick(self, now_ms: int) -> None:
        """Say what is due."""
        while self._waiting and self._waiting[0].deadline_ms <= now_ms:
            refusal = self._waiting.popleft()
            refusal.turn_away(refusal.response, refusal.reason)


class FailedLogins:
    """The log of failed log-ins: a few lines for each address, however often it tries."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._log = RateLimitedLogger(logger)
        self._now_s = now_s
        self._addresses: set[str] = set()

    def tell(self, client_host: str, mechanism: str, user: str, reason: str) -> None:
        """Write that somebody failed, or count it.

        Args:
            client_host: where the client is.
            mechanism: how it tried.
            user: whom it said to be.
            reason: why it failed.
        """
        if len(self._addresses) < ADDRESSES_MAX:
            self._addresses.add(client_host)
        whose = client_host if client_host in self._addresses else "other addresses"
        message = "log-in from %s failed: %s as %r: %s"
        self._log.warning(f"failed log-ins from {whose}", self._now_s(), message, client_host, mechanism, user, reason)

    def report(self, *, ends: bool = False) -> None:
        """Tell what was left out, and forget addresses.

        Args:
            ends: tell of all that was left out: no more lines will come.
        """
        self._log.report(self._now_s(), ends=ends)
        self._addresses.clear()


class SaslServer(NamedTuple):
    """How clients of one listener log in.

    Attributes:
        mechanisms: what begins an exchange, by the mechanism's name.
        now_ms: the clock, in milliseconds since the epoch.
        refusals: where refused clients wait.
        failures: where failed log-ins are told.
        max_receive_bytes: the longest request before the log-in (``sasl.server.max.receive.size``).
        failure_delay_ms: how long a refused client waits (``connection.failed.authentication.delay.ms``).
        max_reauth_ms: how long a session lasts (``connections.max.reauth.ms``); 0: until its credentials expire.
    """

    mechanisms: Mapping[str, NewExchange]
    now_ms: Callable[[], int]
    refusals: Refusals
    failures: FailedLogins
    max_receive_bytes: int = 524_288
    failure_delay_ms: int = 100
    max_reauth_ms: int = 0

    def session_lifetime_ms(self, expires_at_ms: int | None) -> int:
        """Return how long a session that begins now may last, in milliseconds; 0: for ever.

        Args:
            expires_at_ms: when its credentials do; None: never.
        """
        if expires_at_ms is None:
            return self.max_reauth_ms
        left_ms = max(expires_at_ms - self.now_ms(), 0)
        return min(left_ms, self.max_reauth_ms) if self.max_reauth_ms else left_ms


_KEY_BYTES = 32


class Users:
    """Names and passwords, of which only digests are kept.

    Args:
        passwords: by name.
    """

    def __init__(self, passwords: Mapping[str, str] | None = None) -> None:
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._digests = {name: self._digest(password) for name, password in (passwords or {}).items()}
        self._nobody = secrets.token_bytes(_KEY_BYTES)

    def has(self, name: str, password: str) -> bool:
        """Tell whether this is a user's password, in the same time for every user and for nobody."""
        return hmac.compare_digest(self._digests.get(name, self._nobody), self._digest(password))

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), "sha256")


def read_users(file_name: str) -> dict[str, str]:
    """Return the passwords in a file of lines such as ``alice:secret``, by name; none without a file.

    Empty lines, and those that begin with ``#``, don't count; the first colon ends the name.

    Raises:
        ConfigError: the file can't be read, or a line is something else. The message names the line's number only.
    """
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
            raise ConfigError(f"setting 'sasl.users.file': {path}: line {number} is not NAME:PASSWORD")
        if name in passwords:
            raise ConfigError(f"setting 'sasl.users.file': {path}: line {number} names a user a second time")
        passwords[name] = password
    return passwords


_PARTS = 3


class PlainExchange:
    """One log-in by PLAIN."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def evaluate(self, token: bytes) -> Step:
        """See :class:`~groupcoord.broker.security.sasl.Exchange`."""
        parts = token.decode("utf-8", "replace").split("\0")
        if len(parts) != _PARTS:
            raise LoginFailedError(f"Invalid SASL/PLAIN response: expected {_PARTS} tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise LoginFailedError("Authentication failed: username not specified")
        if not password:
            raise LoginFailedError("Authentication failed: password not specified", user)
        if not self._users.has(user, password):
            raise LoginFailedError("Authentication failed: Invalid username or password", user)
        if is_other_authorization_id(authorization_id, user):
            raise LoginFailedError(OTHER_AUTHORIZATION_ID, user)
        return Step(b"", user)
