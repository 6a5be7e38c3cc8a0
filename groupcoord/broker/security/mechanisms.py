"""What all SASL mechanisms have in common: an exchange of tokens that ends with a user's name, or fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

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
