"""Base of coordinators that passes appends to the log store, and their outcomes to the log partitions."""

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
    """Records of one append to a log partition, with its sequence number."""

    partition: int
    number: int

    @property
    def records(self) -> Sequence[Any]:
        """The records."""


class ServedPartition(NumberedPartition, Protocol):
    """Log partition that a coordinator serves."""

    @property
    def writer(self) -> AppendQueue[Any]:
        """Queue of the appends without an outcome."""

    def appended(self, number: int, base_offset: int, now_ms: int) -> None:
        """Handle that the appends up to ``number`` are durable; its first record is at ``base_offset``."""

    def append_failed(self, number: int, error_code: ErrorCode, now_ms: int) -> None:
        """Handle that the append ``number``, the oldest in flight, failed or has an unknown outcome."""


PartitionT = TypeVar("PartitionT", bound=ServedPartition)


class Appending(ABC, Generic[PartitionT]):
    """Base of coordinators: sends appends to a log store and handles its answers.

    Attributes:
        on_durable: called with the number of a log partition when an append is durable, or None.
    """

    clock: Clock
    log_store: LogStore
    _partitions: PartitionTable[Any, PartitionT]
    on_durable: Callable[[int], None] | None = None

    @property
    def partition_count(self) -> int:
        """Number of log partitions, served or not."""
        return len(self._partitions)

    def partition(self, index: int) -> PartitionT | None:
        """Return a served log partition, or None. Observers and tests must not change it."""
        return self._partitions.active[index]

    # ------------------------------------------------------------ the log store's answers

    def appended(self, ticket: Ticket, base_offset: int) -> None:
        """Handle that the log store has written the append ``ticket`` and all earlier ones of that log partition,
        except those with a reported failure.

        Args:
            ticket: the ticket of :meth:`LogStore.append`.
            base_offset: the offset of its first record.

        Raises:
            StoreContractError: the ticket is unknown or was answered already, or the offset decreased. The partition
                has failed.
        """
        self._answered(ticket, base_offset)

    def append_failed(self, ticket: Ticket, error: LogStoreError) -> None:
        """Handle that the log store did not write the append ``ticket``, or that the outcome is unknown.

        Raises:
            StoreContractError: it is not the oldest unanswered append of its log partition. The partition has failed.
        """
        self._answered(ticket, error)

    def _answered(self, ticket: Ticket, answer: AppendResult) -> None:
        if not 0 <= ticket.partition < len(self._partitions):
            raise StoreContractError(f"{ticket} names no log partition")
        partition = self._partitions.active[ticket.partition]
        if partition is not None:
            # A late answer for a partition that was unloaded is ignored.
            self._take_answer(partition, ticket.number, answer, self.clock.now_ms())
            self._settle(self.clock.now_ms())

    def _take_answer(self, partition: PartitionT, number: int, answer: AppendResult, now_ms: int) -> None:
        writer = partition.writer
        try:
            # With the refusals that precede or follow the answer: results have the order of appends.
            for turn, told in writer.in_turn(number, answer) if writer.refusals else ((number, answer),):
                if isinstance(told, LogStoreError):
                    self._refused(partition, turn, told, now_ms)
                    if self._partitions.active[partition.index] is not partition:  # its outcome is unknown
                        break
                    continue
                partition.appended(turn, told, now_ms)
                if self.on_durable is not None:
                    self.on_durable(partition.index)
        # Memory may differ from the log now.
        except StoreContractError:
            self._fail(partition.index, ErrorCode.UNKNOWN_SERVER_ERROR)
            raise

    # ------------------------------------------------------------ the way to the log store

    def _append(self, append: NumberedAppend, now_ms: int) -> None:
        index, number = append.partition, append.number
        partition = self._partitions.active[index]
        if partition is None:
            # The partition failed while its earlier appends were sent.
            return
        ticket = _make_ticket((index, number))
        base_offset = None
        try:
            # The type names the records of ``__consumer_offsets``; a store accepts any record that has bytes.
            base_offset = self.log_store.append(index, ticket, LogRecords(append.records, now_ms))
        except LogStoreError as error:
            # Earlier appends are unanswered: the refusal waits for its turn.
            if not partition.writer.keeps(number, error):
                self.append_failed(ticket, error)
                return
        # The store may have written the records, or not.
        except BaseException:
            self._fail(index, ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        if base_offset is not None:
            self._take_answer(partition, number, base_offset, now_ms)
        elif self._partitions.active[index] is partition:  # not failed or unloaded during the call
            self._wait_for(partition, number, now_ms)

    # ------------------------------------------------------------ what coordinators do in their own ways

    def _refused(self, partition: PartitionT, number: int, error: LogStoreError, now_ms: int) -> None:
        partition.append_failed(number, error.error_code, now_ms)
        # A load finds out what the log holds.
        if error.outcome_unknown:
            self._fail(partition.index, error.error_code)

    @abstractmethod
    def _wait_for(self, partition: PartitionT, number: int, now_ms: int) -> None:
        """Register an append that is answered later."""

    @abstractmethod
    def _settle(self, now_ms: int) -> None:
        """Process the appends and results that the last answer produced."""

    @abstractmethod
    def _fail(self, index: int, error_code: ErrorCode) -> None:
        """Fail a log partition until it is loaded again."""
