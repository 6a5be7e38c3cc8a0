"""Security of a server: its listeners, how clients log in there, and the requests about log-in and credentials."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from groupcoord.broker.connection import Connection
from groupcoord.broker.security.principals import ANONYMOUS, ClientPrincipal
from groupcoord.broker.security.sasl import (
    OAUTHBEARER,
    PLAIN,
    FailedLogins,
    LoginConnection,
    NewExchange,
    PlainExchange,
    SaslServer,
    Users,
    check_packages,
    read_users,
)
from groupcoord.broker.work import Timers
from groupcoord.clock import Clock
from groupcoord.config import key_of
from groupcoord.core.messages import Node
from groupcoord.core.router.authorization import Authorize, Principal
from groupcoord.errors import ConfigError, ErrorCode

if TYPE_CHECKING:
    from groupcoord.broker.broker import Broker
    from groupcoord.broker.json_file import Document, Place
    from groupcoord.broker.security.acls import Acls
    from groupcoord.broker.security.scram import ScramCredentials
    from groupcoord.broker.security.settings import Listener, SecuritySettings, TlsListener


def delegation_token_refusal(connection: Connection) -> ErrorCode:
    """Return the error of delegation tokens: that of a broker without ``delegation.token.secret.key``."""
    # Kafka checks this first.
    if str(connection.principal) == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


T = TypeVar("T")

KEYS = (
    *("listener", "advertised.listeners", "sasl.", "ssl."),
    *("connection.failed.", "connections.max.reauth.", "super.users", "allow.everyone.", "authorizer."),
)


def is_security_key(key: str) -> bool:
    return key_of(key.strip()).startswith(KEYS)


def split_properties(properties: Mapping[str, T]) -> tuple[dict[str, T], dict[str, T]]:
    """Split ``server.properties`` into settings of :class:`~groupcoord.config.Config` and security settings."""
    secure = {key: value for key, value in properties.items() if is_security_key(key)}
    return {key: value for key, value in properties.items() if key not in secure}, secure


class Security:
    """Listeners, log-in and credentials of a server.

    Args:
        place: the location of credentials and ACLs; None for memory.
        properties: Kafka's settings (:func:`split_properties`).
        users: passwords by name, in addition to those of ``sasl.users.file``.

    Raises:
        ConfigError: settings are unknown or contradictory, or need a package that is not installed.
        CredentialFileError: the file of credentials has invalid content.

    Attributes:
        listeners: in the order of the settings; empty if the caller has its own, without log-in.
        refusals: timers of the delayed refusals of failed log-ins.
    """

    def __init__(
        self,
        clock: Clock,
        place: Place | None = None,
        properties: Mapping[str, str | int | float] = MappingProxyType({}),
        users: Mapping[str, str] | None = None,
    ) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self.refusals = Timers()
        self.failures = FailedLogins(perf_counter)
        self._clock = clock
        self._place = place
        self._nodes: dict[str, dict[int, Node]] = {}
        self._sasl: dict[str, SaslServer] = {}
        self.tls: dict[str, TlsListener] = {}
        self.acls: Acls | None = None
        # Imported only if needed.
        if properties:
            from groupcoord.broker.security.settings import SecuritySettings, listeners_of

            settings = SecuritySettings.from_properties(properties)
            self.listeners = listeners_of(settings)
            self._prepare_acls(settings)
            self._prepare_tls(settings)
            self._prepare_log_in(settings, users or {})

    @cached_property
    def credentials(self) -> ScramCredentials:
        """SCRAM credentials, read on first use."""
        from groupcoord.broker.security.scram import ScramCredentials

        return ScramCredentials(self._place)

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Host and port of each listener."""
        return {listener.name: (listener.host, listener.port) for listener in self.listeners}

    @property
    def authorize(self) -> Authorize | None:
        """Authorizer of the ACLs, or None."""
        return None if self.acls is None else self.acls.authorize

    def _prepare_acls(self, settings: SecuritySettings) -> None:
        if settings.authorizer_class_name:
            from groupcoord.broker.security.acls import Acls

            super_users = [user.strip() for user in settings.super_users.split(";") if user.strip()]
            by_default = settings.allow_everyone_if_no_acl_found
            self.acls = Acls(self._place, super_users, allows_by_default=by_default)

    def _prepare_tls(self, settings: SecuritySettings) -> None:
        for name, protocol in ((listener.name, listener.protocol) for listener in self.listeners):
            if protocol.uses_tls:
                from groupcoord.broker.security.settings import tls_listener

                self.tls[name] = tls_listener(settings.of_listener(name), uses_sasl=protocol.uses_sasl)

    def _prepare_log_in(self, settings: SecuritySettings, users: Mapping[str, str]) -> None:
        listeners = [listener for listener in self.listeners if listener.protocol.uses_sasl]
        used = {listener.name: settings.of_listener(listener.name) for listener in listeners}
        if not used:
            return
        from groupcoord.broker.security.scram import ScramCredentials

        enabled = {mechanism for own in used.values() for mechanism in own.sasl_enabled_mechanisms}
        check_packages(enabled)
        passwords = {**users, **read_users(settings.sasl_users_file)}
        # Replaces the cached property.
        self.credentials = ScramCredentials(self._place, passwords, tuple(sorted(enabled)))
        known = Users(passwords)
        self._sasl = {name: self._sasl_server(name, own, known) for name, own in used.items()}

    def shared_documents(self) -> list[Document]:
        """Return the credentials and ACLs that the nodes of a cluster share."""
        return [self.credentials, *([] if self.acls is None else [self.acls])]

    def advertise(self, listener: str, node: Node) -> None:
        """Set the address of a node for the clients of a listener."""
        self._nodes.setdefault(listener, {})[node.node_id] = node

    def advertised_listeners(self, node_id: int) -> str:
        """Return the value of ``advertised.listeners`` for a node."""
        addresses = ((name, nodes[node_id]) for name, nodes in self._nodes.items() if node_id in nodes)
        return ",".join(f"{name}://{node.host}:{node.port}" for name, node in addresses)

    def connect(
        self, broker: Broker, listener: str, client_host: str, principal: Principal, max_request_bytes: int
    ) -> Connection:
        """Return a new connection of a listener."""
        sasl = self._sasl.get(listener)
        if self.acls is not None and isinstance(principal, str):
            principal = ClientPrincipal(principal, client_host)
        if sasl is None:
            connection = broker.connection_type(Connection)(broker, client_host, principal, max_request_bytes)
        else:
            make_connection = broker.connection_type(LoginConnection)
            connection = make_connection(broker, client_host, principal, max_request_bytes, sasl)
        # KIP-103: responses name the addresses of the client's own listener.
        connection.nodes = self._nodes.get(listener)
        return connection

    def _sasl_server(self, name: str, settings: SecuritySettings, users: Users) -> SaslServer:
        if not settings.sasl_enabled_mechanisms:
            raise ConfigError(f"listener {name} needs mechanisms to log in by: set 'sasl.enabled.mechanisms'")
        names = settings.sasl_enabled_mechanisms
        mechanisms = {mechanism: self._new_exchange(mechanism, settings, users) for mechanism in names}
        return SaslServer(settings, mechanisms, self._clock.now_ms, self.refusals, self.failures)

    def _new_exchange(self, mechanism: str, settings: SecuritySettings, users: Users) -> NewExchange:
        if mechanism == PLAIN:
            return partial(PlainExchange, users)
        if mechanism == OAUTHBEARER:
            from groupcoord.broker.security.oauthbearer import OAuthBearerExchange, token_validator

            return partial(OAuthBearerExchange, token_validator(settings, self._clock.now_ms))
        from groupcoord.broker.security.scram import ScramExchange

        return partial(ScramExchange, mechanism, self.credentials.find_or_feign)
