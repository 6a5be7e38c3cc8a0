"""Requests about log-in by those who are logged in, or need not be: who answers which."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from groupcoord.broker.answering import answers
from groupcoord.broker.connection import Connection
from groupcoord.broker.security.principals import ANONYMOUS
from groupcoord.broker.security.sasl import Refusals
from groupcoord.core.router.authorization import Permissions
from groupcoord.errors import ErrorCode
from groupcoord.wire import WireResponse
from groupcoord.wire.security_messages import (
    AlterUserScramCredentials,
    CreateDelegationToken,
    CreateDelegationTokenResponse,
    DelegationTokenResponse,
    DescribeDelegationToken,
    DescribeDelegationTokenResponse,
    DescribeUserScramCredentials,
    ExpireDelegationToken,
    RenewDelegationToken,
    SaslAuthenticate,
    SaslAuthenticateResponse,
    SaslHandshake,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from groupcoord.broker.security.credentials import ScramCredentials
    from groupcoord.broker.security.security import Security

TOO_LATE = "SaslAuthenticate request received after successful authentication"


class LoginRequests:
    """Answers who wants to log in where that isn't its turn, and changes and tells credentials.

    Args:
        security: of the server; None: nobody has to log in.
        permissions_of: returns what a connection's client may do.

    Attributes:
        refusals: clients that were refused and wait to be told.
    """

    def __init__(self, security: Security | None, permissions_of: Callable[[Connection], Permissions]) -> None:
        self.refusals = Refusals() if security is None else security.refusals
        self._security = security
        self._permissions_of = permissions_of

    @cached_property
    def _credentials(self) -> ScramCredentials:
        from groupcoord.broker.security.credentials import ScramCredentials

        return ScramCredentials() if self._security is None else self._security.credentials

    @answers(SaslHandshake)
    def handshake(self, connection: Connection, request: SaslHandshake) -> WireResponse | None:
        """Refuse to begin a log-in: it is done, or not wanted."""
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)

    @answers(SaslAuthenticate)
    def authenticate(self, connection: Connection, request: SaslAuthenticate) -> WireResponse | None:
        """Refuse to go on with a log-in: it is done, or not wanted."""
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, TOO_LATE)

    @answers(AlterUserScramCredentials)
    def alter_credentials(self, connection: Connection, request: AlterUserScramCredentials) -> WireResponse | None:
        """Change credentials."""
        return self._credentials.answer_alter(request, self._permissions_of(connection))

    @answers(DescribeUserScramCredentials)
    def describe_credentials(
        self, connection: Connection, request: DescribeUserScramCredentials
    ) -> WireResponse | None:
        """Tell who has which credentials."""
        return self._credentials.answer_describe(request, self._permissions_of(connection))

    @answers(CreateDelegationToken)
    def create_token(self, connection: Connection, request: CreateDelegationToken) -> WireResponse | None:
        """Refuse to make a token."""
        kind, _, name = str(connection.principal).partition(":")
        owner = (request.owner_principal_type or kind, request.owner_principal_name or name)
        return CreateDelegationTokenResponse(_token_refusal(connection), *owner, kind, name)

    @answers(RenewDelegationToken, ExpireDelegationToken)
    def change_token(
        self, connection: Connection, request: RenewDelegationToken | ExpireDelegationToken
    ) -> WireResponse | None:
        """Refuse to let a token hold for longer, or shorter."""
        return DelegationTokenResponse(_token_refusal(connection))

    @answers(DescribeDelegationToken)
    def describe_tokens(self, connection: Connection, request: DescribeDelegationToken) -> WireResponse | None:
        """Refuse to describe tokens."""
        return DescribeDelegationTokenResponse(_token_refusal(connection))


def _token_refusal(connection: Connection) -> ErrorCode:
    """Return why there are no tokens: as in a broker without ``delegation.token.secret.key``.

    Who has not logged in is told first that tokens are not for everybody.
    """
    if str(connection.principal) == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
