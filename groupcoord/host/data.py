"""Reading topics that hold no data: ListOffsets and Fetch.

Every partition is empty: its log starts and ends at offset 0. Yet groups commit offsets such as 42, and their
consumers go on reading there; Kafka would answer OFFSET_OUT_OF_RANGE, and the consumers would jump back to 0. So here
a Fetch at any offset from 0 on is answered as if the log ended exactly there: nothing to read yet, high watermark =
the offset asked for, lag 0. ListOffsets still answers 0 for start and end. This is a difference from Kafka on
purpose; everything else (unknown topics, leader epochs, when a Fetch waits and when it is answered at once) is as
recorded from Apache Kafka 4.4.

There are no fetch sessions (KIP-227): every full fetch is answered with session id 0, so clients keep sending full
ones.
"""

from __future__ import annotations

from collections import Counter

from groupcoord.errors import ErrorCode
from groupcoord.host.metadata import LEADER_EPOCH
from groupcoord.host.topics import TopicRegistry
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
)

LATEST, EARLIEST, EARLIEST_LOCAL = -1, -2, -4
LOWEST_SPECIAL_TIMESTAMP = -6
NO_LEADER_EPOCH = -1
SESSIONLESS_EPOCHS = (0, -1)
READ_COMMITTED = 1


def answer_list_offsets(request: ListOffsets, topics: TopicRegistry) -> ListOffsetsResponse:
    """Look up offsets by time in empty logs: 0 for the start and the end, none for any other time."""
    listed = []
    for topic in request.topics:
        partition_count = topics.partition_count(topic.name) or 0
        asked = Counter(partition.partition_index for partition in topic.partitions)
        partitions = {
            partition.partition_index: (
                _list(partition, partition_count)
                if asked[partition.partition_index] == 1
                else ListedOffsetsPartition(partition.partition_index, ErrorCode.INVALID_REQUEST)
            )
            for partition in topic.partitions
        }
        if partitions:
            listed.append(ListedOffsetsTopic(topic.name, tuple(partitions.values())))
    return ListOffsetsResponse(tuple(listed))


def _list(partition: ListOffsetsPartition, partition_count: int) -> ListedOffsetsPartition:
    index, timestamp = partition.partition_index, partition.timestamp
    error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if 0 <= index < partition_count:
        error_code = _check_leader_epoch(partition.current_leader_epoch)
        if error_code is ErrorCode.NONE and timestamp < LOWEST_SPECIAL_TIMESTAMP:
            error_code = ErrorCode.UNSUPPORTED_VERSION
    if error_code is ErrorCode.NONE and timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL):
        return ListedOffsetsPartition(index, error_code, offset=0, leader_epoch=LEADER_EPOCH)
    return ListedOffsetsPartition(index, error_code)


def _check_leader_epoch(epoch: int) -> ErrorCode:
    if epoch > LEADER_EPOCH:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if epoch < LEADER_EPOCH and epoch != NO_LEADER_EPOCH:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


def answer_fetch(request: Fetch, topics: TopicRegistry) -> tuple[FetchResponse, int]:
    """Read nothing from empty logs.

    Returns:
        The answer, and for how many milliseconds it has to wait. Like Kafka, a Fetch that finds nothing to read waits
        ``max_wait_ms``, unless it wants no bytes, asks for no partition that exists, or one of them fails.
    """
    if request.session_epoch not in SESSIONLESS_EPOCHS:
        return FetchResponse(ErrorCode.FETCH_SESSION_ID_NOT_FOUND), 0
    read, can_wait, must_not_wait = [], False, False
    for topic in request.topics:
        unknown, partition_count = _find(topic, topics)
        partitions = {}
        for partition in topic.partitions:
            if 0 <= partition.partition_index < partition_count:
                fetched = _fetch(partition, request)
                can_wait = True
                must_not_wait = must_not_wait or fetched.error_code is not ErrorCode.NONE
            else:
                fetched = _failed(partition.partition_index, unknown, request)
            partitions[partition.partition_index] = fetched
        if partitions:
            read.append(FetchedTopicData(topic.name, topic.topic_id, tuple(partitions.values())))
    waits = can_wait and not must_not_wait and min(request.min_bytes, request.max_bytes) > 0
    return FetchResponse(topics=tuple(read)), max(request.max_wait_ms, 0) if waits else 0


def _find(topic: FetchTopic, topics: TopicRegistry) -> tuple[ErrorCode, int]:
    """Return the error of a partition that does not exist in this topic, and how many do."""
    if topic.name is not None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topics.partition_count(topic.name) or 0
    known = topics.get_by_id(topic.topic_id)
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_ID, 0
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, known.partition_count


def _fetch(partition: FetchPartition, request: Fetch) -> FetchedPartitionData:
    error_code = _check_leader_epoch(partition.current_leader_epoch)
    if error_code is ErrorCode.NONE and request.replica_id >= 0:
        error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # there are no followers here
    elif error_code is ErrorCode.NONE and partition.fetch_offset < 0:
        error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    if error_code is not ErrorCode.NONE:
        return _failed(partition.partition_index, error_code, request)
    end_offset = partition.fetch_offset
    aborted = () if request.isolation_level == READ_COMMITTED else None
    return FetchedPartitionData(partition.partition_index, error_code, end_offset, end_offset, 0, aborted)


def _failed(partition_index: int, error_code: ErrorCode, request: Fetch) -> FetchedPartitionData:
    aborted = () if request.isolation_level == READ_COMMITTED else None
    return FetchedPartitionData(partition_index, error_code, aborted_transactions=aborted)
