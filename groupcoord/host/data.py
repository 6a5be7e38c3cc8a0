"""Topics that hold no data: ListOffsets, Fetch and Produce.

Every partition is empty: its log starts and ends at offset 0. Yet groups commit offsets such as 42, and their
consumers go on reading there; Kafka would answer OFFSET_OUT_OF_RANGE, and the consumers would jump back to 0. So here
a Fetch at any offset from 0 on is answered as if the log ended exactly there: nothing to read yet, high watermark =
the offset asked for, lag 0. ListOffsets still answers 0 for start and end. This is a difference from Kafka on
purpose; everything else (unknown topics, leader epochs, when a Fetch waits and when it is answered at once) is as
recorded from Apache Kafka 4.4.

There are no fetch sessions (KIP-227): every full fetch is answered with session id 0, so clients keep sending full
ones.

Producing is refused, but it is answered: librdkafka fetches from no broker that does not list Produce.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from uuid import UUID

from groupcoord.core.front.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.errors import ErrorCode
from groupcoord.host.metadata import LEADER_EPOCH
from groupcoord.host.topics import Topic, TopicRegistry
from groupcoord.wire.broker_messages import (
    Fetch,
    FetchedPartitionData,
    FetchedTopicData,
    FetchPartition,
    FetchResponse,
    FetchTopic,
    ListedOffsetsPartition,
    ListedOffsetsTopic,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsResponse,
    ListOffsetsTopic,
    Produce,
    ProducedPartition,
    ProducedTopic,
    ProduceResponse,
)
from groupcoord.wire.pacing import paced

LATEST, EARLIEST, EARLIEST_LOCAL = -1, -2, -4
NO_LEADER_EPOCH = -1
SESSIONLESS_EPOCHS = (0, -1)
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ALLOWED_ACKS = (-1, 0, 1)

NO_DATA = "topics of this server hold no data"
NO_DATA_ERROR = ErrorCode.POLICY_VIOLATION
"""What Produce is refused with. kafka-python, aiokafka and librdkafka, idempotent or not, fail the send at once with it
and don't try again. INVALID_REQUEST does the same, but tells users that their client is broken; aiokafka doesn't know
INVALID_RECORD; most others are retried until the delivery time-out."""


def answer_list_offsets(
    request: ListOffsets, topics: TopicRegistry, permissions: Permissions = UNRESTRICTED
) -> ListOffsetsResponse:
    """Look up offsets by time in empty logs: 0 for the start and the end, none for any other time.

    Topics that may not be described come last.
    """
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        return ListOffsetsResponse(tuple(_refused_listing(topic, error_code) for topic in paced(request.topics)))
    listed, denied = [], []
    for topic in paced(request.topics):
        if not permissions.on_topic(topic.name, Operation.DESCRIBE):
            denied.append(_refused_listing(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        partition_count = topics.partition_count(topic.name) or 0
        asked = Counter(partition.partition_index for partition in paced(topic.partitions))
        partitions = {
            partition.partition_index: (
                _list(partition, partition_count, request.lowest_timestamp)
                if asked[partition.partition_index] == 1
                else ListedOffsetsPartition(partition.partition_index, ErrorCode.INVALID_REQUEST)
            )
            for partition in paced(topic.partitions)
        }
        if partitions:
            listed.append(ListedOffsetsTopic(topic.name, tuple(partitions.values())))
    return ListOffsetsResponse(tuple(listed + denied))


def _refused_listing(topic: ListOffsetsTopic, error_code: ErrorCode) -> ListedOffsetsTopic:
    partitions = [
        ListedOffsetsPartition(partition.partition_index, error_code) for partition in paced(topic.partitions)
    ]
    return ListedOffsetsTopic(topic.name, tuple(partitions))


def _list(partition: ListOffsetsPartition, partition_count: int, lowest_timestamp: int) -> ListedOffsetsPartition:
    index, timestamp = partition.partition_index, partition.timestamp
    if timestamp < lowest_timestamp:
        error_code = ErrorCode.UNSUPPORTED_VERSION
    elif 0 <= index < partition_count:
        error_code = _check_leader_epoch(partition.current_leader_epoch)
    else:
        error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if error_code is ErrorCode.NONE and timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL):
        return ListedOffsetsPartition(index, error_code, offset=0, leader_epoch=LEADER_EPOCH)
    return ListedOffsetsPartition(index, error_code)


def _check_leader_epoch(epoch: int) -> ErrorCode:
    if epoch > LEADER_EPOCH:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if epoch < LEADER_EPOCH and epoch != NO_LEADER_EPOCH:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


def answer_fetch(
    request: Fetch, topics: TopicRegistry, permissions: Permissions = UNRESTRICTED
) -> tuple[FetchResponse, int]:
    """Read nothing from empty logs.

    As in Kafka, what can't be read comes behind what can, unknown topic ids first.

    Returns:
        The answer, and for how many milliseconds it has to wait. Like Kafka, a Fetch that finds nothing to read waits
        ``max_wait_ms``, unless it wants no bytes, asks for no partition that can be read, or one of them fails.
    """
    if request.session_epoch not in SESSIONLESS_EPOCHS:
        return FetchResponse(ErrorCode.FETCH_SESSION_ID_NOT_FOUND), 0
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _unexpected_fetch(request), 0
    is_follower = request.replica_id >= 0
    follower_is_denied = is_follower and not permissions.on_cluster(Operation.CLUSTER_ACTION)
    read: list[tuple[FetchTopic, FetchedPartitionData]] = []
    without_topic: list[tuple[FetchTopic, FetchedPartitionData]] = []
    refused: list[tuple[FetchTopic, FetchedPartitionData]] = []
    for topic in paced(request.topics):
        known = topics.get_by_id(topic.topic_id) if topic.name is None else topics.get(topic.name)
        name = topic.name if known is None else known.name
        error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if name is None:
            error_code = ErrorCode.UNKNOWN_TOPIC_ID
        elif follower_is_denied or not (is_follower or permissions.on_topic(name, Operation.READ)):
            error_code, known = ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
        errors = without_topic if name is None else refused
        partition_count = 0 if known is None else known.partition_count
        for index, partition in {partition.partition_index: partition for partition in paced(topic.partitions)}.items():
            if 0 <= index < partition_count:
                read.append((topic, _fetch(partition, request)))
            else:
                errors.append((topic, FetchedPartitionData(index, error_code)))
    must_not_wait = any(fetched.error_code is not ErrorCode.NONE for _, fetched in read)
    waits = bool(read) and not must_not_wait and min(request.min_bytes, request.max_bytes) > 0
    return FetchResponse(topics=_by_topic(read + without_topic + refused)), max(request.max_wait_ms, 0) if waits else 0


def _by_topic(fetched: list[tuple[FetchTopic, FetchedPartitionData]]) -> tuple[FetchedTopicData, ...]:
    """Gather what was fetched; one topic comes several times if others lie between its partitions."""
    return tuple(
        FetchedTopicData(name, topic_id, tuple(partition for _, partition in found))
        for (name, topic_id), found in groupby(fetched, lambda entry: (entry[0].name, entry[0].topic_id))
    )


def _fetch(partition: FetchPartition, request: Fetch) -> FetchedPartitionData:
    error_code = _check_leader_epoch(partition.current_leader_epoch)
    if error_code is ErrorCode.NONE and request.replica_id >= 0:
        error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # there are no followers here
    elif error_code is ErrorCode.NONE and partition.fetch_offset < 0:
        error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    if error_code is not ErrorCode.NONE:
        return FetchedPartitionData(partition.partition_index, error_code, aborted_transactions=None)
    end_offset = partition.fetch_offset
    aborted = () if request.isolation_level == READ_COMMITTED else None
    return FetchedPartitionData(partition.partition_index, error_code, end_offset, end_offset, 0, aborted)


def _unexpected_fetch(request: Fetch) -> FetchResponse:
    error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    fetched = [
        FetchedTopicData(
            topic.name,
            topic.topic_id,
            tuple(FetchedPartitionData(partition.partition_index, error_code) for partition in paced(topic.partitions)),
        )
        for topic in paced(request.topics)
        if topic.name is not None
    ]
    return FetchResponse(error_code, topics=tuple(fetched))


def answer_produce(request: Produce, topics: TopicRegistry, permissions: Permissions = UNRESTRICTED) -> ProduceResponse:
    """Refuse to write: nothing is kept here. As in Kafka, a partition or a topic named twice is answered once."""
    transactional_id = request.transactional_id
    denies_transaction = transactional_id is not None and not permissions.on_transactional_id(
        transactional_id, Operation.WRITE
    )
    answered: dict[tuple[str | None, UUID], dict[int, ProducedPartition]] = {}
    for topic in paced(request.topics):
        partitions = answered.setdefault((topic.name, topic.topic_id), {}) if topic.partition_indexes else {}
        known = topics.get_by_id(topic.topic_id) if topic.name is None else topics.get(topic.name)
        name = topic.name if known is None else known.name
        if denies_transaction:
            refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif name is None:
            refusal = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            refusal = permissions.topic_error(name, Operation.WRITE)
        for index in paced(topic.partition_indexes):
            if refusal is ErrorCode.NONE:
                partitions[index] = _refuse_records(index, known, request.acks)
            else:
                partitions[index] = ProducedPartition(index, refusal)
    return ProduceResponse(
        tuple(
            ProducedTopic(name, topic_id, tuple(partitions.values()))
            for (name, topic_id), partitions in answered.items()
        )
    )


def _refuse_records(index: int, topic: Topic | None, acks: int) -> ProducedPartition:
    if topic is None or not 0 <= index < topic.partition_count:
        return ProducedPartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if acks not in ALLOWED_ACKS:
        return ProducedPartition(index, ErrorCode.INVALID_REQUIRED_ACKS)
    if topic.is_internal:
        return ProducedPartition(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
    return ProducedPartition(index, NO_DATA_ERROR, NO_DATA)
