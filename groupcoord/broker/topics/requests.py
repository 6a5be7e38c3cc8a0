"""Requests about topics and settings: who answers which, and who is told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from groupcoord.broker.answering import answers
from groupcoord.broker.cluster.metadata import answer_metadata, topics_to_create
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.configs.altering import altered_topics, answer_alter_configs, answer_incremental_alter_configs
from groupcoord.broker.configs.describing import answer_describe_configs, answer_list_config_resources
from groupcoord.broker.configs.resources import Resources
from groupcoord.broker.connection import Connection
from groupcoord.broker.notices import Notices
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.changes import answer_create_partitions, answer_create_topics, answer_delete_topics
from groupcoord.broker.topics.registry import Topic
from groupcoord.broker.work import Work
from groupcoord.config import Config
from groupcoord.core.front.authorization import UNRESTRICTED, Permissions
from groupcoord.core.questions import CreateInternalTopics
from groupcoord.errors import ErrorCode
from groupcoord.wire import WireResponse
from groupcoord.wire.broker_messages import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    CreateTopicsResponse,
    DeleteTopics,
    Metadata,
)
from groupcoord.wire.config_messages import AlterConfigs, DescribeConfigs, IncrementalAlterConfigs, ListConfigResources


class TopicRequests:
    """Answers what clients ask of topics and settings, and tells the group coordinators of what has changed.

    Args:
        config: the settings.
        data: the topics and what they hold.
        resources: everything that has settings.
        nodes: who leads what, and who is told of changes.
        notices: where settings without effect are told.
        permissions_of: returns what a connection's client may do.
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
        """Apply the broker's dynamic configs to topics; logs that several nodes share have the cluster's defaults."""
        brokers, is_sole = self._resources.brokers, self._nodes.leadership.is_sole
        layers = brokers.layers(self._resources.node_id) if is_sole else (brokers.of_all(),)
        self._data.whole.use_broker_configs(layers)

    # ------------------------------------------------------------ topics

    @answers(Metadata)
    def metadata(self, connection: Connection, request: Metadata) -> Work[WireResponse | None]:
        """Describe nodes and topics, and make topics that are missing where settings say so."""
        auto_creates, leadership = self._config.auto_create_topics_enable, self._nodes.leadership
        response = yield from answer_metadata(
            request,
            leadership,
            self._topics,
            self._permissions_of(connection),
            auto_creates=auto_creates,
            told=connection.nodes,
        )
        missing = topics_to_create(request, response) if auto_creates else []
        if missing:
            wanted = CreateTopics(tuple(CreatableTopic(name) for name in missing))
            self._create(wanted, UNRESTRICTED)
        return response

    @answers(CreateTopics)
    def create_topics(self, connection: Connection, request: CreateTopics) -> WireResponse | None:
        """Make topics."""
        before = self._present([topic.name for topic in request.topics if topic.configs])
        leadership, permissions = self._nodes.leadership, self._permissions_of(connection)
        layers = self._resources.layers
        response = answer_create_topics(request, self._topics, leadership, self._config, permissions, layers)
        if not request.validate_only:
            self._tell_created(response)
            self._notices.topics_changed(before)
        return response

    def create_internal_topics(self, question: CreateInternalTopics, permissions: Permissions) -> Mapping[str, str]:
        """Make topics that a streams group needs.

        Args:
            question: which, and for whom.
            permissions: of that one.

        Returns:
            by name, why some could not be made.
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
        """Create topics that the server itself needs."""
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
    def create_partitions(self, connection: Connection, request: CreatePartitions) -> WireResponse | None:
        """Let topics grow."""
        leadership, permissions = self._nodes.leadership, self._permissions_of(connection)
        response = answer_create_partitions(request, self._topics, leadership, permissions)
        self._nodes.topics_changed([topic.name for topic in request.topics])
        return response

    @answers(DeleteTopics)
    def delete_topics(self, connection: Connection, request: DeleteTopics) -> WireResponse | None:
        """Delete topics, and what they hold."""
        response, gone = answer_delete_topics(request, self._topics, self._permissions_of(connection))
        for topic in gone:
            self._nodes.topic_deleted(topic)
            self._data.delete(topic)
        return response

    # ------------------------------------------------------------ settings

    @answers(DescribeConfigs)
    def describe_configs(self, connection: Connection, request: DescribeConfigs) -> Work[WireResponse | None]:
        """Tell settings."""
        return answer_describe_configs(request, self._resources, self._permissions_of(connection))

    @answers(IncrementalAlterConfigs)
    def alter_some_configs(self, connection: Connection, request: IncrementalAlterConfigs) -> WireResponse | None:
        """Change settings, and leave those that are not named."""
        before = self._present(altered_topics(request))
        response = answer_incremental_alter_configs(request, self._resources, self._permissions_of(connection))
        self._apply_broker_configs()
        self._notices.topics_changed(before)
        return response

    @answers(AlterConfigs)
    def alter_configs(self, connection: Connection, request: AlterConfigs) -> WireResponse | None:
        """Change settings, and reset those that are not named."""
        before = self._present(altered_topics(request))
        response = answer_alter_configs(request, self._resources, self._permissions_of(connection))
        self._apply_broker_configs()
        self._notices.topics_changed(before)
        return response

    @answers(ListConfigResources)
    def list_config_resources(self, connection: Connection, request: ListConfigResources) -> WireResponse | None:
        """List what has settings."""
        return answer_list_config_resources(request, self._resources, self._permissions_of(connection))
