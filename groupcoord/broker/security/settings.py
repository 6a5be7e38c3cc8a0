"""The settings of listeners, log-in and permissions, under Kafka's keys; ``sasl.users.file`` is groupcoord's own.

They stand apart from :class:`~groupcoord.config.Config`, since they are a server's and not a coordinator's, some are
secret, and each may be set for one listener alone: ``listener.name.internal.ssl.client.auth``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, fields, frozen

from groupcoord.broker.security.mechanisms import MECHANISMS
from groupcoord.config import key_of, read_properties, suggestion
from groupcoord.config.settings import INT32_MAX, INT64_MAX, Choice, Flag, Kind, Names, Number
from groupcoord.errors import ConfigError

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LISTENER_PREFIX = "listener.name."


@frozen
class Text:
    """Any text: a kind of setting."""

    def parse(self, key: str, raw: Any) -> Any:
        """See :class:`~groupcoord.config.settings.Kind`."""
        return raw.strip() if isinstance(raw, str) else raw

    def check(self, key: str, value: object) -> None:
        """See :class:`~groupcoord.config.settings.Kind`."""
        if not isinstance(value, str):
            raise ConfigError(f"setting {key!r} must be text, not {type(value).__name__}")

    def text(self, value: str) -> str:
        """See :class:`~groupcoord.config.settings.Kind`."""
        return value


def _setting(default: Any, kind: Kind, *, is_secret: bool = False) -> Any:
    return field(default=default, metadata={"kind": kind}, repr=not is_secret)


def _text(default: str = "", *, is_secret: bool = False) -> Any:
    return _setting(default, Text(), is_secret=is_secret)


def _number(default: int, at_least: int, at_most: int = INT32_MAX) -> Any:
    return _setting(default, Number(at_least, at_most))


def _names(choices: tuple[str, ...] | None = None) -> Any:
    return _setting((), Names(choices, may_be_empty=True))


@frozen
class SecuritySettings:
    """Who may connect how, and who they are then.

    Raises:
        ConfigError: a value is not allowed.
    """

    # listeners
    listeners: tuple[str, ...] = _names()
    advertised_listeners: tuple[str, ...] = _names()
    listener_security_protocol_map: tuple[str, ...] = _names()
    # SASL
    sasl_enabled_mechanisms: tuple[str, ...] = _names(MECHANISMS)
    sasl_users_file: str = _text()
    sasl_server_max_receive_size: int = _number(524_288, 1)
    sasl_oauthbearer_jwks_endpoint_url: str = _text()
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = _number(3_600_000, 1, INT64_MAX)
    sasl_oauthbearer_expected_audience: tuple[str, ...] = _names()
    sasl_oauthbearer_expected_issuer: str = _text()
    sasl_oauthbearer_sub_claim_name: str = _text("sub")
    sasl_oauthbearer_clock_skew_seconds: int = _number(30, 0)
    connection_failed_authentication_delay_ms: int = _number(100, 0)
    connections_max_reauth_ms: int = _number(0, 0, INT64_MAX)

    # TLS
    ssl_keystore_type: str = _setting("PEM", Choice(("PEM",)))
    ssl_keystore_location: str = _text()
    ssl_keystore_password: str = _text(is_secret=True)
    ssl_keystore_certificate_chain: str = _text()
    ssl_keystore_key: str = _text(is_secret=True)
    ssl_key_password: str = _text(is_secret=True)
    ssl_truststore_type: str = _setting("PEM", Choice(("PEM",)))
    ssl_truststore_location: str = _text()
    ssl_truststore_certificates: str = _text()
    ssl_client_auth: str = _setting("none", Choice(("none", "requested", "required"), ignores_case=True))
    ssl_enabled_protocols: tuple[str, ...] = _setting(("TLSv1.2", "TLSv1.3"), Names(("TLSv1.2", "TLSv1.3")))
    ssl_principal_mapping_rules: str = _text("DEFAULT")

    # permissions
    authorizer_class_name: str = _setting("", Choice(("", AUTHORIZER)))
    super_users: str = _text()
    allow_everyone_if_no_acl_found: bool = _setting(False, Flag())

    own: Mapping[str, SecuritySettings] = field(factory=dict)
    """The settings of listeners that have some of their own, by the listener's name in small letters."""

    def __attrs_post_init__(self) -> None:
        for attribute in _attributes():
            attribute.metadata["kind"].check(key_of(attribute.name), getattr(self, attribute.name))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str | int | float]) -> SecuritySettings:
        """Make settings from keys and values as they stand in ``server.properties``.

        Raises:
            ConfigError: a key is unknown or given twice, or its value is not allowed.
        """
        parsers = {attribute.name: attribute.metadata["kind"].parse for attribute in _attributes()}
        common: dict[str, str | int | float] = {}
        by_listener: dict[str, dict[str, str | int | float]] = {}
        for key, value in properties.items():
            dotted = key_of(key.strip())
            if not dotted.startswith(LISTENER_PREFIX):
                common[key] = value
                continue
            listener, _, inner = dotted.removeprefix(LISTENER_PREFIX).partition(".")
            name = inner.replace(".", "_")
            if name not in parsers:
                raise ConfigError(f"unknown setting {key!r}{suggestion(name, set(parsers))}")
            by_listener.setdefault(listener.lower(), {})[inner] = value
        settings = cls(**read_properties(common, parsers))
        own = {name: evolve(settings, **read_properties(some, parsers)) for name, some in by_listener.items()}
        return evolve(settings, own=own)

    def of_listener(self, name: str) -> SecuritySettings:
        """Return what holds for a listener."""
        return self.own.get(name.lower(), self)


def _attributes() -> list[Any]:
    return [attribute for attribute in fields(SecuritySettings) if "kind" in attribute.metadata]
