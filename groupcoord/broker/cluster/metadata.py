"""ApiVersions, Metadata and DescribeTopicPartitions: served APIs, features (KIP-584), nodes, topics and leaders.

Sources: ``KRaftMetadataCache``, ``DescribeTopicPartitionsRequestHandler``, ``FeatureControlManager`` of Apache Kafka
4.4, as recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from groupcoord.broker.cluster.leadership import NOBODY, Leadership
from groupcoord.broker.json_file import Document, JsonFile, Place
from groupcoord.broker.topics.registry import Topic, TopicRegistry
from groupcoord.broker.work import Work, each, run_in_executor, run_on_entries
from groupcoord.config import Config, GroupType
from groupcoord.config.group_settings import served_protocols
from groupcoord.core.javacompat import HashTable, buckets_of_copy, scala_set_order, string_hash, string_sort_key
from groupcoord.core.log.records import INTERNAL_TOPICS, ZERO_UUID
from groupcoord.core.messages import AUTHORIZED_OPERATIONS_OMITTED, Node
from groupcoord.core.router.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.core.topics import illegal_name_reason
from groupcoord.errors import ErrorCode
from groupcoord.wire import API_VERSIONS
from groupcoord.wire.broker_messages import Metadata, MetadataBroker, MetadataPartition, MetadataResponse, MetadataTopic
from groupcoord.wire.cluster_messages import (
    ApiVersions,
    ApiVersionsResponse,
    DescribeTopicPartitions,
    DescribeTopicPartitionsResponse,
    FeatureUpdate,
    FinalizedFeature,
    PartitionCursor,
    ServedApi,
    SupportedFeature,
    TopicPartitionDescription,
    TopicPartitionsDescription,
    UpdatedFeature,
    UpdateFeatures,
    UpdateFeaturesResponse,
    UpgradeType,
)

FILE_NAME = "features.json"
CLUSTER_DENIED = "Cluster authorization failed."


NOT_WRITTEN = "The levels of features could not be written."


class Feature(NamedTuple):
    """Feature with its lowest and highest supported level, and its APIs.

    Attributes:
        level: the highest supported level; also the initial one if finalized.
        is_finalized: whether the level is announced as finalized; not so for ``kraft.version`` at 0.
        protocol: the type of groups that it enables.
    """

    name: str
    level: int
    lowest: int = 0
    is_finalized: bool = True
    protocol: GroupType | None = None
    api_keys: tuple[int, ...] = ()
    is_for_clients: bool = False

    @property
    def can_change(self) -> bool:
        return self.protocol is not None or self.is_for_clients


FEATURES = (
    Feature("group.version", 1, protocol=GroupType.CONSUMER, api_keys=(68, 69)),
    # Voters are fixed; level 0 is not announced.
    Feature("kraft.version", 1, is_finalized=False),
    # 3.3-IV3 to 4.4-IV2, from which clients infer the broker's version.
    Feature("metadata.version", 33, lowest=7),
    Feature("share.version", 2, protocol=GroupType.SHARE, api_keys=(76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92)),
    Feature("streams.version", 1, protocol=GroupType.STREAMS, api_keys=(88, 89, 93)),
    # At level 2 each transaction raises the producer epoch; producing adds partitions and committing adds groups
    # (KIP-890). At lower levels producers send AddPartitionsToTxn and AddOffsetsToTxn, and older request versions.
    Feature("transaction.version", 2, is_for_clients=True),
    # All replicas are in sync, so there are no eligible leader replicas (KIP-966).
    Feature("eligible.leader.replicas.version", 1),
)


class Features(Document):
    """Feature levels of the cluster, stored in a file. ``epoch`` counts changes; APIs ``left_out`` are not served."""

    def __init__(self, place: Place | None = None) -> None:
        self.left_out: frozenset[GroupType] = frozenset()
        self.left_out_keys: frozenset[int] = frozenset()
        self.epoch = 0
        self._levels: dict[str, int] = {}
        super().__init__(JsonFile(place, FILE_NAME, "levels of features"))

    def _load(self, content: dict[str, Any]) -> None:
        self._set(int(content["epoch"]), dict(content["levels"]))

    def _set(self, epoch: int, levels: dict[str, int]) -> None:
        for name, level in levels.items():
            if not isinstance(level, int):
                raise TypeError(f"{name} has level {level!r}")
        self.epoch, self._levels = epoch, levels

    def level_of(self, feature: Feature) -> int:
        usual = feature.level if feature.is_finalized else 0
        if feature.protocol in self.left_out:
            return 0
        # A file of another version may hold fixed features.
        return self._levels.get(feature.name, usual) if feature.can_change else usual

    def serves(self, feature: Feature) -> bool:
        return feature.protocol not in self.left_out

    def change(self, levels: Mapping[str, int]) -> None:
        changed = {**self._levels, **levels}
        if changed != self._levels:
            # KIP-584: by this epoch clients distinguish older levels from newer ones.
            epoch = self.epoch + 1
            self.file.write(lambda: {"epoch": epoch, "levels": changed})
            self._set(epoch, changed)

    def served_protocols(self, config: Config) -> frozenset[GroupType]:
        off = {feature.protocol for feature in FEATURES if self.level_of(feature) == 0}
        return served_protocols(config).difference(off)


def answer_update_features(request: UpdateFeatures, features: Features, node_id: int) -> Work[UpdateFeaturesResponse]:
    """Change all levels of a request or none."""
    changing = {feature.name for feature in FEATURES if feature.can_change}
    levels: dict[str, int] = {}
    results: list[UpdatedFeature] = []
    for update in request.feature_updates:
        if results:
            yield None
        reason = _refusal(update, features, node_id)
        if reason is not None:
            whole = f"The update failed for all features since the following feature had an error: {reason}"
            return UpdateFeaturesResponse(ErrorCode.INVALID_UPDATE_VERSION, whole)
        # A fixed feature passes with the level that it has, and is not stored.
        if update.feature in changing:
            levels[update.feature] = update.max_version_level
        results.append(UpdatedFeature(update.feature, ErrorCode.NONE, "NONE"))
    if not request.validate_only:
        try:
            features.change(levels)
        except OSError:
            return UpdateFeaturesResponse(ErrorCode.KAFKA_STORAGE_ERROR, NOT_WRITTEN)
    return UpdateFeaturesResponse(results=tuple(results))


def _refusal(update: FeatureUpdate, features: Features, node_id: int) -> str | None:
    name, level, upgrade_type = update
    invalid = f"Invalid update version {level} for feature {name}."
    feature = next((feature for feature in FEATURES if feature.name == name and features.serves(feature)), None)
    # The order of checks is as recorded.
    if upgrade_type not in list(UpgradeType):
        return f"{invalid} The controller does not support the given upgrade type."
    if level < 0:
        return f"{invalid} A feature version cannot be less than 0."
    if feature is None and level == 0:
        return f"{invalid} Feature {name} not found."
    if feature is None:
        return f"{invalid} Local controller {node_id} does not support this feature."
    if not feature.lowest <= level <= feature.level:
        return f"{invalid} Local controller {node_id} only supports versions {feature.lowest}-{feature.level}"
    in_use = features.level_of(feature)
    if level < in_use and upgrade_type == UpgradeType.UPGRADE:
        return (
            f"{invalid} Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if level > in_use and upgrade_type != UpgradeType.UPGRADE:
        return f"{invalid} Can't downgrade to a newer version."
    if level != in_use and not feature.can_change:
        return f"{invalid} The level of this feature stays {in_use} here."
    return None


API_VERSIONS_KEY = 18


def _announced(features: Features) -> ApiVersionsResponse:
    """Return the ApiVersions response, which includes APIs that settings or features disable, as in Kafka."""
    served = [feature for feature in FEATURES if features.serves(feature)]
    unserved = {key for feature in FEATURES if not features.serves(feature) for key in feature.api_keys}
    unserved |= features.left_out_keys
    levels = [(feature.name, features.level_of(feature)) for feature in served]
    return ApiVersionsResponse(
        ErrorCode.NONE,
        tuple(ServedApi(key, *versions) for key, versions in API_VERSIONS.items() if key not in unserved),
        supported_features=tuple(SupportedFeature(each.name, each.lowest, each.level) for each in served),
        finalized_features_epoch=features.epoch,
        finalized_features=tuple(FinalizedFeature(name, level, level) for name, level in levels if level),
    )


ANNOUNCED = _announced(Features())
_PLACES = {ErrorCode.UNKNOWN_TOPIC_ID: 0, ErrorCode.NONE: 1, ErrorCode.TOPIC_AUTHORIZATION_FAILED: 3}
"""Positions of topics in a response by error; all other errors are between the last two."""


def answer_api_versions(
    request: ApiVersions, node: Node, cluster_id: str, features: Features | None = None
) -> ApiVersionsResponse:
    # KIP-511: clients retry with a version from this range.
    if request.unsupported_version:
        known = ServedApi(API_VERSIONS_KEY, *API_VERSIONS[API_VERSIONS_KEY])
        return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, (known,))
    # KIP-1242: the client has reached another cluster or node.
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != (cluster_id, node.node_id):
        return ApiVersionsResponse(ErrorCode.REBOOTSTRAP_REQUIRED, ())
    # Every connection begins with this request, so the usual response is made once.
    if features is None or not (features.epoch or features.left_out):
        return ANNOUNCED
    return _announced(features)


def answer_metadata(
    request: Metadata,
    leadership: Leadership,
    topics: TopicRegistry,
    permissions: Permissions = UNRESTRICTED,
    *,
    auto_creates: bool = False,
    addresses: Mapping[int, Node] | None = None,
) -> Work[MetadataResponse]:
    """Describe the cluster and the requested topics.

    More than four names are in the order of Scala's hash set. Unknown ids come first, unknown names after known topics,
    and denied topics last; a request for all topics omits these.
    """
    references = request.topics
    # CREATE on the cluster covers all topics; without it each topic is checked.
    checks_creation = (
        auto_creates and request.allow_auto_topic_creation and not permissions.on_cluster(Operation.CREATE)
    )
    view = _View(leadership, topics, permissions, request.include_topic_authorized_operations, checks_creation)
    if references is None:
        found = yield from each(list(topics), view.known_if_allowed)
    # As in Kafka, one topic id makes all names ignored.
    elif any(reference.topic_id != ZERO_UUID for reference in references):
        topic_ids = dict.fromkeys([reference.topic_id for reference in references if reference.topic_id != ZERO_UUID])
        found = yield from each(topic_ids, view.by_id)
    else:
        named = [reference.name for reference in references if reference.name is not None]
        found = yield from each((yield from run_on_entries(scala_set_order, named)), view.by_name)
    described = yield from run_on_entries(_in_order, [topic for topic in found if topic is not None])
    operations = AUTHORIZED_OPERATIONS_OMITTED
    if request.include_cluster_authorized_operations:
        operations = permissions.cluster_operations() if permissions.on_cluster(Operation.DESCRIBE) else 0
    return MetadataResponse(
        brokers=tuple(MetadataBroker(*node) for node in leadership.brokers(addresses)),
        topics=tuple(described),
        cluster_id=topics.cluster_id,
        controller_id=leadership.controller_id,
        cluster_authorized_operations=operations,
    )


def _in_order(topics: list[MetadataTopic]) -> list[MetadataTopic]:
    """Order topics by error; Kafka collects the names of missing ones in a ``HashSet``."""
    topics.sort(key=lambda topic: _PLACES.get(topic.error_code, 2))
    missing = {topic.name: topic for topic in topics if topic.name is not None and topic.error_code not in _PLACES}
    if len(missing) > 1:
        start = next(index for index, topic in enumerate(topics) if topic.error_code not in _PLACES)
        allowed_count = sum(topic.error_code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED for topic in topics)
        names = HashTable(string_hash, missing, max(16, buckets_of_copy(allowed_count)))
        topics[start : start + len(missing)] = [missing[name] for name in names]
    return topics


def topics_to_create(request: Metadata, response: MetadataResponse) -> list[str]:
    if not request.allow_auto_topic_creation:
        return []
    return [
        topic.name
        for topic in response.topics
        if topic.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        and topic.name is not None
        and topic.name not in INTERNAL_TOPICS
    ]


def _missing_error(name: str) -> ErrorCode:
    return ErrorCode.INVALID_TOPIC_EXCEPTION if illegal_name_reason(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class _View(NamedTuple):
    leadership: Leadership
    topics: TopicRegistry
    permissions: Permissions
    shows_operations: bool
    checks_creation: bool

    def may_describe(self, name: str) -> bool:
        return self.permissions.on_topic(name, Operation.DESCRIBE)

    def known_if_allowed(self, topic: Topic) -> MetadataTopic | None:
        return self.known(topic) if self.may_describe(topic.name) else None

    def by_id(self, topic_id: UUID) -> MetadataTopic:
        topic = self.topics.get_by_id(topic_id)
        if topic is None:
            return MetadataTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
        if self.may_describe(topic.name):
            return self.known(topic)
        return MetadataTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)

    def by_name(self, name: str) -> MetadataTopic:
        topic = self.topics.get(name)
        # A client that may not create a topic must not learn that it does not exist.
        is_missing = topic is None and self.checks_creation
        if not self.may_describe(name) or (is_missing and not self.permissions.on_topic(name, Operation.CREATE)):
            return MetadataTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
        return self.unknown(name) if topic is None else self.known(topic)

    def operations(self, name: str) -> int:
        return self.permissions.topic_operations(name) if self.shows_operations else AUTHORIZED_OPERATIONS_OMITTED

    def unknown(self, name: str) -> MetadataTopic:
        operations, is_internal = self.operations(name), name in INTERNAL_TOPICS
        return MetadataTopic(
            _missing_error(name), name, is_internal=is_internal, topic_authorized_operations=operations
        )

    def known(self, topic: Topic) -> MetadataTopic:
        leader = self.leadership.leader_of_all(topic)
        if leader is not None:
            leader_id, leader_epoch = leader
            nodes = (leader_id,)
            partitions = [
                MetadataPartition(ErrorCode.NONE, index, leader_id, leader_epoch, nodes, nodes)
                for index in range(topic.partition_count)
            ]
        else:
            partitions = [self.partition(topic, index) for index in range(topic.partition_count)]
        return MetadataTopic(
            ErrorCode.NONE,
            topic.name,
            topic.topic_id,
            topic.is_internal,
            tuple(partitions),
            self.operations(topic.name),
        )

    def partition(self, topic: Topic, index: int) -> MetadataPartition:
        leadership = self.leadership
        leader_id, leader_epoch = leadership.leader(topic, index)
        replicas = leadership.replicas(topic, index)
        in_sync = leadership.in_sync(replicas)
        # Nearly always.
        if len(in_sync) == len(replicas) and leader_id != NOBODY:
            return MetadataPartition(ErrorCode.NONE, index, leader_id, leader_epoch, replicas, replicas)
        error_code = ErrorCode.LEADER_NOT_AVAILABLE if leader_id == NOBODY or not in_sync else ErrorCode.NONE
        offline = leadership.offline(replicas)
        return MetadataPartition(error_code, index, leader_id, leader_epoch, replicas, in_sync, offline)


# ---------------------------------------------------------------- DescribeTopicPartitions

PARTITIONS_MAX = 2_000
"""Kafka's ``max.request.partition.size.limit``."""


def answer_describe_topic_partitions(
    request: DescribeTopicPartitions,
    topics: TopicRegistry,
    leadership: Leadership,
    permissions: Permissions = UNRESTRICTED,
) -> Work[DescribeTopicPartitionsResponse]:
    """Describe topics in the order of their names from the cursor on; denied ones come last."""
    cursor = request.cursor
    names = set(request.topics) or {topic.name for topic in topics}
    begin = "" if cursor is None else cursor.topic_name
    # Java compares UTF-16 units, Python code points.
    begin_key = string_sort_key(begin)
    wanted = [name for name in sorted(names, key=string_sort_key) if string_sort_key(name) >= begin_key]
    if cursor is not None and (cursor.partition_index < 0 or (request.topics and begin not in names)):
        return (yield from run_in_executor(request.refused, ErrorCode.INVALID_REQUEST))
    # As recorded: the broker's own code fails on an empty name.
    if "" in wanted:
        return (yield from run_in_executor(request.refused, ErrorCode.UNKNOWN_SERVER_ERROR))
    may_see = yield from each(wanted, lambda name: permissions.on_topic(name, Operation.DESCRIBE))
    allowed = [name for name, is_allowed in zip(wanted, may_see, strict=True) if is_allowed]
    denied = [
        TopicPartitionsDescription(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
        for name, is_allowed in zip(wanted, may_see, strict=True)
        if request.topics and not is_allowed
    ]
    # At least 1, or the cursor would never move on.
    left = max(min(request.response_partition_limit, PARTITIONS_MAX), 1)
    described: list[TopicPartitionsDescription] = []
    for name in allowed:
        if described:
            yield None
        # KIP-966: the cursor names the topic and partition that come next.
        if left == 0:
            return DescribeTopicPartitionsResponse((*described, *denied), PartitionCursor(name, 0))
        topic = topics.get(name)
        first = cursor.partition_index if cursor is not None and name == begin else 0
        # Perhaps deleted since the last page, or created again with fewer partitions.
        end = first if topic is None else min(max(topic.partition_count, first), first + left)
        described.append(_described_topic(name, topic, range(first, end), leadership, permissions))
        if topic is not None and end < topic.partition_count:
            return DescribeTopicPartitionsResponse((*described, *denied), PartitionCursor(name, end))
        left -= end - first
    return DescribeTopicPartitionsResponse((*described, *denied))


def _described_topic(
    name: str, topic: Topic | None, indexes: range, leadership: Leadership, permissions: Permissions
) -> TopicPartitionsDescription:
    operations = permissions.topic_operations(name)
    if topic is None:
        return TopicPartitionsDescription(_missing_error(name), name, topic_authorized_operations=operations)
    partitions = tuple(_described_partition(topic, index, leadership) for index in indexes)
    return TopicPartitionsDescription(ErrorCode.NONE, name, topic.topic_id, topic.is_internal, partitions, operations)


def _described_partition(topic: Topic, index: int, leadership: Leadership) -> TopicPartitionDescription:
    leader_id, leader_epoch = leadership.leader(topic, index)
    replicas = leadership.replicas(topic, index)
    in_sync, offline = leadership.in_sync(replicas), leadership.offline(replicas)
    return TopicPartitionDescription(index, leader_id, leader_epoch, replicas, in_sync, offline)
