"""SASL on a listener: which mechanisms there are, how a connection logs in, and how it is turned away.

Sources: ``SaslServerAuthenticator``, ``KafkaChannel`` of Apache Kafka 4.4 (KIP-43, KIP-152, KIP-255, KIP-368), as
recorded.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from groupcoord.broker.rate_limited_logger import RateLimitedLogger
from groupcoord.broker.security.mechanisms import NewExchange
from groupcoord.broker.work import Waker
from groupcoord.wire import WireResponse

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
