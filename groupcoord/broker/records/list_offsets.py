"""ListOffsets: where the logs of partitions start and end, and where in them a time is.

Rules are those of ``ReplicaManager`` and ``UnifiedLog.fetchOffsetByTimestamp`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from groupcoord.broker.records.topic_data import READ_COMMITTED, READ_UNCOMMITTED, TopicData, check_leader_epoch
from groupcoord.core.front.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import FailedLogError, TopicLogError
from groupcoord.wire.broker_messages import (
    ListedOffsetsPartition,
    ListedOffsetsTopic,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from groupcoord.wire.pacing import paced

if TYPE_CHECKING:
    from groupcoord.storage.partition_log import PartitionLog

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
NOT_HELD = (-5, -6)
"""Where a log's tiers meet. There are no tiers."""


def looks_into_batches(request: ListOffsets) -> bool:
    """Tell whether a request asks for times, for which batches may have to be read."""
    return any(
        partition.timestamp >= 0 or partition.timestamp == MAX_TIMESTAMP
        for topic in request.topics
        for partition in topic.partitions
    )


def answer_list_offsets(
    request: ListOffsets, data: TopicData, permissions: Permissions = UNRESTRICTED
) -> ListOffsetsResponse:
    """Look up offsets by time. Topics that may not be described come last."""
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        return ListOffsetsResponse(tuple(_refused_listing(topic, error_code) for topic in paced(request.topics)))
    listed, denied = [], []
    for topic in paced(request.topics):
        if not permissions.on_topic(topic.name, Operation.DESCRIBE):
            denied.append(_refused_listing(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        asked = Counter(partition.partition_index for partition in paced(topic.partitions))
        partitions = {
            partition.partition_index: (
                _list(partition, topic.name, request, data)
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


def _list(partition: ListOffsetsPartition, name: str, request: ListOffsets, data: TopicData) -> ListedOffsetsPartition:
    index = partition.partition_index
    topic = data.topics.get(name)
    if partition.timestamp < request.lowest_timestamp:
        return ListedOffsetsPartition(index, ErrorCode.UNSUPPORTED_VERSION)
    if topic is None or not topic.has_partition(index):
        return ListedOffsetsPartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    leader_epoch = data.leader_epoch(topic, index)
    error_code = check_leader_epoch(partition.current_leader_epoch, leader_epoch)
    if error_code is not ErrorCode.NONE:
        return ListedOffsetsPartition(index, error_code)
    try:
        log = data.log(topic, index)
    except FailedLogError as error:
        return ListedOffsetsPartition(index, error.error_code)
    if partition.timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL):
        offset = 0 if log is None else _bound(log, partition.timestamp, request.isolation_level)
        if log is not None and partition.timestamp != LATEST:
            leader_epoch = log.epochs.at(offset)
        return ListedOffsetsPartition(index, ErrorCode.NONE, offset=offset, leader_epoch=leader_epoch)
    if log is None or partition.timestamp in NOT_HELD:
        return ListedOffsetsPartition(index, ErrorCode.NONE)
    return _find(log, partition, request.isolation_level)


def _bound(log: PartitionLog, timestamp: int, isolation_level: int) -> int:
    if timestamp != LATEST:
        return log.start_offset
    return log.last_stable_offset if isolation_level == READ_COMMITTED else log.end_offset


def _find(log: PartitionLog, partition: ListOffsetsPartition, isolation_level: int) -> ListedOffsetsPartition:
    """Find a record by its time; one that the reader may not see yet is not found."""
    try:
        is_largest = partition.timestamp == MAX_TIMESTAMP
        found = log.find_max_time() if is_largest else log.find_time(partition.timestamp)
    except TopicLogError as error:
        return ListedOffsetsPartition(partition.partition_index, error.error_code)
    if found is None or found.offset >= _bound(log, LATEST, isolation_level):
        return ListedOffsetsPartition(partition.partition_index, ErrorCode.NONE)
    return ListedOffsetsPartition(partition.partition_index, ErrorCode.NONE, *found, log.epochs.at(found.offset))
