"""DeleteRecords and OffsetForLeaderEpoch: looking after the logs of partitions.

Sources: ``KafkaApis`` and ``ReplicaManager`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

from groupcoord.broker.records.node_data import log_error
from groupcoord.broker.records.topic_data import TopicData, check_leader_epoch
from groupcoord.broker.work import Work, each, each_long
from groupcoord.core.router.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import FailedLogError, TopicLogError
from groupcoord.storage.log.settings import NO_LEADER_EPOCH
from groupcoord.wire.broker_messages import (
    DeletedRecordsPartition,
    DeletedRecordsTopic,
    DeleteRecords,
    DeleteRecordsPartition,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    LeaderEpochEnd,
    LeaderEpochEnds,
    LeaderEpochPartition,
    LeaderEpochTopic,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResponse,
)

HIGH_WATERMARK = -1


def answer_delete_records(
    request: DeleteRecords, data: TopicData, permissions: Permissions = UNRESTRICTED
) -> Work[DeleteRecordsResponse]:
    """Let the logs of partitions start later."""

    def delete(topic: DeleteRecordsTopic) -> Work[DeletedRecordsTopic]:
        partitions = yield from each(topic.partitions, lambda entry: _delete(entry, topic.name, data, permissions))
        return DeletedRecordsTopic(topic.name, partitions)

    return DeleteRecordsResponse((yield from each_long(request.topics, delete)))


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
    """Tell where leaders' epochs end; the current one has not ended.

    Asked by brokers, who may act on the cluster, and by consumers, who may describe the topic (KIP-320).
    """
    if permissions.on_cluster(Operation.CLUSTER_ACTION):
        permissions = UNRESTRICTED

    def find_ends(topic: LeaderEpochTopic) -> Work[LeaderEpochEnds]:
        ends = yield from each(topic.partitions, lambda entry: _find_end(entry, topic.topic, data, permissions))
        return LeaderEpochEnds(topic.topic, ends)

    return OffsetForLeaderEpochResponse((yield from each_long(request.topics, find_ends)))


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
