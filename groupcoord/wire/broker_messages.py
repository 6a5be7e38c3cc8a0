"""Requests and responses of topics, records and metadata, independent of version.

A field has the meaning of its newest version in Kafka 4.4. A field that an older request version lacks has its default.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from attrs import define, frozen

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import AUTHORIZED_OPERATIONS_OMITTED
from groupcoord.core.messages.request import Request
from groupcoord.errors import ErrorCode

EntryT = TypeVar("EntryT")


class BrokerResponse:
    """Base of the responses that are no coordinator's."""

    __slots__ = ()


class TopicEntry(NamedTuple, Generic[EntryT]):
    """Partitions of one topic, as indexes or with further fields."""

    name: str
    partitions: tuple[EntryT, ...]


class TopicNameOrIdEntry(NamedTuple, Generic[EntryT]):
    """Partitions of one topic, which is named by its id if ``name`` is None; a response repeats the request's form."""

    name: str | None
    topic_id: UUID
    partitions: tuple[EntryT, ...]


# ---------------------------------------------------------------- Metadata


class TopicReference(NamedTuple):
    """A topic by name, or by id if ``name`` is None."""

    name: str | None
    topic_id: UUID = ZERO_UUID


@define
class Metadata:
    """Request brokers and topics (API key 3); ``topics`` None stands for all."""

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
    """Leader and replicas of a partition."""

    error_code: ErrorCode
    partition_index: int
    leader_id: int
    leader_epoch: int = -1
    replica_nodes: tuple[int, ...] = ()
    isr_nodes: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


class MetadataTopic(NamedTuple):
    """One topic. An unknown one has an error and the requested name or id."""

    error_code: ErrorCode
    name: str | None
    topic_id: UUID = ZERO_UUID
    is_internal: bool = False
    partitions: tuple[MetadataPartition, ...] = ()
    topic_authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED


@frozen
class MetadataResponse(BrokerResponse):
    """Brokers and topics of the cluster."""

    brokers: tuple[MetadataBroker, ...]
    topics: tuple[MetadataTopic, ...]
    cluster_id: str | None = None
    controller_id: int = -1
    cluster_authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED
    error_code: ErrorCode = ErrorCode.NONE


# ---------------------------------------------------------------- topics


class CreatableReplicaAssignment(NamedTuple):
    """Replicas of one partition of a new topic."""

    partition_index: int
    broker_ids: tuple[int, ...]


class CreatableTopicConfig(NamedTuple):
    """One setting of a new topic."""

    name: str
    value: str | None


@define
class CreatableTopic:
    """A topic to create. -1 partitions or replicas stand for the broker's default, or the number of ``assignments``."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


@define
class CreateTopics(Request["CreateTopicsResponse"]):
    """Create topics (API key 19), or validate only."""

    topics: tuple[CreatableTopic, ...]
    timeout_ms: int = 60_000
    validate_only: bool = False


class CreatedTopicConfig(NamedTuple):
    """One setting of a created topic. ``config_source`` 1: set for the topic, 5: default."""

    name: str
    value: str | None
    config_source: int = 5


class CreatedTopic(NamedTuple):
    """Result for one topic. With an error the numbers are -1. ``configs`` is None if they are not returned.

    ``topic_config_error_code``: the topic was created, but the client may not see its numbers and settings.
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
class CreateTopicsResponse(BrokerResponse):
    """One entry for each topic."""

    topics: tuple[CreatedTopic, ...]


@define
class CreatePartitionsTopic:
    """A topic and its new number of partitions; ``assignments`` holds the broker ids of the new ones, or None."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@define
class CreatePartitions(Request["CreatePartitionsResponse"]):
    """Add partitions to topics (API key 37), or validate only."""

    topics: tuple[CreatePartitionsTopic, ...]
    timeout_ms: int = 60_000
    validate_only: bool = False


class CreatedPartitions(NamedTuple):
    """Result for one topic."""

    name: str
    error_code: ErrorCode
    error_message: str | None = None


@frozen
class CreatePartitionsResponse(BrokerResponse):
    """One entry for each topic."""

    results: tuple[CreatedPartitions, ...]


@define
class DeleteTopics(Request["DeleteTopicsResponse"]):
    """Delete topics (API key 20), by name or, from version 6 on, by id."""

    topics: tuple[TopicReference, ...]
    timeout_ms: int = 60_000


class DeletedTopic(NamedTuple):
    """Result for one topic."""

    name: str | None
    topic_id: UUID
    error_code: ErrorCode
    error_message: str | None = None


@frozen
class DeleteTopicsResponse(BrokerResponse):
    """One entry for each topic."""

    responses: tuple[DeletedTopic, ...]


# ---------------------------------------------------------------- reading logs


class ListOffsetsPartition(NamedTuple):
    """A timestamp to look up. Special values: -1 the end, -2 the start, -3 the largest timestamp (KIP-734), and lower
    ones.
    """

    partition_index: int
    timestamp: int
    current_leader_epoch: int = -1


@define
class ListOffsets(Request["ListOffsetsResponse"]):
    """Look up offsets by timestamp (API key 2).

    ``lowest_timestamp``: the lowest special timestamp of the request's version; lower ones fail with
    UNSUPPORTED_VERSION.
    """

    topics: tuple[TopicEntry[ListOffsetsPartition], ...]
    replica_id: int = -1
    isolation_level: int = 0
    timeout_ms: int = 0
    lowest_timestamp: int = -6


class ListedOffsetsPartition(NamedTuple):
    """The offset found, or -1."""

    partition_index: int
    error_code: ErrorCode
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


@frozen
class ListOffsetsResponse(BrokerResponse):
    """One entry for each topic."""

    topics: tuple[TopicEntry[ListedOffsetsPartition], ...]


class FetchPartition(NamedTuple):
    """Fetch offset of one partition."""

    partition_index: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


@define
class Fetch(Request["FetchResponse"]):
    """Read records (API key 1).

    ``session_id`` 0 with ``session_epoch`` -1 requests a full fetch without a session, epoch 0 a new session (KIP-227).
    """

    topics: tuple[TopicNameOrIdEntry[FetchPartition], ...]
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 0x7FFF_FFFF
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    forgotten_topics: tuple[TopicNameOrIdEntry[int], ...] = ()
    replica_id: int = -1
    cluster_id: str | None = None
    rack_id: str = ""

    def refused(self, error_code: ErrorCode, message: str | None = None) -> FetchResponse:
        # A request of a fetch session may name no partition: it fails as a whole.
        topics = [
            TopicNameOrIdEntry(
                topic.name,
                topic.topic_id,
                tuple([FetchedPartitionData(p.partition_index, error_code) for p in topic.partitions]),
            )
            for topic in self.topics
        ]
        return FetchResponse(ErrorCode.NONE if topics else error_code, 0, tuple(topics))


class CurrentLeader(NamedTuple):
    """Leader of a partition, for a client that sent its request to another node (KIP-951)."""

    leader_id: int = -1
    leader_epoch: int = -1


NO_LEADER = CurrentLeader()


class FetchedPartitionData(NamedTuple):
    """Result of one partition.

    Attributes:
        aborted_transactions: pairs of ``(producer_id, first_offset)``, or None if not requested.
        records: batches back to back, in any number of pieces.
        diverging_epoch: the last epoch up to that of the client's last record and its end, if the log does not hold
            that record.
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


@frozen
class FetchResponse(BrokerResponse):
    """Results of a fetch; in a session only partitions with changes. ``session_id`` 0: no session.

    ``node_endpoints``: addresses of the current leaders.
    """

    error_code: ErrorCode = ErrorCode.NONE
    session_id: int = 0
    topics: tuple[TopicNameOrIdEntry[FetchedPartitionData], ...] = ()
    node_endpoints: tuple[MetadataBroker, ...] = ()


# ---------------------------------------------------------------- writing logs


class ProducePartition(NamedTuple):
    """Records for one partition: a batch as received."""

    partition_index: int
    records: bytes | memoryview | None


@define
class Produce(Request["ProduceResponse"]):
    """Write records (API key 0).

    Attributes:
        acks: how many replicas must acknowledge: 0, 1 or -1 (all). With 0 the client expects no response: send none,
            and close the connection after an error.
        allows_zstd: whether batches may be compressed with zstd (request version 7).
        knows_abortable: whether the client knows TRANSACTION_ABORTABLE (KIP-890, version 11).
        adds_partitions: whether partitions are added to the transaction implicitly (KIP-890, version 12).
    """

    topics: tuple[TopicNameOrIdEntry[ProducePartition], ...]
    acks: int = -1
    transactional_id: str | None = None
    allows_zstd: bool = True
    knows_abortable: bool = True
    adds_partitions: bool = True


class RefusedRecord(NamedTuple):
    """A record that caused an error, by its index in the batch."""

    batch_index: int
    message: str | None


class ProducedPartition(NamedTuple):
    """Result for the records of one partition.

    Attributes:
        log_append_time_ms: -1 if the records kept their timestamps.
        log_start_offset: Kafka sends it with some errors, too.
        refused_records: the records that caused the error.
    """

    partition_index: int
    error_code: ErrorCode
    error_message: str | None = None
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    refused_records: tuple[RefusedRecord, ...] = ()
    current_leader: CurrentLeader = NO_LEADER


@frozen
class ProduceResponse(BrokerResponse):
    """One entry for each topic. ``node_endpoints``: addresses of the current leaders."""

    topics: tuple[TopicNameOrIdEntry[ProducedPartition], ...] = ()
    node_endpoints: tuple[MetadataBroker, ...] = ()


# ---------------------------------------------------------------- looking after logs


class LeaderEpochPartition(NamedTuple):
    """A leader epoch whose end is requested."""

    partition: int
    leader_epoch: int
    current_leader_epoch: int = -1


@define
class OffsetForLeaderEpoch(Request["OffsetForLeaderEpochResponse"]):
    """Request the end offsets of leader epochs (API key 23, KIP-101), to detect a truncated log."""

    topics: tuple[TopicEntry[LeaderEpochPartition], ...]
    replica_id: int = -2


class LeaderEpochEnd(NamedTuple):
    """The end of an epoch, or -1 if the epoch does not exist."""

    partition: int
    error_code: ErrorCode
    leader_epoch: int = -1
    end_offset: int = -1


@frozen
class OffsetForLeaderEpochResponse(BrokerResponse):
    """One entry for each topic."""

    topics: tuple[TopicEntry[LeaderEpochEnd], ...]


class DeleteRecordsPartition(NamedTuple):
    """The offset before which to delete, or -1 for the high watermark."""

    partition_index: int
    offset: int


@define
class DeleteRecords(Request["DeleteRecordsResponse"]):
    """Delete the records before an offset (API key 21, KIP-107)."""

    topics: tuple[TopicEntry[DeleteRecordsPartition], ...]
    timeout_ms: int = 60_000


class DeletedRecordsPartition(NamedTuple):
    """The new start of a partition, or -1 with an error."""

    partition_index: int
    error_code: ErrorCode
    low_watermark: int = -1


@frozen
class DeleteRecordsResponse(BrokerResponse):
    """One entry for each topic."""

    topics: tuple[TopicEntry[DeletedRecordsPartition], ...]
