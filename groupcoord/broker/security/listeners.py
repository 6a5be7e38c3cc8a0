"""Listeners: where a server listens, what is spoken there, and what its clients are told to connect to.

The forms of ``listeners``, ``advertised.listeners`` and ``listener.security.protocol.map`` are Kafka's (KIP-103).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from attrs import frozen

from groupcoord.broker.addresses import ANY_ADDRESS
from groupcoord.broker.security.settings import SecuritySettings
from groupcoord.errors import ConfigError

_ADDRESS = re.compile(r"(?P<name>[A-Za-z0-9_-]+)://(?P<host>\[[0-9a-fA-F:.%]*\]|[^:/]*):(?P<port>[0-9]{1,5})")
_PORT_MAX = 65_535
_META_ADDRESS = "0.0.0.0"


class SecurityProtocol(StrEnum):
    """What is spoken on a listener."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        """Tell whether TLS is spoken."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        """Tell whether clients log in by SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Address(NamedTuple):
    """A listener's name, and an address."""

    name: str
    host: str
    port: int


@frozen
class Listener:
    """One listener.

    Attributes:
        name: Kafka's listener name; the same as the protocol unless a map says otherwise.
        protocol: what is spoken there.
        host: the address to listen on; empty: every address of the machine.
        port: the port to listen on; 0 takes a free one.
        advertised_host: what clients are told.
        advertised_port: what clients are told; 0: the port that is listened on.
    """

    name: str
    protocol: SecurityProtocol
    host: str
    port: int
    advertised_host: str
    advertised_port: int


def listeners_of(settings: SecuritySettings) -> tuple[Listener, ...]:
    """Return the listeners that settings describe, in their order; none if they name none.

    Raises:
        ConfigError: they contradict each other, or one isn't ``NAME://HOST:PORT``.
    """
    protocols = _protocols(settings.listener_security_protocol_map)
    advertised = {
        address.name: address for address in _addresses("advertised.listeners", settings.advertised_listeners)
    }
    listeners = []
    for name, host, port in _addresses("listeners", settings.listeners):
        if name not in protocols:
            raise ConfigError(f"setting 'listeners': no protocol is known for {name} (listener.security.protocol.map)")
        told = advertised.pop(name, None)
        if told is None and host in ANY_ADDRESS:
            raise ConfigError(f"setting 'listeners': {name} on every address needs one in 'advertised.listeners'")
        told = told or Address(name, host, 0)
        check_advertised("advertised.listeners", told.host)
        listeners.append(Listener(name, protocols[name], host, port, told.host, told.port))
    if advertised:
        raise ConfigError(f"setting 'advertised.listeners': {next(iter(advertised))} is not among 'listeners'")
    return tuple(listeners)


def with_listener(properties: Mapping[str, str | int | float], host: str, port: int) -> Mapping[str, str | int | float]:
    """Return settings whose only address in ``advertised.listeners`` has a listener, if ``listeners`` is not set.

    Args:
        properties: Kafka's settings.
        host: the address to listen on.
        port: the port to listen on; 0 takes a free one.
    """
    text = str(properties.get("advertised.listeners", ""))
    name, separator, _ = text.partition("://")
    if not separator or "," in text or properties.get("listeners"):
        return dict(properties)
    return {**properties, "listeners": f"{name.strip()}://{f'[{host}]' if ':' in host else host}:{port}"}


def check_advertised(key: str, host: str) -> None:
    """Raise ConfigError if clients can't connect to an address, in Kafka's words."""
    if host == _META_ADDRESS:
        raise ConfigError(f"{key} cannot use the nonroutable meta-address {_META_ADDRESS}. Use a routable IP address.")


def _protocols(pairs: tuple[str, ...]) -> dict[str, SecurityProtocol]:
    protocols = {protocol.value: protocol for protocol in SecurityProtocol}
    named = dict(protocols)
    for pair in pairs:
        name, _, protocol = pair.partition(":")
        if not name or protocol.upper() not in protocols:
            raise ConfigError(f"setting 'listener.security.protocol.map': {pair!r} is not NAME:PROTOCOL")
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
