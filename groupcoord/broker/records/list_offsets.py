"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: the bounds of logs, and offsets by time or leader epoch.

Sources: ``KafkaApis``, ``ReplicaManager`` and ``UnifiedLog.fetchOffsetByTimestamp`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from groupcoord.broker.records.topic_data import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TopicData,
    check_leader_epoch,
    log_error,
)
from groupcoord.broker.work import Work, each_long, each_partition, portions, run_in_executor, run_on_entries
from groupcoord.core.javacompat import scala_map_order, scala_trie_order, string_hash, topic_partition_hash
from groupcoord.core.log.records import NO_TIMESTAMP
from groupcoord.core.router.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import FailedLogError, TopicLogError
from groupcoord.storage.log.settings import NO_LEADER_EPOCH
from groupcoord.wire.broker_messages import (
    DeletedRecordsPartition,
    DeleteRecords,
    DeleteRecordsPartition,
    DeleteRecordsResponse,
    LeaderEpochEnd,
    LeaderEpochPartition,
    ListedOffsetsPartition,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsResponse,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResponse,
    TopicEntry,
)

if TYPE_CHECKING:
    from groupcoord.storage.log.batches import FoundRecord
    from groupcoord.storage.log.memory_log import PartitionLog


LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
CONSUMER_REPLICA_ID = -1
NOT_HELD = (-5, -6)
"""Timestamps of tiered storage, which does not exist here."""


def answer_list_offsets(
    request: ListOffsets, data: TopicData, permissions: Permissions = UNRESTRICTED
) -> Work[ListOffsetsResponse]:
    """Look up offsets by time. Topics and partitions are in the order of Kafka's hash maps; denied topics come last."""
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        # As recorded: an invalid level fails in the broker's code.
        return ListOffsetsResponse((yield from _refused(request.topics, ErrorCode.UNKNOWN_SERVER_ERROR)))
    requested: dict[str, dict[int, list[ListOffsetsPartition]]] = {}
    denied: list[TopicEntry[ListOffsetsPartition]] = []
    for topic in request.topics:
        if requested or denied:
            yield None
        if permissions.on_topic(topic.name, Operation.DESCRIBE):
            yield from _gather(topic, requested.setdefault(topic.name, {}))
        else:
            denied.append(topic)
    names = yield from run_on_entries(scala_trie_order, requested, string_hash)
    listed = yield from each_long(names, lambda name: _list_topic(name, requested[name], request, data))
    refused = yield from _refused(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    # Kafka groups results by partition, so topics without any vanish.
    return ListOffsetsResponse((*(topic for topic in listed if topic.partitions), *refused))


def _refused(
    topics: Iterable[TopicEntry[ListOffsetsPartition]], error_code: ErrorCode
) -> Work[tuple[TopicEntry[ListedOffsetsPartition], ...]]:
    return each_partition(topics, lambda name, entry: ListedOffsetsPartition(entry.partition_index, error_code))


def _gather(topic: TopicEntry[ListOffsetsPartition], requested: dict[int, list[ListOffsetsPartition]]) -> Work[None]:
    for portion in portions(topic.partitions):
        for partition in portion:
            requested.setdefault(partition.partition_index, []).append(partition)
        if portion is not topic.partitions:
            yield None


def _list_topic(
    name: str, requested: Mapping[int, list[ListOffsetsPartition]], request: ListOffsets, data: TopicData
) -> Work[TopicEntry[ListedOffsetsPartition]]:
    def list_partition(index: int) -> Work[ListedOffsetsPartition]:
        partition, *others = requested[index]
        # KafkaApis refuses repeated partitions.
        if others:
            return ListedOffsetsPartition(index, ErrorCode.INVALID_REQUEST)
        return (yield from _list(partition, name, request, data))

    indexes = yield from run_on_entries(scala_map_order, requested, lambda index: topic_partition_hash((name, index)))
    return TopicEntry(name, (yield from each_long(indexes, list_partition)))


def _list(
    partition: ListOffsetsPartition, name: str, request: ListOffsets, data: TopicData
) -> Work[ListedOffsetsPartition]:
    index = partition.partition_index
    topic = data.topics.get(name)
    # Followers and debuggers see all records.
    isolation_level = request.isolation_level if request.replica_id == CONSUMER_REPLICA_ID else READ_UNCOMMITTED
    # Before the topic: each version knows more negative timestamps.
    if partition.timestamp < request.lowest_timestamp:
        return ListedOffsetsPartition(index, ErrorCode.UNSUPPORTED_VERSION)
    if topic is None or not topic.has_partition(index):
        return ListedOffsetsPartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        log = data.log(topic, index)
    except FailedLogError as error:
        return ListedOffsetsPartition(index, log_error(error, partition.current_leader_epoch))
    # Finding the log may begin the epoch of a new leader.
    leader_epoch = data.leader_epoch(topic, index)
    error_code = check_leader_epoch(partition.current_leader_epoch, leader_epoch)
    if error_code is not ErrorCode.NONE:
        return ListedOffsetsPartition(index, error_code)
    if partition.timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL):
        offset = 0 if log is None else _bound(log, partition.timestamp, isolation_level)
        if log is not None and partition.timestamp != LATEST:
            leader_epoch = log.epochs.at(offset)
        return ListedOffsetsPartition(index, ErrorCode.NONE, offset=offset, leader_epoch=leader_epoch)
    # As recorded without tiered storage: no offset.
    if log is None or partition.timestamp in NOT_HELD:
        return ListedOffsetsPartition(index, ErrorCode.NONE)
    return (yield from _find(log, partition, isolation_level))


def _bound(log: PartitionLog, timestamp: int, isolation_level: int) -> int:
    if timestamp != LATEST:
        return log.start_offset
    return log.last_stable_offset if isolation_level == READ_COMMITTED else log.end_offset


def _find(log: PartitionLog, partition: ListOffsetsPartition, isolation_level: int) -> Work[ListedOffsetsPartition]:
    """Find a record by time within the reader's isolation level."""
    timestamp_ms = log.max_timestamp_ms if partition.timestamp == MAX_TIMESTAMP else partition.timestamp
    found: tuple[int, int] | None
    try:
        if timestamp_ms == NO_TIMESTAMP:
            found = NO_TIMESTAMP, log.base_offset  # as Kafka does for a segment without timestamps
        else:
            found = yield from find_time(log, timestamp_ms)
    except TopicLogError as error:
        return ListedOffsetsPartition(partition.partition_index, error.error_code)
    if found is None or found[1] >= _bound(log, LATEST, isolation_level):
        return ListedOffsetsPartition(partition.partition_index, ErrorCode.NONE)
    epoch = log.epochs.at(max(found[1], log.start_offset))
    return ListedOffsetsPartition(partition.partition_index, ErrorCode.NONE, *found, epoch)


def find_time(log: PartitionLog, timestamp_ms: int) -> Work[FoundRecord | None]:
    """Return the first record with this time or a later one."""
    from groupcoord.records.batches import Batch
    from groupcoord.storage.log.batches import first_since, is_short

    offset = log.start_offset
    while (batch := log.batch_since(timestamp_ms, offset)) is not None:
        # Short and uncompressed: cheaper here than as a job.
        if is_short(batch):
            found = first_since(batch, timestamp_ms, offset)
            yield None
        else:
            found = yield from run_in_executor(first_since, batch, timestamp_ms, offset)
        if found is not None:
            return found
        # The batch header's largest timestamp was wrong.
        offset = Batch(batch, 0, 0).next_offset
    return None


# KIP-107: in DeleteRecords, this offset stands for the high watermark.
HIGH_WATERMARK = -1


def answer_delete_records(
    request: DeleteRecords, data: TopicData, permissions: Permissions = UNRESTRICTED
) -> Work[DeleteRecordsResponse]:
    deleted = yield from each_partition(request.topics, lambda name, entry: _delete(entry, name, data, permissions))
    return DeleteRecordsResponse(deleted)


def _delete(
    partition: DeleteRecordsPartition, name: str, data: TopicData, permissions: Permissions
) -> DeletedRecordsPartition:
    index, offset = partition
    error_code = permissions.topic_error(name, Operation.DELETE)
    topic = data.topics.get(name)
    if error_code is not ErrorCode.NONE:
        return DeletedRecordsPartition(index, error_code)
    if topic is None or not topic.has_partition(index):
        return DeletedRecordsPartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    # As in Kafka, before the policy.
    if topic.is_internal:
        return DeletedRecordsPartition(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not data.settings_of(topic).is_deleted:
        return DeletedRecordsPartition(index, ErrorCode.POLICY_VIOLATION)
    try:
        log = data.log(topic, index)
        end_offset = 0 if log is None else log.end_offset
        if offset == HIGH_WATERMARK:
            offset = end_offset
        if not 0 <= offset <= end_offset:
            return DeletedRecordsPartition(index, ErrorCode.OFFSET_OUT_OF_RANGE)
        return DeletedRecordsPartition(index, ErrorCode.NONE, 0 if log is None else log.delete_before(offset))
    except TopicLogError as error:
        return DeletedRecordsPartition(index, error.error_code)


def answer_offset_for_leader_epoch(
    request: OffsetForLeaderEpoch, data: TopicData, permissions: Permissions = UNRESTRICTED
) -> Work[OffsetForLeaderEpochResponse]:
    """Return the end offsets of leader epochs (KIP-320)."""
    if permissions.on_cluster(Operation.CLUSTER_ACTION):
        # Brokers may look at all topics; consumers need DESCRIBE.
        permissions = UNRESTRICTED
    ends = yield from each_partition(request.topics, lambda name, entry: _find_end(entry, name, data, permissions))
    return OffsetForLeaderEpochResponse(ends)


def _find_end(partition: LeaderEpochPartition, name: str, data: TopicData, permissions: Permissions) -> LeaderEpochEnd:
    index, epoch = partition.partition, partition.leader_epoch
    error_code = permissions.topic_error(name, Operation.DESCRIBE)
    topic = data.topics.get(name)
    if error_code is ErrorCode.NONE and (topic is None or not topic.has_partition(index)):
        error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if error_code is not ErrorCode.NONE or topic is None:
        return LeaderEpochEnd(index, error_code)
    try:
        log = data.log(topic, index)
    except FailedLogError as error:
        return LeaderEpochEnd(index, log_error(error, partition.current_leader_epoch))
    leader_epoch = data.leader_epoch(topic, index)
    error_code = check_leader_epoch(partition.current_leader_epoch, leader_epoch)
    if error_code is not ErrorCode.NONE or epoch == NO_LEADER_EPOCH or epoch > leader_epoch:
        return LeaderEpochEnd(index, error_code)
    if log is None:
        return LeaderEpochEnd(index, ErrorCode.NONE, epoch, 0)
    return LeaderEpochEnd(index, ErrorCode.NONE, *(log.end_of_epoch(epoch) or ()))
