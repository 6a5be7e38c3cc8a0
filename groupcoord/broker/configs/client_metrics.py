"""Client metrics (KIP-714): subscriptions, GetTelemetrySubscriptions and PushTelemetry.

Pushes are validated, their metrics discarded. Source: ``ClientMetricsManager`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid4

import re2
from attrs import define, frozen

from groupcoord.broker.configs.definitions import (
    Configs,
    Definition,
    Definitions,
    FreeText,
    KeptConfigs,
    checked_values,
)
from groupcoord.broker.connection import Connection
from groupcoord.broker.json_file import DataFileError, JsonFile, Place
from groupcoord.clock import Clock
from groupcoord.config.settings import INT32_MAX, Number, trim
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.errors import ConfigError, ErrorCode
from groupcoord.wire.config_messages import (
    ConfigType,
    GetTelemetrySubscriptions,
    GetTelemetrySubscriptionsResponse,
    PushTelemetry,
    PushTelemetryResponse,
)

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
"""Client attributes that ``match`` can test."""

SUBSCRIPTIONS_MAX = 100
"""Bound of the work of each request, which is matched against all."""

EXPRESSION_MEMORY_BYTES = 65_536
CLIENT_METRICS_DEFINITIONS: Definitions = MappingProxyType(
    {
        # Any int32 parses: an interval out of range has its own error code.
        INTERVAL_MS: Definition(INTERVAL_MS, Number(-INT32_MAX - 1, INT32_MAX), USUAL_MS),
        MATCH: Definition(MATCH, FreeText(ConfigType.LIST), ""),
        METRICS: Definition(METRICS, FreeText(ConfigType.LIST), ""),
    }
)


class IntervalError(ConfigError):
    """Interval out of range, which has its own error code."""


@frozen
class Subscription:
    """Metrics wanted from matching clients."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, configs: Configs) -> Subscription:
        """Parse the configs of a subscription."""
        return cls(
            _parts(METRICS, configs),
            int(configs.get(INTERVAL_MS, USUAL_MS)),
            tuple(dict(_pattern(part) for part in _parts(MATCH, configs)).items()),
        )

    def is_for(self, client: dict[str, str]) -> bool:
        """Return whether a client matches."""
        return all(pattern.fullmatch(client.get(selector, "")) for selector, pattern in self.patterns)


def _parts(key: str, configs: Configs) -> tuple[str, ...]:
    text = trim(configs.get(key, ""))
    parts = tuple(map(trim, text.split(","))) if text else ()
    if not all(parts):
        raise ConfigError(f"Configuration '{key}' values must not be empty.")
    return parts


def _pattern(part: str) -> tuple[str, Any]:
    # Java's split drops empty strings at the end.
    selector, *expressions = map(trim, part.rstrip("=").split("="))
    if selector not in SELECTORS or len(expressions) != 1:
        raise ConfigError(f"Illegal client matching pattern: {part}")
    options = re2.Options()
    options.log_errors = False
    # RE2 refuses larger expressions; each request runs all.
    options.max_mem = EXPRESSION_MEMORY_BYTES
    try:
        return selector, re2.compile(expressions[0], options)
    except re2.error:
        raise ConfigError(f"Illegal client matching pattern: {part}") from None


def checked_client_metrics(own: Configs) -> Configs:
    configs, values = checked_values(own, CLIENT_METRICS_DEFINITIONS, "client metrics")
    interval_ms = values.get(INTERVAL_MS, USUAL_MS)
    if not SHORTEST_MS <= interval_ms <= LONGEST_MS:
        raise IntervalError(
            f"Invalid value {interval_ms} for interval.ms, interval must be between {SHORTEST_MS} and {LONGEST_MS} "
            "(1 hour)"
        )
    Subscription.of(configs)
    return configs


class ClientMetrics(KeptConfigs):
    """Subscriptions by name."""

    def __init__(self, place: Place | None = None) -> None:
        # Set by the base class, which reads the file.
        self.subscriptions: tuple[Subscription, ...] = ()
        super().__init__(JsonFile(place, FILE_NAME, "subscriptions"), "client-metrics")

    def _set(self, own: dict[str, Configs]) -> None:
        try:
            # First, so that an invalid file changes nothing.
            self.subscriptions = tuple(Subscription.of(configs) for configs in own.values())
        except ConfigError as error:
            raise DataFileError(str(error)) from None
        super()._set(own)


ALL_METRICS = "*"
CLIENTS_MAX = 16_384
"""As in Kafka, the least recently active client is evicted."""

TELEMETRY_MAX_BYTES = 1_048_576
ZSTD, LZ4, GZIP, SNAPPY = 4, 3, 1, 2
ACCEPTED = (ZSTD, LZ4, GZIP, SNAPPY)


@define
class _Client:
    subscription_id: int
    interval_ms: int
    asked_ms: int | None = None
    pushed_ms: int | None = None
    is_terminating: bool = False


class Telemetry:
    """Handler of telemetry requests."""

    def __init__(self, metrics: ClientMetrics, clock: Clock, new_id: Callable[[], UUID] = uuid4) -> None:
        self._metrics = metrics
        self._clock = clock
        self._new_id = new_id
        self._clients: OrderedDict[UUID, _Client] = OrderedDict()
        self._first_known_by: dict[Connection, UUID] = {}

    def answer_subscriptions(
        self, connection: Connection, request: GetTelemetrySubscriptions
    ) -> GetTelemetrySubscriptionsResponse:
        client_id = request.client_instance_id
        # KIP-714: the broker chooses the id of a new client.
        if client_id == ZERO_UUID:
            client_id = self._new_id()
        client, wanted = self._client(client_id, connection)
        now_ms = self._clock.now_ms()
        seen_ms = max((at_ms for at_ms in (client.asked_ms, client.pushed_ms) if at_ms is not None), default=None)
        # A push counts like a request for subscriptions.
        if seen_ms is not None and now_ms - seen_ms < client.interval_ms:
            return GetTelemetrySubscriptionsResponse(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        client.asked_ms = now_ms
        return GetTelemetrySubscriptionsResponse(
            ErrorCode.NONE,
            client_id,
            client.subscription_id,
            ACCEPTED,
            client.interval_ms,
            TELEMETRY_MAX_BYTES,
            True,
            wanted,
        )

    def answer_push(self, connection: Connection, request: PushTelemetry) -> PushTelemetryResponse:
        return PushTelemetryResponse(self._error_of(request, connection))

    def disconnected(self, connection: Connection) -> None:
        """Remove the newest client first seen on a connection."""
        client_id = self._first_known_by.pop(connection, None)
        if client_id is not None:
            self._clients.pop(client_id, None)

    def _error_of(self, request: PushTelemetry, connection: Connection) -> ErrorCode:
        now_ms = self._clock.now_ms()
        if request.client_instance_id == ZERO_UUID:
            return ErrorCode.INVALID_REQUEST
        client, _ = self._client(request.client_instance_id, connection)
        # KIP-714: no push may follow a terminating one.
        if client.is_terminating:
            return ErrorCode.INVALID_REQUEST
        # ClientMetricsManager's order: throttling, subscription id, compression, size.
        is_early = client.pushed_ms is not None and now_ms - client.pushed_ms < client.interval_ms
        has_asked_since = client.asked_ms is not None and client.asked_ms > (client.pushed_ms or 0)
        # A client may push at once after it got its subscription.
        if is_early and not has_asked_since and not request.terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        # Even a push with another subscription id uses up the interval.
        client.is_terminating = request.terminating
        client.pushed_ms = now_ms
        if request.subscription_id != client.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if request.compression_type and request.compression_type not in ACCEPTED:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.TELEMETRY_TOO_LARGE if len(request.metrics) > TELEMETRY_MAX_BYTES else ErrorCode.NONE

    def _client(self, client_id: UUID, connection: Connection) -> tuple[_Client, tuple[str, ...]]:
        """Return a client and its wanted metrics; a changed subscription resets the client."""
        wanted, interval_ms = self._wanted(client_id, connection)
        subscription_id = _id_of(client_id, wanted, interval_ms)
        client = self._clients.get(client_id)
        if client is None:
            self._first_known_by[connection] = client_id
        if client is None or client.subscription_id != subscription_id:
            client = self._clients[client_id] = _Client(subscription_id, interval_ms)
            if len(self._clients) > CLIENTS_MAX:
                self._clients.popitem(last=False)
        self._clients.move_to_end(client_id)
        return client, wanted

    def _wanted(self, client_id: UUID, connection: Connection) -> tuple[tuple[str, ...], int]:
        name, version = connection.software
        # No source port: a pattern for it is matched against an empty text.
        client = {
            "client_instance_id": str(client_id),
            "client_id": connection.client_id,
            "client_software_name": name,
            "client_software_version": version,
            "client_source_address": connection.client_host.removeprefix("/"),
        }
        found = [subscription for subscription in self._metrics.subscriptions if subscription.is_for(client)]
        metrics = dict.fromkeys(metric for subscription in found for metric in subscription.metrics)
        wanted = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(metrics)
        return wanted, min((subscription.interval_ms for subscription in found), default=USUAL_MS)


def _id_of(client_id: UUID, wanted: tuple[str, ...], interval_ms: int) -> int:
    """Return the subscription id: Kafka's, except for the order of metrics."""
    from crc32c import crc32c

    # ``Uuid.hashCode``.
    halves = client_id.int >> 64 ^ client_id.int & 0xFFFFFFFFFFFFFFFF
    unsigned: int = crc32c(f"[{', '.join(wanted)}]{interval_ms}".encode()) ^ (halves >> 32 ^ halves) & 0xFFFFFFFF
    return unsigned - 0x100000000 if unsigned > INT32_MAX else unsigned
