"""Requests and responses about the metrics of clients (KIP-714): no bytes, no versions."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.errors import ErrorCode


class GetTelemetrySubscriptions(NamedTuple):
    """Ask which metrics are wanted (API key 71); the zero id asks for one, too."""

    client_instance_id: UUID

    def refused(self, error_code: ErrorCode, message: str | None = None) -> GetTelemetrySubscriptionsResponse:
        return GetTelemetrySubscriptionsResponse(error_code)


class GetTelemetrySubscriptionsResponse(NamedTuple):
    """Which metrics are wanted, by the beginnings of their names, and how often."""

    error_code: ErrorCode = ErrorCode.NONE
    client_instance_id: UUID = ZERO_UUID
    subscription_id: int = 0
    accepted_compression_types: tuple[int, ...] = ()
    push_interval_ms: int = 0
    telemetry_max_bytes: int = 0
    delta_temporality: bool = False
    requested_metrics: tuple[str, ...] = ()


class PushTelemetry(NamedTuple):
    """Send metrics (API key 72); ``terminating``: these are the last."""

    client_instance_id: UUID
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes

    def __repr__(self) -> str:
        return f"PushTelemetry({self.client_instance_id}, {self.subscription_id}, {len(self.metrics)} bytes)"

    def refused(self, error_code: ErrorCode, message: str | None = None) -> PushTelemetryResponse:
        return PushTelemetryResponse(error_code)


class PushTelemetryResponse(NamedTuple):
    """Whether the metrics were taken."""

    error_code: ErrorCode = ErrorCode.NONE


TelemetryRequest = GetTelemetrySubscriptions | PushTelemetry
TelemetryResponse = GetTelemetrySubscriptionsResponse | PushTelemetryResponse
