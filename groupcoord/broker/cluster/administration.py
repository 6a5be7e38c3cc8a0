"""Administration of the cluster: nodes, quorum, elections, reassignments of partitions, log directories.

Nodes share their logs, so a reassignment is complete when it is answered. The metadata quorum has one voter. Sources:
``KafkaApis``, ``ControllerApis``, ``ReplicationControlManager`` and ``ReplicaManager`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial

from groupcoord.broker.cluster.leadership import NOBODY, Leadership
from groupcoord.broker.cluster.metadata import CLUSTER_DENIED
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import METADATA_TOPIC, Topic, TopicError, TopicRegistry, check_replicas
from groupcoord.broker.work import Work, each, each_partition, merged, run_in_executor
from groupcoord.coordinator import LoadError
from groupcoord.core.messages import AUTHORIZED_OPERATIONS_OMITTED, Node, PartitionResult
from groupcoord.core.router.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import FailedLogError
from groupcoord.storage.topic_logs import CopyUnderWayError, UnservedLogError
from groupcoord.wire.broker_messages import TopicEntry
from groupcoord.wire.cluster_messages import (
    AddRaftVoter,
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirs,
    AlterReplicaLogDirsResponse,
    ClusterBroker,
    DescribeCluster,
    DescribeClusterResponse,
    DescribeLogDirs,
    DescribeLogDirsResponse,
    DescribeQuorum,
    DescribeQuorumResponse,
    ElectedPartition,
    ElectionType,
    ElectLeaders,
    ElectLeadersResponse,
    EndpointType,
    ListPartitionReassignments,
    ListPartitionReassignmentsResponse,
    LogDir,
    LogDirPartition,
    MembershipRequest,
    MembershipResponse,
    OngoingReassignment,
    PartitionToReassign,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumVoter,
    ReassignedPartition,
    UnregisterBroker,
    UnregisterController,
)

logger = logging.getLogger("groupcoord.host")

METADATA_EPOCH = 1
CONTROLLER_LISTENER = "CONTROLLER"
NOT_WRITTEN = "The topics could not be written."
NONE_RUNS = "None of these brokers runs: a reassignment is complete at once here."


def answer_describe_cluster(
    request: DescribeCluster,
    leadership: Leadership,
    cluster_id: str,
    permissions: Permissions = UNRESTRICTED,
    addresses: Mapping[int, Node] | None = None,
) -> DescribeClusterResponse:
    # KIP-919: only controllers answer for their endpoints.
    if request.endpoint_type == EndpointType.CONTROLLER:
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return DescribeClusterResponse(ErrorCode.MISMATCHED_ENDPOINT_TYPE, message)
    if request.endpoint_type != EndpointType.BROKER:
        message = f"Unsupported endpoint type {request.endpoint_type}"
        return DescribeClusterResponse(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, message)
    operations = AUTHORIZED_OPERATIONS_OMITTED
    if request.include_cluster_authorized_operations:
        # KIP-430: 0, not an error, for denied clients.
        operations = permissions.cluster_operations() if permissions.on_cluster(Operation.DESCRIBE) else 0
    return DescribeClusterResponse(
        cluster_id=cluster_id,
        controller_id=leadership.controller_id,
        brokers=tuple(ClusterBroker(*node) for node in leadership.brokers(addresses)),
        cluster_authorized_operations=operations,
    )


def answer_describe_quorum(request: DescribeQuorum, node: Node, now_ms: int) -> Work[DescribeQuorumResponse]:
    # As in Kafka, a request that names anything else gets no quorum at all.
    if request.topics == (TopicEntry(METADATA_TOPIC, (0,)),):
        # There is no metadata log, so all offsets are 0.
        voter = QuorumVoter(node.node_id, 0, now_ms, now_ms)
        partition = QuorumPartition(0, ErrorCode.NONE, node.node_id, METADATA_EPOCH, 0, (voter,))
        address = QuorumNode(node.node_id, (QuorumListener(CONTROLLER_LISTENER, node.host, node.port),))
        return DescribeQuorumResponse(topics=(TopicEntry(METADATA_TOPIC, (partition,)),), nodes=(address,))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = yield from each_partition(request.topics, lambda name, index: QuorumPartition(index, unknown))
    return DescribeQuorumResponse(topics=refused)


# ---------------------------------------------------------------- leaders and replicas


def answer_elect_leaders(request: ElectLeaders, nodes: Nodes, topics: TopicRegistry) -> Work[ElectLeadersResponse]:
    if request.election_type not in list(ElectionType):
        message = f"Value {request.election_type} must be one of [0, 1]"
        return (yield from run_in_executor(request.refused, ErrorCode.INVALID_REQUEST, message))
    elects = request.election_type == ElectionType.PREFERRED

    def elect(name: str, index: int) -> ElectedPartition:
        return _elect(topics.get(name), name, index, nodes, elects)

    if request.topic_partitions is not None:
        return ElectLeadersResponse(ErrorCode.NONE, (yield from each_partition(request.topic_partitions, elect)))
    # As in Kafka: every topic, with only those partitions that were elected.
    everything = [TopicEntry(topic.name, tuple(range(topic.partition_count))) for topic in topics]
    elected = tuple(
        TopicEntry(name, tuple(found for found in partitions if found.error_code is ErrorCode.NONE))
        for name, partitions in (yield from each_partition(everything, elect))
    )
    return ElectLeadersResponse(ErrorCode.NONE, elected)


def _elect(topic: Topic | None, name: str, index: int, nodes: Nodes, elects: bool) -> ElectedPartition:
    if topic is None:
        return ElectedPartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not topic.has_partition(index):
        return ElectedPartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    leadership = nodes.leadership
    preferred, leader_id = leadership.replicas(topic, index)[0], leadership.leader(topic, index).node_id
    is_needed = leader_id != preferred if elects else leader_id == NOBODY
    # Nodes that share a log own partitions instead of electing leaders.
    if not (leadership.elects and is_needed):
        message = "Leader election not needed for topic partition."
        return ElectedPartition(index, ErrorCode.ELECTION_NOT_NEEDED, message)
    # All replicas are in sync, so an unclean election finds no leader.
    if not elects:
        return ElectedPartition(index, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    if leadership.node(preferred) is None:
        return ElectedPartition(index, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    with suppress(LoadError):  # the new leader will retry
        nodes.elect(topic, index, preferred)
    return ElectedPartition(index, ErrorCode.NONE)


def answer_alter_partition_reassignments(
    request: AlterPartitionReassignments, nodes: Nodes, topics: TopicRegistry
) -> Work[AlterPartitionReassignmentsResponse]:
    assigned: dict[str, dict[int, tuple[int, ...]]] = {}

    def answer(name: str, partition: PartitionToReassign) -> ReassignedPartition:
        index, replicas = partition
        try:
            _check_reassignment(name, topics.get(name), partition, request, nodes.leadership)
        except TopicError as error:
            return ReassignedPartition(index, error.error_code, error.message)
        # Written below in one edit, after all partitions are checked.
        assigned.setdefault(name, {})[index] = replicas or ()
        return ReassignedPartition(index, ErrorCode.NONE)

    reassigned = yield from each_partition(request.topics, answer)
    # With one node or a shared log, assignments have no effect.
    if nodes.leadership.keeps_assignments:
        try:
            yield from _reassign(assigned, nodes, topics)
        except OSError as error:
            logger.error("the topics could not be written: %s", error)
            return (yield from run_in_executor(request.refused, ErrorCode.KAFKA_STORAGE_ERROR, NOT_WRITTEN))
    return AlterPartitionReassignmentsResponse(
        reassigned, allow_replication_factor_change=request.allow_replication_factor_change
    )


def _check_reassignment(
    name: str,
    topic: Topic | None,
    partition: PartitionToReassign,
    request: AlterPartitionReassignments,
    leadership: Leadership,
) -> None:
    index, replicas = partition
    if topic is None:
        raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not topic.has_partition(index):
        raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    # KIP-455: null cancels a reassignment, and none is ever in progress.
    if replicas is None:
        raise TopicError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    check_replicas(replicas, leadership.node_ids)
    current = leadership.replicas(topic, index)
    # KIP-860.
    if len(replicas) != len(current) and not request.allow_replication_factor_change:
        message = f"The replication factor is changed from {len(current)} to {len(replicas)}"
        raise TopicError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if not leadership.in_sync(replicas):
        raise TopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, NONE_RUNS)


def _reassign(assigned: dict[str, dict[int, tuple[int, ...]]], nodes: Nodes, topics: TopicRegistry) -> Work[None]:
    former: list[tuple[str, int, tuple[int, ...]]] = []
    with topics.edit() as edit:
        for name, replicas in assigned.items():
            topic = topics.get(name)
            if topic is None:
                continue
            for index in replicas:
                nodes.leadership.leader(topic, index)  # elected before its replicas change
                former.append((name, index, nodes.leadership.replicas(topic, index)))
            edit.reassign(name, replicas)

    def elect(name: str, index: int, replicas: tuple[int, ...]) -> None:
        topic = topics.get(name)
        if topic is not None:
            nodes.reassigned(topic, index, replicas)

    yield from each(former, lambda entry: elect(*entry))


def answer_list_partition_reassignments(
    request: ListPartitionReassignments, permissions: Permissions = UNRESTRICTED
) -> Work[ListPartitionReassignmentsResponse]:
    # Reassignments are complete when they are answered.
    if permissions.on_cluster(Operation.DESCRIBE):
        return ListPartitionReassignmentsResponse()
    echoed = yield from each_partition(request.topics or (), lambda name, index: OngoingReassignment(index))
    return ListPartitionReassignmentsResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, CLUSTER_DENIED, echoed)


# ---------------------------------------------------------------- membership of the cluster


def answer_membership(
    request: MembershipRequest, node: Node, node_ids: Collection[int], cluster_id: str
) -> MembershipResponse:
    """Refuse changes of the quorum, as with ``kraft.version`` 0. Unregistering a broker has no effect."""
    match request:
        # Kafka allows this for running brokers.
        case UnregisterBroker(broker_id):
            if broker_id in node_ids:
                return MembershipResponse(ErrorCode.NONE, "")
            return _not_registered(f"Broker ID {broker_id} is not currently registered")
        case UnregisterController(controller_id):
            if controller_id == node.node_id:
                message = "Controller cannot unregister itself while it is active."
                return MembershipResponse(ErrorCode.INVALID_REQUEST, message)
            return _not_registered(f"Controller ID {controller_id} is not currently registered.")
    # Checked before the quorum's version, as in Kafka.
    if request.cluster_id not in (None, cluster_id):
        message = f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{cluster_id}"'
        return MembershipResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, message)
    change = "adding" if isinstance(request, AddRaftVoter) else "removing"
    message = f"Cluster doesn't support {change} voter because the kraft.version feature is 0"
    return MembershipResponse(ErrorCode.UNSUPPORTED_VERSION, message)


def _not_registered(message: str) -> MembershipResponse:
    return MembershipResponse(ErrorCode.BROKER_ID_NOT_REGISTERED, message)


# ---------------------------------------------------------------- log directories

IN_MEMORY = "memory"
"""Log directory of logs in memory."""


def answer_describe_log_dirs(request: DescribeLogDirs, data: TopicData) -> Work[DescribeLogDirsResponse]:
    """Describe the sizes of logs, and of the volume of the data directory. Unknown partitions are omitted."""
    if request.topics is None:
        topics = [TopicEntry(topic.name, tuple(range(topic.partition_count))) for topic in data.topics]
    else:
        topics = yield from merged(request.topics)
    folder = data.topics.directory
    log_dir = _log_dir(data.topics)
    try:
        measured = yield from each_partition(topics, partial(_measured, data))
        volume = None if folder is None else shutil.disk_usage(folder)
    # Like a directory that a broker has taken offline.
    except (FailedLogError, OSError):
        return DescribeLogDirsResponse((LogDir(log_dir, (), error_code=ErrorCode.KAFKA_STORAGE_ERROR),))
    known = (TopicEntry(name, tuple(size for size in sizes if size is not None)) for name, sizes in measured)
    found = tuple(topic for topic in known if topic.partitions)
    if volume is None:
        return DescribeLogDirsResponse((LogDir(log_dir, found),))
    return DescribeLogDirsResponse((LogDir(log_dir, found, volume.total, volume.free),))


def answer_alter_replica_log_dirs(
    request: AlterReplicaLogDirs, topics: TopicRegistry, permissions: Permissions = UNRESTRICTED
) -> Work[AlterReplicaLogDirsResponse]:
    is_allowed = permissions.on_cluster(Operation.ALTER)
    here = _log_dir(topics)
    wanted: dict[str, dict[int, str]] = {}
    for folder in request.dirs:
        for named in folder.topics:
            if wanted:
                yield None
            # As in Kafka, the last directory of a partition counts.
            wanted.setdefault(named.name, {}).update(dict.fromkeys(named.partitions, folder.path))

    def move(name: str, moved: tuple[int, str]) -> PartitionResult:
        return PartitionResult(moved[0], error_of(name, *moved))

    def error_of(name: str, index: int, path: str) -> ErrorCode:
        topic = topics.get(name)
        # First, so that denied clients learn neither directories nor topics.
        if not is_allowed:
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if path != here:
            return ErrorCode.LOG_DIR_NOT_FOUND
        is_known = topic is not None and topic.has_partition(index)
        return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    moves = [TopicEntry(name, tuple(paths.items())) for name, paths in wanted.items()]
    return AlterReplicaLogDirsResponse((yield from each_partition(moves, move)))


def _log_dir(topics: TopicRegistry) -> str:
    return IN_MEMORY if topics.directory is None else str(topics.directory.absolute())


def _measured(data: TopicData, name: str, index: int) -> LogDirPartition | None:
    topic = data.topics.get(name)
    if topic is None or not topic.has_partition(index):
        return None
    try:
        log = data.whole.log(topic, index)
    except (CopyUnderWayError, UnservedLogError):
        return None
    return LogDirPartition(index, 0 if log is None else log.readable_bytes(log.start_offset, log.end_offset))
