"""Who may use the transaction APIs, and the refusals of whole requests, in Kafka's shapes (KIP-11, KIP-98, KIP-679)."""

from __future__ import annotations

from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.work import Work, each, each_long
from groupcoord.core.front.authorization import Operation, Permissions
from groupcoord.core.messages import PartitionResult, TopicResult
from groupcoord.core.records import ZERO_UUID
from groupcoord.errors import ErrorCode
from groupcoord.wire.cluster_messages import TopicPartitions

ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def may_write(transactional_id: str, permissions: Permissions) -> bool:
    """Tell whether somebody may have transactions under an id."""
    return permissions.on_transactional_id(transactional_id, Operation.WRITE)


def may_write_idempotently(permissions: Permissions, topics: TopicRegistry) -> bool:
    """Tell whether somebody may write idempotently: whoever may write to a topic."""
    return permissions.on_cluster(Operation.IDEMPOTENT_WRITE) or any(
        permissions.on_topic(topic.name, Operation.WRITE) for topic in topics
    )


def results_of(topics: tuple[TopicPartitions, ...], error_code: ErrorCode) -> Work[tuple[TopicResult, ...]]:
    """Return one error for every partition."""

    def of_topic(topic: TopicPartitions) -> Work[TopicResult]:
        results = yield from each(topic.partition_indexes, lambda index: PartitionResult(index, error_code))
        return TopicResult(topic.name, ZERO_UUID, results)

    return (yield from each_long(topics, of_topic))
