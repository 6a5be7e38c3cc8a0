"""CreateTopics, CreatePartitions and DeleteTopics as in Apache Kafka 4.4 (KRaft), and the requests about configs.

Manual assignments are kept where nodes elect leaders over shared logs. Other partitions have a replica on every node,
for any replication factor up to the number of nodes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from attrs import define

from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.cluster.metadata import answer_metadata, topics_to_create
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.configs.definitions import Configs, checked_topic_configs
from groupcoord.broker.configs.requests import (
    Resources,
    answer_alter_configs,
    created_configs,
)
from groupcoord.broker.connection import Connection
from groupcoord.broker.log_lines import Notices
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import (
    KEPT_TOPICS,
    MAX_PARTITIONS_PER_REQUEST,
    METADATA_TOPIC,
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
from groupcoord.broker.work import PORTION, Work, do_whole, portions, run_on_entries
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
    IncrementalAlterConfigs,
)

Wanted = TypeVar("Wanted")
NamedT = TypeVar("NamedT", CreatableTopic, CreatePartitionsTopic)
Result = TypeVar("Result")

logger = logging.getLogger("groupcoord.host")

DEFAULT = -1
TOPIC_DENIED = "Topic authorization failed."

TOPICS_AT_ONCE = 250
ENTRIES_GROUPED = 1_000


def _by_name(entries: Sequence[NamedT]) -> Work[tuple[Counter[str], dict[str, NamedT]]]:
    """Return how often each name occurs, and its last entry."""
    times_named, distinct = Counter[str](), dict[str, NamedT]()
    for portion in portions(entries, ENTRIES_GROUPED):
        if distinct:
            yield None
        named = [(entry.name, entry) for entry in portion]
        times_named.update(name for name, _ in named)
        distinct.update(named)
    return times_named, distinct


def _refusal_order(names: list[str]) -> list[str]:
    """Return distinct names in the order of Kafka's hash sets: duplicates, then all others."""
    first, duplicates = HashTable(string_hash), HashTable(string_hash)
    for name in names:
        (duplicates if name in first else first).put(name)
    return [*duplicates, *(name for name in first if name not in duplicates)]


def _creation_refusal(name: str, count: int, may_create_all: bool, permissions: Permissions) -> TopicError | None:
    if count > 1:
        return TopicError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    # Before the permission, as in ControllerApis.
    if name == METADATA_TOPIC:
        return TopicError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
    if may_create_all or permissions.on_topic(name, Operation.CREATE):
        return None
    return TopicError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")


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


@define(eq=False)
class TopicRequests:
    """Handlers of topic and config requests that notify group coordinators of changes."""

    _data: TopicData
    _resources: Resources
    _nodes: Nodes
    _notices: Notices

    def __attrs_post_init__(self) -> None:
        self._apply_broker_configs()

    def _apply_broker_configs(self) -> None:
        brokers, is_sole = self._resources.brokers, self._nodes.leadership.is_sole
        # Shared logs follow only the cluster's defaults.
        layers = brokers.layers(self._resources.node_id) if is_sole else (brokers.of_all(),)
        self._data.whole.use_broker_configs(layers)

    def metadata(self, connection: Connection, request: Metadata) -> Work[WireResponse | None]:
        auto_creates, leadership = self._data.config.auto_create_topics_enable, self._nodes.leadership
        response = yield from answer_metadata(
            request,
            leadership,
            self._data.topics,
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
            yield from self.create(CreateTopics(tuple(map(CreatableTopic, names))))
        return response

    def create(self, request: CreateTopics, permissions: Permissions = UNRESTRICTED) -> Work[CreateTopicsResponse]:
        config, leadership, layers = self._data.config, self._nodes.leadership, self._resources.layers
        times_named, distinct = yield from _by_name(request.topics)
        may_create_all, refusals, total = permissions.on_cluster(Operation.CREATE), dict[str, TopicError](), 0
        for number, (name, topic) in enumerate(distinct.items(), 1):
            if number % PORTION == 0:
                yield None
            refusal = _creation_refusal(name, times_named[name], may_create_all, permissions)
            if refusal is None:
                # Negative counts must not offset others.
                total += max(_partition_count(topic, config.num_partitions), 0)
            else:
                refusals[name] = refusal

        def create(edit: TopicEdit, topic: CreatableTopic) -> CreatedTopic:
            # ControllerApis checks these first.
            if topic.name in refusals:
                raise refusals[topic.name]
            # Even an existing topic gets this error.
            if total > MAX_PARTITIONS_PER_REQUEST:
                raise TopicError(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
            # ReplicationControlManager's order: name, configs, replicas.
            edit.check_new(topic.name)
            configs, count = _configs_of(topic), _partition_count(topic, config.num_partitions)
            made = edit.create(topic.name, count, configs=configs, replicas=_checked_layout(topic, leadership))
            # KIP-525: the topic is created, and its configs are left out.
            config_error = permissions.topic_error(topic.name, Operation.DESCRIBE_CONFIGS)
            if config_error is not ErrorCode.NONE:
                return CreatedTopic(
                    topic.name, ErrorCode.NONE, None, made.topic_id, topic_config_error_code=config_error
                )
            described = created_configs(made, config, layers)
            factor = len(leadership.replicas(made, 0))
            return CreatedTopic(
                topic.name, ErrorCode.NONE, None, made.topic_id, made.partition_count, factor, described
            )

        def refused(topic: CreatableTopic, error: TopicError) -> CreatedTopic:
            return CreatedTopic(topic.name, error.error_code, error.message)

        def announce(results: Sequence[CreatedTopic]) -> None:
            names = [topic.name for topic in results if topic.error_code is ErrorCode.NONE]
            if names and not request.validate_only:
                self._nodes.topics_created(names)
                self._notices.topics_changed(names)

        # One entry for each repeated or denied name, after the others.
        names = [name for name in distinct if name not in refusals]
        if refusals:
            order = yield from run_on_entries(_refusal_order, [topic.name for topic in request.topics])
            names += (name for name in order if name in refusals)
        ordered = [distinct[name] for name in names]
        results = yield from self._change(ordered, create, refused, announce, dry_run=request.validate_only)
        return CreateTopicsResponse(results)

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
            for topic in do_whole(self.create(wanted, permissions)).topics
            if topic.error_code is not ErrorCode.NONE
        }

    def create_partitions(
        self, request: CreatePartitions, permissions: Permissions = UNRESTRICTED
    ) -> Work[CreatePartitionsResponse]:
        leadership = self._nodes.leadership
        times_named, distinct = yield from _by_name(request.topics)
        refusals, total = dict[str, TopicError](), 0
        for number, (name, topic) in enumerate(distinct.items(), 1):
            if number % PORTION == 0:
                yield None
            if times_named[name] > 1:
                refusals[name] = TopicError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            elif permissions.on_topic(name, Operation.ALTER):
                # Unknown topics fail by themselves.
                total += max(topic.count - (self._data.topics.partition_count(name) or topic.count), 0)
            else:
                refusals[name] = TopicError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)

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

        def announce(results: Sequence[CreatedPartitions]) -> None:
            self._nodes.topics_changed([topic.name for topic in results])

        # One entry for each repeated or denied name, before the others.
        order = yield from run_on_entries(_refusal_order, [topic.name for topic in request.topics])
        ordered = [distinct[name] for name in sorted(order, key=lambda name: name not in refusals)]
        results = yield from self._change(ordered, extend, refused, announce, dry_run=request.validate_only)
        return CreatePartitionsResponse(results)

    def delete(self, request: DeleteTopics, permissions: Permissions = UNRESTRICTED) -> Work[DeleteTopicsResponse]:
        topics = self._data.topics
        if permissions.on_cluster(Operation.DELETE):
            permissions = UNRESTRICTED
        times_named = Counter[TopicReference]()
        ids, named = set[UUID](), set[UUID | None]()
        for portion in portions(request.topics):
            if times_named:
                yield None
            times_named.update(portion)
            ids.update(topic_id for name, topic_id in portion if name is None)
            only_named = (name for name, topic_id in portion if name is not None and topic_id == ZERO_UUID)
            named.update(topics.topic_id(name) for name in only_named if _may_delete(name, permissions))
        malformed, well_formed = list[TopicReference](), dict[TopicReference, None]()
        for portion in portions(request.topics):
            if malformed or well_formed:
                yield None
            for reference in portion:
                if (reference.name is None) == (reference.topic_id == ZERO_UUID):
                    malformed.append(reference)
                elif reference.name is not None or reference.topic_id not in named:
                    well_formed[reference] = None
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

        def announce(results: Sequence[DeletedTopic]) -> None:
            for topic in gone:
                # Not gone after a failed write.
                if topics.get_by_id(topic.topic_id) is None:
                    self._deleted(topic)
            gone.clear()

        return DeleteTopicsResponse((yield from self._change([*malformed, *well_formed], delete, refused, announce)))

    def _deleted(self, topic: Topic) -> None:
        # Before its records.
        self._nodes.topic_deleted(topic)
        self._data.delete(topic)

    def alter_configs(
        self, request: IncrementalAlterConfigs | AlterConfigs, permissions: Permissions
    ) -> Work[AlterConfigsResponse]:
        response = yield from answer_alter_configs(request, self._resources, permissions, self._notices.topics_changed)
        self._apply_broker_configs()
        return response

    def reloaded(self, before: Sequence[Topic]) -> None:
        self._apply_broker_configs()
        # A deleted topic may exist again under its name.
        former, current = (
            {topic.topic_id: topic for topic in before},
            {topic.topic_id: topic for topic in self._data.topics},
        )
        for topic_id in former.keys() - current.keys():
            self._deleted(former[topic_id])
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

    def _change(
        self,
        wanted: Sequence[Wanted],
        change: Callable[[TopicEdit, Wanted], Result],
        refused: Callable[[Wanted, TopicError], Result],
        announce: Callable[[Sequence[Result]], None],
        *,
        dry_run: bool = False,
    ) -> Work[tuple[Result, ...]]:
        """Make the possible changes, some in each edit, and return a result or an error for each."""
        results: list[Result] = []
        # A failed write affects one portion.
        for portion in portions(wanted, TOPICS_AT_ONCE):
            if results:
                yield None
            some: list[Result] = []
            try:
                with self._data.topics.edit(dry_run=dry_run) as edit:
                    for item in portion:
                        try:
                            some.append(change(edit, item))
                        except TopicError as error:
                            some.append(refused(item, error))
            except OSError as error:
                logger.error("the topics could not be written: %s", error)
                failure = TopicError(ErrorCode.KAFKA_STORAGE_ERROR, "The topics could not be written.")
                some = [refused(item, failure) for item in portion]
            announce(some)
            results += some
        return tuple(results)
