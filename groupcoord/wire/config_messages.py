"""Requests and responses of settings of topics, groups and brokers (KIP-133, KIP-339, KIP-1043), independent of
version.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from attrs import define, frozen

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages.request import Request
from groupcoord.errors import ErrorCode
from groupcoord.wire.broker_messages import BrokerResponse


class ConfigResourceType(IntEnum):
    """Type of a resource with settings, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Source of a value, by Kafka's numbers. The value of the topic or group itself takes precedence."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(IntEnum):
    """Type of a value, by Kafka's numbers."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class AlterConfigOp(IntEnum):
    """Operation on a setting, by Kafka's numbers; the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# ---------------------------------------------------------------- DescribeConfigs


class ResourceToDescribe(NamedTuple):
    """A resource to describe; no ``configuration_keys`` stand for all settings."""

    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None = None


@define
class DescribeConfigs(Request["DescribeConfigsResponse"]):
    """Request settings (API key 32)."""

    resources: tuple[ResourceToDescribe, ...]
    include_synonyms: bool = False


class ConfigSynonym(NamedTuple):
    """One source of a value; the first one takes effect."""

    name: str
    value: str
    source: int


class DescribedConfig(NamedTuple):
    """One setting."""

    name: str
    value: str | None
    read_only: bool
    config_source: int
    synonyms: tuple[ConfigSynonym, ...] = ()
    config_type: int = ConfigType.UNKNOWN


class DescribedConfigs(NamedTuple):
    """Settings of one resource, or an error without settings. Without an error a broker sends the message ""."""

    error_code: ErrorCode
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: tuple[DescribedConfig, ...] = ()


@frozen
class DescribeConfigsResponse(BrokerResponse):
    """One entry for each resource of the request, duplicates included."""

    results: tuple[DescribedConfigs, ...]


# ---------------------------------------------------------------- changing settings


class ConfigToAlter(NamedTuple):
    """One setting and an operation: an :class:`AlterConfigOp` or an unknown number."""

    name: str
    value: str | None
    config_operation: int = AlterConfigOp.SET


class ResourceToAlter(NamedTuple):
    """A resource and the changes of its settings."""

    resource_type: int
    resource_name: str
    configs: tuple[ConfigToAlter, ...]


@define
class IncrementalAlterConfigs(Request["AlterConfigsResponse"]):
    """Change some settings (API key 44), or validate only."""

    resources: tuple[ResourceToAlter, ...]
    validate_only: bool = False


@define
class AlterConfigs(Request["AlterConfigsResponse"]):
    """Replace all settings of resources (API key 33), or validate only."""

    resources: tuple[ResourceToAlter, ...]
    validate_only: bool = False


class AlteredResource(NamedTuple):
    """Result for one resource."""

    error_code: ErrorCode
    error_message: str | None
    resource_type: int
    resource_name: str


@frozen
class AlterConfigsResponse(BrokerResponse):
    """One entry for each resource of the request, duplicates included."""

    responses: tuple[AlteredResource, ...]


# ---------------------------------------------------------------- ListConfigResources


@define
class ListConfigResources(Request["ListConfigResourcesResponse"]):
    """List resources with settings (API key 74, KIP-1142) by :class:`ConfigResourceType`; no types stand for all."""

    resource_types: tuple[int, ...] = ()


class ConfigResource(NamedTuple):
    """A resource with settings."""

    resource_name: str
    resource_type: int


@frozen
class ListConfigResourcesResponse(BrokerResponse):
    """Resources with settings."""

    error_code: ErrorCode = ErrorCode.NONE
    config_resources: tuple[ConfigResource, ...] = ()


class QuotaMatch(IntEnum):
    """Match of the name of a quota entity, by Kafka's numbers."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


class QuotaComponent(NamedTuple):
    """One component of a quota filter; ``match_type`` is a :class:`QuotaMatch` or an unknown number."""

    entity_type: str
    match_type: int
    match: str | None


@define
class DescribeClientQuotas(Request["DescribeClientQuotasResponse"]):
    """Request quotas (API key 48, KIP-546)."""

    components: tuple[QuotaComponent, ...]
    strict: bool = False


class QuotaEntity(NamedTuple):
    """Entity of a quota or one part of it; ``entity_name`` None is the default entity."""

    entity_type: str
    entity_name: str | None


class QuotaValue(NamedTuple):
    """One limit."""

    key: str
    value: float


class DescribedQuotas(NamedTuple):
    """The limits of one entity."""

    entity: tuple[QuotaEntity, ...]
    values: tuple[QuotaValue, ...]


@frozen
class DescribeClientQuotasResponse(BrokerResponse):
    """The quotas, or None with an error."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    entries: tuple[DescribedQuotas, ...] | None = None


class QuotaOperation(NamedTuple):
    """A limit to set, or to remove."""

    key: str
    value: float
    remove: bool


class QuotasToAlter(NamedTuple):
    """One entity and the changes of its limits."""

    entity: tuple[QuotaEntity, ...]
    ops: tuple[QuotaOperation, ...]


@define
class AlterClientQuotas(Request["AlterClientQuotasResponse"]):
    """Change quotas (API key 49), or validate only."""

    entries: tuple[QuotasToAlter, ...]
    validate_only: bool = False


class AlteredQuotas(NamedTuple):
    """Result for one entity."""

    error_code: ErrorCode
    error_message: str | None
    entity: tuple[QuotaEntity, ...]


@frozen
class AlterClientQuotasResponse(BrokerResponse):
    """One entry for each entity."""

    entries: tuple[AlteredQuotas, ...]


@define
class GetTelemetrySubscriptions(Request["GetTelemetrySubscriptionsResponse"]):
    """Request the metrics to send (API key 71); with the zero id, also a new id."""

    client_instance_id: UUID


class GetTelemetrySubscriptionsResponse(NamedTuple):
    """Requested metrics, by prefixes of their names, and the interval."""

    error_code: ErrorCode = ErrorCode.NONE
    client_instance_id: UUID = ZERO_UUID
    subscription_id: int = 0
    accepted_compression_types: tuple[int, ...] = ()
    push_interval_ms: int = 0
    telemetry_max_bytes: int = 0
    delta_temporality: bool = False
    requested_metrics: tuple[str, ...] = ()


@define
class PushTelemetry(Request["PushTelemetryResponse"]):
    """Send metrics (API key 72); ``terminating``: these are the last."""

    client_instance_id: UUID
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes

    def __repr__(self) -> str:
        return f"PushTelemetry({self.client_instance_id}, {self.subscription_id}, {len(self.metrics)} bytes)"


class PushTelemetryResponse(NamedTuple):
    """Success or an error."""

    error_code: ErrorCode = ErrorCode.NONE


TelemetryResponse = GetTelemetrySubscriptionsResponse | PushTelemetryResponse
