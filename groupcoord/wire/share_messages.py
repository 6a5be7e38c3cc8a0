"""Requests and responses of share consumers to the leaders of partitions (KIP-932): no bytes, no versions."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from attrs import define, frozen

from groupcoord.core.messages.request import Refusable
from groupcoord.errors import ErrorCode
from groupcoord.wire.broker_messages import CurrentLeader, MetadataBroker

FIRST_EPOCH, FINAL_EPOCH = 0, -1
"""The epochs of requests that open and that end a share session."""


class AcknowledgementBatch(NamedTuple):
    """What becomes of records: a type for all of them, or one for each."""

    first_offset: int
    last_offset: int
    acknowledge_types: tuple[int, ...]


class ShareFetchPartition(NamedTuple):
    """A partition to read from, and what becomes of records of it."""

    partition_index: int
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = ()


class ShareFetchTopic(NamedTuple):
    """Partitions of a topic."""

    topic_id: UUID
    partitions: tuple[ShareFetchPartition, ...]


class ForgottenShareTopic(NamedTuple):
    """Partitions of a topic that are not to be read any more."""

    topic_id: UUID
    partitions: tuple[int, ...]


@define
class ShareFetch(Refusable["ShareFetchResponse"]):
    """Ask for records of partitions, and say what became of others (API key 78).

    Attributes:
        group_id, member_id: who asks.
        share_session_epoch: 0 opens a session, -1 ends it, others count its requests.
        max_wait_ms: how long to wait for ``min_bytes``.
        max_bytes: how much to read in all.
        max_records: how many records to acquire.
        batch_size: into how large parts these are divided.
        topics: what is new in the session, or acknowledged.
        forgotten_topics_data: what is not to be read any more.
        share_acquire_mode: 1: never more than ``max_records`` (version 2).
        is_renew_ack: locks are renewed; nothing is read then (version 2).
    """

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    topics: tuple[ShareFetchTopic, ...]
    forgotten_topics_data: tuple[ForgottenShareTopic, ...] = ()
    share_acquire_mode: int = 0
    is_renew_ack: bool = False


NO_SHARE_LEADER = CurrentLeader(0, 0)
"""Kafka's default where a partition needs no leader: the field is not tagged, as it is in Fetch."""


class AcquiredRecords(NamedTuple):
    """Records that are the asker's now, for the how-manieth time."""

    first_offset: int
    last_offset: int
    delivery_count: int


class SharePartitionData(NamedTuple):
    """What was read of a partition, and what became of its acknowledgements."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    acknowledge_error_code: ErrorCode = ErrorCode.NONE
    records: bytes = b""
    acquired_records: tuple[AcquiredRecords, ...] = ()
    error_message: str | None = None
    acknowledge_error_message: str | None = None
    current_leader: CurrentLeader = NO_SHARE_LEADER


class ShareTopicData(NamedTuple):
    """What was read of a topic."""

    topic_id: UUID
    partitions: tuple[SharePartitionData, ...]


@frozen
class ShareFetchResponse:
    """Records read, and how long they stay acquired. ``node_endpoints``: addresses of the current leaders in it."""

    error_code: ErrorCode
    acquisition_lock_timeout_ms: int = 0
    responses: tuple[ShareTopicData, ...] = ()
    error_message: str | None = None
    node_endpoints: tuple[MetadataBroker, ...] = ()


@define
class ShareAcknowledge(Refusable["ShareAcknowledgeResponse"]):
    """Say what became of records (API key 79); see :class:`ShareFetch`."""

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    topics: tuple[ShareFetchTopic, ...]
    is_renew_ack: bool = False


class ShareAcknowledgedPartition(NamedTuple):
    """What became of the acknowledgements of a partition."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    current_leader: CurrentLeader = NO_SHARE_LEADER


class ShareAcknowledgedTopic(NamedTuple):
    """What became of the acknowledgements of a topic."""

    topic_id: UUID
    partitions: tuple[ShareAcknowledgedPartition, ...]


@frozen
class ShareAcknowledgeResponse:
    """Results of acknowledgements. ``node_endpoints``: addresses of the current leaders in it."""

    error_code: ErrorCode
    acquisition_lock_timeout_ms: int = 0
    responses: tuple[ShareAcknowledgedTopic, ...] = ()
    error_message: str | None = None
    node_endpoints: tuple[MetadataBroker, ...] = ()


ShareRequest = ShareFetch | ShareAcknowledge
"""Requests of share consumers to the leader of partitions."""

ShareResponse = ShareFetchResponse | ShareAcknowledgeResponse
"""Responses to share consumers."""
