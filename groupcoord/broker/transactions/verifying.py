"""Whether a producer may write in its transaction: the node that coordinates the transaction says so.

That may be another process. Then its answer takes a while, and by the time it is here the transaction may be over: a
marker that has come meanwhile says so. Were the record written all the same, it would belong to no transaction that
ever ends; so it is refused. Kafka's ``VerificationGuard`` (KIP-890) is for the same.
"""

from __future__ import annotations

from collections.abc import Callable

from groupcoord.broker.cluster.leadership import NOBODY
from groupcoord.broker.cluster.neighbours import Asker, Question
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.transactions.coordinator import TransactionCoordinator
from groupcoord.broker.transactions.state import Writer
from groupcoord.broker.work import Answer, Work
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.errors import ErrorCode


class Verifying:
    """Asks whoever coordinates a transaction.

    Args:
        transactions: returns the transaction coordinator of this node.
        nodes: who coordinates what, and how other processes are asked.
    """

    def __init__(self, transactions: Callable[[], TransactionCoordinator], nodes: Nodes) -> None:
        self._transactions = transactions
        self._nodes = nodes
        self._asked: dict[tuple[TopicPartition, int], list[Answer]] = {}  # whose transaction has not ended since

    def is_elsewhere(self, transactional_id: str) -> bool:
        """Tell whether another process must be asked."""
        neighbours = self._nodes.neighbours
        return neighbours is not None and not self._nodes.coordinates_transactions(neighbours.node_id, transactional_id)

    def verify(self, writer: Writer) -> Work[ErrorCode]:
        """Return NONE if a producer may write to a partition, which is added to its transaction if it may be.

        What it may write must be written before anything else happens.
        """
        neighbours = self._nodes.neighbours
        if neighbours is None or not self.is_elsewhere(writer.transactional_id):
            return self._transactions().verify_writer(writer)
        node_id = self._nodes.transaction_leader(writer.transactional_id)
        if node_id == NOBODY:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        key, answer = (writer.partition, writer.producer_id), Answer()
        self._asked.setdefault(key, []).append(answer)
        try:
            neighbours.ask(node_id, Question(writer, Asker(neighbours.node_id)), answer.answer)
            if not answer.is_done:
                yield answer
            if not any(asked is answer for asked in self._asked.get(key, ())):
                return ErrorCode.INVALID_TXN_STATE
        finally:
            self._forget(key, answer)
        found: ErrorCode | None = answer.response
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if found is None else found

    def _forget(self, key: tuple[TopicPartition, int], answer: Answer) -> None:
        left = [asked for asked in self._asked.pop(key, ()) if asked is not answer]
        if left:
            self._asked[key] = left

    def has_ended(self, partition: TopicPartition, producer_id: int) -> None:
        """A marker of a producer comes to a partition: what is asked for it now is out of date."""
        self._asked.pop((partition, producer_id), None)
