"""What a client learns first: which APIs there are (ApiVersions), which node and which topics (Metadata)."""

from __future__ import annotations

from groupcoord.core.messages import AUTHORIZED_OPERATIONS_OMITTED, Node
from groupcoord.core.records import ZERO_UUID
from groupcoord.errors import ErrorCode
from groupcoord.host.topics import Topic, TopicError, TopicRegistry, check_topic_name
from groupcoord.wire import API_VERSIONS
from groupcoord.wire.broker_messages import (
    ApiVersions,
    ApiVersionsResponse,
    Feature,
    Metadata,
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)

API_VERSIONS_KEY = 18
TRANSACTION_VERSION = Feature("transaction.version", 2, 2)
"""Producers that know it raise their epoch with each transaction, and add groups by committing offsets (KIP-890)."""

LEADER_EPOCH = 0
TOPIC_OPERATIONS = 3576
"""All operations on a topic, as Kafka answers without an authorizer."""

CLUSTER_OPERATIONS = 8096
"""All operations on the cluster, as Kafka answers without an authorizer."""


def answer_api_versions(request: ApiVersions, node: Node, cluster_id: str) -> ApiVersionsResponse:
    """Name the APIs that are served; an unknown version of this API learns its range only (KIP-511)."""
    if request.unsupported_version:
        known = {API_VERSIONS_KEY: API_VERSIONS[API_VERSIONS_KEY]}
        return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, known)
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != (cluster_id, node.node_id):
        return ApiVersionsResponse(ErrorCode.REBOOTSTRAP_REQUIRED, {})
    return ApiVersionsResponse(
        ErrorCode.NONE, API_VERSIONS, finalized_features_epoch=0, finalized_features=(TRANSACTION_VERSION,)
    )


def answer_metadata(request: Metadata, node: Node, topics: TopicRegistry) -> MetadataResponse:
    """Describe the cluster of one node and the topics that are asked for.

    As in Kafka, one topic id in the request makes all names in it be ignored, and a name sent twice is answered once.
    Topics are never created by asking for them (``auto.create.topics.enable=false``).
    """
    references = request.topics
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else AUTHORIZED_OPERATIONS_OMITTED
    if references is None:
        found = [_describe(topic, node, operations) for topic in topics]
    elif any(reference.topic_id != ZERO_UUID for reference in references):
        ids = dict.fromkeys(reference.topic_id for reference in references if reference.topic_id != ZERO_UUID)
        by_id = [(topic_id, topics.get_by_id(topic_id)) for topic_id in ids]
        found = [
            MetadataTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
            if topic is None
            else _describe(topic, node, operations)
            for topic_id, topic in by_id
        ]
    else:
        names = dict.fromkeys(reference.name for reference in references if reference.name is not None)
        found = [_by_name(name, node, topics, operations) for name in names]
    return MetadataResponse(
        brokers=(MetadataBroker(node.node_id, node.host, node.port),),
        topics=tuple(found),
        cluster_id=topics.cluster_id,
        controller_id=node.node_id,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else AUTHORIZED_OPERATIONS_OMITTED
        ),
    )


def _by_name(name: str, node: Node, topics: TopicRegistry, operations: int) -> MetadataTopic:
    topic = topics.get(name)
    if topic is not None:
        return _describe(topic, node, operations)
    try:
        check_topic_name(name)
    except TopicError as error:
        return MetadataTopic(error.error_code, name, authorized_operations=operations)
    return MetadataTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, authorized_operations=operations)


def _describe(topic: Topic, node: Node, operations: int) -> MetadataTopic:
    nodes = (node.node_id,)
    partitions = [
        MetadataPartition(ErrorCode.NONE, index, node.node_id, LEADER_EPOCH, nodes, nodes)
        for index in range(topic.partition_count)
    ]
    return MetadataTopic(ErrorCode.NONE, topic.name, topic.topic_id, topic.is_internal, tuple(partitions), operations)
