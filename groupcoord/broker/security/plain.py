"""SASL/PLAIN (RFC 4616): a name and a password in one token. Source of the answers: ``PlainSaslServer`` of Apache Kafka
4.4, as recorded.
"""

from __future__ import annotations

from groupcoord.broker.security.mechanisms import (
    OTHER_AUTHORIZATION_ID,
    LoginFailedError,
    Step,
    is_other_authorization_id,
)
from groupcoord.broker.security.users import Users

_PARTS = 3


class PlainExchange:
    """One log-in by PLAIN."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def evaluate(self, token: bytes) -> Step:
        """See :class:`~groupcoord.broker.security.mechanisms.Exchange`."""
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
