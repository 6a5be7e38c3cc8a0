"""DescribeConfigs and ListConfigResources: what has settings, what they are, and where each value comes from."""

from __future__ import annotations

from groupcoord.broker.configs.definitions import TOPIC_DEFINITIONS, Definition, Layer
from groupcoord.broker.configs.resources import Resource, ResourceError, Resources, check_permission, is_known_type
from groupcoord.broker.topics.registry import Topic, TopicError
from groupcoord.broker.work import Work, each
from groupcoord.config import Config
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


def answer_describe_configs(
    request: DescribeConfigs, resources: Resources, permissions: Permissions = UNRESTRICTED
) -> Work[DescribeConfigsResponse]:
    """Tell the settings of each thing that is named; those that may not be told come last.

    As in Kafka, one thing of an unknown type spoils the whole request.
    """
    are_known = yield from each(request.resources, lambda wanted: is_known_type(wanted.resource_type))
    if not all(are_known):
        error_code, message = ErrorCode.INVALID_REQUEST, "There are settings of topics, groups and brokers only."
        refused = yield from each(request.resources, lambda wanted: _refusal(wanted, error_code, message))
        return DescribeConfigsResponse(refused)
    told: dict[ResourceToDescribe, DescribedConfigs] = {}
    described: list[DescribedConfigs] = []
    denied: list[DescribedConfigs] = []
    for wanted in request.resources:
        if described or denied:
            yield None
        try:
            check_permission(permissions, wanted.resource_type, wanted.resource_name, Operation.DESCRIBE_CONFIGS)
        except ResourceError as error:
            denied.append(_refusal(wanted, error.error_code, error.message))
            continue
        if wanted not in told:
            told[wanted] = _describe(wanted, resources, request.include_synonyms)
        described.append(told[wanted])
    return DescribeConfigsResponse(tuple(described + denied))


def _refusal(wanted: ResourceToDescribe, error_code: ErrorCode, message: str | None) -> DescribedConfigs:
    return DescribedConfigs(error_code, message, wanted.resource_type, wanted.resource_name)


def _describe(wanted: ResourceToDescribe, resources: Resources, include_synonyms: bool) -> DescribedConfigs:
    try:
        resource = resources.find(wanted.resource_type, wanted.resource_name)
    except (ResourceError, TopicError) as error:
        return _refusal(wanted, error.error_code, error.message)
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
    """Return the settings of a new topic, as the answer of CreateTopics tells them; ``layers``: the broker's."""
    resource = Resource(TOPIC_DEFINITIONS, topic.configs, ConfigSource.TOPIC, layers)
    described = [_described(definition, resource, config, False) for definition in TOPIC_DEFINITIONS.values()]
    return tuple(CreatedTopicConfig(told.name, told.value, False, told.config_source) for told in described)


def answer_list_config_resources(
    request: ListConfigResources, resources: Resources, permissions: Permissions = UNRESTRICTED
) -> ListConfigResourcesResponse:
    """List what has settings: all topics, this broker, groups that have some of their own, subscriptions."""
    if not permissions.on_cluster(Operation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = dict.fromkeys(request.resource_types or ConfigResourceType)
    if not all(is_known_type(resource_type) for resource_type in asked):
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
        for resource_type in asked
        for name in names.get(ConfigResourceType(resource_type), [])
    ]
    return ListConfigResourcesResponse(ErrorCode.NONE, tuple(listed))
