"""Settings of listeners, TLS, log-in and permissions, under Kafka's keys; ``sasl.users.file`` is groupcoord's own.

Each may be set for one listener: ``listener.name.internal.ssl.client.auth``. The forms of ``listeners``,
``advertised.listeners`` and ``listener.security.protocol.map`` are Kafka's (KIP-103), certificates are PEM (KIP-651).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from attrs import evolve, field, fields, frozen

from groupcoord.broker.security.principals import NewPrincipal, certificate_principal, parse_rules
from groupcoord.broker.security.sasl import MECHANISMS
from groupcoord.config import key_of, read_properties, suggestion
from groupcoord.config.files import load_identity
from groupcoord.config.settings import INT32_MAX, INT64_MAX, Choice, Flag, Kind, Names, Number
from groupcoord.errors import ConfigError

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LISTENER_PREFIX = "listener.name."


@frozen
class Text(Kind):
    """Kind of setting: any text, which errors do not quote."""

    def parse(self, key: str, raw: Any) -> Any:
        return raw.strip() if isinstance(raw, str) else raw

    def check(self, key: str, value: object) -> None:
        if not isinstance(value, str):
            raise ConfigError(f"setting {key!r} must be text, not {type(value).__name__}")


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
    """Settings of listeners, log-in and permissions; ConfigError if a value is not allowed."""

    listeners: tuple[str, ...] = _names()
    advertised_listeners: tuple[str, ...] = _names()
    listener_security_protocol_map: tuple[str, ...] = _names()
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

    authorizer_class_name: str = _setting("", Choice(("", AUTHORIZER)))
    super_users: str = _text()
    allow_everyone_if_no_acl_found: bool = _setting(False, Flag())

    own: Mapping[str, SecuritySettings] = field(factory=dict)
    """Settings of listeners with overrides, by lower-case name."""

    def __attrs_post_init__(self) -> None:
        for attribute in _attributes():
            attribute.metadata["kind"].check(key_of(attribute.name), getattr(self, attribute.name))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str | int | float]) -> SecuritySettings:
        """Parse keys and values of ``server.properties``."""
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
        return self.own.get(name.lower(), self)


def _attributes() -> list[Any]:
    return [attribute for attribute in fields(SecuritySettings) if "kind" in attribute.metadata]


_ADDRESS = re.compile(r"(?P<name>[A-Za-z0-9_-]+)://(?P<host>\[[0-9a-fA-F:.%]*\]|[^:/]*):(?P<port>[0-9]{1,5})")
_PORT_MAX = 65_535
_META_ADDRESS = "0.0.0.0"


ANY_ADDRESS = ("", "0.0.0.0", "::")
"""All addresses of the machine."""


class SecurityProtocol(StrEnum):
    """Security protocol of a listener."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Address(NamedTuple):
    """Name and address of a listener."""

    name: str
    host: str
    port: int


@frozen
class Listener:
    """Listener, and its address for clients.

    Attributes:
        host: the address to listen on; empty for all addresses.
        port: the port to listen on; 0 for a free one.
        advertised_port: the port for clients; 0 for that of the listener.
    """

    name: str
    protocol: SecurityProtocol
    host: str
    port: int
    advertised_host: str
    advertised_port: int


def listeners_of(settings: SecuritySettings) -> tuple[Listener, ...]:
    """Return the listeners of settings, in order; ConfigError if they contradict each other or are malformed."""
    protocols = _protocols(settings.listener_security_protocol_map)
    advertised = {
        address.name: address for address in _addresses("advertised.listeners", settings.advertised_listeners)
    }
    listeners = []
    for name, host, port in _addresses("listeners", settings.listeners):
        if name not in protocols:
            raise ConfigError(f"setting 'listeners': no protocol is known for {name} (listener.security.protocol.map)")
        address = advertised.pop(name, None)
        if address is None and host in ANY_ADDRESS:
            raise ConfigError(f"setting 'listeners': {name} on every address needs one in 'advertised.listeners'")
        address = address or Address(name, host, 0)
        check_advertised("advertised.listeners", address.host)
        listeners.append(Listener(name, protocols[name], host, port, address.host, address.port))
    if advertised:
        raise ConfigError(f"setting 'advertised.listeners': {next(iter(advertised))} is not among 'listeners'")
    return tuple(listeners)


def with_listener(properties: Mapping[str, str | int | float], host: str, port: int) -> Mapping[str, str | int | float]:
    """Return settings with a listener for the only address in ``advertised.listeners``, if ``listeners`` is not set."""
    text = str(properties.get("advertised.listeners", ""))
    name, separator, _ = text.partition("://")
    if not separator or "," in text or properties.get("listeners"):
        return dict(properties)
    return {**properties, "listeners": f"{name.strip()}://{f'[{host}]' if ':' in host else host}:{port}"}


def check_advertised(key: str, host: str) -> None:
    """Raise ConfigError with Kafka's message if clients can't connect to an address."""
    if host == _META_ADDRESS:
        raise ConfigError(f"{key} cannot use the nonroutable meta-address {_META_ADDRESS}. Use a routable IP address.")


def _protocols(pairs: tuple[str, ...]) -> dict[str, SecurityProtocol]:
    protocols = {protocol.value: protocol for protocol in SecurityProtocol}
    # As in Kafka's default map, each protocol is also the name of a listener.
    named = dict(protocols)
    for pair in pairs:
        name, _, protocol = pair.partition(":")
        if not name or protocol.upper() not in protocols:
            raise ConfigError(f"setting 'listener.security.protocol.map': {pair!r} is not NAME:PROTOCOL")
        # Case-insensitive, as in Kafka.
        named[name.upper()] = protocols[protocol.upper()]
    return named


def _addresses(key: str, texts: tuple[str, ...]) -> list[Address]:
    addresses: dict[str, Address] = {}
    for text in texts:
        match = _ADDRESS.fullmatch(text)
        if match is None or int(match["port"]) > _PORT_MAX:
            raise ConfigError(f"setting {key!r}: {text!r} is not NAME://HOST:PORT")
        name = match["name"].upper()
        if name in addresses:
            raise ConfigError(f"setting {key!r} names {name} twice")
        addresses[name] = Address(name, match["host"].strip("[]"), int(match["port"]))
    return list(addresses.values())


_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class TlsListener(NamedTuple):
    """TLS of a listener; ``new_principal`` is None if clients log in by SASL."""

    context: ssl.SSLContext
    new_principal: NewPrincipal | None


def tls_listener(settings: SecuritySettings, *, uses_sasl: bool) -> TlsListener:
    rules = parse_rules(settings.ssl_principal_mapping_rules)
    return TlsListener(server_context(settings), None if uses_sasl else certificate_principal(rules))


def server_context(settings: SecuritySettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in settings.ssl_enabled_protocols]
    # The ssl module takes a range.
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    try:
        _load_identity(context, settings)
        _load_trust(context, settings)
    except (OSError, ValueError) as error:  # ssl.SSLError is one
        raise ConfigError(f"settings 'ssl.keystore…', 'ssl.truststore…': {error}") from None
    context.verify_mode = _VERIFY[settings.ssl_client_auth]
    return context


def _load_identity(context: ssl.SSLContext, settings: SecuritySettings) -> None:
    password = settings.ssl_key_password or settings.ssl_keystore_password
    if settings.ssl_keystore_location:
        context.load_cert_chain(settings.ssl_keystore_location, password=password)
    elif settings.ssl_keystore_certificate_chain and settings.ssl_keystore_key:
        load_identity(context, settings.ssl_keystore_key, settings.ssl_keystore_certificate_chain, password)
    else:
        raise ValueError("a listener with TLS needs a certificate and its key")


def _load_trust(context: ssl.SSLContext, settings: SecuritySettings) -> None:
    if settings.ssl_truststore_location:
        context.load_verify_locations(settings.ssl_truststore_location)
    elif settings.ssl_truststore_certificates:
        context.load_verify_locations(cadata=settings.ssl_truststore_certificates)
    # The system's authorities; without client certificates nothing is verified.
    elif settings.ssl_client_auth != "none":
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
