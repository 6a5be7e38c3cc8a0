"""Requests and responses of share consumers to the leaders of partitions (KIP-932), independent of version."""

from __future__ import annotations

from typing import Generic, NamedTuple
from uuid import UUID

from attrs import define, frozen

from groupcoord.core.messages.request import Request
from groupcoord.errors import ErrorCode
from groupcoord.wire.broker_messages import BrokerResponse, CurrentLeader, EntryT, MetadataBroker

FIRST_EPOCH, FINAL_EPOCH = 0, -1
"""Epochs of requests that open and that end a share session."""


class TopicIdEntry(NamedTuple, Generic[EntryT]):
    """Partitions of one topic, which is named by its id."""

    topic_id: UUID
    partitions: tuple[EntryT, ...]


class AcknowledgementBatch(NamedTuple):
    """Acknowledgement of records: one type for all of them, or one for each."""

    first_offset: int
    last_offset: int
    acknowledge_types: tuple[int, ...]


class ShareFetchPartition(NamedTuple):
    """A partition to read from, with acknowledgements of its records."""

    partition_index: int
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = ()


@define
class ShareFetch(Request["ShareFetchResponse"]):
    """Fetch records of partitions and acknowledge others (API key 78).

    Attributes:
        share_session_epoch: 0 opens a session, -1 ends it, others count its requests.
        max_records: the number of records to acquire.
        batch_size: the size of the batches into which they are divided.
        topics: additions to the session, or acknowledgements.
        forgotten_topics_data: partitions to remove from the session.
        share_acquire_mode: 1: never more than ``max_records`` (version 2).
        is_renew_ack: renew the locks and read nothing (version 2).
    """

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    topics: tuple[TopicIdEntry[ShareFetchPartition], ...]
    forgotten_topics_data: tuple[TopicIdEntry[int], ...] = ()
    share_acquire_mode: int = 0
    is_renew_ack: bool = False


NO_SHARE_LEADER = CurrentLeader(0, 0)
"""Kafka's default for a partition without a current leader: unlike in Fetch the field is not tagged."""


class AcquiredRecords(NamedTuple):
    """Records that the member acquired, and the number of their delivery."""

    first_offset: int
    last_offset: int
    delivery_count: int


class SharePartitionData(NamedTuple):
    """Records read from a partition, and the result of its acknowledgements."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    acknowledge_error_code: ErrorCode = ErrorCode.NONE
    records: bytes = b""
    acquired_records: tuple[AcquiredRecords, ...] = ()
    error_message: str | None = None
    acknowledge_error_message: str | None = None
    current_leader: CurrentLeader = NO_SHARE_LEADER


@frozen
class ShareFetchResponse(BrokerResponse):
    """Records, and the duration of their locks. ``node_endpoints``: addresses of the current leaders."""

    error_code: ErrorCode
    acquisition_lock_timeout_ms: int = 0
    responses: tuple[TopicIdEntry[SharePartitionData], ...] = ()
    error_message: str | None = None
    node_endpoints: tuple[MetadataBroker, ...] = ()


@define
class ShareAcknowledge(Request["ShareAcknowledgeResponse"]):
    """Acknowledge records (API key 79); fields as in :class:`ShareFetch`."""

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    topics: tuple[TopicIdEntry[ShareFetchPartition], ...]
    is_renew_ack: bool = False


class ShareAcknowledgedPartition(NamedTuple):
    """Result of the acknowledgements of a partition."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    current_leader: CurrentLeader = NO_SHARE_LEADER


@frozen
class ShareAcknowledgeResponse(BrokerResponse):
    """Results of acknowledgements. ``node_endpoints``: addresses of the current leaders."""

    error_code: ErrorCode
    acquisition_lock_timeout_ms: int = 0
    responses: tuple[TopicIdEntry[ShareAcknowledgedPartition], ...] = ()
    error_message: str | None = None
    node_endpoints: tuple[MetadataBroker, ...] = ()
