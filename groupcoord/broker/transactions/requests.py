"""Requests about transactions: what may be asked, of which node, and who answers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from groupcoord.broker.cluster.nodes import Nodes, deliver_replies
from groupcoord.broker.connection import Connection
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.transactions.coordinator import TransactionCoordinator
from groupcoord.broker.transactions.listings import answer_describe_producers, answer_list_transactions
from groupcoord.broker.transactions.markers import answer_write_txn_markers
from groupcoord.broker.transactions.permissions import refuse, results_of
from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.front.authorization import Permissions
from groupcoord.core.messages import TxnOffsetCommit
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

Handler = Callable[[Connection, Any], WireResponse | None]

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


class TransactionRequests:
    """Answers what clients ask of transactions, and says NOT_COORDINATOR of those that another node coordinates.

    Args:
        node: the node.
        node_id: its id.
        permissions_of: returns what a connection's client may do.
    """

    def __init__(self, node: Transactional, node_id: int, permissions_of: Callable[[Connection], Permissions]) -> None:
        self._node = node
        self._node_id = node_id
        self._permissions_of = permissions_of

    def handlers(self) -> dict[type, Handler]:
        """Return what answers each request; :class:`DescribeTransactions` is for :meth:`describe`."""
        node = self._node
        return {
            InitProducerId: self._guarded(lambda _, request: node.transactions.init_producer_id(request)),
            AddPartitionsToTxn: self._guarded(self._add_partitions),
            AddOffsetsToTxn: self._guarded(lambda _, request: node.transactions.add_offsets(request)),
            TxnOffsetCommit: self._commit,
            EndTxn: self._guarded(lambda connection, request: node.transactions.end(request, connection)),
            WriteTxnMarkers: self._guarded(self._write_markers),
            ListTransactions: self._list,
            DescribeProducers: self._describe_producers,
        }

    def describe(self, connection: Connection, request: DescribeTransactions) -> DescribeTransactionsResponse:
        """Describe transactions as they stand."""
        response = self._node.transactions.describe(request, self._permissions_of(connection))
        if self._node.nodes.leadership.is_sole:
            return response
        return DescribeTransactionsResponse(
            tuple(
                described
                if self._is_here(described.transactional_id)
                else DescribedTransaction(ELSEWHERE, described.transactional_id)
                for described in response.transactions
            )
        )

    def _is_here(self, transactional_id: str) -> bool:
        return self._node.nodes.leadership.coordinates_transactions(self._node_id, transactional_id)

    def _guarded(self, handler: Handler) -> Handler:
        """Return a handler that refuses whole requests that are not allowed, and leaves the others to ``handler``."""

        def handle(connection: Connection, request: Any) -> WireResponse | None:
            refusal = refuse(request, self._permissions_of(connection), self._node.data.topics)
            return refusal or self._refuse_elsewhere(request) or self._delivered(handler(connection, request))

        return handle

    def _refuse_elsewhere(self, request: Any) -> WireResponse | None:
        """Return the refusal of a request about what another node coordinates, or None."""
        if self._node.nodes.leadership.is_sole:
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

    def _delivered(self, response: WireResponse | None) -> WireResponse | None:
        """Pass on what the group coordinator answered to what came before this response."""
        deliver_replies(self._node.coordinator)
        return response

    def _add_partitions(self, connection: Connection, request: AddPartitionsToTxn) -> WireResponse | None:
        return self._node.transactions.add_partitions(request, self._permissions_of(connection))

    def _commit(self, connection: Connection, request: TxnOffsetCommit) -> WireResponse | None:
        coordinator = self._node.coordinator
        if coordinator.partition(coordinator.partition_of(request.group_id)) is None:
            coordinator.submit(request, connection, connection.principal)  # which refuses it
        else:
            self._node.transactions.commit_offsets(request, connection, connection.principal)
        return self._delivered(None)

    def _write_markers(self, connection: Connection, request: WriteTxnMarkers) -> WireResponse | None:
        return answer_write_txn_markers(request, connection, self._node.coordinator, self._node.data)

    def _list(self, connection: Connection, request: ListTransactions) -> WireResponse | None:
        node, permissions = self._node, self._permissions_of(connection)
        here = [found for found in node.transactions.all if self._is_here(found.transactional_id)]
        connection.answer_in_portions(
            in_portions(node.pace, answer_list_transactions, request, here, node.data.clock.now_ms(), permissions)
        )
        return None

    def _describe_producers(self, connection: Connection, request: DescribeProducers) -> WireResponse | None:
        node, permissions = self._node, self._permissions_of(connection)
        connection.answer_in_portions(
            in_portions(node.pace, answer_describe_producers, request, node.data, permissions)
        )
        return None
