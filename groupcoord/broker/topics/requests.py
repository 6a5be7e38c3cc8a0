"""Topic and config requests: creation, deletion, partitions, metadata, and settings of resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from uuid import UUID

from attrs import evolve

from groupcoord.broker.answering import answers
from groupcoord.broker.cluster.metadata import answer_metadata, topics_to_create
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.configs.altering import RESOURCES_AT_ONCE, alter_configs, altered_topics, repeated_resources
from groupcoord.broker.configs.describing import answer_describe_configs, answer_list_config_resources
from groupcoord.broker.configs.resources import Resources
from groupcoord.broker.connection import Connection
from groupcoord.broker.notices import Notices
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.changes import (
    TOPICS_AT_ONCE,
    answer_create_partitions,
    answer_create_topics,
    answer_delete_topics,
    count_added_partitions,
    count_new_partitions,
    group_topics,
)
from groupcoord.broker.topics.registry import Topic
from groupcoord.broker.work import Work, portions
from groupcoord.config import Config
from groupcoord.core.host_queries import CreateInternalTopics
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.router.authorization import UNRESTRICTED, Permissions
from groupcoord.errors import ErrorCode
from groupcoord.wire import WireResponse
from groupcoord.wire.broker_messages import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatedPartitions,
    CreatedTopic,
    CreatePartitions,
    CreatePartitionsResponse,
    CreateTopics,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopics,
    DeleteTopicsResponse,
    Metadata,
    TopicReference,
)
from groupcoord.wire.config_messages import (
    AlterConfigs,
    AlterConfigsResponse,
    AlteredResource,
    DescribeConfigs,
    IncrementalAlterConfigs,
    IncrementalAlterConfigsResponse,
    ListConfigResources,
)


class TopicRequests:
    """Handles topic and config requests, and notifies group coordinators of changes.

    Args:
        config: the settings.
        data: the topics and their logs.
        resources: all resources with settings.
        nodes: the nodes, their leaders and coordinators.
        notices: logs settings without effect.
        permissions_of: returns the permissions of a connection's client.
    """

    def __init__(
        self,
        *,
        config: Config,
        data: TopicData,
        resources: Resources,
        nodes: Nodes,
        notices: Notices,
        permissions_of: Callable[[Connection], Permissions],
    ) -> None:
        self._config = config
        self._data = data
        self._topics = data.topics
        self._nodes = nodes
        self._notices = notices
        self._permissions_of = permissions_of
        self._resources = resources
        self._apply_broker_configs()

    def _apply_broker_configs(self) -> None:
        """Apply the broker's dynamic configs to topics; logs that several nodes share use the cluster's defaults."""
        brokers, is_sole = self._resources.brokers, self._nodes.leadership.is_sole
        layers = brokers.layers(self._resources.node_id) if is_sole else (brokers.of_all(),)
        self._data.whole.use_broker_configs(layers)

    # ------------------------------------------------------------ topics

    @answers(Metadata)
    def metadata(self, connection: Connection, request: Metadata) -> Work[WireResponse | None]:
        """Describe nodes and topics, and create missing topics if the settings allow it."""
        auto_creates, leadership = self._config.auto_create_topics_enable, self._nodes.leadership
        response = yield from answer_metadata(
            request,
            leadership,
            self._topics,
            self._permissions_of(connection),
            auto_creates=auto_creates,
            told=connection.nodes,
        )
        if len(response.topics) > TOPICS_AT_ONCE:
            yield None  # the walk over the topics is a step of its own
        missing = topics_to_create(request, response) if auto_creates else []
        for names in portions(missing, TOPICS_AT_ONCE):
            yield None
            self._create(CreateTopics(tuple(map(CreatableTopic, names))), UNRESTRICTED)
        return response

    @answers(CreateTopics)
    def create_topics(self, connection: Connection, request: CreateTopics) -> Work[WireResponse | None]:
        """Create topics, many of them in portions."""
        permissions = self._permissions_of(connection)
        if len(request.topics) <= TOPICS_AT_ONCE:
            return self._create_topics(request, permissions)
        groups = yield from group_topics(request.topics, lambda topic: topic.name)
        total = yield from count_new_partitions(groups, self._config.num_partitions, permissions)
        created: list[CreatedTopic] = []
        for some in portions(groups, TOPICS_AT_ONCE):
            yield None
            portion = evolve(request, topics=tuple(chain.from_iterable(some)))
            created += self._create_topics(portion, permissions, total).topics
        return CreateTopicsResponse(tuple(created))

    def _create_topics(
        self, request: CreateTopics, permissions: Permissions, total: int | None = None
    ) -> CreateTopicsResponse:
        before = self._present([topic.name for topic in request.topics if topic.configs])
        leadership, layers = self._nodes.leadership, self._resources.layers
        response = answer_create_topics(request, self._topics, leadership, self._config, permissions, layers, total)
        if not request.validate_only:
            self._tell_created(response)
            self._notices.topics_changed(before)
        return response

    def create_internal_topics(self, question: CreateInternalTopics, permissions: Permissions) -> Mapping[str, str]:
        """Create internal topics of a streams group.

        Args:
            question: the topics and the group.
            permissions: those of the client.

        Returns:
            The reasons for topics that could not be created, by name.
        """
        wanted = CreateTopics(
            tuple(
                CreatableTopic(
                    topic.name,
                    topic.partition_count,
                    topic.replication_factor,
                    configs=tuple(CreatableTopicConfig(*config) for config in topic.configs),
                )
                for topic in question.topics
            )
        )
        return {
            topic.name: topic.error_message or topic.error_code.name
            for topic in self._create(wanted, permissions)
            if topic.error_code is not ErrorCode.NONE
        }

    def _create(self, wanted: CreateTopics, permissions: Permissions) -> tuple[CreatedTopic, ...]:
        """Create topics for the server itself."""
        leadership, layers = self._nodes.leadership, self._resources.layers
        response = answer_create_topics(wanted, self._topics, leadership, self._config, permissions, layers)
        self._tell_created(response)
        return response.topics

    def reloaded(self, before: Sequence[Topic]) -> None:
        """Apply what other nodes have changed.

        Args:
            before: the topics before the registry was reloaded.
        """
        self._apply_broker_configs()
        former, current = {topic.topic_id: topic for topic in before}, {topic.topic_id: topic for topic in self._topics}
        for topic_id in former.keys() - current.keys():
            self._nodes.topic_deleted(former[topic_id])
            self._data.delete(former[topic_id])
        created = [topic.name for topic_id, topic in current.items() if topic_id not in former]
        if created:
            self._nodes.topics_created(created)
        grown = [
            topic.name
            for topic_id, topic in current.items()
            if topic_id in former and topic.partition_count > former[topic_id].partition_count
        ]
        if grown:
            self._nodes.topics_changed(grown)

    def _present(self, names: list[str]) -> dict[str, Topic | None]:
        """Return topics as they are now, by name."""
        return {name: self._topics.get(name) for name in names}

    def _tell_created(self, response: CreateTopicsResponse) -> None:
        created = [topic.name for topic in response.topics if topic.error_code is ErrorCode.NONE]
        if created:
            self._nodes.topics_created(created)

    @answers(CreatePartitions)
    def create_partitions(self, connection: Connection, request: CreatePartitions) -> Work[WireResponse | None]:
        """Add partitions to topics, to many of them in portions."""
        permissions = self._permissions_of(connection)
        if len(request.topics) <= TOPICS_AT_ONCE:
            return self._create_partitions(request, permissions)
        groups = yield from group_topics(request.topics, lambda topic: topic.name)
        total = yield from count_added_partitions(groups, self._topics, permissions)
        results: list[CreatedPartitions] = []
        for some in portions(groups, TOPICS_AT_ONCE):
            yield None
            portion = evolve(request, topics=tuple(chain.from_iterable(some)))
            results += self._create_partitions(portion, permissions, total).results
        return CreatePartitionsResponse(tuple(results))

    def _create_partitions(
        self, request: CreatePartitions, permissions: Permissions, total: int | None = None
    ) -> CreatePartitionsResponse:
        response = answer_create_partitions(request, self._topics, self._nodes.leadership, permissions, total)
        self._nodes.topics_changed([topic.name for topic in request.topics])
        return response

    @answers(DeleteTopics)
    def delete_topics(self, connection: Connection, request: DeleteTopics) -> Work[WireResponse | None]:
        """Delete topics and their logs, many of them in portions."""
        permissions = self._permissions_of(connection)
        if len(request.topics) <= TOPICS_AT_ONCE:
            return self._delete_topics(request, permissions)
        groups = yield from group_topics(request.topics, self._topic_meant)
        deleted: list[DeletedTopic] = []
        for some in portions(groups, TOPICS_AT_ONCE):
            yield None
            portion = evolve(request, topics=tuple(chain.from_iterable(some)))
            deleted += self._delete_topics(portion, permissions).responses
        return DeleteTopicsResponse(tuple(deleted))

    def _topic_meant(self, reference: TopicReference) -> UUID | TopicReference:
        """Return the id of the topic with this name or id, or the reference if it does not exist."""
        named = None if reference.name is None else self._topics.topic_id(reference.name)
        return named or (reference.topic_id if reference.topic_id != ZERO_UUID else reference)

    def _delete_topics(self, request: DeleteTopics, permissions: Permissions) -> DeleteTopicsResponse:
        response, gone = answer_delete_topics(request, self._topics, permissions)
        for topic in gone:
            self._nodes.topic_deleted(topic)
            self._data.delete(topic)
        return response

    # ------------------------------------------------------------ settings

    @answers(DescribeConfigs)
    def describe_configs(self, connection: Connection, request: DescribeConfigs) -> Work[WireResponse | None]:
        """Describe settings."""
        return answer_describe_configs(request, self._resources, self._permissions_of(connection))

    @answers(IncrementalAlterConfigs)
    def alter_some_configs(self, connection: Connection, request: IncrementalAlterConfigs) -> Work[WireResponse | None]:
        """Change the named settings."""
        return IncrementalAlterConfigsResponse((yield from self._alter(connection, request)))

    @answers(AlterConfigs)
    def alter_configs(self, connection: Connection, request: AlterConfigs) -> Work[WireResponse | None]:
        """Replace all settings of resources."""
        return AlterConfigsResponse((yield from self._alter(connection, request)))

    def _alter(
        self, connection: Connection, request: IncrementalAlterConfigs | AlterConfigs
    ) -> Work[tuple[AlteredResource, ...]]:
        """Change settings of resources in portions."""
        permissions = self._permissions_of(connection)
        results: list[AlteredResource] = []
        repeated = yield from repeated_resources(request.resources)
        for number, some in enumerate(portions(request.resources, RESOURCES_AT_ONCE)):
            if number:
                yield None
            portion = evolve(request, resources=tuple(some))
            before = self._present(altered_topics(portion))
            results += alter_configs(portion, self._resources, repeated, permissions)
            self._notices.topics_changed(before)
        self._apply_broker_configs()
        return tuple(results)

    @answers(ListConfigResources)
    def list_config_resources(self, connection: Connection, request: ListConfigResources) -> WireResponse | None:
        """List resources with settings."""
        return answer_list_config_resources(request, self._resources, self._permissions_of(connection))
