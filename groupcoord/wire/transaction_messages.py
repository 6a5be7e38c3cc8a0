"""Requests and responses of the transaction APIs (KIP-98, KIP-890), independent of version.

Offsets are committed within a transaction by :class:`groupcoord.core.messages.TxnOffsetCommit`.
"""

from __future__ import annotations

from typing import NamedTuple

from attrs import define, evolve, frozen

from groupcoord.core.messages import PartitionResult
from groupcoord.core.messages.request import Request
from groupcoord.errors import ErrorCode
from groupcoord.wire.broker_messages import BrokerResponse, TopicEntry

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


@define
class InitProducerId(Request["InitProducerIdResponse"]):
    """Request a producer id, and fence earlier producers with the same transactional id (API key 22).

    Attributes:
        transactional_id: None for a producer that is only idempotent.
        transaction_timeout_ms: the longest duration of its transactions.
        producer_id, producer_epoch: those of a producer that continues after an error (KIP-360).
    """

    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@frozen
class InitProducerIdResponse(BrokerResponse):
    """The producer id and epoch, or an error."""

    error_code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@define
class PartitionsToAdd:
    """Partitions to add to a transaction, or with ``verify_only`` to look for in it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    topics: tuple[TopicEntry[int], ...]
    verify_only: bool = False


@define
class AddPartitionsToTxn(Request["AddPartitionsToTxnResponse"]):
    """Add partitions to transactions, or verify that they were added (API key 24).

    ``is_from_broker``: the version is one for brokers (from 4), which may name internal topics. Clients name one
    transaction.
    """

    transactions: tuple[PartitionsToAdd, ...]
    is_from_broker: bool = False

    def refused(self, error_code: ErrorCode, message: str | None = None) -> AddPartitionsToTxnResponse:
        # The top-level error is for brokers without permission.
        return evolve(super().refused(error_code, message), error_code=ErrorCode.NONE)


class AddedPartitions(NamedTuple):
    """Results for the partitions of one transaction."""

    transactional_id: str
    topics: tuple[TopicEntry[PartitionResult], ...]


@frozen
class AddPartitionsToTxnResponse(BrokerResponse):
    """One entry for each transaction, in the order of the request; none with an ``error_code`` (versions from 4)."""

    repeats_error = True
    results: tuple[AddedPartitions, ...]
    error_code: ErrorCode = ErrorCode.NONE


@define
class AddOffsetsToTxn(Request["AddOffsetsToTxnResponse"]):
    """Add a group to a transaction, before its offsets are committed (API key 25)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


@frozen
class AddOffsetsToTxnResponse(BrokerResponse):
    """Success or an error."""

    error_code: ErrorCode


@define
class EndTxn(Request["EndTxnResponse"]):
    """Commit or abort a transaction (API key 26).

    ``bumps_epoch``: the response has the next epoch of the producer (KIP-890, request version 5).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    bumps_epoch: bool = True


@frozen
class EndTxnResponse(BrokerResponse):
    """The next producer id and epoch, or an error."""

    error_code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class MarkerToWrite(NamedTuple):
    """The end of a producer's transaction on some partitions; ``transaction_result``: whether it was committed."""

    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: tuple[TopicEntry[int], ...]
    coordinator_epoch: int = 0


@define
class WriteTxnMarkers(Request["WriteTxnMarkersResponse"]):
    """Write the ends of transactions into partitions (API key 27), for brokers and administrators."""

    markers: tuple[MarkerToWrite, ...]


class WrittenMarker(NamedTuple):
    """Result for one marker."""

    producer_id: int
    topics: tuple[TopicEntry[PartitionResult], ...]


@frozen
class WriteTxnMarkersResponse(BrokerResponse):
    """One entry for each marker; possibly none for one without partitions."""

    markers: tuple[WrittenMarker, ...]


@define
class DescribeTransactions(Request["DescribeTransactionsResponse"]):
    """Describe the transactions of transactional ids (API key 65, KIP-664)."""

    transactional_ids: tuple[str, ...]


class DescribedTransaction(NamedTuple):
    """One transactional id; ``transaction_start_time_ms`` -1: it has not begun a transaction yet."""

    error_code: ErrorCode
    transactional_id: str
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: tuple[TopicEntry[int], ...] = ()


@frozen
class DescribeTransactionsResponse(BrokerResponse):
    """One entry for each transactional id of the request."""

    transaction_states: tuple[DescribedTransaction, ...]


@define
class ListTransactions(Request["ListTransactionsResponse"]):
    """List transactions (API key 66, KIP-664).

    Attributes:
        state_filters, producer_id_filters: states and producers of transactions; empty: all.
        duration_filter_ms: the least duration; negative: any (request version 1, KIP-994).
        transactional_id_pattern: a pattern of the whole transactional id; None or "": all (version 2, KIP-1152).
    """

    state_filters: tuple[str, ...] = ()
    producer_id_filters: tuple[int, ...] = ()
    duration_filter_ms: int = -1
    transactional_id_pattern: str | None = None


class ListedTransaction(NamedTuple):
    """One transactional id."""

    transactional_id: str
    producer_id: int
    transaction_state: str


@frozen
class ListTransactionsResponse(BrokerResponse):
    """The transactions, and the states of the filter that do not exist."""

    error_code: ErrorCode
    unknown_state_filters: tuple[str, ...] = ()
    transaction_states: tuple[ListedTransaction, ...] = ()


@define
class DescribeProducers(Request["DescribeProducersResponse"]):
    """Describe the producers of partitions (API key 61, KIP-664)."""

    topics: tuple[TopicEntry[int], ...]


class DescribedProducer(NamedTuple):
    """One producer; ``current_txn_start_offset`` -1: it has no open transaction there."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_txn_start_offset: int


class DescribedPartition(NamedTuple):
    """The producers of one partition."""

    partition_index: int
    error_code: ErrorCode
    active_producers: tuple[DescribedProducer, ...] = ()
    error_message: str | None = None


@frozen
class DescribeProducersResponse(BrokerResponse):
    """One entry for each topic."""

    topics: tuple[TopicEntry[DescribedPartition], ...]
