"""Subscriptions to metrics of clients (KIP-714): kept and described, as settings of things that are called so."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import re2
from attrs import frozen

from groupcoord.broker.configs.definitions import Configs, Definition, Definitions, FreeText, checked_values
from groupcoord.broker.configs.kept import KeptConfigs
from groupcoord.broker.json_file import DataFileError, JsonFile, Place
from groupcoord.config.settings import INT32_MAX, Number, trim
from groupcoord.errors import ConfigError
from groupcoord.wire.config_messages import ConfigType

FILE_NAME = "client-metrics.json"
METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
SHORTEST_MS, USUAL_MS, LONGEST_MS = 100, 300_000, 3_600_000
SELECTORS = frozenset(
    (
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    )
)
"""What clients can be told apart by."""

SUBSCRIPTIONS_MAX = 100
"""So many are kept; each is held against every client that asks."""

EXPRESSION_MEMORY_BYTES = 65_536
"""An expression that takes more memory, compiled, is refused."""

CLIENT_METRICS_DEFINITIONS: Definitions = MappingProxyType(
    {
        INTERVAL_MS: Definition(INTERVAL_MS, Number(-INT32_MAX - 1, INT32_MAX), USUAL_MS),
        MATCH: Definition(MATCH, FreeText(ConfigType.LIST), ""),
        METRICS: Definition(METRICS, FreeText(ConfigType.LIST), ""),
    }
)


class ClientMetricsFileError(DataFileError):
    """The file of subscriptions can't be read or does not hold what it should; the message names file and reason."""


class IntervalError(ConfigError):
    """The interval is too short or too long, for which Kafka has another error code."""


@frozen
class Subscription:
    """Which metrics are wanted of which clients.

    Attributes:
        metrics: the beginnings of their names; ``*``: all.
        interval_ms: how often.
        patterns: what must match, by selector.
    """

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, configs: Configs) -> Subscription:
        """Return what these settings say.

        Raises:
            ConfigError: a pattern is none, or a name or a pattern is empty.
        """
        return cls(
            _parts(METRICS, configs),
            int(configs.get(INTERVAL_MS, USUAL_MS)),
            tuple(dict(_pattern(part) for part in _parts(MATCH, configs)).items()),
        )

    def is_for(self, client: dict[str, str]) -> bool:
        """Tell whether a client is meant, by its selectors."""
        return all(pattern.fullmatch(client.get(selector, "")) for selector, pattern in self.patterns)


def _parts(key: str, configs: Configs) -> tuple[str, ...]:
    text = trim(configs.get(key, ""))
    parts = tuple(map(trim, text.split(","))) if text else ()
    if not all(parts):
        raise ConfigError(f"Configuration '{key}' values must not be empty.")
    return parts


def _pattern(part: str) -> tuple[str, Any]:
    selector, equals, expression = part.partition("=")
    selector, expression = trim(selector), trim(expression)
    if not equals or selector not in SELECTORS or "=" in expression:
        raise ConfigError(f"Illegal client matching pattern: {part}")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = EXPRESSION_MEMORY_BYTES
    try:
        return selector, re2.compile(expression, options)
    except re2.error:
        raise ConfigError(f"Illegal client matching pattern: {part}") from None


def checked_client_metrics(own: Configs) -> Configs:
    """Return the settings that a subscription shall have, all of them, as they are told.

    Raises:
        ConfigError: it can't have them.
    """
    told, values = checked_values(own, CLIENT_METRICS_DEFINITIONS, "client metrics")
    interval_ms = values.get(INTERVAL_MS, USUAL_MS)
    if not SHORTEST_MS <= interval_ms <= LONGEST_MS:
        raise IntervalError(
            f"Invalid value {interval_ms} for interval.ms, interval must be between {SHORTEST_MS} and {LONGEST_MS} "
            "(1 hour)"
        )
    Subscription.of(told)
    return told


class ClientMetrics(KeptConfigs):
    """The subscriptions that there are, by their names.

    Args:
        place: where ``client-metrics.json`` lies or will lie; None keeps everything in memory.

    Raises:
        ClientMetricsFileError: the file is there but can't be read or does not hold subscriptions.
    """

    def __init__(self, place: Place | None = None) -> None:
        self.subscriptions: tuple[Subscription, ...] = ()
        super().__init__(JsonFile(place, FILE_NAME, "subscriptions", ClientMetricsFileError), "client-metrics")

    def _set(self, own: dict[str, Configs]) -> None:
        try:
            self.subscriptions = tuple(Subscription.of(configs) for configs in own.values())
        except ConfigError as error:
            raise ClientMetricsFileError(str(error)) from None
        super()._set(own)
