"""Requests and responses of the cluster: brokers, replicas, reassignments, log directories, quorum. Independent of
version.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from attrs import define, frozen

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import AUTHORIZED_OPERATIONS_OMITTED, PartitionResult
from groupcoord.core.messages.request import Request
from groupcoord.errors import ErrorCode
from groupcoord.wire.broker_messages import BrokerResponse, TopicEntry

# ---------------------------------------------------------------- DescribeCluster


class EndpointType(IntEnum):
    """Type of endpoint that a client expects, by Kafka's numbers (KIP-919)."""

    BROKER = 1
    CONTROLLER = 2


@define
class DescribeCluster(Request["DescribeClusterResponse"]):
    """Describe the cluster (API key 60). ``endpoint_type``: an :class:`EndpointType`, or an unknown number."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: int = EndpointType.BROKER


class ClusterBroker(NamedTuple):
    """A broker of the cluster."""

    broker_id: int
    host: str
    port: int


@frozen
class DescribeClusterResponse(BrokerResponse):
    """The brokers, or an error."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    cluster_id: str = ""
    controller_id: int = -1
    brokers: tuple[ClusterBroker, ...] = ()
    cluster_authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED


# ---------------------------------------------------------------- DescribeTopicPartitions


class PartitionCursor(NamedTuple):
    """Position at which a description begins or continues."""

    topic_name: str
    partition_index: int


@define
class DescribeTopicPartitions(Request["DescribeTopicPartitionsResponse"]):
    """Describe topics, a limited number of partitions at a time (API key 75, KIP-966). No names
    stand for all topics.
    """

    topics: tuple[str, ...]
    response_partition_limit: int = 2_000
    cursor: PartitionCursor | None = None


class TopicPartitionDescription(NamedTuple):
    """One partition and its replicas."""

    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: tuple[int, ...]
    isr_nodes: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


class TopicPartitionsDescription(NamedTuple):
    """One topic, or an error."""

    error_code: ErrorCode
    name: str
    topic_id: UUID = ZERO_UUID
    is_internal: bool = False
    partitions: tuple[TopicPartitionDescription, ...] = ()
    topic_authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED


@frozen
class DescribeTopicPartitionsResponse(BrokerResponse):
    """The topics, and the cursor to continue at; None at the end."""

    topics: tuple[TopicPartitionsDescription, ...]
    next_cursor: PartitionCursor | None = None


# ---------------------------------------------------------------- partitions by topic


@define
class DescribeLogDirs(Request["DescribeLogDirsResponse"]):
    """Describe log directories and the sizes of partitions (API key 35, KIP-113). None stands for all topics."""

    topics: tuple[TopicEntry[int], ...] | None


class LogDirPartition(NamedTuple):
    """The size of a partition's log, in bytes."""

    partition_index: int
    partition_size: int


class LogDir(NamedTuple):
    """A log directory, with the sizes of its volume in bytes, or -1."""

    log_dir: str
    topics: tuple[TopicEntry[LogDirPartition], ...]
    total_bytes: int = -1
    usable_bytes: int = -1
    error_code: ErrorCode = ErrorCode.NONE


@frozen
class DescribeLogDirsResponse(BrokerResponse):
    """One entry for each log directory."""

    results: tuple[LogDir, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE


class ElectionType(IntEnum):
    """Type of a leader election, by Kafka's numbers (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


@define
class ElectLeaders(Request["ElectLeadersResponse"]):
    """Elect leaders of partitions (API key 43, KIP-183). None stands for all partitions."""

    topic_partitions: tuple[TopicEntry[int], ...] | None
    election_type: int = ElectionType.PREFERRED


class ElectedPartition(NamedTuple):
    """Result of the election in one partition."""

    partition_id: int
    error_code: ErrorCode
    error_message: str | None = None


@frozen
class ElectLeadersResponse(BrokerResponse):
    """One entry for each topic."""

    repeats_error = True
    error_code: ErrorCode
    replica_election_results: tuple[TopicEntry[ElectedPartition], ...] = ()


# ---------------------------------------------------------------- reassignments (KIP-455)


class PartitionToReassign(NamedTuple):
    """New replicas of a partition, or None to cancel its reassignment."""

    partition_index: int
    replicas: tuple[int, ...] | None


@define
class AlterPartitionReassignments(Request["AlterPartitionReassignmentsResponse"]):
    """Move partitions to other brokers (API key 45)."""

    topics: tuple[TopicEntry[PartitionToReassign], ...]
    allow_replication_factor_change: bool = True


class ReassignedPartition(NamedTuple):
    """Result for one partition."""

    partition_index: int
    error_code: ErrorCode
    error_message: str | None = None


@frozen
class AlterPartitionReassignmentsResponse(BrokerResponse):
    """One entry for each topic."""

    repeats_error = True
    responses: tuple[TopicEntry[ReassignedPartition], ...]
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    allow_replication_factor_change: bool = True


@define
class ListPartitionReassignments(Request["ListPartitionReassignmentsResponse"]):
    """List reassignments in progress (API key 46). None stands for all topics."""

    topics: tuple[TopicEntry[int], ...] | None


class OngoingReassignment(NamedTuple):
    """A partition that is being reassigned, or one of an echoed request."""

    partition_index: int
    replicas: tuple[int, ...] = ()


@frozen
class ListPartitionReassignmentsResponse(BrokerResponse):
    """Reassignments in progress, always none; with an error Kafka echoes the topics of the request."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    topics: tuple[TopicEntry[OngoingReassignment], ...] = ()


# ---------------------------------------------------------------- DescribeQuorum


@define
class DescribeQuorum(Request["DescribeQuorumResponse"]):
    """Describe the voters of a partition with a quorum (API key 55, KIP-595)."""

    topics: tuple[TopicEntry[int], ...]


class QuorumVoter(NamedTuple):
    """A voter and its log end; times in milliseconds since the epoch."""

    replica_id: int
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class QuorumPartition(NamedTuple):
    """One partition, or an error."""

    partition_index: int
    error_code: ErrorCode
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: tuple[QuorumVoter, ...] = ()


class QuorumListener(NamedTuple):
    """Address of a voter."""

    name: str
    host: str
    port: int


class QuorumNode(NamedTuple):
    """Addresses of a voter."""

    node_id: int
    listeners: tuple[QuorumListener, ...]


@frozen
class DescribeQuorumResponse(BrokerResponse):
    """One entry for each topic, and the addresses of the voters."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    topics: tuple[TopicEntry[QuorumPartition], ...] = ()
    nodes: tuple[QuorumNode, ...] = ()


# ---------------------------------------------------------------- log directories (KIP-113)


class AlterReplicaLogDir(NamedTuple):
    """A log directory and the partitions to move there."""

    path: str
    topics: tuple[TopicEntry[int], ...]


@define
class AlterReplicaLogDirs(Request["AlterReplicaLogDirsResponse"]):
    """Move logs of partitions to log directories (API key 34)."""

    dirs: tuple[AlterReplicaLogDir, ...]

    def refused(self, error_code: ErrorCode, message: str | None = None) -> AlterReplicaLogDirsResponse:
        topics = [
            TopicEntry(topic.name, tuple([PartitionResult(index, error_code) for index in topic.partitions]))
            for folder in self.dirs
            for topic in folder.topics
        ]
        return AlterReplicaLogDirsResponse(tuple(topics))


@frozen
class AlterReplicaLogDirsResponse(BrokerResponse):
    """One entry for each topic."""

    results: tuple[TopicEntry[PartitionResult], ...]


# ---------------------------------------------------------------- membership


@define
class UnregisterBroker(Request["MembershipResponse"]):
    """Unregister a broker (API key 64, KIP-589)."""

    broker_id: int


@define
class UnregisterController(Request["MembershipResponse"]):
    """Unregister a controller (API key 94)."""

    controller_id: int


@define
class AddRaftVoter(Request["MembershipResponse"]):
    """Add a voter to the quorum of controllers (API key 80, KIP-853); ``cluster_id`` None is not checked."""

    cluster_id: str | None


@define
class RemoveRaftVoter(Request["MembershipResponse"]):
    """Remove a voter from the quorum of controllers (API key 81, KIP-853); ``cluster_id`` None is not checked."""

    cluster_id: str | None


MembershipRequest = UnregisterBroker | UnregisterController | AddRaftVoter | RemoveRaftVoter


@frozen
class MembershipResponse(BrokerResponse):
    """Success or an error."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@define
class ApiVersions:
    """Request the served APIs (API key 18).

    Attributes:
        cluster_id, node_id: the node that the client expects (KIP-1242, version 5), both or neither. Any other node
            fails with REBOOTSTRAP_REQUIRED.
        unsupported_version: whether the version is not served. Then the response is UNSUPPORTED_VERSION with the range
            of ApiVersions alone, in version 0 (KIP-511).
    """

    client_software_name: str = ""
    client_software_version: str = ""
    cluster_id: str | None = None
    node_id: int = -1
    unsupported_version: bool = False


class ServedApi(NamedTuple):
    """An API and its served versions."""

    api_key: int
    min_version: int
    max_version: int


class SupportedFeature(NamedTuple):
    """A feature (KIP-584) and its supported levels."""

    name: str
    min_version: int
    max_version: int


class FinalizedFeature(NamedTuple):
    """A feature and the levels in use."""

    name: str
    min_version_level: int
    max_version_level: int


@frozen
class ApiVersionsResponse(BrokerResponse):
    """Served APIs and features; epoch -1: no features are finalized."""

    error_code: ErrorCode
    api_keys: tuple[ServedApi, ...]
    supported_features: tuple[SupportedFeature, ...] = ()
    finalized_features_epoch: int = -1
    finalized_features: tuple[FinalizedFeature, ...] = ()


class UpgradeType(IntEnum):
    """Allowed change of a feature level, by Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A feature and its new level. ``upgrade_type`` is an :class:`UpgradeType` or an unknown number."""

    feature: str
    max_version_level: int
    upgrade_type: int = UpgradeType.UPGRADE


@define
class UpdateFeatures(Request["UpdateFeaturesResponse"]):
    """Change feature levels (API key 57, KIP-584), or validate only."""

    feature_updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


class UpdatedFeature(NamedTuple):
    """Result for one feature (up to version 1)."""

    feature: str
    error_code: ErrorCode
    error_message: str | None


@frozen
class UpdateFeaturesResponse(BrokerResponse):
    """Result: all features were updated, or none."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    results: tuple[UpdatedFeature, ...] = ()
