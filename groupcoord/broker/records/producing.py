"""Produce: what producers send goes to the logs of partitions.

Checks and their order are those of ``KafkaApis.handleProduceRequest`` and ``ReplicaManager`` of Apache Kafka 4.4, as
recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import Topic
from groupcoord.broker.transactions.state import TopicPartition, Writer
from groupcoord.core.front.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.core.interpreter import maker
from groupcoord.errors import ErrorCode
from groupcoord.records.batches import RECORD_BYTES_MIN
from groupcoord.storage.errors import FailedLogError, RefusedBatchError, TopicLogError
from groupcoord.storage.produced_batch import ProducedBatch, claimed_records, is_compressed, read_produced
from groupcoord.wire.broker_messages import (
    NO_LEADER,
    Produce,
    ProducedPartition,
    ProducedTopic,
    ProduceResponse,
    ProduceTopic,
)
from groupcoord.wire.pacing import paced

ALLOWED_ACKS = (-1, 0, 1)

NO_DATA = "topics of this server hold no data"
NO_DATA_ERROR = ErrorCode.POLICY_VIOLATION
"""What Produce is refused with. kafka-python, aiokafka and librdkafka, idempotent or not, fail the send at once with it
and don't try again. INVALID_REQUEST does the same, but tells users that their client is broken; aiokafka doesn't know
INVALID_RECORD; most others are retried until the delivery time-out."""

NOT_IN_TRANSACTION = "Partition was not added to the transaction"


_make_produced, _make_topic = maker(ProducedPartition), maker(ProducedTopic)

FEW_RECORDS_BYTES = 2_048
"""A batch of no more bytes is looked into at once."""

FEW_SIZES = 4_000
"""The sizes of no more records are looked at in one go."""
FEW_SIZES_BYTES = FEW_SIZES * RECORD_BYTES_MIN
"""There are no more records in so many bytes."""

Verify = Callable[[Writer], ErrorCode]
"""Returns NONE if this producer may write there in its transaction, or what the transaction coordinator says."""

Batches = dict[int, ProducedBatch | RefusedBatchError]
"""What came for the partitions of a topic, and can be read."""


def looks_into_batches(request: Produce, data: TopicData) -> bool:
    """Tell whether a request takes long to answer: many records are looked at, or who knows how many."""
    size_bytes = 0
    for name, topic_id, partitions in paced(request.topics):
        topic = data.find(name, topic_id)
        if topic is None:
            continue
        is_compacted = data.settings_of(topic).is_compacted
        for _, records in paced(partitions):
            if records is not None:
                if is_compacted and (len(records) > FEW_RECORDS_BYTES or is_compressed(records)):
                    return True
                size_bytes += len(records)
    return size_bytes > FEW_SIZES_BYTES and _claimed_records(request) > FEW_SIZES


def _claimed_records(request: Produce) -> int:
    """Return how many records a request has whose sizes are looked at, as far as what it says of them can be true."""
    return sum(
        claimed_records(records)
        for topic in paced(request.topics)
        for _, records in paced(topic.partitions)
        if records is not None
    )


def answer_produce(
    request: Produce, data: TopicData, verify: Verify, permissions: Permissions = UNRESTRICTED
) -> ProduceResponse:
    """Append what there is for each partition. As in Kafka, of what is named twice the last counts.

    Args:
        request: what to append.
        data: where to.
        verify: the transaction coordinator, asked for the first batch of a transaction in a partition.
        permissions: who may write to what.
    """
    found: dict[str | UUID, tuple[ProduceTopic, Batches]] = {}
    for topic in paced(request.topics):
        if topic.partitions:
            _, batches = found.setdefault(topic.topic_id if topic.name is None else topic.name, (topic, {}))
            for index, records in paced(topic.partitions):
                batches[index] = _read(records)
    refusal = _transaction_refusal(request, found, permissions)
    answered: list[ProducedTopic] = []
    for (name, topic_id, _), batches in found.values():
        known = data.find(name, topic_id)
        error_code = refusal or _topic_error(name if known is None else known.name, permissions)
        produced = tuple(
            [
                ProducedPartition(index, error_code)
                if error_code is not ErrorCode.NONE
                else _produce(index, batch, known, request, data, verify)
                for index, batch in paced(list(batches.items()))
            ]
        )
        answered.append(_make_topic((name, topic_id, produced)))
    return ProduceResponse(tuple(answered))


def _read(records: bytes | memoryview | None) -> ProducedBatch | RefusedBatchError:
    try:
        return read_produced(records)
    except RefusedBatchError as error:
        return error


def _transaction_refusal(
    request: Produce, found: dict[str | UUID, tuple[ProduceTopic, Batches]], permissions: Permissions
) -> ErrorCode:
    """Return TRANSACTIONAL_ID_AUTHORIZATION_FAILED if a batch is transactional and its producer may not be that."""
    for _, batches in found.values():
        for batch in paced(list(batches.values())):
            if isinstance(batch, ProducedBatch) and batch.is_transactional:
                transactional_id = request.transactional_id
                if transactional_id is not None and permissions.on_transactional_id(transactional_id, Operation.WRITE):
                    return ErrorCode.NONE
                return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _topic_error(name: str | None, permissions: Permissions) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_ID if name is None else permissions.topic_error(name, Operation.WRITE)


def _produce(
    index: int,
    batch: ProducedBatch | RefusedBatchError,
    topic: Topic | None,
    request: Produce,
    data: TopicData,
    verify: Verify,
) -> ProducedPartition:
    if topic is None or not topic.has_partition(index):
        return ProducedPartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        log = data.log(topic, index)
    except FailedLogError as error:
        return ProducedPartition(index, error.error_code, error.reason)
    if log is not None and isinstance(batch, RefusedBatchError):
        return ProducedPartition(index, batch.error_code, batch.reason)
    if request.acks not in ALLOWED_ACKS:
        return ProducedPartition(index, ErrorCode.INVALID_REQUIRED_ACKS)
    if topic.is_internal:
        return ProducedPartition(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if log is None or isinstance(batch, RefusedBatchError):
        return ProducedPartition(index, NO_DATA_ERROR, NO_DATA)
    if batch.uses_zstd and not request.allows_zstd:
        return ProducedPartition(index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if batch.is_transactional and not log.producers.has_open(batch.producer_id, batch.producer_epoch):
        partition = TopicPartition(topic.name, index)
        error_code = _verify(batch, partition, request, verify)
        if error_code is not ErrorCode.NONE:
            message = NOT_IN_TRANSACTION if error_code is ErrorCode.INVALID_TXN_STATE else None
            return ProducedPartition(index, error_code, message)
    try:
        appended = log.append(batch, data.settings_of(topic), data.clock.now_ms())
    except TopicLogError as error:
        start = log.start_offset if error.tells_start else -1
        return ProducedPartition(
            index, error.error_code, error.reason, log_start_offset=start, refused_records=error.records
        )
    return _make_produced((index, ErrorCode.NONE, None, *appended, (), NO_LEADER))


def _verify(batch: ProducedBatch, partition: TopicPartition, request: Produce, verify: Verify) -> ErrorCode:
    """Ask whether a partition is in its producer's transaction, and translate the answer as Kafka does."""
    transactional_id = request.transactional_id or ""
    writer = Writer(
        transactional_id, batch.producer_id, batch.producer_epoch, partition, adds_partition=request.adds_partitions
    )
    error_code = verify(writer)
    match error_code:
        case ErrorCode.TRANSACTION_ABORTABLE if not request.knows_abortable:
            return ErrorCode.INVALID_TXN_STATE
        case ErrorCode.CONCURRENT_TRANSACTIONS if not request.adds_partitions:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        case ErrorCode.COORDINATOR_NOT_AVAILABLE:
            return ErrorCode.NOT_ENOUGH_REPLICAS
    return error_code
