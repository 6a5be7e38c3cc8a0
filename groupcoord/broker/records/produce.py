"""Produce: appends of batches to the logs of partitions.

Checks and their order are those of ``KafkaApis.handleProduceRequest`` and ``ReplicaManager`` of Apache Kafka 4.4, as
recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from groupcoord.broker.connection import Connection
from groupcoord.broker.records.topic_data import CurrentLeaders, TopicData
from groupcoord.broker.topics.registry import Topic
from groupcoord.broker.transactions.log import Writer
from groupcoord.broker.work import Work, portions, run_in_executor
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.fast_construct import maker
from groupcoord.core.router.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.errors import ErrorCode
from groupcoord.records.batches import CODEC_MASK
from groupcoord.storage.errors import FailedLogError, RefusedBatchError, TopicLogError
from groupcoord.storage.log.batches import ProducedBatch, check_produced, is_short, read_produced
from groupcoord.storage.log.settings import TopicLogSettings
from groupcoord.wire import WireResponse
from groupcoord.wire.broker_messages import (
    NO_LEADER,
    Produce,
    ProducedPartition,
    ProducePartition,
    ProduceResponse,
    RefusedRecord,
    TopicNameOrIdEntry,
)

ALLOWED_ACKS = (-1, 0, 1)

NO_DATA = "topics of this server hold no data"
NO_DATA_ERROR = ErrorCode.POLICY_VIOLATION
"""Error of Produce without logs. kafka-python, aiokafka and librdkafka fail the send at once with it; most others are
retried until the delivery timeout.
"""

NOT_IN_TRANSACTION = "Partition was not added to the transaction"


_make_produced, _make_topic = maker(ProducedPartition), maker(TopicNameOrIdEntry)

FEW_SIZES = 4_000
MANY_APPENDS = 16
Verify = Callable[[Writer], ErrorCode]
"""Returns NONE if a producer may write to a partition in its transaction, else the transaction coordinator's error."""

Batches = dict[int, ProducedBatch | RefusedBatchError]


def answer_produce(
    request: Produce, data: TopicData, verify: Verify, permissions: Permissions = UNRESTRICTED
) -> Work[ProduceResponse]:
    # Repeated entries of a topic are merged, as in Kafka's map by partition.
    found: dict[str | UUID, tuple[TopicNameOrIdEntry[ProducePartition], Batches]] = {}
    for topic in request.topics:
        # Topics without partitions are not in the response.
        if topic.partitions:
            if found:
                yield None
            _, batches = found.setdefault(topic.topic_id if topic.name is None else topic.name, (topic, {}))
            for portion in portions(topic.partitions):
                for index, records in portion:
                    # As in Kafka, the last of repeated partitions counts.
                    batches[index] = _read(records)
                if portion is not topic.partitions:
                    yield None
    # All batches have the same transactional id.
    refusal = _transaction_refusal(request, found, permissions)
    answered: list[TopicNameOrIdEntry[ProducedPartition]] = []
    count = 0
    for (name, topic_id, _), batches in found.values():
        known = data.find(name, topic_id)
        error_code = refusal or _topic_error(name if known is None else known.name, permissions)
        produced: list[ProducedPartition] = []
        for index, batch in batches.items():
            count += 1
            if not count % MANY_APPENDS:
                yield None
                # Other requests may have deleted it.
                known = data.find(name, topic_id)
            if error_code is not ErrorCode.NONE:
                produced.append(ProducedPartition(index, error_code))
                continue
            is_checked, check_error = False, None
            if known is not None and isinstance(batch, ProducedBatch) and _takes_long(batch, known, data):
                is_checked = True
                check_error = yield from _check(batch, data.settings_of(known), data.clock.now_ms())
                known = data.find(name, topic_id)
            produced.append(_produce(index, batch, known, request, data, verify, is_checked, check_error))
        answered.append(_make_topic((name, topic_id, tuple(produced))))
    return ProduceResponse(tuple(answered))


def _takes_long(batch: ProducedBatch, topic: Topic, data: TopicData) -> bool:
    """Return whether checking a batch takes long: many records, or keys for a compacted topic."""
    if data.logs is None:
        return False
    if data.settings_of(topic).is_compacted:
        # Few compressed bytes may hold many records, which is_short considers.
        return not is_short(batch.data)
    # Without keys to check, a compressed batch is appended as it is.
    return batch.record_count > FEW_SIZES and not batch.attributes & CODEC_MASK


def _check(batch: ProducedBatch, settings: TopicLogSettings, now_ms: int) -> Work[RefusedBatchError | None]:
    try:
        yield from run_in_executor(check_produced, batch, settings, now_ms)
    except RefusedBatchError as error:
        return error
    return None


def _read(records: bytes | memoryview | None) -> ProducedBatch | RefusedBatchError:
    try:
        return read_produced(records)
    except RefusedBatchError as error:
        return error


def _transaction_refusal(
    request: Produce,
    found: dict[str | UUID, tuple[TopicNameOrIdEntry[ProducePartition], Batches]],
    permissions: Permissions,
) -> ErrorCode:
    """Return TRANSACTIONAL_ID_AUTHORIZATION_FAILED for transactional batches without permission."""
    for _, batches in found.values():
        for batch in batches.values():
            if isinstance(batch, ProducedBatch) and batch.is_transactional:
                transactional_id = request.transactional_id
                # KafkaApis also denies transactional batches without a transactional id.
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
    is_checked: bool,
    check_error: RefusedBatchError | None,
) -> ProducedPartition:
    if topic is None or not topic.has_partition(index):
        return ProducedPartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        log = data.log(topic, index)
    except FailedLogError as error:
        return ProducedPartition(index, error.error_code, error.reason)
    # KafkaApis validates the batch before acks and internal topics.
    if log is not None and isinstance(batch, RefusedBatchError):
        return ProducedPartition(index, batch.error_code, batch.reason)
    if request.acks not in ALLOWED_ACKS:
        return ProducedPartition(index, ErrorCode.INVALID_REQUIRED_ACKS)
    if topic.is_internal:
        return ProducedPartition(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if log is None or isinstance(batch, RefusedBatchError):
        return ProducedPartition(index, NO_DATA_ERROR, NO_DATA)
    # KIP-110: versions before 7 have no zstd.
    if batch.uses_zstd and not request.allows_zstd:
        return ProducedPartition(index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    # While a transaction is open in the log, it is verified.
    if batch.is_transactional and not log.producers.has_open(batch.producer_id, batch.producer_epoch):
        error_code = _verify(TopicPartition(topic.name, index), batch, request, verify)
        if error_code is not ErrorCode.NONE:
            message = NOT_IN_TRANSACTION if error_code is ErrorCode.INVALID_TXN_STATE else None
            return ProducedPartition(index, error_code, message)
    try:
        if check_error is not None:
            raise check_error
        appended = log.append(batch, data.settings_of(topic), data.clock.now_ms(), is_checked=is_checked)
    except TopicLogError as error:
        # For some errors ReplicaManager returns UNKNOWN_LOG_APPEND_INFO, thus -1.
        start = log.start_offset if error.tells_start else -1
        refused = tuple([RefusedRecord(number, error.reason) for number in error.records])
        return ProducedPartition(index, error.error_code, error.reason, log_start_offset=start, refused_records=refused)
    return _make_produced((index, ErrorCode.NONE, None, *appended, (), NO_LEADER))


def _verify(partition: TopicPartition, batch: ProducedBatch, request: Produce, verify: Verify) -> ErrorCode:
    transactional_id, adds = request.transactional_id or "", request.adds_partitions
    writer = Writer(transactional_id, batch.producer_id, batch.producer_epoch, partition, adds_partition=adds)
    error_code = verify(writer)
    match error_code:
        # KIP-890: versions before 11 do not know the error.
        case ErrorCode.TRANSACTION_ABORTABLE if not request.knows_abortable:
            return ErrorCode.INVALID_TXN_STATE
        # Old clients retry upon NOT_ENOUGH_REPLICAS (KIP-890).
        case ErrorCode.CONCURRENT_TRANSACTIONS if not request.adds_partitions:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        # As in ReplicaManager: clients retry this error without a metadata refresh.
        case ErrorCode.COORDINATOR_NOT_AVAILABLE:
            return ErrorCode.NOT_ENOUGH_REPLICAS
    return error_code


def handle_produce(
    data: TopicData, verify: Verify, leaders: CurrentLeaders | None, connection: Connection, request: Produce
) -> Work[WireResponse | None]:
    response = yield from answer_produce(request, data, verify, connection.permissions)
    if request.acks != 0:
        return response if leaders is None else leaders.add(response, connection.nodes)
    # Without a response, a closed connection is the only way to report an error.
    failed = (
        partition
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code is not ErrorCode.NONE
    )
    first = next(failed, None)
    if first is None:
        connection.skip_answer()
    else:
        connection.refuse(f"Produce with acks=0 failed: {first.error_message or first.error_code.name}")
    return None
