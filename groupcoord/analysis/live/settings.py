"""Settings of connections to a cluster, under Kafka's names, from a properties file or the environment."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from ssl import SSLContext

from attrs import frozen

from groupcoord.analysis.errors import InputError
from groupcoord.config.client_properties import ClientProperties, by_names_of_kafka, read_properties
from groupcoord.errors import ConfigError

ENVIRONMENT_PREFIX = "KAFKA_CLIENT_"
"""``KAFKA_CLIENT_SASL_JAAS_CONFIG`` in the environment is the setting ``sasl.jaas.config``."""

BOOTSTRAP_SERVERS = "bootstrap.servers"

_DURATIONS_MS = {
    "request.timeout.ms": 30_000,
    "default.api.timeout.ms": 60_000,
    "retry.backoff.ms": 100,
}
log = logging.getLogger(__name__)


@frozen
class ClusterAddress:
    """Address of a cluster without secrets, which may appear in plans and logs; these are read where they are used.

    Attributes:
        bootstrap_servers: ``HOST:PORT`` with commas between; empty to use the file or the environment.
        command_config: path of a properties file as for Kafka's commands, or None.
        properties: further client settings without secrets, which override the file.
    """

    bootstrap_servers: str = ""
    command_config: str | None = None
    properties: Mapping[str, str] = {}

    def settings(self) -> ClientSettings:
        try:
            given = by_names_of_kafka(dict(_of_environment(os.environ)))
            if self.command_config is not None:
                given |= by_names_of_kafka(read_properties(self.command_config))
            given |= by_names_of_kafka(dict(self.properties))
        except ConfigError as error:
            raise InputError(str(error)) from None
        if self.bootstrap_servers:
            given[BOOTSTRAP_SERVERS] = self.bootstrap_servers
        return client_settings(given)


def cluster_address(bootstrap_servers: str, command_config: str | os.PathLike[str] | None) -> ClusterAddress:
    """Return an address with the absolute path of the file: other processes work in other directories."""
    return ClusterAddress(bootstrap_servers, None if command_config is None else os.path.abspath(command_config))


@frozen
class ClientSettings:
    """Validated client settings.

    Attributes:
        default_api_timeout_ms: time to retry without progress.
    """

    properties: ClientProperties
    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(map(str, self.properties.addresses))

    def ssl_context(self) -> SSLContext | None:
        if not self.properties.uses_tls:
            return None
        try:
            return self.properties.tls_context()
        except ConfigError as error:
            raise InputError(str(error)) from None


def _of_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            yield name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", "."), value


def client_settings(given: Mapping[str, str]) -> ClientSettings:
    """Parse properties. Settings unrelated to connections are ignored with a log line."""
    try:
        properties = ClientProperties.from_mapping(given)
    except ConfigError as error:
        raise InputError(str(error)) from None
    if not properties.addresses:
        raise InputError(f"{BOOTSTRAP_SERVERS!r} is missing: HOST:PORT, with commas between several")
    for name in properties.unused_keys:
        if name not in _DURATIONS_MS:
            log.warning("setting %s is not used", name)
    durations_ms = [_number(name, given.get(name, str(default))) for name, default in _DURATIONS_MS.items()]
    return ClientSettings(properties, *durations_ms)


def _number(name: str, value: str) -> int:
    text = value.strip()
    if not text.isdecimal() or not int(text):
        raise InputError(f"{name!r} must be a number of 1 or more, not {text!r}")
    return int(text)
