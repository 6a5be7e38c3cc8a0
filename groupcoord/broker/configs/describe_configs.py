"""DescribeConfigs and ListConfigResources, and the resources that have configs.

Sources: ``ConfigHelper``, ``ConfigAdminManager``, ``ConfigurationControlManager`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import re
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
from groupcoord.broker.configs.definitions import NO_CONFIGS, TOPIC_DEFINITIONS, Configs, Definition, Definitions, Layer
from groupcoord.broker.configs.groups import GROUP_DEFINITIONS, GroupConfigs
from groupcoord.broker.topics.registry import Topic, TopicError, TopicRegistry, check_topic_name
from groupcoord.broker.work import Work, each
from groupcoord.config import Config
from groupcoord.config.settings import INT32_MAX
from groupcoord.core.router.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.errors import ErrorCode
from groupcoord.wire.broker_messages import CreatedTopicConfig
from groupcoord.wire.config_messages import (
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    DescribeConfigs,
    DescribeConfigsResponse,
    DescribedConfig,
    DescribedConfigs,
    ListConfigResources,
    ListConfigResourcesResponse,
    ResourceToDescribe,
)

_JAVA_INT = re.compile(r"([+-]?)0*(\d{1,10})")


class ResourceError(TopicError):
    """Error code and message of a resource."""


@frozen
class Resource:
    """A resource with configs.

    Attributes:
        own: its overrides.
        layers: broker configs in place of missing overrides.
        changeable: the configs that can change; None for all.
    """

    definitions: Definitions
    own: Configs
    source: ConfigSource
    layers: tuple[Layer, ...] = ()
    changeable: frozenset[str] | None = None


@frozen
class Resources:
    """All resources with configs."""

    config: Config
    node_id: int
    topics: TopicRegistry
    groups: GroupConfigs
    brokers: BrokerConfigs
    client_metrics: ClientMetrics
    advertised: Callable[[], str]

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.brokers.layers(self.node_id)

    def find(self, resource_type: int, name: str) -> Resource:
        """Return a resource; ResourceError if there is none."""
        match resource_type:
            case ConfigResourceType.TOPIC:
                return self._topic(name)
            case ConfigResourceType.GROUP:
                # Groups need not exist to have configs.
                if not name:
                    raise ResourceError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
                return Resource(GROUP_DEFINITIONS, self.groups.own(name), ConfigSource.GROUP)
            case ConfigResourceType.CLIENT_METRICS:
                if not name:
                    message = "Client metrics subscription name must not be empty"
                    raise ResourceError(ErrorCode.INVALID_REQUEST, message)
                return Resource(CLIENT_METRICS_DEFINITIONS, self.client_metrics.own(name), ConfigSource.CLIENT_METRICS)
            case ConfigResourceType.BROKER:
                if not name:
                    return self._all_brokers()
                expected = f"{self.node_id} or empty string"
                self.check_broker(name, f"Unexpected broker id, expected {expected}, but received {name}")
                return self._broker()
            case ConfigResourceType.BROKER_LOGGER:
                if not name:
                    raise ResourceError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
                self.check_broker(name, f"Unexpected broker id, expected {self.node_id} but received {name}")
        return Resource({}, NO_CONFIGS, ConfigSource.DEFAULT)

    def _broker(self) -> Resource:
        fixed = Layer({ADVERTISED_LISTENERS: self.advertised()}, ConfigSource.STATIC_BROKER)
        own = self.brokers.own(str(self.node_id))
        layers = self.brokers.of_all(), fixed
        return Resource(BROKER_DEFINITIONS, own, ConfigSource.BROKER, layers, DYNAMIC)

    def _all_brokers(self) -> Resource:
        own = self.brokers.own(ALL_BROKERS)
        # As recorded, only overrides are shown, without inherited synonyms.
        definitions = {name: evolve(BROKER_DEFINITIONS[name], broker_key=None) for name in own}
        return Resource(definitions, own, ConfigSource.ALL_BROKERS)

    def _topic(self, name: str) -> Resource:
        check_topic_name(name)
        topic = self.topics.get(name)
        if topic is None:
            raise ResourceError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return Resource(TOPIC_DEFINITIONS, topic.configs, ConfigSource.TOPIC, self.layers)

    def check_broker(self, name: str, mismatch: str, noun: str = "Broker") -> None:
        # As Java's Integer.parseInt; int() refuses 4,300 zeros.
        digits = _JAVA_INT.fullmatch(name)
        broker_id = INT32_MAX + 1 if digits is None else int(digits[1] + digits[2])
        if not -INT32_MAX - 1 <= broker_id <= INT32_MAX:
            raise ResourceError(ErrorCode.INVALID_REQUEST, f"{noun} id must be an integer, but it is: {name}")
        if broker_id != self.node_id:
            raise ResourceError(ErrorCode.INVALID_REQUEST, mismatch)


def check_permission(permissions: Permissions, resource_type: int, name: str, operation: Operation) -> None:
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
    # A list: before Python 3.12, `in` on the enum raises TypeError for integers.
    return resource_type in list(ConfigResourceType)


def answer_describe_configs(
    request: DescribeConfigs, resources: Resources, permissions: Permissions = UNRESTRICTED
) -> Work[DescribeConfigsResponse]:
    """Describe the configs of resources; denied ones come last."""
    are_known = yield from each(request.resources, lambda wanted: is_known_type(wanted.resource_type))
    # One unknown type fails the whole request.
    if not all(are_known):
        error_code, message = ErrorCode.INVALID_REQUEST, "There are settings of topics, groups and brokers only."
        refused = yield from each(request.resources, lambda wanted: _refusal(wanted, error_code, message))
        return DescribeConfigsResponse(refused)
    once: dict[ResourceToDescribe, DescribedConfigs] = {}
    described: list[DescribedConfigs] = []
    denied: list[DescribedConfigs] = []
    for wanted in request.resources:
        if described or denied:
            yield None
        try:
            check_permission(permissions, wanted.resource_type, wanted.resource_name, Operation.DESCRIBE_CONFIGS)
        except TopicError as error:
            denied.append(_refusal(wanted, error.error_code, error.message))
            continue
        # A request may repeat a resource any number of times.
        if wanted not in once:
            once[wanted] = _describe(wanted, resources, request.include_synonyms)
        described.append(once[wanted])
    return DescribeConfigsResponse(tuple(described + denied))


def _refusal(wanted: ResourceToDescribe, error_code: ErrorCode, message: str | None) -> DescribedConfigs:
    return DescribedConfigs(error_code, message, wanted.resource_type, wanted.resource_name)


def _describe(wanted: ResourceToDescribe, resources: Resources, include_synonyms: bool) -> DescribedConfigs:
    try:
        resource = resources.find(wanted.resource_type, wanted.resource_name)
    except TopicError as error:
        return _refusal(wanted, error.error_code, error.message)
    # Null and an empty list stand for all.
    keys = frozenset(wanted.configuration_keys or ())
    configs = tuple(
        _described(definition, resource, resources.config, include_synonyms)
        for name, definition in resource.definitions.items()
        if (not keys or name in keys) and (not definition.is_internal or name in resource.own)
    )
    return DescribedConfigs(ErrorCode.NONE, "", wanted.resource_type, wanted.resource_name, configs)


def _described(definition: Definition, resource: Resource, config: Config, include_synonyms: bool) -> DescribedConfig:
    value, synonyms = definition.inherited(config, resource.layers)
    own = resource.own.get(definition.name)
    if own is not None:
        value, synonyms = own, (ConfigSynonym(definition.name, own, resource.source), *synonyms)
    return DescribedConfig(
        definition.name,
        value,
        resource.changeable is not None and definition.name not in resource.changeable,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        synonyms=synonyms if include_synonyms else (),
        config_type=definition.config_type,
    )


def created_configs(topic: Topic, config: Config, layers: tuple[Layer, ...] = ()) -> tuple[CreatedTopicConfig, ...]:
    resource = Resource(TOPIC_DEFINITIONS, topic.configs, ConfigSource.TOPIC, layers)
    described = [_described(definition, resource, config, False) for definition in TOPIC_DEFINITIONS.values()]
    return tuple(CreatedTopicConfig(each.name, each.value, False, each.config_source) for each in described)


def answer_list_config_resources(
    request: ListConfigResources, resources: Resources, permissions: Permissions = UNRESTRICTED
) -> ListConfigResourcesResponse:
    if not permissions.on_cluster(Operation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    # KIP-1142: no type stands for all.
    resource_types = dict.fromkeys(request.resource_types or ConfigResourceType)
    if not all(is_known_type(resource_type) for resource_type in resource_types):
        return ListConfigResourcesResponse(ErrorCode.UNSUPPORTED_VERSION)
    node = [str(resources.node_id)]
    names = {
        ConfigResourceType.TOPIC: [topic.name for topic in resources.topics],
        ConfigResourceType.BROKER: node,
        ConfigResourceType.BROKER_LOGGER: node,
        ConfigResourceType.GROUP: resources.groups.names(),
        ConfigResourceType.CLIENT_METRICS: resources.client_metrics.names(),
    }
    listed = [
        ConfigResource(name, resource_type)
        for resource_type in resource_types
        for name in names.get(ConfigResourceType(resource_type), [])
    ]
    return ListConfigResourcesResponse(ErrorCode.NONE, tuple(listed))
