"""CreateTopics, CreatePartitions and DeleteTopics as in Apache Kafka 4.4 (KRaft), and the requests about configs.

Manual assignments are kept where nodes elect leaders over shared logs. Other partitions have a replica on every node,
for any replication factor up to the number of nodes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar
from uuid import UUID

from attrs import evolve

from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.cluster.metadata import answer_metadata, topics_to_create
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.configs.alter_configs import RESOURCES_AT_ONCE, alter_configs, altered_topics, repeated_resources
from groupcoord.broker.configs.definitions import Configs, Layer, checked_topic_configs
from groupcoord.broker.configs.describe_configs import (
    Resources,
    created_configs,
)
from groupcoord.broker.connection import Connection
from groupcoord.broker.log_lines import Notices
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import (
    KEPT_TOPICS,
    MAX_PARTITIONS_PER_REQUEST,
    NO_REPLICAS,
    TOO_MANY_ADDITIONAL_PARTITIONS,
    TOO_MANY_PARTITIONS,
    Replicas,
    Topic,
    TopicEdit,
    TopicError,
    TopicRegistry,
    check_replicas,
)
from groupcoord.broker.work import Work, each, portions
from groupcoord.config import Config
from groupcoord.core.host_queries import CreateInternalTopics
from groupcoord.core.javacompat import HashTable, string_hash
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.router.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.errors import ConfigError, ErrorCode
from groupcoord.wire import WireResponse
from groupcoord.wire.broker_messages import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatedPartitions,
    CreatedTopic,
    CreatePartitions,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
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
    IncrementalAlterConfigs,
)

Wanted = TypeVar("Wanted")
OfTopics = TypeVar("OfTopics", CreateTopics, CreatePartitions, DeleteTopics)
Result = TypeVar("Result")

logger = logging.getLogger("groupcoord.host")

DEFAULT = -1
METADATA_TOPIC = "__cluster_metadata"
TOPIC_DENIED = "Topic authorization failed."

TOPICS_AT_ONCE = 250
DUPLICATES_KEPT = 4
ENTRIES_GROUPED = 1_000


def answer_create_topics(
    request: CreateTopics,
    topics: TopicRegistry,
    leadership: Leadership,
    config: Config,
    permissions: Permissions = UNRESTRICTED,
    layers: tuple[Layer, ...] = (),
    total: int | None = None,
) -> CreateTopicsResponse:
    """Create topics. ``total`` is the number of partitions of the whole request, if this is a portion of it."""
    names = [topic.name for topic in request.topics]
    times_named = Counter(names)
    refusals = _creation_refusals(times_named, permissions)
    # Repeated names are refused, so any entry will do.
    distinct = {topic.name: topic for topic in request.topics}
    counts = {name: _partition_count(topic, config.num_partitions) for name, topic in distinct.items()}
    if total is None:
        # Negative counts must not offset others.
        total = sum(max(counts[name], 0) for name in distinct if name not in refusals)

    def create(edit: TopicEdit, topic: CreatableTopic) -> CreatedTopic:
        # ControllerApis checks these first.
        if topic.name in refusals:
            raise refusals[topic.name]
        # Even an existing topic gets this error.
        if total > MAX_PARTITIONS_PER_REQUEST:
            raise TopicError(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
        # ReplicationControlManager's order: name, configs, replicas.
        edit.check_new(topic.name)
        configs = _configs_of(topic)
        made = edit.create(topic.name, counts[topic.name], configs=configs, replicas=_checked_layout(topic, leadership))
        # KIP-525: the topic is created, and its configs are left out.
        config_error = permissions.topic_error(topic.name, Operation.DESCRIBE_CONFIGS)
        if config_error is not ErrorCode.NONE:
            return CreatedTopic(topic.name, ErrorCode.NONE, None, made.topic_id, topic_config_error_code=config_error)
        described = created_configs(made, config, layers)
        factor = len(leadership.replicas(made, 0))
        return CreatedTopic(topic.name, ErrorCode.NONE, None, made.topic_id, made.partition_count, factor, described)

    def refused(topic: CreatableTopic, error: TopicError) -> CreatedTopic:
        return CreatedTopic(topic.name, error.error_code, error.message)

    # One entry for each repeated or denied name.
    refused_names = [name for name in _refusal_order(names) if name in refusals]
    ordered = [distinct[name] for name in distinct if name not in refusals] + [distinct[name] for name in refused_names]
    return CreateTopicsResponse(_change(topics, ordered, create, refused, dry_run=request.validate_only))


def _refusal_order(names: list[str]) -> list[str]:
    """Return distinct names in the order of Kafka's hash sets: duplicates, then all others."""
    first, duplicates = HashTable(string_hash), HashTable(string_hash)
    for name in names:
        (duplicates if name in first else first).put(name)
    return [*duplicates, *(name for name in first if name not in duplicates)]


def _creation_refusals(times_named: Counter[str], permissions: Permissions) -> dict[str, TopicError]:
    may_create_all = permissions.on_cluster(Operation.CREATE)
    refusals = {}
    for name, count in times_named.items():
        if count > 1:
            refusals[name] = TopicError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        # Before the permission, as in ControllerApis.
        elif name == METADATA_TOPIC:
            message = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
            refusals[name] = TopicError(ErrorCode.INVALID_REQUEST, message)
        elif not may_create_all and not permissions.on_topic(name, Operation.CREATE):
            refusals[name] = TopicError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    return refusals


def answer_create_partitions(
    request: CreatePartitions,
    topics: TopicRegistry,
    leadership: Leadership,
    permissions: Permissions = UNRESTRICTED,
    total: int | None = None,
) -> CreatePartitionsResponse:
    """Add partitions to topics. ``total`` is the number of new ones in the whole request, if this
    is a portion of it.
    """
    names = [topic.name for topic in request.topics]
    times_named = Counter(names)
    refusals = {}
    for name, times in times_named.items():
        if times > 1:
            refusals[name] = TopicError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif not permissions.on_topic(name, Operation.ALTER):
            refusals[name] = TopicError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    distinct = {topic.name: topic for topic in request.topics}
    if total is None:
        wanted = (topic for topic in distinct.values() if topic.name not in refusals)
        total = sum(_added_count(topic, topics) for topic in wanted)

    def extend(edit: TopicEdit, topic: CreatePartitionsTopic) -> CreatedPartitions:
        if topic.name in refusals:
            raise refusals[topic.name]
        # Even an unknown topic gets this error.
        if total > MAX_PARTITIONS_PER_REQUEST:
            raise TopicError(ErrorCode.POLICY_VIOLATION, TOO_MANY_ADDITIONAL_PARTITIONS)
        if topic.name in KEPT_TOPICS:
            raise TopicError(ErrorCode.INVALID_REQUEST, f"Topic '{topic.name}' keeps its number of partitions.")
        known = edit.check_extension(topic.name, topic.count)
        if topic.assignments is not None:
            replicas = _checked_additions(topic.assignments, known, topic.count - known.partition_count, leadership)
        else:
            replicas = _automatic_additions(known, topic.count, leadership)
        edit.extend(topic.name, topic.count, replicas)
        return CreatedPartitions(topic.name, ErrorCode.NONE)

    def refused(topic: CreatePartitionsTopic, error: TopicError) -> CreatedPartitions:
        return CreatedPartitions(topic.name, error.error_code, error.message)

    # One entry for each repeated or denied name, before the others.
    ordered = [distinct[name] for name in sorted(_refusal_order(names), key=lambda name: name not in refusals)]
    return CreatePartitionsResponse(_change(topics, ordered, extend, refused, dry_run=request.validate_only))


def _added_count(topic: CreatePartitionsTopic, topics: TopicRegistry) -> int:
    # Unknown topics fail by themselves.
    return max(topic.count - (topics.partition_count(topic.name) or topic.count), 0)


def count_new_partitions(
    groups: Sequence[Sequence[CreatableTopic]], default_partition_count: int, permissions: Permissions
) -> Work[int]:
    def count(some: Sequence[Sequence[CreatableTopic]]) -> int:
        refusals = _creation_refusals(Counter(topic.name for group in some for topic in group), permissions)
        wanted = (group[-1] for group in some if group[0].name not in refusals)
        return sum(max(_partition_count(topic, default_partition_count), 0) for topic in wanted)

    return sum((yield from each(portions(groups, TOPICS_AT_ONCE), count)))


def count_added_partitions(
    groups: Sequence[Sequence[CreatePartitionsTopic]], topics: TopicRegistry, permissions: Permissions
) -> Work[int]:
    def count(some: Sequence[Sequence[CreatePartitionsTopic]]) -> int:
        single = (topic for topic, *others in some if not others)
        return sum(_added_count(topic, topics) for topic in single if permissions.on_topic(topic.name, Operation.ALTER))

    return sum((yield from each(portions(groups, TOPICS_AT_ONCE), count)))


def group_topics(topics: Sequence[Wanted], key_of: Callable[[Wanted], Hashable]) -> Work[list[list[Wanted]]]:
    """Group the topics of a request by key, with at most a few duplicates."""
    groups: dict[Hashable, list[Wanted]] = {}
    for number, some in enumerate(portions(topics, ENTRIES_GROUPED)):
        if number:
            yield None
        for topic in some:
            same = groups.setdefault(key_of(topic), [])
            # Enough to see that the name is repeated.
            if len(same) < DUPLICATES_KEPT:
                same.append(topic)
    return list(groups.values())


def _in_portions(
    request: OfTopics, groups: Sequence[Sequence[Any]], answer: Callable[[OfTopics], tuple[Result, ...]]
) -> Work[tuple[Result, ...]]:
    results: list[Result] = []
    for some in portions(groups, TOPICS_AT_ONCE):
        yield None
        # A failed write affects one portion.
        results += answer(evolve(request, topics=tuple(chain.from_iterable(some))))
    return tuple(results)


def answer_delete_topics(
    request: DeleteTopics, topics: TopicRegistry, permissions: Permissions = UNRESTRICTED
) -> tuple[DeleteTopicsResponse, list[Topic]]:
    """Delete topics by name or id; also return the deleted ones."""
    if permissions.on_cluster(Operation.DELETE):
        permissions = UNRESTRICTED
    times_named = Counter(request.topics)
    ids = {reference.topic_id for reference in request.topics if reference.name is None}
    named = {
        topics.topic_id(name)
        for name, topic_id in request.topics
        if name is not None and topic_id == ZERO_UUID and _may_delete(name, permissions)
    }
    well_formed = dict.fromkeys(
        reference
        for reference in request.topics
        if _names_once(reference) and (reference.name is not None or reference.topic_id not in named)
    )
    malformed = [reference for reference in request.topics if not _names_once(reference)]
    gone: list[Topic] = []

    def delete(edit: TopicEdit, reference: TopicReference) -> DeletedTopic:
        topic = _to_delete(reference, times_named[reference], ids, topics, permissions)
        edit.delete(topic.name)
        gone.append(topic)
        return DeletedTopic(topic.name, topic.topic_id, ErrorCode.NONE)

    def refused(reference: TopicReference, error: TopicError) -> DeletedTopic:
        name, topic_id = reference
        if error.error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # Clients that may describe a topic get its name.
            known = topics.topic_name(topic_id)
            if known is not None and permissions.on_topic(known, Operation.DESCRIBE):
                name = known
        elif name is not None and topic_id == ZERO_UUID and times_named[reference] == 1:
            topic_id = topics.topic_id(name) or ZERO_UUID
        return DeletedTopic(name, topic_id, error.error_code, error.message)

    results = _change(topics, [*malformed, *well_formed], delete, refused)
    # Not gone after a failed write.
    return DeleteTopicsResponse(results), [topic for topic in gone if topics.get_by_id(topic.topic_id) is None]


def _names_once(reference: TopicReference) -> bool:
    return (reference.name is None) != (reference.topic_id == ZERO_UUID)


def _may_delete(name: str, permissions: Permissions) -> bool:
    return permissions.on_topic(name, Operation.DESCRIBE) and permissions.on_topic(name, Operation.DELETE)


def _to_delete(
    reference: TopicReference, count: int, ids: set[UUID], topics: TopicRegistry, permissions: Permissions
) -> Topic:
    # ControllerApis checks the form and duplicates before permissions.
    name, topic_id = reference
    if name is not None and topic_id != ZERO_UUID:
        raise TopicError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if name is None and topic_id == ZERO_UUID:
        raise TopicError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if count > 1:
        raise TopicError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if name is None else 'name'}.")
    # Before the existence.
    if name is not None and not permissions.on_topic(name, Operation.DESCRIBE):
        raise TopicError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_DENIED)
    topic = topics.get_by_id(topic_id) if name is None else topics.get(name)
    if topic is None and name is None:
        raise TopicError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if topic is None:
        raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    if not permissions.on_topic(topic.name, Operation.DELETE):
        raise TopicError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_DENIED)
    if name is not None and topic.topic_id in ids:
        message = "The provided topic name maps to an ID that was already supplied."
        raise TopicError(ErrorCode.INVALID_REQUEST, message)
    # Kafka deletes these, too, and loses what is in them.
    if topic.name in KEPT_TOPICS:
        message = f"Topic '{topic.name}' can't be deleted: {KEPT_TOPICS[topic.name]} are in it."
        raise TopicError(ErrorCode.INVALID_REQUEST, message)
    return topic


def _change(
    topics: TopicRegistry,
    wanted: Iterable[Wanted],
    change: Callable[[TopicEdit, Wanted], Result],
    refused: Callable[[Wanted, TopicError], Result],
    *,
    dry_run: bool = False,
) -> tuple[Result, ...]:
    """Make the possible changes in one edit, and return a result or an error for each."""
    wanted = list(wanted)
    results = []
    try:
        with topics.edit(dry_run=dry_run) as edit:
            for item in wanted:
                try:
                    results.append(change(edit, item))
                except TopicError as error:
                    results.append(refused(item, error))
    except OSError as error:
        logger.error("the topics could not be written: %s", error)
        failure = TopicError(ErrorCode.KAFKA_STORAGE_ERROR, "The topics could not be written.")
        return tuple(refused(item, failure) for item in wanted)
    return tuple(results)


def _partition_count(topic: CreatableTopic, default_partition_count: int) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return default_partition_count if topic.num_partitions == DEFAULT else topic.num_partitions


def _configs_of(topic: CreatableTopic) -> Configs:
    for config in topic.configs:
        if config.value is None:
            message = f"Null value not supported for topic configs: {config.name}"
            raise TopicError(ErrorCode.INVALID_CONFIG, message)
    try:
        return checked_topic_configs({config.name: config.value or "" for config in topic.configs})
    except ConfigError as error:
        raise TopicError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _checked_layout(topic: CreatableTopic, leadership: Leadership) -> Replicas:
    if topic.assignments:
        return _checked_manual_layout(topic, leadership)
    factor = topic.replication_factor
    # Kafka's order: replication factor, partitions, number of brokers.
    if factor < DEFAULT or factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise TopicError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if topic.num_partitions < DEFAULT or topic.num_partitions == 0:
        message = "Number of partitions was set to an invalid non-positive value."
        raise TopicError(ErrorCode.INVALID_PARTITIONS, message)
    count = len(leadership.node_ids)
    if factor > count:
        message = (
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
            f"reached because only {count} broker(s) are registered or some brokers "
            "have all their log directories cordoned."
        )
        raise TopicError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    return NO_REPLICAS


def _checked_manual_layout(topic: CreatableTopic, leadership: Leadership) -> Replicas:
    prefix = "A manual partition assignment was specified, but"
    if topic.replication_factor != DEFAULT:
        raise TopicError(ErrorCode.INVALID_REQUEST, f"{prefix} replication factor was not set to -1.")
    if topic.num_partitions != DEFAULT:
        raise TopicError(ErrorCode.INVALID_REQUEST, f"{prefix} numPartitions was not set to -1.")
    assigned: dict[int, tuple[int, ...]] = {}
    for partition_index, broker_ids in topic.assignments:
        if partition_index in assigned:
            message = f"Found multiple manual partition assignments for partition {partition_index}"
            raise TopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        factor = len(next(iter(assigned.values()), broker_ids))
        _check_assignment(partition_index, broker_ids, factor, leadership)
        assigned[partition_index] = broker_ids
    # As in ReplicationControlManager.
    if assigned.keys() != set(range(len(assigned))):
        message = "partitions should be a consecutive 0-based integer sequence"
        raise TopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return assigned if leadership.keeps_assignments else NO_REPLICAS


def _checked_additions(
    assignments: tuple[tuple[int, ...], ...], topic: Topic, added: int, leadership: Leadership
) -> Replicas:
    if len(assignments) != added:
        message = (
            f"Attempted to add {added} additional partition(s), "
            f"but only {len(assignments)} assignment(s) were specified."
        )
        raise TopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    factor = len(topic.replicas.get(0, assignments[0]))
    assigned = dict(enumerate(assignments, topic.partition_count))
    for partition_index, broker_ids in assigned.items():
        _check_assignment(partition_index, broker_ids, factor, leadership)
    return assigned if leadership.keeps_assignments else NO_REPLICAS


def _automatic_additions(topic: Topic, count: int, leadership: Leadership) -> Replicas:
    """Return replicas of added partitions, as many as the first partition has."""
    factor = len(topic.replicas.get(0, ()))
    added = range(topic.partition_count, count) if factor else ()
    return {index: leadership.replicas(topic, index)[:factor] for index in added}


def _check_assignment(partition_index: int, broker_ids: tuple[int, ...], factor: int, leadership: Leadership) -> None:
    check_replicas(broker_ids, leadership.node_ids)
    message = None
    leader_id = leadership.node_ids[partition_index % len(leadership.node_ids)]
    if len(broker_ids) != factor:
        message = (
            f"The manual partition assignment includes a partition with {len(broker_ids)} replica(s), "
            f"but this is not consistent with previous partitions, which have {factor} replica(s)."
        )
    # Must name the leader that is chosen anyway.
    elif not leadership.keeps_assignments and broker_ids[0] != leader_id:
        message = (
            f"This server keeps no manual assignments: partition {partition_index} is led by node {leader_id} first, "
            f"not by node {broker_ids[0]}."
        )
    elif not leadership.in_sync(broker_ids):
        message = (
            f"All brokers specified in the manual partition assignment for partition {partition_index} "
            "are fenced or in controlled shutdown."
        )
    if message is not None:
        raise TopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


class TopicRequests:
    """Handlers of topic and config requests that notify group coordinators of changes."""

    def __init__(
        self,
        *,
        config: Config,
        data: TopicData,
        resources: Resources,
        nodes: Nodes,
        notices: Notices,
    ) -> None:
        self._config = config
        self._data = data
        self._topics = data.topics
        self._nodes = nodes
        self._notices = notices
        self._resources = resources
        self._apply_broker_configs()

    def _apply_broker_configs(self) -> None:
        brokers, is_sole = self._resources.brokers, self._nodes.leadership.is_sole
        # Shared logs follow only the cluster's defaults.
        layers = brokers.layers(self._resources.node_id) if is_sole else (brokers.of_all(),)
        self._data.whole.use_broker_configs(layers)

    # ------------------------------------------------------------ topics

    def metadata(self, connection: Connection, request: Metadata) -> Work[WireResponse | None]:
        auto_creates, leadership = self._config.auto_create_topics_enable, self._nodes.leadership
        response = yield from answer_metadata(
            request,
            leadership,
            self._topics,
            connection.permissions,
            auto_creates=auto_creates,
            addresses=connection.nodes,
        )
        # Ordering and describing has used up this turn.
        if len(response.topics) > TOPICS_AT_ONCE:
            yield None
        missing = topics_to_create(request, response) if auto_creates else []
        for names in portions(missing, TOPICS_AT_ONCE):
            yield None
            # The response still reports them as unknown.
            self._create(CreateTopics(tuple(map(CreatableTopic, names))), UNRESTRICTED)
        return response

    def create_topics(self, connection: Connection, request: CreateTopics) -> Work[WireResponse | None]:
        permissions = connection.permissions
        if len(request.topics) <= TOPICS_AT_ONCE:
            return self._create_topics(request, permissions)
        groups = yield from group_topics(request.topics, lambda topic: topic.name)
        total = yield from count_new_partitions(groups, self._config.num_partitions, permissions)
        created = yield from _in_portions(
            request, groups, lambda portion: self._create_topics(portion, permissions, total).topics
        )
        return CreateTopicsResponse(created)

    def _create_topics(
        self, request: CreateTopics, permissions: Permissions, total: int | None = None
    ) -> CreateTopicsResponse:
        before = self._present([topic.name for topic in request.topics if topic.configs])
        leadership, layers = self._nodes.leadership, self._resources.layers
        response = answer_create_topics(request, self._topics, leadership, self._config, permissions, layers, total)
        if not request.validate_only:
            self._announce_created(response)
            self._notices.topics_changed(before)
        return response

    def create_internal_topics(self, question: CreateInternalTopics, permissions: Permissions) -> Mapping[str, str]:
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
        leadership, layers = self._nodes.leadership, self._resources.layers
        response = answer_create_topics(wanted, self._topics, leadership, self._config, permissions, layers)
        self._announce_created(response)
        return response.topics

    def reloaded(self, before: Sequence[Topic]) -> None:
        self._apply_broker_configs()
        # A deleted topic may exist again under its name.
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
        return {name: self._topics.get(name) for name in names}

    def _announce_created(self, response: CreateTopicsResponse) -> None:
        created = [topic.name for topic in response.topics if topic.error_code is ErrorCode.NONE]
        if created:
            self._nodes.topics_created(created)

    def create_partitions(self, connection: Connection, request: CreatePartitions) -> Work[WireResponse | None]:
        permissions = connection.permissions
        if len(request.topics) <= TOPICS_AT_ONCE:
            return self._create_partitions(request, permissions)
        groups = yield from group_topics(request.topics, lambda topic: topic.name)
        total = yield from count_added_partitions(groups, self._topics, permissions)
        results = yield from _in_portions(
            request, groups, lambda portion: self._create_partitions(portion, permissions, total).results
        )
        return CreatePartitionsResponse(results)

    def _create_partitions(
        self, request: CreatePartitions, permissions: Permissions, total: int | None = None
    ) -> CreatePartitionsResponse:
        response = answer_create_partitions(request, self._topics, self._nodes.leadership, permissions, total)
        self._nodes.topics_changed([topic.name for topic in request.topics])
        return response

    def delete_topics(self, connection: Connection, request: DeleteTopics) -> Work[WireResponse | None]:
        permissions = connection.permissions
        if len(request.topics) <= TOPICS_AT_ONCE:
            return self._delete_topics(request, permissions)
        groups = yield from group_topics(request.topics, self._topic_meant)
        deleted = yield from _in_portions(
            request, groups, lambda portion: self._delete_topics(portion, permissions).responses
        )
        return DeleteTopicsResponse(deleted)

    def _topic_meant(self, reference: TopicReference) -> UUID | TopicReference:
        # A topic's name and id must be in one portion.
        named = None if reference.name is None else self._topics.topic_id(reference.name)
        return named or (reference.topic_id if reference.topic_id != ZERO_UUID else reference)

    def _delete_topics(self, request: DeleteTopics, permissions: Permissions) -> DeleteTopicsResponse:
        response, gone = answer_delete_topics(request, self._topics, permissions)
        for topic in gone:
            # Before its records.
            self._nodes.topic_deleted(topic)
            self._data.delete(topic)
        return response

    # ------------------------------------------------------------ settings

    def alter_configs(
        self, connection: Connection, request: IncrementalAlterConfigs | AlterConfigs
    ) -> Work[WireResponse | None]:
        permissions = connection.permissions
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
        return AlterConfigsResponse(tuple(results))
