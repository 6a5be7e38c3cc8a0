"""Requests about transactions: who may ask what (KIP-11, KIP-98, KIP-679), of which node, and who answers it."""

from __future__ import annotations

from collections.abc import Callable

from groupcoord.broker.answering import answers
from groupcoord.broker.cluster.nodes import Nodes, deliver_replies
from groupcoord.broker.connection import Connection
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.transactions.coordinator import TransactionCoordinator
from groupcoord.broker.transactions.listings import answer_describe_producers, answer_list_transactions
from groupcoord.broker.transactions.markers import answer_write_txn_markers
from groupcoord.broker.work import Token, Work, each, each_long
from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    CompleteTransaction,
    CoordinatorType,
    FindCoordinator,
    PartitionResult,
    TopicResult,
    TxnOffsetCommit,
)
from groupcoord.core.router.authorization import Operation, Permissions
from groupcoord.errors import ErrorCode
from groupcoord.wire import WireResponse
from groupcoord.wire.cluster_messages import TopicPartitions
from groupcoord.wire.transaction_messages import (
    AddedPartitions,
    AddOffsetsToTxn,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    DescribedTransaction,
    DescribeProducers,
    DescribeTransactions,
    DescribeTransactionsResponse,
    EndTxn,
    EndTxnResponse,
    InitProducerId,
    InitProducerIdResponse,
    ListTransactions,
    MarkerToWrite,
    PartitionsToAdd,
    WriteTxnMarkers,
    WriteTxnMarkersResponse,
    WrittenMarker,
)

ELSEWHERE = ErrorCode.NOT_COORDINATOR


class TransactionRequests:
    """Answers what clients ask of transactions, and says NOT_COORDINATOR of those that another node coordinates.

    Args:
        coordinator: the group coordinator of the node.
        transactions: its transaction coordinator, which may be that of all nodes.
        data: what topics hold.
        nodes: all nodes.
        node_id: which of them this is.
        permissions_of: returns what a connection's client may do.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        transactions: TransactionCoordinator,
        data: TopicData,
        nodes: Nodes,
        node_id: int,
        permissions_of: Callable[[Connection], Permissions],
    ) -> None:
        self._coordinator = coordinator
        self._transactions = transactions
        self._data = data
        self._nodes = nodes
        self._node_id = node_id
        self._permissions_of = permissions_of

    @answers(InitProducerId)
    def init_producer_id(self, connection: Connection, request: InitProducerId) -> WireResponse | None:
        """Give out a producer id."""
        transactional_id, permissions = request.transactional_id, self._permissions_of(connection)
        if transactional_id is None:
            if not may_write_idempotently(permissions, self._data.topics):
                return InitProducerIdResponse(CLUSTER_DENIED)
        elif not may_write(transactional_id, permissions):
            return InitProducerIdResponse(ID_DENIED)
        elif not self._is_here(transactional_id):
            return InitProducerIdResponse(ELSEWHERE)
        return self._delivered(self._transactions.init_producer_id(request))

    @answers(AddPartitionsToTxn)
    def add_partitions(self, connection: Connection, request: AddPartitionsToTxn) -> Work[WireResponse | None]:
        """Let transactions write to partitions."""
        permissions = self._permissions_of(connection)
        if request.is_from_broker and not permissions.on_cluster(Operation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse((), CLUSTER_DENIED)
        allowed, here = True, True
        for number, wanted in enumerate(request.transactions):
            if number:
                yield None
            allowed = allowed and (request.is_from_broker or may_write(wanted.transactional_id, permissions))
            here = here and self._is_here(wanted.transactional_id)
        if allowed and here:
            added = yield from self._transactions.add_partitions(request, permissions)
            return self._delivered(added)
        error_code = ELSEWHERE if allowed else ID_DENIED

        def refuse(wanted: PartitionsToAdd) -> Work[AddedPartitions]:
            return AddedPartitions(wanted.transactional_id, (yield from results_of(wanted.topics, error_code)))

        return AddPartitionsToTxnResponse((yield from each_long(request.transactions, refuse)))

    @answers(AddOffsetsToTxn)
    def add_offsets(self, connection: Connection, request: AddOffsetsToTxn) -> WireResponse | None:
        """Let a transaction commit offsets of a group."""
        permissions = self._permissions_of(connection)
        if not may_write(request.transactional_id, permissions):
            return AddOffsetsToTxnResponse(ID_DENIED)
        if not permissions.on_group(request.group_id, Operation.READ):
            return AddOffsetsToTxnResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not self._is_here(request.transactional_id):
            return AddOffsetsToTxnResponse(ELSEWHERE)
        return self._delivered(self._transactions.add_offsets(request))

    @answers(EndTxn)
    def end(self, connection: Connection, request: EndTxn) -> WireResponse | None:
        """Commit or abort a transaction."""
        if not may_write(request.transactional_id, self._permissions_of(connection)):
            return EndTxnResponse(ID_DENIED)
        if not self._is_here(request.transactional_id):
            return EndTxnResponse(ELSEWHERE)
        return self._delivered(self._transactions.end(request, connection))

    @answers(WriteTxnMarkers)
    def write_markers(self, connection: Connection, request: WriteTxnMarkers) -> Work[WireResponse | None]:
        """Write the ends of transactions, as another coordinator asks for."""
        permissions = self._permissions_of(connection)
        if permissions.on_cluster(Operation.ALTER) or permissions.on_cluster(Operation.CLUSTER_ACTION):
            return (yield from answer_write_txn_markers(request, self._submit, self._data))

        def refuse(marker: MarkerToWrite) -> Work[WrittenMarker]:
            return WrittenMarker(marker.producer_id, (yield from results_of(marker.topics, CLUSTER_DENIED)))

        return WriteTxnMarkersResponse((yield from each_long(request.markers, refuse)))

    def _submit(self, request: CompleteTransaction, token: Token) -> None:
        self._coordinator.submit(request, token)
        deliver_replies(self._coordinator)

    @answers(TxnOffsetCommit)
    def commit_offsets(self, connection: Connection, request: TxnOffsetCommit) -> WireResponse | None:
        """Commit offsets in a transaction."""
        coordinator = self._coordinator
        if coordinator.partition(coordinator.partition_of(request.group_id)) is None:
            coordinator.submit(request, connection, connection.principal)  # which refuses it
        else:
            self._transactions.commit_offsets(request, connection, connection.principal)
        return self._delivered(None)

    @answers(ListTransactions)
    def list(self, connection: Connection, request: ListTransactions) -> Work[WireResponse | None]:
        """List the transactions that are coordinated here."""
        here = [found for found in self._transactions.all if self._is_here(found.transactional_id)]
        return answer_list_transactions(request, here, self._data.clock.now_ms(), self._permissions_of(connection))

    @answers(DescribeProducers)
    def describe_producers(self, connection: Connection, request: DescribeProducers) -> Work[WireResponse | None]:
        """Tell who writes to partitions."""
        return answer_describe_producers(request, self._data, self._permissions_of(connection))

    def prepare(self, connection: Connection, request: FindCoordinator) -> None:
        """Create the topic of transactions when a client that may looks for their coordinator."""
        if request.key_type == CoordinatorType.TRANSACTION:
            permissions = self._permissions_of(connection)
            if any(key and permissions.on_transactional_id(key, Operation.DESCRIBE) for key in request.keys):
                self._transactions.prepare()

    @answers(DescribeTransactions)
    def describe(self, connection: Connection, request: DescribeTransactions) -> Work[WireResponse | None]:
        """Describe transactions as they stand."""
        permissions = self._permissions_of(connection)
        transactional_ids = tuple(dict.fromkeys(request.transactional_ids))

        def describe(transactional_id: str) -> DescribedTransaction:
            described = self._transactions.describe(transactional_id, permissions)
            is_here = self._is_here(transactional_id)
            return described if is_here else DescribedTransaction(ELSEWHERE, transactional_id)

        found = dict(zip(transactional_ids, (yield from each(transactional_ids, describe)), strict=True))
        return DescribeTransactionsResponse(tuple([found[name] for name in request.transactional_ids]))

    def _is_here(self, transactional_id: str) -> bool:
        return self._nodes.coordinates_transactions(self._node_id, transactional_id)

    def _delivered(self, response: WireResponse | None) -> WireResponse | None:
        """Pass on what the group coordinator answered to what came before this response."""
        deliver_replies(self._coordinator)
        return response


ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def may_write(transactional_id: str, permissions: Permissions) -> bool:
    """Tell whether somebody may have transactions under an id."""
    return permissions.on_transactional_id(transactional_id, Operation.WRITE)


def may_write_idempotently(permissions: Permissions, topics: TopicRegistry) -> bool:
    """Tell whether somebody may write idempotently: whoever may write to a topic."""
    return permissions.on_cluster(Operation.IDEMPOTENT_WRITE) or any(
        permissions.on_topic(topic.name, Operation.WRITE) for topic in topics
    )


def results_of(topics: tuple[TopicPartitions, ...], error_code: ErrorCode) -> Work[tuple[TopicResult, ...]]:
    """Return one error for every partition."""

    def of_topic(topic: TopicPartitions) -> Work[TopicResult]:
        results = yield from each(topic.partition_indexes, lambda index: PartitionResult(index, error_code))
        return TopicResult(topic.name, ZERO_UUID, results)

    return (yield from each_long(topics, of_topic))
