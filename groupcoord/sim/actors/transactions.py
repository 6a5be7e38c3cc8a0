"""The transactions of all producers (KIP-98), as their coordinator knows them.

Each transaction has an epoch of its own (KIP-890), so that nothing that is late can belong to the next one, and a name
that its offsets carry as metadata: whoever reads an offset can tell where it comes from.
"""

from __future__ import annotations

from enum import Enum

from attrs import define

from groupcoord.errors import ErrorCode
from groupcoord.laws import require
from groupcoord.messages import TxnOffsetCommit


class TransactionState(Enum):
    """Whether a transaction goes on, or how it ended."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@define
class _Producer:
    """What the transaction coordinator knows of a producer."""

    epoch: int = -1
    is_open: bool = False


class Transactions:
    """What the transaction coordinator knows; nodes ask it before they take a transactional commit.

    Attributes:
        states: the name of each transaction → its state.
    """

    def __init__(self) -> None:
        self.states: dict[str, TransactionState] = {}
        self._producers: dict[int, _Producer] = {}

    def begin(self, producer_id: int) -> tuple[int, str]:
        """Begin a producer's next transaction; return its epoch and name."""
        producer = self._producers.setdefault(producer_id, _Producer())
        producer.epoch += 1
        producer.is_open = True
        name = f"t{producer_id}.{producer.epoch}"
        self.states[name] = TransactionState.OPEN
        return producer.epoch, name

    def decide(self, producer_id: int, name: str, state: TransactionState) -> None:
        """Decide a transaction: from now on nothing can be added to it."""
        self._producers[producer_id].is_open = False
        self.states[name] = state

    def verify(self, request: TxnOffsetCommit) -> ErrorCode:
        """Tell whether a producer may commit now, as nodes ask it (see :class:`groupcoord.GroupCoordinator`)."""
        producer = self._producers[request.producer_id]
        if request.producer_epoch != producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return ErrorCode.NONE if producer.is_open else ErrorCode.INVALID_TXN_STATE

    def check_read(self, group_id: str, metadata: str) -> None:
        """An offset that a reader is told belongs to no transaction, or to one that was committed."""
        state = self.states.get(metadata)
        require(
            state is None or state is TransactionState.COMMITTED,
            f"an offset of {group_id!r} is visible, but its transaction {metadata} is {state and state.value}",
        )
