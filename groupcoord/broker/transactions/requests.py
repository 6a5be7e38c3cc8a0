"""Handlers of transaction requests: permissions (KIP-11, KIP-98, KIP-679), coordinating node, lists (KIP-664).

Sources: ``KafkaApis``, ``TransactionStateManager.listTransactionStates`` and ``ReplicaManager.activeProducerState`` of
Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define

from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.connection import Connection
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.regexes import ExpressionError, compile_expression
from groupcoord.broker.topics.registry import TopicError, TopicRegistry, check_topic_name
from groupcoord.broker.transactions.coordinator import TransactionCoordinator, answer_write_txn_markers
from groupcoord.broker.transactions.log import Transaction, TransactionState
from groupcoord.broker.work import Work, each, each_partition, merged, run_in_executor
from groupcoord.core.messages import TxnOffsetCommit
from groupcoord.core.router.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import FailedLogError
from groupcoord.wire import WireResponse
from groupcoord.wire.transaction_messages import (
    AddOffsetsToTxn,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    DescribedPartition,
    DescribedProducer,
    DescribedTransaction,
    DescribeProducers,
    DescribeProducersResponse,
    DescribeTransactions,
    DescribeTransactionsResponse,
    EndTxn,
    EndTxnResponse,
    InitProducerId,
    InitProducerIdResponse,
    ListedTransaction,
    ListTransactions,
    ListTransactionsResponse,
    WriteTxnMarkers,
)

API_KEYS = frozenset((22, 24, 25, 26, 27, 28, 61, 65, 66))
"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, TxnOffsetCommit, DescribeProducers,
DescribeTransactions, ListTransactions.
"""


def refuse_transactions(connection: Connection, request: object) -> None:
    """Close the connection, as Kafka does for an API that is not advertised."""
    connection.refuse(f"{type(request).__name__}: there are no transactions where nodes share a log")


NOT_TAKEN = frozenset(("Dead", "PrepareEpochFence"))
"""States of Kafka that no listed transaction has."""

STATES = frozenset(state.value for state in TransactionState) | NOT_TAKEN


def answer_list_transactions(
    request: ListTransactions, transactions: Iterable[Transaction], now_ms: int, permissions: Permissions = UNRESTRICTED
) -> Work[ListTransactionsResponse]:
    try:
        pattern = compile_expression(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except ExpressionError:
        return ListTransactionsResponse(ErrorCode.INVALID_REGULAR_EXPRESSION)
    states, producer_ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    duration_ms = request.duration_filter_ms

    def list_it(transaction: Transaction) -> ListedTransaction | None:
        is_wanted = (
            (not states or transaction.state.value in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            # KIP-994.
            and (duration_ms < 0 or now_ms - transaction.start_time_ms > duration_ms)
            # KIP-1152: the expression has to match the whole id.
            and (pattern is None or pattern.fullmatch(transaction.transactional_id))
            # KIP-664: denied ids are left out without an error.
            and permissions.on_transactional_id(transaction.transactional_id, Operation.DESCRIBE)
        )
        if not is_wanted:
            return None
        return ListedTransaction(transaction.transactional_id, transaction.producer_id, transaction.state.value)

    listed = yield from each(transactions, list_it)
    # KIP-664: unknown filters are returned, and match nothing.
    unknown = tuple(state for state in dict.fromkeys(request.state_filters) if state not in STATES)
    return ListTransactionsResponse(ErrorCode.NONE, unknown, tuple(filter(None, listed)))


def answer_describe_producers(
    request: DescribeProducers, data: TopicData, permissions: Permissions = UNRESTRICTED
) -> Work[DescribeProducersResponse]:
    """Describe the producers of partitions; repeated partitions are described once, since they may be many."""
    topics = yield from merged(request.topics)
    described = yield from each_partition(topics, lambda name, index: _describe(name, index, data, permissions))
    return DescribeProducersResponse(described)


def _describe(name: str, index: int, data: TopicData, permissions: Permissions) -> DescribedPartition:
    error_code = permissions.topic_error(name, Operation.READ)
    if error_code is not ErrorCode.NONE:
        return DescribedPartition(index, error_code)
    topic = data.topics.get(name)
    if topic is None:
        try:
            check_topic_name(name)
        except TopicError as error:
            return DescribedPartition(index, error.error_code, error_message=error.message)
        message = "This server does not host this topic-partition."
        return DescribedPartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=message)
    if not topic.has_partition(index):
        return DescribedPartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        log = data.log(topic, index)
    except FailedLogError as error:
        return DescribedPartition(index, error.error_code)
    entries = () if log is None else log.producers.last_entries().values()
    # Without the offsets of the last batch.
    producers = tuple(DescribedProducer(*entry[:3], *entry[5:]) for entry in entries)
    return DescribedPartition(index, ErrorCode.NONE, producers)


ELSEWHERE = ErrorCode.NOT_COORDINATOR


@define(eq=False)
class TransactionRequests:
    """Handlers of transaction requests; NOT_COORDINATOR for ids of another node or of an unreadable log."""

    _transactions: TransactionCoordinator
    _data: TopicData
    _nodes: Nodes
    _node_id: int

    def init_producer_id(self, connection: Connection, request: InitProducerId) -> WireResponse | None:
        transactional_id, permissions = request.transactional_id, connection.permissions
        if transactional_id is None:
            if not may_write_idempotently(permissions, self._data.topics):
                return InitProducerIdResponse(CLUSTER_DENIED)
        # As in KafkaApis, before NOT_COORDINATOR.
        elif not may_write(transactional_id, permissions):
            return InitProducerIdResponse(ID_DENIED)
        elif not self._is_here(transactional_id):
            return InitProducerIdResponse(ELSEWHERE)
        return self._transactions.init_producer_id(request)

    def add_partitions(self, connection: Connection, request: AddPartitionsToTxn) -> Work[WireResponse | None]:
        permissions = connection.permissions
        # KIP-890.
        if request.is_from_broker and not permissions.on_cluster(Operation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse((), CLUSTER_DENIED)
        allowed, here = True, True
        for number, wanted in enumerate(request.transactions):
            if number:
                yield None
            allowed = allowed and (request.is_from_broker or may_write(wanted.transactional_id, permissions))
            here = here and self._is_here(wanted.transactional_id)
        if allowed and here:
            return (yield from self._transactions.add_partitions(request, permissions))
        return (yield from run_in_executor(request.refused, ELSEWHERE if allowed else ID_DENIED))

    def add_offsets(self, connection: Connection, request: AddOffsetsToTxn) -> WireResponse | None:
        permissions = connection.permissions
        # As in KafkaApis, before the group's error.
        if not may_write(request.transactional_id, permissions):
            return AddOffsetsToTxnResponse(ID_DENIED)
        if not permissions.on_group(request.group_id, Operation.READ):
            return AddOffsetsToTxnResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not self._is_here(request.transactional_id):
            return AddOffsetsToTxnResponse(ELSEWHERE)
        return self._transactions.add_offsets(request)

    def end(self, connection: Connection, request: EndTxn) -> WireResponse | None:
        if not may_write(request.transactional_id, connection.permissions):
            return EndTxnResponse(ID_DENIED)
        if not self._is_here(request.transactional_id):
            return EndTxnResponse(ELSEWHERE)
        return self._transactions.end(request, connection)

    def write_markers(self, connection: Connection, request: WriteTxnMarkers) -> Work[WireResponse | None]:
        permissions = connection.permissions
        # Brokers have CLUSTER_ACTION, administrators ALTER.
        if permissions.on_cluster(Operation.ALTER) or permissions.on_cluster(Operation.CLUSTER_ACTION):
            return (yield from answer_write_txn_markers(request, connection.submit, self._data))
        return (yield from run_in_executor(request.refused, CLUSTER_DENIED))

    def commit_offsets(self, connection: Connection, request: TxnOffsetCommit) -> None:
        coordinator = self._nodes.coordinators[self._node_id]
        # Fails; nothing is in flight for an EndTxn to wait for.
        if coordinator.partition(coordinator.partition_of(request.group_id)) is None:
            connection.submit(request)
        else:
            self._transactions.commit_offsets(request, connection, connection.principal)

    def list(self, connection: Connection, request: ListTransactions) -> Work[WireResponse | None]:
        here = [found for found in self._transactions.all if self._is_here(found.transactional_id)]
        return answer_list_transactions(request, here, self._data.clock.now_ms(), connection.permissions)

    def prepare(self, connection: Connection, transactional_id: str) -> None:
        """Create the transaction topic for a client that may look up the coordinator of an id."""
        if transactional_id and connection.permissions.on_transactional_id(transactional_id, Operation.DESCRIBE):
            self._transactions.prepare()

    def describe(self, connection: Connection, request: DescribeTransactions) -> Work[WireResponse | None]:
        permissions = connection.permissions
        transactional_ids = tuple(dict.fromkeys(request.transactional_ids))

        def describe(transactional_id: str) -> DescribedTransaction:
            described = self._transactions.describe(transactional_id, permissions)
            is_here = self._is_here(transactional_id)
            return described if is_here else DescribedTransaction(ELSEWHERE, transactional_id)

        found = dict(zip(transactional_ids, (yield from each(transactional_ids, describe)), strict=True))
        return DescribeTransactionsResponse(tuple([found[name] for name in request.transactional_ids]))

    def _is_here(self, transactional_id: str) -> bool:
        is_led = self._nodes.coordinates_transactions(self._node_id, transactional_id)
        return is_led and self._transactions.is_loaded(transactional_id)


ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def may_write(transactional_id: str, permissions: Permissions) -> bool:
    return permissions.on_transactional_id(transactional_id, Operation.WRITE)


def may_write_idempotently(permissions: Permissions, topics: TopicRegistry) -> bool:
    # KIP-679.
    return permissions.on_cluster(Operation.IDEMPOTENT_WRITE) or any(
        permissions.on_topic(topic.name, Operation.WRITE) for topic in topics
    )
