"""DescribeTopicPartitions and DescribeLogDirs: topics a limited number of partitions at a time, and where logs lie.

Sources: ``DescribeTopicPartitionsRequestHandler``, ``KRaftMetadataCache``, ``ReplicaManager.describeLogDirs`` of Apache
Kafka 4.4, as recorded.
"""

from __future__ import annotations

import shutil

from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.records.node_data import NotLeaderError
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import Topic, TopicError, TopicRegistry, check_topic_name
from groupcoord.broker.work import Work, each, each_long
from groupcoord.core.javacompat.hashing import string_sort_key
from groupcoord.core.router.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import FailedLogError
from groupcoord.wire.cluster_messages import (
    AlterReplicaLogDirs,
    AlterReplicaLogDirsResponse,
    DescribeLogDirs,
    DescribeLogDirsResponse,
    DescribeTopicPartitions,
    DescribeTopicPartitionsResponse,
    LogDir,
    LogDirPartition,
    LogDirTopic,
    MovedPartition,
    MovedTopic,
    PartitionCursor,
    TopicPartitionDescription,
    TopicPartitionsDescription,
)

PARTITIONS_MAX = 2_000
"""Kafka's ``max.request.partition.size.limit``."""

IN_MEMORY = "memory"
"""What stands for the folder of logs that lie in none."""


def answer_describe_topic_partitions(
    request: DescribeTopicPartitions,
    topics: TopicRegistry,
    leadership: Leadership,
    permissions: Permissions = UNRESTRICTED,
) -> Work[DescribeTopicPartitionsResponse]:
    """Describe topics in the order of their names, from the cursor on. Those that may not be described come last."""
    cursor = request.cursor
    names = set(request.topics) or {topic.name for topic in topics}
    begin = "" if cursor is None else cursor.topic_name
    begin_key = string_sort_key(begin)
    wanted = [name for name in sorted(names, key=string_sort_key) if string_sort_key(name) >= begin_key]
    if cursor is not None and (cursor.partition_index < 0 or (request.topics and begin not in names)):
        return (yield from _refused(request, ErrorCode.INVALID_REQUEST))
    if "" in wanted:
        return (yield from _refused(request, ErrorCode.UNKNOWN_SERVER_ERROR))
    may_see = yield from each(wanted, lambda name: permissions.on_topic(name, Operation.DESCRIBE))
    allowed = [name for name, is_allowed in zip(wanted, may_see, strict=True) if is_allowed]
    denied = [
        TopicPartitionsDescription(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
        for name, is_allowed in zip(wanted, may_see, strict=True)
        if request.topics and not is_allowed
    ]
    left = max(min(request.response_partition_limit, PARTITIONS_MAX), 1)
    described: list[TopicPartitionsDescription] = []
    for name in allowed:
        if described:
            yield None
        if left == 0:
            return DescribeTopicPartitionsResponse((*described, *denied), PartitionCursor(name, 0))
        topic = topics.get(name)
        first = cursor.partition_index if cursor is not None and name == begin else 0
        end = first if topic is None else min(max(topic.partition_count, first), first + left)
        described.append(_describe(name, topic, range(first, end), leadership, permissions))
        if topic is not None and end < topic.partition_count:
            return DescribeTopicPartitionsResponse((*described, *denied), PartitionCursor(name, end))
        left -= end - first
    return DescribeTopicPartitionsResponse((*described, *denied))


def _refused(request: DescribeTopicPartitions, error_code: ErrorCode) -> Work[DescribeTopicPartitionsResponse]:
    refused = yield from each(request.topics, lambda name: TopicPartitionsDescription(error_code, name))
    return DescribeTopicPartitionsResponse(refused)


def _describe(
    name: str, topic: Topic | None, indexes: range, leadership: Leadership, permissions: Permissions
) -> TopicPartitionsDescription:
    operations = permissions.topic_operations(name)
    if topic is None:
        error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            check_topic_name(name)
        except TopicError as error:
            error_code = error.error_code
        return TopicPartitionsDescription(error_code, name, topic_authorized_operations=operations)
    partitions = tuple(_partition(topic, index, leadership) for index in indexes)
    return TopicPartitionsDescription(ErrorCode.NONE, name, topic.topic_id, topic.is_internal, partitions, operations)


def _partition(topic: Topic, index: int, leadership: Leadership) -> TopicPartitionDescription:
    leader_id, leader_epoch = leadership.leader(topic, index)
    replicas = leadership.replicas(topic, index)
    in_sync = leadership.in_sync(replicas)
    offline = tuple(node_id for node_id in replicas if node_id not in in_sync)
    return TopicPartitionDescription(index, leader_id, leader_epoch, replicas, in_sync, offline)


def answer_describe_log_dirs(
    request: DescribeLogDirs, data: TopicData, permissions: Permissions = UNRESTRICTED
) -> Work[DescribeLogDirsResponse]:
    """Tell how large the logs of partitions are; partitions that there aren't are left out, each is told once.

    What the data directory's volume has and is left of it is told, too; of what lies in memory it isn't. If one of the
    logs can't be read, the folder is answered KAFKA_STORAGE_ERROR, as one that a broker has taken out of service.
    """
    if not permissions.on_cluster(Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked: dict[str, dict[int, None]] = {}
    if request.topics is None:
        asked = {topic.name: dict.fromkeys(range(topic.partition_count)) for topic in data.topics}
    else:
        for wanted in request.topics:
            if asked:
                yield None
            asked.setdefault(wanted.topic, {}).update(dict.fromkeys(wanted.partitions))
    folder = data.topics.directory
    log_dir = _log_dir(data.topics)
    try:
        told = yield from _log_sizes(asked, data)
        volume = None if folder is None else shutil.disk_usage(folder)
    except (FailedLogError, OSError):
        return DescribeLogDirsResponse((LogDir(log_dir, (), error_code=ErrorCode.KAFKA_STORAGE_ERROR),))
    if volume is None:
        return DescribeLogDirsResponse((LogDir(log_dir, told),))
    return DescribeLogDirsResponse((LogDir(log_dir, told, volume.total, volume.free),))


def answer_alter_replica_log_dirs(
    request: AlterReplicaLogDirs, topics: TopicRegistry, permissions: Permissions = UNRESTRICTED
) -> Work[AlterReplicaLogDirsResponse]:
    """Let partitions be in the one folder that there is; the last that is said of a partition counts, as in Kafka."""
    is_allowed = permissions.on_cluster(Operation.ALTER)
    here = _log_dir(topics)
    wanted: dict[str, dict[int, str]] = {}
    for folder in request.dirs:
        for named in folder.topics:
            if wanted:
                yield None
            wanted.setdefault(named.name, {}).update(dict.fromkeys(named.partitions, folder.path))

    def error_of(name: str, index: int, path: str) -> ErrorCode:
        topic = topics.get(name)
        if not is_allowed:
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if path != here:
            return ErrorCode.LOG_DIR_NOT_FOUND
        is_known = topic is not None and topic.has_partition(index)
        return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def move(name: str) -> Work[MovedTopic]:
        paths = wanted[name]
        moved = yield from each(paths, lambda index: MovedPartition(index, error_of(name, index, paths[index])))
        return MovedTopic(name, moved)

    return AlterReplicaLogDirsResponse((yield from each_long(wanted, move)))


def _log_dir(topics: TopicRegistry) -> str:
    return IN_MEMORY if topics.directory is None else str(topics.directory.absolute())


def _log_sizes(asked: dict[str, dict[int, None]], data: TopicData) -> Work[tuple[LogDirTopic, ...]]:
    def measure(name: str) -> Work[LogDirTopic]:
        sizes = yield from each(asked[name], lambda index: _measured(data, name, index))
        return LogDirTopic(name, tuple([size for size in sizes if size is not None]))

    measured = yield from each_long(asked, measure)
    return tuple(topic for topic in measured if topic.partitions)


def _measured(data: TopicData, name: str, index: int) -> LogDirPartition | None:
    """Return how large the log of a partition is, if there is such a partition."""
    topic = data.topics.get(name)
    if topic is None or not topic.has_partition(index):
        return None
    try:
        log = data.whole.log(topic, index)
    except NotLeaderError:
        return None
    return LogDirPartition(index, 0 if log is None else log.readable_bytes(log.start_offset, log.end_offset))
