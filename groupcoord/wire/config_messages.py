"""Requests and responses about settings of topics, groups and brokers (KIP-133, KIP-339, KIP-1043): no bytes."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from attrs import define, frozen

from groupcoord.errors import ErrorCode


class ConfigResourceType(IntEnum):
    """What has settings, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from, by Kafka's numbers: where several have one, the topic or group itself counts first."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(IntEnum):
    """What a value is, by Kafka's numbers."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class AlterConfigOp(IntEnum):
    """What to do with a setting, by Kafka's numbers; the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# ---------------------------------------------------------------- DescribeConfigs


class ResourceToDescribe(NamedTuple):
    """A thing whose settings are asked for; no ``configuration_keys``, or none in them: all."""

    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None = None


@define
class DescribeConfigs:
    """Ask for settings (API key 32)."""

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
    """One of the settings that a value is taken from, the first of which counts."""

    name: str
    value: str
    source: int


class DescribedConfig(NamedTuple):
    """One setting. ``documentation`` None: there is none."""

    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    config_type: int = ConfigType.UNKNOWN
    documentation: str | None = None


class DescribedConfigs(NamedTuple):
    """The settings of one thing, or an error with none. As a broker sends it, the message of no error is ""."""

    error_code: ErrorCode
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: tuple[DescribedConfig, ...] = ()


@frozen
class DescribeConfigsResponse:
    """One entry for each thing, one that is named twice twice."""

    results: tuple[DescribedConfigs, ...]


# ---------------------------------------------------------------- changing settings


class ConfigToAlter(NamedTuple):
    """One setting and what to do with it: an :class:`AlterConfigOp`, or an unknown number."""

    name: str
    value: str | None
    config_operation: int = AlterConfigOp.SET


class ResourceToAlter(NamedTuple):
    """A thing and its settings to change."""

    resource_type: int
    resource_name: str
    configs: tuple[ConfigToAlter, ...]


@define
class IncrementalAlterConfigs:
    """Change some settings (API key 44), or only say what would happen."""

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
    """Replace all settings that a thing has of its own (API key 33), or only say what would happen."""

    resources: tuple[ResourceToAlter, ...]
    validate_only: bool = False

    def refused(self, error_code: ErrorCode, message: str | None = None) -> AlterConfigsResponse:
        altered = [
            AlteredResource(error_code, message, resource.resource_type, resource.resource_name)
            for resource in self.resources
        ]
        return AlterConfigsResponse(tuple(altered))


class AlteredResource(NamedTuple):
    """What became of one thing."""

    error_code: ErrorCode
    error_message: str | None
    resource_type: int
    resource_name: str


@frozen
class IncrementalAlterConfigsResponse:
    """One entry for each thing, one that is named twice twice."""

    responses: tuple[AlteredResource, ...]


@frozen
class AlterConfigsResponse:
    """One entry for each thing, one that is named twice twice."""

    responses: tuple[AlteredResource, ...]


# ---------------------------------------------------------------- ListConfigResources


@define
class ListConfigResources:
    """List what has settings (API key 74, KIP-1142), by :class:`ConfigResourceType`; no type at all: all types."""

    resource_types: tuple[int, ...] = ()

    def refused(self, error_code: ErrorCode, message: str | None = None) -> ListConfigResourcesResponse:
        return ListConfigResourcesResponse(error_code)


class ConfigResource(NamedTuple):
    """A thing that has settings."""

    resource_name: str
    resource_type: int


@frozen
class ListConfigResourcesResponse:
    """What has settings."""

    error_code: ErrorCode = ErrorCode.NONE
    config_resources: tuple[ConfigResource, ...] = ()


ConfigRequest = DescribeConfigs | IncrementalAlterConfigs | AlterConfigs | ListConfigResources

ConfigResponse = (
    DescribeConfigsResponse | IncrementalAlterConfigsResponse | AlterConfigsResponse | ListConfigResourcesResponse
)
