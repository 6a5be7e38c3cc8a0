"""SASL on a listener: PLAIN (RFC 4616) with its users, and the log-in of a connection, which precedes other requests.

The order is Kafka's: optional ApiVersions, SaslHandshake, then the mechanism's tokens, in SaslAuthenticate requests or,
after a handshake of version 0, without. A failed log-in is answered after a delay; most other requests close the
connection at once. Sources: ``SaslServerAuthenticator``, ``KafkaChannel``, ``PlainSaslServer`` of Apache Kafka 4.4
(KIP-43, KIP-152, KIP-255, KIP-368), as recorded.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import struct
from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from attrs import Factory, define, field

from groupcoord.broker.connection import Connection
from groupcoord.broker.log_lines import RateLimitedLogger
from groupcoord.broker.security.principals import ClientPrincipal
from groupcoord.broker.work import Timers
from groupcoord.config.files import read_text
from groupcoord.errors import ConfigError, ErrorCode
from groupcoord.wire import Answered, ProtocolError, WireResponse, decode_request
from groupcoord.wire.cluster_messages import ApiVersions, ApiVersionsResponse
from groupcoord.wire.security_messages import (
    SaslAuthenticate,
    SaslAuthenticateResponse,
    SaslHandshake,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from groupcoord.broker.security.settings import SecuritySettings

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
    """

    settings: SecuritySettings
    mechanisms: Mapping[str, NewExchange]
    now_ms: Callable[[], int]
    refusals: Timers
    failures: FailedLogins

    def session_lifetime_ms(self, expires_at_ms: int | None) -> int:
        """Return the lifetime of a session that begins now; 0 without a limit."""
        max_reauth_ms = self.settings.connections_max_reauth_ms
        if expires_at_ms is None:
            return max_reauth_ms
        left_ms = max(expires_at_ms - self.now_ms(), 0)
        return min(left_ms, max_reauth_ms) if max_reauth_ms else left_ms


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


def check_packages(mechanisms: set[str]) -> None:
    """Raise ConfigError at the start if a package of a mechanism is missing."""
    try:
        if mechanisms & {SCRAM_SHA_256, SCRAM_SHA_512}:
            import scramp  # noqa: F401
        if OAUTHBEARER in mechanisms:
            import jwt  # noqa: F401
    except ImportError as error:
        reason = f"{error.name} is not installed; install groupcoord[login]"
        raise ConfigError(f"setting 'sasl.enabled.mechanisms': {reason}") from None


SASL_HANDSHAKE = b"\x00\x11"
BEFORE_LOGIN = frozenset((b"\x00\x12", SASL_HANDSHAKE, b"\x00\x24"))
"""API keys allowed before the log-in: ApiVersions, SaslHandshake, SaslAuthenticate."""

SHORTEST_PAUSE_MS = 1_000
"""Shortest time between two re-authentications."""

_SIZE = struct.Struct(">i")
_ILLEGAL = ErrorCode.ILLEGAL_SASL_STATE


class _State(Enum):
    """State of a log-in, by the next allowed requests."""

    BEGUN = auto()
    """ApiVersions or SaslHandshake."""

    HAS_VERSIONS = auto()
    EXCHANGING = auto()
    """Tokens of the mechanism."""

    REFUSED = auto()
    """None: the client waits for its refusal."""

    LOGGED_IN = auto()


@define(eq=False, repr=False, weakref_slot=False)
class LoginConnection(Connection):
    """Connection with a SASL log-in."""

    _sasl: SaslServer
    closing_level: int = field(init=False, default=logging.WARNING)
    _state: _State = field(init=False, default=_State.BEGUN)
    _mechanism: str = field(init=False, default="")
    _exchange: Exchange = field(init=False)
    _uses_requests: bool = field(init=False, default=True)
    _expires_at_ms: int | None = field(init=False, default=None)
    _reauthenticated_at_ms: int | None = field(init=False, default=None)  # start of the last re-authentication
    _max_bytes_after: int = field(init=False, default=Factory(lambda self: self._max_request_bytes, takes_self=True))

    def __attrs_post_init__(self) -> None:
        # Before the log-in a client must not fill memory with a large request.
        self._max_request_bytes = min(self._max_request_bytes, self._sasl.settings.sasl_server_max_receive_size)

    # ------------------------------------------------------------ requests

    def _handle(self, frame: bytes | memoryview) -> None:
        # Not decoded, since most requests come after the log-in.
        if self._may_pass(frame):
            super()._handle(frame)
            return
        try:
            self._log_in(bytes(frame))
        except (ProtocolError, BrokenExchangeError) as error:
            self.refuse(f"the log-in failed: {error}")
        except Exception:
            self._fail("a log-in could not be handled")

    def _size_limit(self) -> str:
        if self._max_request_bytes < self._max_bytes_after:
            return f"sasl.server.max.receive.size ({self._max_request_bytes}) before its log-in"
        return super()._size_limit()

    def _may_pass(self, frame: bytes | memoryview) -> bool:
        if self._state is not _State.LOGGED_IN:
            return False
        if self._expires_at_ms is None:
            return True
        now_ms = self._sasl.now_ms()
        if frame[:2] == SASL_HANDSHAKE:
            begun_ms = self._reauthenticated_at_ms
            # Too early: answered as without SASL.
            if begun_ms is not None and now_ms - begun_ms < SHORTEST_PAUSE_MS:
                return True
            self._reauthenticated_at_ms = now_ms
            self._state = _State.HAS_VERSIONS
            return False
        # KIP-368: after expiry, any other request closes the connection.
        return now_ms <= self._expires_at_ms

    @property
    def _is_again(self) -> bool:
        return self._reauthenticated_at_ms is not None

    def _log_in(self, frame: bytes) -> None:
        if self._state is _State.REFUSED:
            return
        if self._state is _State.LOGGED_IN:
            # KIP-368: only a re-authentication may follow.
            raise BrokenExchangeError("its session has ended, and it has not logged in again")
        # After a handshake of version 0, tokens come without headers.
        if self._state is _State.EXCHANGING and not self._uses_requests:
            self._take_token(frame)
            return
        if frame[:2] not in BEFORE_LOGIN:
            raise BrokenExchangeError("another request than ApiVersions and those of SASL")
        self._header, request = decode_request(frame, self.client_host)
        match request:
            case ApiVersions() | Answered():
                self._answer_versions(request)
            case SaslHandshake():
                self._begin_exchange(request)
            case SaslAuthenticate() if self._state is _State.EXCHANGING:
                self._take_token(request.auth_bytes)
            case _:
                raise BrokenExchangeError("SaslAuthenticate before SaslHandshake")

    def _answer_versions(self, request: Any) -> None:
        if self._state is _State.EXCHANGING:
            self._refuse_later(ApiVersionsResponse(_ILLEGAL, ()), "it sent ApiVersions during a log-in")
        elif self._state is not _State.BEGUN:
            raise BrokenExchangeError("it sent ApiVersions twice")
        else:
            if isinstance(request, ApiVersions) and not request.unsupported_version:
                self._state = _State.HAS_VERSIONS
            self._broker.handle(self, request)

    def _begin_exchange(self, request: SaslHandshake) -> None:
        mechanisms = tuple(self._sasl.mechanisms)
        if self._state is _State.EXCHANGING:
            self._refuse_later(SaslHandshakeResponse(_ILLEGAL), "it sent a second SaslHandshake")
        elif request.mechanism in mechanisms:
            # As in Kafka the handshake succeeds and the token fails.
            was_other = self._is_again and request.mechanism != self._mechanism
            self._exchange = _Changed() if was_other else self._sasl.mechanisms[request.mechanism]()
            self._mechanism, self._uses_requests = request.mechanism, request.uses_requests
            self._state = _State.EXCHANGING
            self.answer(SaslHandshakeResponse(ErrorCode.NONE, mechanisms))
        elif self._is_again:
            raise BrokenExchangeError("the re-authentication uses a mechanism that is not enabled")
        else:
            response = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms)
            self._refuse_later(response, "its mechanism is not enabled (sasl.enabled.mechanisms)")

    # ------------------------------------------------------------ tokens

    def _take_token(self, token: bytes) -> None:
        try:
            step = self._exchange.evaluate(token)
        except LoginFailedError as error:
            self._fail_login(error.message, error.user)
            return
        if step.refusal is not None:
            self._sasl.failures.warn(self.client_host, self._mechanism, "", step.refusal)
        if step.user is None:
            self._answer_token(step.challenge)
        else:
            self._finish(step, f"User:{step.user}")

    def _finish(self, step: Step, principal: str) -> None:
        # KIP-368.
        if self._is_again and principal != self.principal:
            message = "Cannot change principals during re-authentication from {}: {}"
            names = (str(name).replace("User:", "User.", 1) for name in (self.principal, principal))
            self._fail_login(message.format(*names), step.user or "")
            return
        lifetime_ms = self._sasl.session_lifetime_ms(step.expires_at_ms)
        # A lifetime of 0 also stands for credentials that expire right now.
        is_endless = step.expires_at_ms is None and not lifetime_ms
        self._expires_at_ms = None if is_endless else self._sasl.now_ms() + lifetime_ms
        self.principal = ClientPrincipal(principal, self.client_host)
        self._state = _State.LOGGED_IN
        self._max_request_bytes = self._max_bytes_after
        self._answer_token(step.challenge, lifetime_ms)

    def _answer_token(self, challenge: bytes, lifetime_ms: int = 0) -> None:
        if self._uses_requests:
            self.answer(SaslAuthenticateResponse(auth_bytes=challenge, session_lifetime_ms=lifetime_ms))
        else:
            # KIP-43: after a handshake of version 0 tokens have a size but no header.
            self._add_output([_SIZE.pack(len(challenge)) + challenge])
            self._mark_dirty()

    def _fail_login(self, message: str, user: str) -> None:
        self._sasl.failures.warn(self.client_host, self._mechanism, user, message)
        self.closing_level = logging.DEBUG
        # Tokens without headers have no field for an error.
        is_answered = self._uses_requests and not isinstance(self._exchange, _Changed)
        error_code = ErrorCode.SASL_AUTHENTICATION_FAILED
        self._refuse_later(SaslAuthenticateResponse(error_code, message) if is_answered else None, "its log-in failed")

    # ------------------------------------------------------------ the end

    def _refuse_later(self, response: WireResponse | None, reason: str) -> None:
        sasl = self._sasl
        self._state = _State.REFUSED
        self.pause()
        self._buffer.clear()
        # KIP-306: the delay slows down guessing.
        deadline_ms = sasl.now_ms() + sasl.settings.connection_failed_authentication_delay_ms
        sasl.refusals.add(deadline_ms, partial(self._close_refused, response, reason))

    def _close_refused(self, response: WireResponse | None, reason: str) -> None:
        if self.closing is None:
            self.answer(response)
            self.refuse(reason)


class _Changed:
    """Exchange of a re-authentication with another mechanism, which fails without a reason."""

    def evaluate(self, token: bytes) -> Step:
        raise LoginFailedError("another mechanism than before")
