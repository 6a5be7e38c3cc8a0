"""What has settings that clients can ask for and change: topics, groups, and this broker.

The rules are those of Apache Kafka 4.4 (``ConfigHelper``, ``ConfigAdminManager``, ``ConfigurationControlManager``). The
broker's own settings are told, and can't be changed while it runs.
"""

from __future__ import annotations

from types import MappingProxyType

from attrs import fields, frozen

from groupcoord.broker.configs.definitions import (
    GROUP_DEFINITIONS,
    NO_CONFIGS,
    TOPIC_DEFINITIONS,
    Configs,
    Definition,
    Definitions,
)
from groupcoord.broker.configs.groups import GroupConfigs
from groupcoord.broker.topics.registry import TopicRegistry, check_topic_name
from groupcoord.config import Config, key_of, kind_of
from groupcoord.core.front.authorization import Operation, Permissions
from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.wire.config_messages import ConfigResourceType, ConfigSource

_INTERNAL = (
    "group_consumer_assignor_offload_enable",
    "group_consumer_regex_refresh_interval_ms",
    "records_enable",
    "records_memory_max_bytes",
)

BROKER_DEFINITIONS: Definitions = MappingProxyType(
    {
        key_of(attribute.name): Definition(
            key_of(attribute.name),
            kind_of(attribute.name),
            attribute.default,
            key_of(attribute.name),
            is_internal=attribute.name in _INTERNAL,
        )
        for attribute in fields(Config)
    }
)
"""The broker's own settings: those of :class:`~groupcoord.config.Config`."""


class ResourceError(GroupcoordError):
    """Settings can't be told or changed: the code and the message that a client is answered with."""

    def __init__(self, error_code: ErrorCode, message: str | None) -> None:
        super().__init__(message or error_code.name)
        self.error_code = error_code
        self.message = message


@frozen
class Resource:
    """A thing that has settings, as far as one who asks for them must know it.

    Attributes:
        definitions: the settings that it can have.
        own: those that it has of its own.
        source: what these are called.
        read_only: none can be changed.
    """

    definitions: Definitions
    own: Configs
    source: ConfigSource
    read_only: bool = False


@frozen
class Resources:
    """Everything that has settings on this host."""

    config: Config
    node_id: int
    topics: TopicRegistry
    groups: GroupConfigs

    def find(self, resource_type: int, name: str) -> Resource:
        """Return a topic, a group, or this broker. There are neither loggers nor client metrics.

        Raises:
            TopicError: INVALID_TOPIC_EXCEPTION.
            ResourceError: UNKNOWN_TOPIC_OR_PARTITION, or INVALID_REQUEST: it can't be called so.
        """
        match resource_type:
            case ConfigResourceType.TOPIC:
                return self._topic(name)
            case ConfigResourceType.GROUP:
                if not name:
                    raise ResourceError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
                return Resource(GROUP_DEFINITIONS, self.groups.own(name), ConfigSource.GROUP)
            case ConfigResourceType.BROKER:
                self.check_broker(name, may_be_all=True)
                definitions = BROKER_DEFINITIONS if name else {}
                return Resource(definitions, NO_CONFIGS, ConfigSource.STATIC_BROKER, read_only=True)
            case ConfigResourceType.BROKER_LOGGER:
                self.check_broker(name, may_be_all=False)
        return Resource({}, NO_CONFIGS, ConfigSource.DEFAULT)

    def _topic(self, name: str) -> Resource:
        check_topic_name(name)
        topic = self.topics.get(name)
        if topic is None:
            raise ResourceError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return Resource(TOPIC_DEFINITIONS, topic.configs, ConfigSource.TOPIC)

    def check_broker(self, name: str, *, may_be_all: bool) -> None:
        """Check that a broker's id is this broker's; "" stands for all of them.

        Raises:
            ResourceError: INVALID_REQUEST.
        """
        if not name:
            if may_be_all:
                return
            raise ResourceError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        try:
            node_id = int(name)
        except ValueError:
            message = f"Broker id must be an integer, but it is: {name}"
            raise ResourceError(ErrorCode.INVALID_REQUEST, message) from None
        if node_id != self.node_id:
            message = f"Unexpected broker id, expected {self.node_id}, but received {name}"
            raise ResourceError(ErrorCode.INVALID_REQUEST, message)


def check_permission(permissions: Permissions, resource_type: int, name: str, operation: Operation) -> None:
    """Check that this may be done to the settings of a thing.

    Raises:
        ResourceError: it may not: TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED.
    """
    match resource_type:
        case ConfigResourceType.TOPIC:
            kind, error_code = "Topic", permissions.topic_error(name, operation)
        case ConfigResourceType.GROUP:
            kind, error_code = "Group", permissions.group_error(name, operation)
        case _:
            is_allowed = permissions.on_cluster(operation)
            kind, error_code = "Cluster", ErrorCode.NONE if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if error_code is not ErrorCode.NONE:
        raise ResourceError(error_code, f"{kind} authorization failed.")


def is_known_type(resource_type: int) -> bool:
    """Tell whether things of this type have settings, in Kafka."""
    return resource_type in list(ConfigResourceType)
