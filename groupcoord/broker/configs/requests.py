"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources, and the resources that have configs.

Sources: ``ConfigHelper``, ``ConfigAdminManager``, ``ConfigurationControlManager`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from attrs import evolve, frozen

from groupcoord.broker.configs.client_metrics import (
    CLIENT_METRICS_DEFINITIONS,
    SUBSCRIPTIONS_MAX,
    ClientMetrics,
    IntervalError,
    checked_client_metrics,
)
from groupcoord.broker.configs.definitions import (
    ADVERTISED_LISTENERS,
    ALL_BROKERS,
    BROKER_DEFINITIONS,
    DYNAMIC,
    GROUP_DEFINITIONS,
    NO_CONFIGS,
    TOPIC_DEFINITIONS,
    BrokerConfigs,
    Configs,
    Definition,
    Definitions,
    GroupConfigs,
    KeptConfigs,
    Layer,
    checked_broker_configs,
    checked_group_configs,
    checked_topic_configs,
)
from groupcoord.broker.topics.registry import Topic, TopicError, TopicRegistry, check_topic_name
from groupcoord.broker.work import Work, each, portions, run_in_executor
from groupcoord.config import Config
from groupcoord.config.settings import INT32_MAX
from groupcoord.core.router.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.errors import ConfigError, ErrorCode
from groupcoord.wire.broker_messages import CreatedTopicConfig
from groupcoord.wire.config_messages import (
    AlterConfigOp,
    AlterConfigs,
    AlterConfigsResponse,
    AlteredResource,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    ConfigToAlter,
    ConfigType,
    DescribeConfigs,
    DescribeConfigsResponse,
    DescribedConfig,
    DescribedConfigs,
    IncrementalAlterConfigs,
    ListConfigResources,
    ListConfigResourcesResponse,
    ResourceToAlter,
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
        return (yield from run_in_executor(request.refused, error_code, message))
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
    return tuple(CreatedTopicConfig(each.name, each.value, each.config_source) for each in described)


def answer_list_config_resources(request: ListConfigResources, resources: Resources) -> ListConfigResourcesResponse:
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


logger = logging.getLogger("groupcoord.host")


RESOURCES_AT_ONCE = 250
"""Resources that are changed in one step."""
ENTRIES_COMPARED = 1_000
"""Entries of a request that are compared in one step."""

CONFIGS_MAX = 1_000
ResourceKey = tuple[int, str]
"""Resource type and name."""


class _Altered(NamedTuple):
    resource: ResourceToAlter
    configs: Configs


def answer_alter_configs(
    request: IncrementalAlterConfigs | AlterConfigs,
    resources: Resources,
    permissions: Permissions = UNRESTRICTED,
    changed: Callable[[Sequence[str]], None] = lambda names: None,
) -> Work[AlterConfigsResponse]:
    """Change or replace the configs of resources, all of a resource's or none, and call ``changed`` with the names of
    changed topics.
    """
    times_named = Counter[ResourceKey]()
    for portion in portions(request.resources, ENTRIES_COMPARED):
        if times_named:
            yield None
        times_named.update((resource_type, name) for resource_type, name, _ in portion)
    replaces = isinstance(request, AlterConfigs)
    results: list[AlteredResource] = []
    for some in portions(request.resources, RESOURCES_AT_ONCE):
        if results:
            yield None
        checked = [_checked(resource, resources, times_named, permissions, replaces=replaces) for resource in some]
        altered = [result for result in checked if isinstance(result, _Altered)]
        failed = set() if request.validate_only else _write(altered, resources, changed)
        results += (_result(result, failed) for result in checked)
    return AlterConfigsResponse(tuple(results))


def _checked(
    resource: ResourceToAlter,
    resources: Resources,
    times_named: Mapping[ResourceKey, int],
    permissions: Permissions,
    *,
    replaces: bool,
) -> AlteredResource | _Altered:
    resource_type, name, _ = resource
    try:
        if times_named[resource_type, name] > 1:
            raise ResourceError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        # Malformed resources fail before permissions are checked.
        _check_form(resource)
        # Names of topics and groups are checked before permissions, those of brokers after.
        if resource_type not in _OF_THIS_BROKER:
            _check_name(resource_type, name)
        check_permission(permissions, resource_type, name, Operation.ALTER_CONFIGS)
        if resource_type == ConfigResourceType.CLIENT_METRICS:
            _check_subscription(resource, resources)
        elif resource_type in _OF_THIS_BROKER:
            _check_configs_of_this_broker(resource, resources)
        return _Altered(resource, _altered(resource, resources, replaces=replaces))
    except TopicError as error:
        return AlteredResource(error.error_code, error.message, resource_type, name)


def _result(result: AlteredResource | _Altered, failed: set[int]) -> AlteredResource:
    if isinstance(result, AlteredResource):
        return result
    resource_type, name, _ = result.resource
    if resource_type in failed:
        message = "The settings could not be written."
        return AlteredResource(ErrorCode.KAFKA_STORAGE_ERROR, message, resource_type, name)
    return AlteredResource(ErrorCode.NONE, None, resource_type, name)


def _write(altered: list[_Altered], resources: Resources, changed: Callable[[Sequence[str]], None]) -> set[int]:
    """Write changes; return the resource types that could not be written."""
    failed = set()
    kept: dict[ConfigResourceType, KeptConfigs] = {
        ConfigResourceType.GROUP: resources.groups,
        ConfigResourceType.BROKER: resources.brokers,
        ConfigResourceType.CLIENT_METRICS: resources.client_metrics,
    }
    # One file for each type, so each succeeds or fails by itself.
    for resource_type, configs in kept.items():
        try:
            configs.replace({entry.resource.resource_name: entry.configs for entry in _of_type(altered, resource_type)})
        except OSError as error:
            logger.error("settings could not be written: %s", error)
            failed.add(int(resource_type))
    # The topics still exist: no yield since they were found.
    topics = [(each.resource.resource_name, each.configs) for each in _of_type(altered, ConfigResourceType.TOPIC)]
    try:
        with resources.topics.edit() as edit:
            new = [name for name, own in topics if edit.topics[name].configs != own]
            for name, own in topics:
                edit.configure(name, own)
        changed(new)
    except OSError as error:
        logger.error("the settings of topics could not be written: %s", error)
        failed.add(int(ConfigResourceType.TOPIC))
    return failed


def _of_type(altered: list[_Altered], resource_type: ConfigResourceType) -> list[_Altered]:
    return [entry for entry in altered if entry.resource.resource_type == resource_type]


# ---------------------------------------------------------------- what is refused without a look at the settings

NO_LISTS: Definitions = {}
"""As in Kafka, the lists of a subscription support no APPEND."""

_OF_THIS_BROKER = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER, ConfigResourceType.CLIENT_METRICS)


def _check_form(resource: ResourceToAlter) -> None:
    # Not in Kafka: all of a resource's configs are applied in one step.
    if len(resource.configs) > CONFIGS_MAX:
        raise ResourceError(ErrorCode.INVALID_REQUEST, f"A resource has no more than {CONFIGS_MAX} configs.")
    # Checks in ConfigAdminManager's order.
    if len({config.name for config in resource.configs}) < len(resource.configs):
        raise ResourceError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    # DELETE has a null value.
    kept = [config for config in resource.configs if config.config_operation != AlterConfigOp.DELETE]
    nulls = [config.name for config in kept if config.value is None]
    if nulls:
        raise ResourceError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")
    if not is_known_type(resource.resource_type):
        raise ResourceError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _check_name(resource_type: int, name: str) -> None:
    kind = ConfigResourceType(resource_type)
    if not name:
        raise ResourceError(ErrorCode.INVALID_REQUEST, f"Default {kind.name.lower()} resources are not allowed.")
    if kind is ConfigResourceType.TOPIC:
        check_topic_name(name)


def _check_configs_of_this_broker(resource: ResourceToAlter, resources: Resources) -> None:
    resource_type, name, configs = resource
    if resource_type == ConfigResourceType.BROKER:
        if name:
            mismatch = f"Unexpected broker id, expected {resources.node_id}, but received {name}"
            resources.check_broker(name, mismatch, "Node")
        for config in configs:
            # As recorded for brokers.
            if config.config_operation in (AlterConfigOp.APPEND, AlterConfigOp.SUBTRACT):
                operation = AlterConfigOp(config.config_operation).name.lower()
                message = f"Config value {operation} is not allowed for config key: {config.name}"
                raise ResourceError(ErrorCode.INVALID_CONFIG, message)
    else:
        mismatch = f"Unexpected node id. Expected {resources.node_id}, but received {name}"
        resources.check_broker(name, mismatch, "Node")
        if configs:
            raise ResourceError(ErrorCode.INVALID_CONFIG, f"Logger {configs[0].name} does not exist!")


def _check_subscription(resource: ResourceToAlter, resources: Resources) -> None:
    _, name, configs = resource
    if not name:
        raise ResourceError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    known = CLIENT_METRICS_DEFINITIONS
    for config in configs:
        # Unknown names may be deleted.
        if config.name not in known and config.config_operation != AlterConfigOp.DELETE:
            raise ResourceError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {config.name}")
    names = resources.client_metrics.names()
    if len(names) >= SUBSCRIPTIONS_MAX and name not in names:
        raise ResourceError(ErrorCode.POLICY_VIOLATION, f"There can be no more than {SUBSCRIPTIONS_MAX} subscriptions.")


# ---------------------------------------------------------------- the change itself


def _altered(resource: ResourceToAlter, resources: Resources, *, replaces: bool) -> Configs:
    resource_type, name, configs = resource
    try:
        if resource_type == ConfigResourceType.TOPIC:
            topic = resources.topics.get(name)
            before = NO_CONFIGS if topic is None or replaces else topic.configs
            # Invalid values win over an unknown topic.
            own = checked_topic_configs(_changed(configs, before, TOPIC_DEFINITIONS))
            resources.find(resource_type, name)
            return own
        if resource_type == ConfigResourceType.GROUP:
            before = NO_CONFIGS if replaces else resources.groups.own(name)
            return checked_group_configs(_changed(configs, before, GROUP_DEFINITIONS), resources.config)
        if resource_type == ConfigResourceType.BROKER:
            before = NO_CONFIGS if replaces else resources.brokers.own(name)
            return checked_broker_configs(_changed(configs, before, BROKER_DEFINITIONS))
        if resource_type == ConfigResourceType.CLIENT_METRICS:
            before = NO_CONFIGS if replaces else resources.client_metrics.own(name)
            return checked_client_metrics(_changed(configs, before, NO_LISTS))
    except ConfigError as error:
        # These two fail with INVALID_REQUEST, as recorded.
        if resource_type == ConfigResourceType.BROKER or isinstance(error, IntervalError):
            raise ResourceError(ErrorCode.INVALID_REQUEST, str(error)) from None
        raise ResourceError(ErrorCode.INVALID_CONFIG, str(error)) from None
    # BROKER_LOGGER has no configs.
    return NO_CONFIGS


def _changed(configs: tuple[ConfigToAlter, ...], before: Configs, definitions: Definitions) -> Configs:
    own = dict(before)
    for name, value, operation in configs:
        match operation:
            case AlterConfigOp.DELETE:
                own.pop(name, None)
            case AlterConfigOp.SET:
                own[name] = value or ""
            case AlterConfigOp.APPEND | AlterConfigOp.SUBTRACT:
                own[name] = _changed_list(name, value or "", operation, own, definitions)
            case _:
                # As recorded for an unknown operation.
                raise ResourceError(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    return own


def _changed_list(name: str, value: str, operation: int, own: Configs, definitions: Definitions) -> str:
    definition = definitions.get(name)
    if definition is None or definition.config_type is not ConfigType.LIST:
        verb = AlterConfigOp(operation).name
        raise ResourceError(ErrorCode.INVALID_CONFIG, f"Can't {verb} to key {name} because its type is not LIST.")
    # Without override, APPEND starts from the default.
    parts = _parts(own.get(name, definition.kind.text(definition.default)))
    named = _parts(value)
    if operation == AlterConfigOp.APPEND:
        return ",".join([*parts, *(part for part in named if part not in parts)])
    return ",".join(part for part in parts if part not in named)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
