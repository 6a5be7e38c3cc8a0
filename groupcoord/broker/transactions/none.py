"""What is answered about transactions by nodes that have none: those that share a log with others.

Their APIs aren't among those that are announced, so clients say before they begin that the broker is too old for them.
Who asks all the same is disconnected, as Kafka does with APIs that it doesn't have.
"""

from __future__ import annotations

from groupcoord.broker.answering import answers
from groupcoord.broker.connection import Connection
from groupcoord.core.messages import (
    NO_NODE,
    CoordinatorType,
    FindCoordinator,
    FindCoordinatorResponse,
    FoundCoordinator,
    TxnOffsetCommit,
)
from groupcoord.errors import ErrorCode
from groupcoord.wire import WireResponse
from groupcoord.wire.transaction_messages import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    DescribeProducers,
    DescribeTransactions,
    EndTxn,
    InitProducerId,
    ListTransactions,
    WriteTxnMarkers,
)

API_KEYS = frozenset((22, 24, 25, 26, 27, 28, 61, 65, 66))
"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, TxnOffsetCommit, DescribeProducers,
DescribeTransactions, ListTransactions.
"""


class NoTransactions:
    """Refuses whatever is asked about transactions."""

    @answers(
        *(AddOffsetsToTxn, AddPartitionsToTxn, DescribeProducers, DescribeTransactions, EndTxn, InitProducerId),
        *(ListTransactions, TxnOffsetCommit, WriteTxnMarkers),
    )
    def refuse(self, connection: Connection, request: object) -> WireResponse | None:
        """Have the connection closed."""
        connection.refuse(f"{type(request).__name__}: there are no transactions where nodes share a log")
        return None


def refuse_to_find(connection: Connection, request: FindCoordinator) -> FindCoordinatorResponse | None:
    """Return INVALID_REQUEST for coordinators of transactions, which clients don't ask for again; None: for others."""
    if request.key_type != CoordinatorType.TRANSACTION:
        return None
    return FindCoordinatorResponse(
        tuple([FoundCoordinator(key, NO_NODE, ErrorCode.INVALID_REQUEST) for key in request.keys])
    )
