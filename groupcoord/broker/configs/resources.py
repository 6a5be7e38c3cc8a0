"""What has settings that clients can ask for and change: topics, groups, this broker, subscriptions to metrics.

The rules are those of Apache Kafka 4.4 (``ConfigHelper``, ``ConfigAdminManager``, ``ConfigurationControlManager``).
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve, frozen

from groupcoord.broker.configs.brokers import (
    ADVERTISED_LISTENERS,
    ALL_BROKERS,
    BROKER_DEFINITIONS,
    DYNAMIC,
    BrokerConfigs,
)
from groupcoord.broker.configs.client_metrics import CLIENT_METRICS_DEFINITIONS, ClientMetrics
from groupcoord.broker.configs.definitions import NO_CONFIGS, TOPIC_DEFINITIONS, Configs, Definitions, Layer
from groupcoord.broker.configs.group_definitions import GROUP_DEFINITIONS
from groupcoord.broker.configs.groups import GroupConfigs
from groupcoord.broker.topics.registry import TopicRegistry, check_topic_name
from groupcoord.config import Config
from groupcoord.core.router.authorization import Operation, Permissions
from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.wire.config_messages import ConfigResourceType, ConfigSource


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
        layers: what was set of the broker, for what it hasn't of its own.
        changeable: those that can be changed; None: all.
    """

    definitions: Definitions
    own: Configs
    source: ConfigSource
    layers: tuple[Layer, ...] = ()
    changeable: frozenset[str] | None = None


@frozen
class Resources:
    """Everything that has settings on this host."""

    config: Config
    node_id: int
    topics: TopicRegistry
    groups: GroupConfigs
    brokers: BrokerConfigs
    client_metrics: ClientMetrics
    advertised: Callable[[], str]

    @property
    def layers(self) -> tuple[Layer, ...]:
        """What was set of this broker since it was started; the first counts."""
        return self.brokers.layers(self.node_id)

    def find(self, resource_type: int, name: str) -> Resource:
        """Return a topic, a group, this broker, or a subscription to metrics of clients. There are no loggers.

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
            case ConfigResourceType.CLIENT_METRICS:
                if not name:
                    message = "Client metrics subscription name must not be empty"
                    raise ResourceError(ErrorCode.INVALID_REQUEST, message)
                return Resource(CLIENT_METRICS_DEFINITIONS, self.client_metrics.own(name), ConfigSource.CLIENT_METRICS)
            case ConfigResourceType.BROKER:
                self.check_broker(name, may_be_all=True)
                return self._broker() if name else self._all_brokers()
            case ConfigResourceType.BROKER_LOGGER:
                self.check_broker(name, may_be_all=False)
        return Resource({}, NO_CONFIGS, ConfigSource.DEFAULT)

    def _broker(self) -> Resource:
        fixed = Layer({ADVERTISED_LISTENERS: self.advertised()}, ConfigSource.STATIC_BROKER)
        own = self.brokers.own(str(self.node_id))
        layers = self.brokers.of_all(), fixed
        return Resource(BROKER_DEFINITIONS, own, ConfigSource.BROKER, layers, DYNAMIC)

    def _all_brokers(self) -> Resource:
        own = self.brokers.own(ALL_BROKERS)
        definitions = {name: evolve(BROKER_DEFINITIONS[name], broker_key=None) for name in own}
        return Resource(definitions, own, ConfigSource.ALL_BROKERS)

    def _topic(self, name: str) -> Resource:
        check_topic_name(name)
        topic = self.topics.get(name)
        if topic is None:
            raise ResourceError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return Resource(TOPIC_DEFINITIONS, topic.configs, ConfigSource.TOPIC, self.layers)

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
