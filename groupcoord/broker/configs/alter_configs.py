"""IncrementalAlterConfigs and AlterConfigs of topics, groups, brokers and client metrics subscriptions."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from groupcoord.broker.configs.brokers import BROKER_DEFINITIONS, checked_broker_configs
from groupcoord.broker.configs.client_metrics import (
    CLIENT_METRICS_DEFINITIONS,
    SUBSCRIPTIONS_MAX,
    IntervalError,
    checked_client_metrics,
)
from groupcoord.broker.configs.definitions import (
    NO_CONFIGS,
    TOPIC_DEFINITIONS,
    Configs,
    Definitions,
    KeptConfigs,
    checked_topic_configs,
)
from groupcoord.broker.configs.describe_configs import ResourceError, Resources, check_permission, is_known_type
from groupcoord.broker.configs.groups import GROUP_DEFINITIONS, checked_group_configs
from groupcoord.broker.topics.registry import TopicError, check_topic_name
from groupcoord.broker.work import Work, portions
from groupcoord.core.router.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.errors import ConfigError, ErrorCode
from groupcoord.wire.config_messages import (
    AlterConfigOp,
    AlterConfigs,
    AlterConfigsResponse,
    AlteredResource,
    ConfigResourceType,
    ConfigToAlter,
    ConfigType,
    IncrementalAlterConfigs,
    ResourceToAlter,
)

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
