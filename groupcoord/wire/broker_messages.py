"""Requests and responses of the APIs that a host answers itself: no bytes, no versions.

A field has the meaning of its newest version in Kafka 4.4; what an older request version lacks is the field's default.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from attrs import define, frozen

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import AUTHORIZED_OPERATIONS_OMITTED
from groupcoord.errors import ErrorCode

# ---------------------------------------------------------------- Metadata


class TopicReference(NamedTuple):
    """A topic by name, or (``name`` None) by id."""

    name: str | None
    topic_id: UUID = ZERO_UUID


@define
class Metadata:
    """Ask for brokers and topics (API key 3); ``topics`` None: all."""

    topics: tuple[TopicReference, ...] | None = None
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


class MetadataBroker(NamedTuple):
    """A broker that clients can connect to."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class MetadataPartition(NamedTuple):
    """Who leads and holds a partition."""

    error_code: ErrorCode
    partition_index: int
    leader_id: int
    leader_epoch: int = -1
    replica_nodes: tuple[int, ...] = ()
    isr_nodes: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


class MetadataTopic(NamedTuple):
    """One topic; unknown: an error, with the name or the id that was asked for."""

    error_code: ErrorCode
    name: str | None
    topic_id: UUID = ZERO_UUID
    is_internal: bool = False
    partitions: tuple[MetadataPartition, ...] = ()
    topic_authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED


@frozen
class MetadataResponse:
    """The cluster as a client must know it."""

    brokers: tuple[MetadataBroker, ...]
    topics: tuple[MetadataTopic, ...]
    cluster_id: str | None = None
    controller_id: int = -1
    cluster_authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED
    error_code: ErrorCode = ErrorCode.NONE


# ---------------------------------------------------------------- topics


class CreatableReplicaAssignment(NamedTuple):
    """Where the replicas of one partition shall be."""

    partition_index: int
    broker_ids: tuple[int, ...]


class CreatableTopicConfig(NamedTuple):
    """One setting of a new topic."""

    name: str
    value: str | None


@define
class CreatableTopic:
    """A topic to create; -1 partitions or replicas: the broker's default, or as many as ``assignments`` has."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


@define
class CreateTopics:
    """Create topics (API key 19), or only say what would happen."""

    topics: tuple[CreatableTopic, ...]
    timeout_ms: int = 60_000
    validate_only: bool = False

    def refused(self, error_code: ErrorCode, message: str | None = None) -> CreateTopicsResponse:
        return CreateTopicsResponse(tuple([CreatedTopic(topic.name, error_code, message) for topic in self.topics]))


class CreatedTopicConfig(NamedTuple):
    """One setting of a created topic. ``config_source`` 1: the topic's own; 5: the default."""

    name: str
    value: str | None
    read_only: bool = False
    config_source: int = 5
    is_sensitive: bool = False


class CreatedTopic(NamedTuple):
    """What became of one topic. On errors the numbers are -1; ``configs`` None: not to be told.

    ``topic_config_error_code``: the topic was created, but numbers and settings may not be told.
    """

    name: str
    error_code: ErrorCode
    error_message: str | None = None
    topic_id: UUID = ZERO_UUID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: tuple[CreatedTopicConfig, ...] | None = ()
    topic_config_error_code: ErrorCode = ErrorCode.NONE


@frozen
class CreateTopicsResponse:
    """One entry for each topic."""

    topics: tuple[CreatedTopic, ...]


@define
class CreatePartitionsTopic:
    """A topic and its new number of partitions; ``assignments`` holds the new ones' broker ids, None: anywhere."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@define
class CreatePartitions:
    """Add partitions to topics (API key 37), or only say what would happen."""

    topics: tuple[CreatePartitionsTopic, ...]
    timeout_ms: int = 60_000
    validate_only: bool = False

    def refused(self, error_code: ErrorCode, message: str | None = None) -> CreatePartitionsResponse:
        return CreatePartitionsResponse(
            tuple([CreatedPartitions(topic.name, error_code, message) for topic in self.topics])
        )


class CreatedPartitions(NamedTuple):
    """What became of one topic."""

    name: str
    error_code: ErrorCode
    error_message: str | None = None


@frozen
class CreatePartitionsResponse:
    """One entry for each topic."""

    results: tuple[CreatedPartitions, ...]


@define
class DeleteTopics:
    """Delete topics (API key 20), by name or, from version 6 on, by id."""

    topics: tuple[TopicReference, ...]
    timeout_ms: int = 60_000

    def refused(self, error_code: ErrorCode, message: str | None = None) -> DeleteTopicsResponse:
        return DeleteTopicsResponse(
            tuple([DeletedTopic(topic.name, topic.topic_id, error_code) for topic in self.topics])
        )


class DeletedTopic(NamedTuple):
    """What became of one topic."""

    name: str | None
    topic_id: UUID
    error_code: ErrorCode
    error_message: str | None = None


@frozen
class DeleteTopicsResponse:
    """One entry for each topic."""

    responses: tuple[DeletedTopic, ...]


# ---------------------------------------------------------------- reading logs


class ListOffsetsPartition(NamedTuple):
    """A time to look up. Special ``timestamp`` values: -1 the end, -2 the start, -3 the maximal one (KIP-734) …"""

    partition_index: int
    timestamp: int
    current_leader_epoch: int = -1


class ListOffsetsTopic(NamedTuple):
    """The partitions of one topic to look up."""

    name: str
    partitions: tuple[ListOffsetsPartition, ...]


@define
class ListOffsets:
    """Look up offsets by time (API key 2).

    ``lowest_timestamp`` is the lowest special timestamp that the request's version knows; below it is
    UNSUPPORTED_VERSION.
    """

    topics: tuple[ListOffsetsTopic, ...]
    replica_id: int = -1
    isolation_level: int = 0
    timeout_ms: int = 0
    lowest_timestamp: int = -6

    def refused(self, error_code: ErrorCode, message: str | None = None) -> ListOffsetsResponse:
        topics = [
            ListedOffsetsTopic(
                topic.name, tuple([ListedOffsetsPartition(p.partition_index, error_code) for p in topic.partitions])
            )
            for topic in self.topics
        ]
        return ListOffsetsResponse(tuple(topics))


class ListedOffsetsPartition(NamedTuple):
    """The offset found; -1: none."""

    partition_index: int
    error_code: ErrorCode
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class ListedOffsetsTopic(NamedTuple):
    """The offsets found in one topic."""

    name: str
    partitions: tuple[ListedOffsetsPartition, ...]


@frozen
class ListOffsetsResponse:
    """One entry for each topic."""

    topics: tuple[ListedOffsetsTopic, ...]


class FetchPartition(NamedTuple):
    """Where to read on in one partition."""

    partition_index: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class FetchTopic(NamedTuple):
    """One topic to read: by name, or (``name`` None, request versions from 13) by id."""

    name: str | None
    topic_id: UUID
    partitions: tuple[FetchPartition, ...]


class ForgottenTopic(NamedTuple):
    """Partitions to take out of a fetch session (KIP-227)."""

    name: str | None
    topic_id: UUID
    partition_indexes: tuple[int, ...]


@define
class Fetch:
    """Read records (API key 1).

    ``session_id`` 0 with ``session_epoch`` -1 asks for a full fetch without a session, epoch 0 for a new session
    (KIP-227).
    """

    topics: tuple[FetchTopic, ...]
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 0x7FFF_FFFF
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    forgotten_topics: tuple[ForgottenTopic, ...] = ()
    replica_id: int = -1
    cluster_id: str | None = None
    rack_id: str = ""

    def refused(self, error_code: ErrorCode, message: str | None = None) -> FetchResponse:
        # A request of a fetch session may name no partition: it fails as a whole.
        topics = [
            FetchedTopicData(
                topic.name,
                topic.topic_id,
                tuple([FetchedPartitionData(p.partition_index, error_code) for p in topic.partitions]),
            )
            for topic in self.topics
        ]
        return FetchResponse(ErrorCode.NONE if topics else error_code, 0, tuple(topics))


class CurrentLeader(NamedTuple):
    """Who leads a partition, for a client that asked another node (KIP-951)."""

    leader_id: int = -1
    leader_epoch: int = -1


NO_LEADER = CurrentLeader()


class FetchedPartitionData(NamedTuple):
    """What one partition has. ``aborted_transactions``: ``(producer_id, first_offset)`` each; None: not asked for.

    ``records``: batches back to back, in as many pieces as it pleases. ``diverging_epoch``: the reader's last record
    isn't in the log, but the last epoch up to that record's is this one, and ends there; never with a current leader.
    """

    partition_index: int
    error_code: ErrorCode
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: tuple[tuple[int, int], ...] | None = ()
    preferred_read_replica: int = -1
    records: tuple[bytes | memoryview, ...] = ()
    current_leader: CurrentLeader = NO_LEADER
    diverging_epoch: tuple[int, int] | None = None


class FetchedTopicData(NamedTuple):
    """What one topic has; named as the request named it."""

    name: str | None
    topic_id: UUID
    partitions: tuple[FetchedPartitionData, ...]


@frozen
class FetchResponse:
    """``session_id`` 0: no session. In a session only partitions with news are in it.

    ``node_endpoints``: where the current leaders are that are told.
    """

    error_code: ErrorCode = ErrorCode.NONE
    session_id: int = 0
    topics: tuple[FetchedTopicData, ...] = ()
    node_endpoints: tuple[MetadataBroker, ...] = ()


# ---------------------------------------------------------------- writing logs


class ProducePartition(NamedTuple):
    """Records for one partition: a batch, as it came."""

    partition_index: int
    records: bytes | memoryview | None


class ProduceTopic(NamedTuple):
    """Partitions of one topic to write to: by name, or (``name`` None, request versions from 13) by id."""

    name: str | None
    topic_id: UUID
    partitions: tuple[ProducePartition, ...]


@define
class Produce:
    """Write records (API key 0).

    Attributes:
        topics: where to, and what.
        acks: how many replicas must have them: 0, 1 or -1 (all). With 0 the client awaits no answer: send none, and
            close the connection if there is an error to tell.
        transactional_id: of a producer in a transaction.
        allows_zstd: batches may be compressed with zstd (request version 7).
        knows_abortable: the client understands TRANSACTION_ABORTABLE (KIP-890, version 11).
        adds_partitions: partitions that aren't in the transaction are added to it (KIP-890, version 12).
    """

    topics: tuple[ProduceTopic, ...]
    acks: int = -1
    transactional_id: str | None = None
    allows_zstd: bool = True
    knows_abortable: bool = True
    adds_partitions: bool = True

    def refused(self, error_code: ErrorCode, message: str | None = None) -> ProduceResponse:
        topics = [
            ProducedTopic(
                topic.name,
                topic.topic_id,
                tuple([ProducedPartition(p.partition_index, error_code) for p in topic.partitions]),
            )
            for topic in self.topics
        ]
        return ProduceResponse(tuple(topics))


class ProducedPartition(NamedTuple):
    """What became of the records for one partition.

    ``log_append_time_ms`` -1: the records kept their own times. Kafka tells ``log_start_offset`` with some errors, too.
    ``refused_records``: the numbers of records in the batch that are the reason for an error.
    """

    partition_index: int
    error_code: ErrorCode
    error_message: str | None = None
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    refused_records: tuple[int, ...] = ()
    current_leader: CurrentLeader = NO_LEADER


class ProducedTopic(NamedTuple):
    """The partitions of one topic; named as the request named it."""

    name: str | None
    topic_id: UUID
    partitions: tuple[ProducedPartition, ...]


@frozen
class ProduceResponse:
    """One entry for each topic. ``node_endpoints``: where the current leaders are that are told."""

    topics: tuple[ProducedTopic, ...] = ()
    node_endpoints: tuple[MetadataBroker, ...] = ()


# ---------------------------------------------------------------- looking after logs


class LeaderEpochPartition(NamedTuple):
    """A leader's epoch whose end is asked for."""

    partition: int
    leader_epoch: int
    current_leader_epoch: int = -1


class LeaderEpochTopic(NamedTuple):
    """Partitions of one topic."""

    topic: str
    partitions: tuple[LeaderEpochPartition, ...]


@define
class OffsetForLeaderEpoch:
    """Ask where the records of a leader's epoch end (API key 23, KIP-101), to notice that a log was cut."""

    topics: tuple[LeaderEpochTopic, ...]
    replica_id: int = -2

    def refused(self, error_code: ErrorCode, message: str | None = None) -> OffsetForLeaderEpochResponse:
        topics = [
            LeaderEpochEnds(topic.topic, tuple([LeaderEpochEnd(p.partition, error_code) for p in topic.partitions]))
            for topic in self.topics
        ]
        return OffsetForLeaderEpochResponse(tuple(topics))


class LeaderEpochEnd(NamedTuple):
    """The end of an epoch; -1: there is no such epoch."""

    partition: int
    error_code: ErrorCode
    leader_epoch: int = -1
    end_offset: int = -1


class LeaderEpochEnds(NamedTuple):
    """The partitions of one topic."""

    topic: str
    partitions: tuple[LeaderEpochEnd, ...]


@frozen
class OffsetForLeaderEpochResponse:
    """One entry for each topic."""

    topics: tuple[LeaderEpochEnds, ...]


class DeleteRecordsPartition(NamedTuple):
    """Up to where to delete; -1: up to the high watermark."""

    partition_index: int
    offset: int


class DeleteRecordsTopic(NamedTuple):
    """Partitions of one topic."""

    name: str
    partitions: tuple[DeleteRecordsPartition, ...]


@define
class DeleteRecords:
    """Delete the records before an offset (API key 21, KIP-107)."""

    topics: tuple[DeleteRecordsTopic, ...]
    timeout_ms: int = 60_000

    def refused(self, error_code: ErrorCode, message: str | None = None) -> DeleteRecordsResponse:
        topics = [
            DeletedRecordsTopic(
                topic.name, tuple([DeletedRecordsPartition(p.partition_index, error_code) for p in topic.partitions])
            )
            for topic in self.topics
        ]
        return DeleteRecordsResponse(tuple(topics))


class DeletedRecordsPartition(NamedTuple):
    """Where a partition starts now; -1 with an error."""

    partition_index: int
    error_code: ErrorCode
    low_watermark: int = -1


class DeletedRecordsTopic(NamedTuple):
    """The partitions of one topic."""

    name: str
    partitions: tuple[DeletedRecordsPartition, ...]


@frozen
class DeleteRecordsResponse:
    """One entry for each topic."""

    topics: tuple[DeletedRecordsTopic, ...]


BrokerRequest = (
    Metadata
    | CreateTopics
    | CreatePartitions
    | DeleteTopics
    | ListOffsets
    | Fetch
    | Produce
    | OffsetForLeaderEpoch
    | DeleteRecords
)

BrokerResponse = (
    MetadataResponse
    | CreateTopicsResponse
    | CreatePartitionsResponse
    | DeleteTopicsResponse
    | ListOffsetsResponse
    | FetchResponse
    | ProduceResponse
    | OffsetForLeaderEpochResponse
    | DeleteRecordsResponse
)
