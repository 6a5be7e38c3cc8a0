"""Requests about transactions: what may be asked, of which node, and who answers it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, TypeVar

from groupcoord.broker.answering import answers
from groupcoord.broker.cluster.nodes import Nodes, deliver_replies
from groupcoord.broker.connection import Connection
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.transactions.coordinator import TransactionCoordinator
from groupcoord.broker.transactions.listings import answer_describe_producers, answer_list_transactions
from groupcoord.broker.transactions.markers import answer_write_txn_markers
from groupcoord.broker.transactions.permissions import refuse, results_of
from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.front.authorization import Operation, Permissions
from groupcoord.core.messages import CoordinatorType, FindCoordinator, TxnOffsetCommit
from groupcoord.errors import ErrorCode
from groupcoord.wire import WireResponse
from groupcoord.wire.pacing import Pace, in_portions, paced
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
    WriteTxnMarkers,
)

ELSEWHERE = ErrorCode.NOT_COORDINATOR


class Transactional(Protocol):
    """A node whose clients these are: a :class:`~groupcoord.broker.broker.Broker`.

    Attributes:
        coordinator: its group coordinator.
        transactions: its transaction coordinator.
        data: what topics hold.
        nodes: all nodes.
        pace: how long the work of a turn may go on.
    """

    coordinator: GroupCoordinator
    transactions: TransactionCoordinator
    data: TopicData
    nodes: Nodes
    pace: Pace


RequestT = TypeVar("RequestT")
Method = Callable[["TransactionRequests", Connection, RequestT], WireResponse | None]


def _guarded(method: Method[RequestT]) -> Method[RequestT]:
    """Have whole requests refused that are not allowed, or belong to another node, and leave the others to a method."""

    @wraps(method)
    def handle(requests: TransactionRequests, connection: Connection, request: Any) -> WireResponse | None:
        refusal = refuse(request, requests.permissions_of(connection), requests.node.data.topics)
        return (
            refusal or requests.refuse_elsewhere(request) or requests.delivered(method(requests, connection, request))
        )

    return handle


class TransactionRequests:
    """Answers what clients ask of transactions, and says NOT_COORDINATOR of those that another node coordinates.

    Args:
        node: the node.
        node_id: its id.
        permissions_of: returns what a connection's client may do.

    Attributes:
        node: as given.
        permissions_of: as given.
    """

    def __init__(self, node: Transactional, node_id: int, permissions_of: Callable[[Connection], Permissions]) -> None:
        self.node = node
        self._node_id = node_id
        self.permissions_of = permissions_of

    @answers(InitProducerId)
    @_guarded
    def init_producer_id(self, connection: Connection, request: InitProducerId) -> WireResponse | None:
        """Give out a producer id."""
        return self.node.transactions.init_producer_id(request)

    @answers(AddPartitionsToTxn, may_pause=True)
    @_guarded
    def add_partitions(self, connection: Connection, request: AddPartitionsToTxn) -> WireResponse | None:
        """Let transactions write to partitions."""
        return self.node.transactions.add_partitions(request, self.permissions_of(connection))

    @answers(AddOffsetsToTxn)
    @_guarded
    def add_offsets(self, connection: Connection, request: AddOffsetsToTxn) -> WireResponse | None:
        """Let a transaction commit offsets of a group."""
        return self.node.transactions.add_offsets(request)

    @answers(EndTxn)
    @_guarded
    def end(self, connection: Connection, request: EndTxn) -> WireResponse | None:
        """Commit or abort a transaction."""
        return self.node.transactions.end(request, connection)

    @answers(WriteTxnMarkers, may_pause=True)
    @_guarded
    def write_markers(self, connection: Connection, request: WriteTxnMarkers) -> WireResponse | None:
        """Write the ends of transactions, as another coordinator asks for."""
        return answer_write_txn_markers(request, connection, self.node.coordinator, self.node.data)

    @answers(TxnOffsetCommit)
    def commit_offsets(self, connection: Connection, request: TxnOffsetCommit) -> WireResponse | None:
        """Commit offsets in a transaction."""
        coordinator = self.node.coordinator
        if coordinator.partition(coordinator.partition_of(request.group_id)) is None:
            coordinator.submit(request, connection, connection.principal)  # which refuses it
        else:
            self.node.transactions.commit_offsets(request, connection, connection.principal)
        return self.delivered(None)

    @answers(ListTransactions)
    def list(self, connection: Connection, request: ListTransactions) -> WireResponse | None:
        """List the transactions that are coordinated here."""
        node, permissions = self.node, self.permissions_of(connection)
        here = [found for found in node.transactions.all if self._is_here(found.transactional_id)]
        connection.answer_in_portions(
            in_portions(node.pace, answer_list_transactions, request, here, node.data.clock.now_ms(), permissions)
        )
        return None

    @answers(DescribeProducers)
    def describe_producers(self, connection: Connection, request: DescribeProducers) -> WireResponse | None:
        """Tell who writes to partitions."""
        node, permissions = self.node, self.permissions_of(connection)
        connection.answer_in_portions(
            in_portions(node.pace, answer_describe_producers, request, node.data, permissions)
        )
        return None

    def prepare(self, connection: Connection, request: FindCoordinator) -> None:
        """Have the topic that transactions are kept in, when somebody looks for their coordinator who may."""
        if request.key_type == CoordinatorType.TRANSACTION:
            permissions = self.permissions_of(connection)
            if any(key and permissions.on_transactional_id(key, Operation.DESCRIBE) for key in request.keys):
                self.node.transactions.prepare()

    def describe(self, connection: Connection, request: DescribeTransactions) -> DescribeTransactionsResponse:
        """Describe transactions as they stand."""
        response = self.node.transactions.describe(request, self.permissions_of(connection))
        if self.node.nodes.leadership.is_sole:
            return response
        return DescribeTransactionsResponse(
            tuple(
                described
                if self._is_here(described.transactional_id)
                else DescribedTransaction(ELSEWHERE, described.transactional_id)
                for described in response.transaction_states
            )
        )

    def _is_here(self, transactional_id: str) -> bool:
        return self.node.nodes.coordinates_transactions(self._node_id, transactional_id)

    def refuse_elsewhere(self, request: Any) -> WireResponse | None:
        """Return the refusal of a request about what another node coordinates, or None."""
        if self.node.nodes.leadership.is_sole:
            return None
        match request:
            case InitProducerId(transactional_id=str(transactional_id)) if not self._is_here(transactional_id):
                return InitProducerIdResponse(ELSEWHERE)
            case AddOffsetsToTxn(transactional_id=transactional_id) if not self._is_here(transactional_id):
                return AddOffsetsToTxnResponse(ELSEWHERE)
            case EndTxn(transactional_id=transactional_id) if not self._is_here(transactional_id):
                return EndTxnResponse(ELSEWHERE)
            case AddPartitionsToTxn(transactions=transactions):
                if not all(self._is_here(wanted.transactional_id) for wanted in paced(transactions)):
                    return AddPartitionsToTxnResponse(
                        tuple(
                            AddedPartitions(wanted.transactional_id, results_of(wanted.topics, ELSEWHERE))
                            for wanted in paced(transactions)
                        )
                    )
        return None

    def delivered(self, response: WireResponse | None) -> WireResponse | None:
        """Pass on what the group coordinator answered to what came before this response."""
        deliver_replies(self.node.coordinator)
        return response
