"""Requests and responses of settings of topics, groups and brokers (KIP-133, KIP-339, KIP-1043), independent of
version.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from attrs import define, frozen

from groupcoord.errors import ErrorCode


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
    """A resource whose settings are requested; no ``configuration_keys`` stand for all."""

    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None = None


@define
class DescribeConfigs:
    """Request settings (API key 32)."""

    resources: tuple[ResourceToDescribe, ...]
    include_synonyms: bool = False
    include_documentation: bool = False

    def refused(self, error_code: ErrorCode, message: str | None = None) -> DescribeConfigsResponse:
        described = [
            DescribedConfigs(error_code, message, resource.resource_type, resource.resource_name)
            for resource in self.resources
        ]
        return DescribeConfigsResponse(tuple(described))


class ConfigSynonym(NamedTuple):
    """One source of a value; the first one counts."""

    name: str
    value: str
    source: int


class DescribedConfig(NamedTuple):
    """One setting."""

    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    config_type: int = ConfigType.UNKNOWN
    documentation: str | None = None


class DescribedConfigs(NamedTuple):
    """Settings of one resource, or an error without settings. The message without an error is "",
    as a broker sends it.
    """

    error_code: ErrorCode
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: tuple[DescribedConfig, ...] = ()


@frozen
class DescribeConfigsResponse:
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
class IncrementalAlterConfigs:
    """Change some settings (API key 44), or validate only."""

    resources: tuple[ResourceToAlter, ...]
    validate_only: bool = False

    def refused(self, error_code: ErrorCode, message: str | None = None) -> IncrementalAlterConfigsResponse:
        altered = [
            AlteredResource(error_code, message, resource.resource_type, resource.resource_name)
            for resource in self.resources
        ]
        return IncrementalAlterConfigsResponse(tuple(altered))


@define
class AlterConfigs:
    """Replace all settings of resources (API key 33), or validate only."""

    resources: tuple[ResourceToAlter, ...]
    validate_only: bool = False

    def refused(self, error_code: ErrorCode, message: str | None = None) -> AlterConfigsResponse:
        altered = [
            AlteredResource(error_code, message, resource.resource_type, resource.resource_name)
            for resource in self.resources
        ]
        return AlterConfigsResponse(tuple(altered))


class AlteredResource(NamedTuple):
    """Result for one resource."""

    error_code: ErrorCode
    error_message: str | None
    resource_type: int
    resource_name: str


@frozen
class IncrementalAlterConfigsResponse:
    """One entry for each resource of the request, duplicates included."""

    responses: tuple[AlteredResource, ...]


@frozen
class AlterConfigsResponse:
    """One entry for each resource of the request, duplicates included."""

    responses: tuple[AlteredResource, ...]


# ---------------------------------------------------------------- ListConfigResources


@define
class ListConfigResources:
    """List resources with settings (API key 74, KIP-1142) by :class:`ConfigResourceType`; no types stand for all."""

    resource_types: tuple[int, ...] = ()

    def refused(self, error_code: ErrorCode, message: str | None = None) -> ListConfigResourcesResponse:
        return ListConfigResourcesResponse(error_code)


class ConfigResource(NamedTuple):
    """A resource with settings."""

    resource_name: str
    resource_type: int


@frozen
class ListConfigResourcesResponse:
    """Resources with settings."""

    error_code: ErrorCode = ErrorCode.NONE
    config_resources: tuple[ConfigResource, ...] = ()


ConfigRequest = DescribeConfigs | IncrementalAlterConfigs | AlterConfigs | ListConfigResources

ConfigResponse = (
    DescribeConfigsResponse | IncrementalAlterConfigsResponse | AlterConfigsResponse | ListConfigResourcesResponse
)
