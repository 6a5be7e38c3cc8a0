"""Who may use the transaction APIs: the refusals of whole requests, in Kafka's shapes (KIP-11, KIP-98, KIP-679)."""

from __future__ import annotations

from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.core.front.authorization import Operation, Permissions
from groupcoord.core.messages import PartitionResult, TopicResult
from groupcoord.core.records import ZERO_UUID
from groupcoord.errors import ErrorCode
from groupcoord.wire.cluster_messages import TopicPartitions
from groupcoord.wire.pacing import paced
from groupcoord.wire.transaction_messages import (
    AddedPartitions,
    AddOffsetsToTxn,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    EndTxn,
    EndTxnResponse,
    InitProducerId,
    InitProducerIdResponse,
    TransactionResponse,
    WriteTxnMarkers,
    WriteTxnMarkersResponse,
    WrittenMarker,
)

ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

Guarded = InitProducerId | AddPartitionsToTxn | AddOffsetsToTxn | EndTxn | WriteTxnMarkers


def refuse(request: Guarded, permissions: Permissions, topics: TopicRegistry) -> TransactionResponse | None:
    """Return the refusal of a request that is not allowed, or None."""
    match request:
        case InitProducerId(transactional_id=None):
            return None if _may_write_idempotently(permissions, topics) else InitProducerIdResponse(CLUSTER_DENIED)
        case InitProducerId(transactional_id=str(transactional_id)):
            return None if _may_write(transactional_id, permissions) else InitProducerIdResponse(ID_DENIED)
        case AddPartitionsToTxn():
            return _refuse_partitions(request, permissions)
        case AddOffsetsToTxn():
            if not _may_write(request.transactional_id, permissions):
                return AddOffsetsToTxnResponse(ID_DENIED)
            is_allowed = permissions.on_group(request.group_id, Operation.READ)
            return None if is_allowed else AddOffsetsToTxnResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        case EndTxn():
            return None if _may_write(request.transactional_id, permissions) else EndTxnResponse(ID_DENIED)
        case WriteTxnMarkers():
            is_allowed = permissions.on_cluster(Operation.ALTER) or permissions.on_cluster(Operation.CLUSTER_ACTION)
            return None if is_allowed else _refuse_markers(request)
    return None


def _may_write(transactional_id: str, permissions: Permissions) -> bool:
    return permissions.on_transactional_id(transactional_id, Operation.WRITE)


def _may_write_idempotently(permissions: Permissions, topics: TopicRegistry) -> bool:
    """Whoever may write to a topic may do so idempotently."""
    return permissions.on_cluster(Operation.IDEMPOTENT_WRITE) or any(
        permissions.on_topic(topic.name, Operation.WRITE) for topic in topics
    )


def _refuse_partitions(request: AddPartitionsToTxn, permissions: Permissions) -> AddPartitionsToTxnResponse | None:
    if request.is_from_broker:
        is_allowed = permissions.on_cluster(Operation.CLUSTER_ACTION)
        return None if is_allowed else AddPartitionsToTxnResponse((), CLUSTER_DENIED)
    if all(_may_write(wanted.transactional_id, permissions) for wanted in paced(request.transactions)):
        return None
    return AddPartitionsToTxnResponse(
        tuple(
            AddedPartitions(wanted.transactional_id, results_of(wanted.topics, ID_DENIED))
            for wanted in paced(request.transactions)
        )
    )


def _refuse_markers(request: WriteTxnMarkers) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        tuple(
            WrittenMarker(marker.producer_id, results_of(marker.topics, CLUSTER_DENIED))
            for marker in paced(request.markers)
        )
    )


def results_of(topics: tuple[TopicPartitions, ...], error_code: ErrorCode) -> tuple[TopicResult, ...]:
    """Return one error for every partition."""
    return tuple(
        TopicResult(
            topic.name, ZERO_UUID, tuple(PartitionResult(index, error_code) for index in paced(topic.partition_indexes))
        )
        for topic in paced(topics)
    )
