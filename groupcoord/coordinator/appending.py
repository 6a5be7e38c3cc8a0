"""How a coordinator hands appends to its log store, and passes on to log partitions what becomes of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from groupcoord.clock import Clock
from groupcoord.core.fast_construct import maker
from groupcoord.core.router.partition_table import NumberedPartition, PartitionTable
from groupcoord.errors import ErrorCode, StoreContractError
from groupcoord.log_store import LogRecords, LogStore, LogStoreError, Ticket

if TYPE_CHECKING:
    from groupcoord.core.log.append_queue import AppendQueue, AppendResult

_make_ticket = maker(Ticket)


class NumberedAppend(Protocol):
    """Records that go into a log partition together, as its append of that number."""

    partition: int
    number: int

    @property
    def records(self) -> Sequence[Any]:
        """The records."""


class ServedPartition(NumberedPartition, Protocol):
    """A log partition that a coordinator serves."""

    @property
    def writer(self) -> AppendQueue[Any]:
        """What the log has not answered yet."""

    def appended(self, number: int, base_offset: int, now_ms: int) -> None:
        """The appends up to ``number`` are durable; the first record of ``number`` lies at ``base_offset``."""

    def append_failed(self, number: int, error_code: ErrorCode, now_ms: int) -> None:
        """The append ``number``, the oldest in flight, was refused."""


PartitionT = TypeVar("PartitionT", bound=ServedPartition)


class Appending(ABC, Generic[PartitionT]):
    """What a coordinator does with appends, and with the answers of its log store.

    Attributes:
        clock: where time comes from.
        log_store: where records go.
        on_durable: is called with the number of a log partition to which something was appended; None: nobody is.
    """

    clock: Clock
    log_store: LogStore
    _partitions: PartitionTable[Any, PartitionT]
    on_durable: Callable[[int], None] | None = None

    @property
    def partition_count(self) -> int:
        """How many log partitions there are, served or not."""
        return len(self._partitions)

    def partition(self, index: int) -> PartitionT | None:
        """Return the core of a log partition that is served here. For observers and tests: change nothing."""
        return self._partitions.active[index]

    # ------------------------------------------------------------ the log store's answers

    def appended(self, ticket: Ticket, base_offset: int) -> None:
        """The log store wrote the append ``ticket``, and with it every earlier one of that log partition.

        Those that it has refused are not among them.

        Args:
            ticket: as given to :meth:`LogStore.append`.
            base_offset: the offset of its first record.

        Raises:
            StoreContractError: the ticket is unknown or was answered already, or the offset went back. The
                partition has failed.
        """
        self._answered(ticket, base_offset)

    def append_failed(self, ticket: Ticket, error: LogStoreError) -> None:
        """The log store did not write the append ``ticket``, or does not know whether it did.

        Raises:
            StoreContractError: it isn't the oldest unanswered append of its log partition. The partition has failed.
        """
        self._answered(ticket, error)

    def _answered(self, ticket: Ticket, answer: AppendResult) -> None:
        if not 0 <= ticket.partition < len(self._partitions):
            raise StoreContractError(f"{ticket} names no log partition")
        partition = self._partitions.active[ticket.partition]
        if partition is not None:
            self._take_answer(partition, ticket.number, answer, self.clock.now_ms())
            self._settle(self.clock.now_ms())

    def _take_answer(self, partition: PartitionT, number: int, answer: AppendResult, now_ms: int) -> None:
        writer = partition.writer
        try:
            for turn, told in writer.in_turn(number, answer) if writer.refusals else ((number, answer),):
                if isinstance(told, LogStoreError):
                    self._refused(partition, turn, told, now_ms)
                    if self._partitions.active[partition.index] is not partition:  # nobody knows what became of it
                        break
                    continue
                partition.appended(turn, told, now_ms)
                if self.on_durable is not None:
                    self.on_durable(partition.index)
        except StoreContractError:
            self._fail(partition.index, ErrorCode.UNKNOWN_SERVER_ERROR)
            raise

    # ------------------------------------------------------------ the way to the log store

    def _append(self, append: NumberedAppend, now_ms: int) -> None:
        index, number = append.partition, append.number
        partition = self._partitions.active[index]
        if partition is None:
            return
        ticket = _make_ticket((index, number))
        base_offset = None
        try:
            # A store takes any record that has bytes; its contract names those of ``__consumer_offsets``.
            base_offset = self.log_store.append(index, ticket, LogRecords(append.records, now_ms))
        except LogStoreError as error:
            if not partition.writer.keeps(number, error):
                self.append_failed(ticket, error)
                return
        except BaseException:
            self._fail(index, ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        if base_offset is not None:
            self._take_answer(partition, number, base_offset, now_ms)
        elif self._partitions.active[index] is partition:
            self._wait_for(partition, number, now_ms)

    # ------------------------------------------------------------ what coordinators do in their own ways

    def _refused(self, partition: PartitionT, number: int, error: LogStoreError, now_ms: int) -> None:
        """The oldest append is not in the log, or nobody knows: then the log partition has failed."""
        partition.append_failed(number, error.error_code, now_ms)
        if error.outcome_unknown:
            self._fail(partition.index, error.error_code)

    @abstractmethod
    def _wait_for(self, partition: PartitionT, number: int, now_ms: int) -> None:
        """An append will be answered later."""

    @abstractmethod
    def _settle(self, now_ms: int) -> None:
        """Hand on what has come of anything."""

    @abstractmethod
    def _fail(self, index: int, error_code: ErrorCode) -> None:
        """Give a log partition up until it is loaded again: memory may differ from the log."""
