"""Metrics of clients (KIP-714): they are told what is wanted; what they send is checked, and not kept.

Sources: ``ClientMetricsManager`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from uuid import UUID, uuid4

from attrs import define

from groupcoord.broker.configs.client_metrics import USUAL_MS, ClientMetrics
from groupcoord.broker.connection import Connection
from groupcoord.clock import Clock
from groupcoord.config.settings import INT32_MAX
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.errors import ErrorCode
from groupcoord.wire.config_messages import (
    GetTelemetrySubscriptions,
    GetTelemetrySubscriptionsResponse,
    PushTelemetry,
    PushTelemetryResponse,
)

ALL_METRICS = "*"
CLIENTS_MAX = 16_384
"""So many clients are remembered, as by Kafka; the one that was silent longest is forgotten first."""

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
    """Answers what clients ask about metrics.

    Args:
        metrics: what is wanted.
        clock: where the time comes from.
        new_id: makes ids of clients.
    """

    def __init__(self, metrics: ClientMetrics, clock: Clock, new_id: Callable[[], UUID] = uuid4) -> None:
        self._metrics = metrics
        self._clock = clock
        self._new_id = new_id
        self._clients: OrderedDict[UUID, _Client] = OrderedDict()
        self._first_known_by: dict[Connection, UUID] = {}

    def answer_subscriptions(
        self, request: GetTelemetrySubscriptions, connection: Connection
    ) -> GetTelemetrySubscriptionsResponse:
        """Tell a client what is wanted of it; who asks again too soon is told to wait."""
        client_id = request.client_instance_id
        if client_id == ZERO_UUID:
            client_id = self._new_id()
        client, wanted = self._client(client_id, connection)
        now_ms = self._clock.now_ms()
        seen_ms = max((at_ms for at_ms in (client.asked_ms, client.pushed_ms) if at_ms is not None), default=None)
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

    def answer_push(self, request: PushTelemetry, connection: Connection) -> PushTelemetryResponse:
        """Take a client's metrics, if it may send them now."""
        return PushTelemetryResponse(self._error_of(request, connection))

    def disconnected(self, connection: Connection) -> None:
        """Forget the client that came last of those that were first known by a connection."""
        client_id = self._first_known_by.pop(connection, None)
        if client_id is not None:
            self._clients.pop(client_id, None)

    def _error_of(self, request: PushTelemetry, connection: Connection) -> ErrorCode:
        now_ms = self._clock.now_ms()
        if request.client_instance_id == ZERO_UUID:
            return ErrorCode.INVALID_REQUEST
        client, _ = self._client(request.client_instance_id, connection)
        if client.is_terminating:
            return ErrorCode.INVALID_REQUEST
        is_early = client.pushed_ms is not None and now_ms - client.pushed_ms < client.interval_ms
        has_asked_since = client.asked_ms is not None and client.asked_ms > (client.pushed_ms or 0)
        if is_early and not has_asked_since and not request.terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        client.is_terminating = request.terminating
        client.pushed_ms = now_ms
        if request.subscription_id != client.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if request.compression_type and request.compression_type not in ACCEPTED:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.TELEMETRY_TOO_LARGE if len(request.metrics) > TELEMETRY_MAX_BYTES else ErrorCode.NONE

    def _client(self, client_id: UUID, connection: Connection) -> tuple[_Client, tuple[str, ...]]:
        """Return a client, who is a new one if something else is wanted of it now, and the metrics that are wanted."""
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
    """Return an id that changes when something else is wanted of a client: Kafka's, up to the order of metrics."""
    from crc32c import crc32c

    halves = client_id.int >> 64 ^ client_id.int & 0xFFFFFFFFFFFFFFFF
    unsigned: int = crc32c(f"[{', '.join(wanted)}]{interval_ms}".encode()) ^ (halves >> 32 ^ halves) & 0xFFFFFFFF
    return unsigned - 0x100000000 if unsigned > INT32_MAX else unsigned
