"""Base of both coordinators: loads of log partitions, ordered by leader epochs, and appends with their outcomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from groupcoord.clock import Clock
from groupcoord.core.fast_construct import define, maker
from groupcoord.core.router.partition_table import PartitionStatus, PartitionTable
from groupcoord.errors import ErrorCode, GroupcoordError, StoreContractError
from groupcoord.log_store import LoadedCommits, LogRecord, LogRecords, LogStore, LogStoreError, Ticket

if TYPE_CHECKING:
    from groupcoord.core.log.log_partition import Append, AppendResult, LogPartition

_make_ticket = maker(Ticket)


PartitionT = TypeVar("PartitionT", bound="LogPartition")

CAUSES_SHOWN = 3
"""Maximum number of log partitions in the message of a LoadError."""


class LoadError(GroupcoordError):
    """Log partitions could not be loaded: their groups fail with NOT_COORDINATOR, all others are served.

    Attributes:
        causes: the error of each log partition.
    """

    def __init__(self, causes: dict[int, Exception]) -> None:
        shown = [f"log partition {partition}: {cause}" for partition, cause in list(causes.items())[:CAUSES_SHOWN]]
        more = [f"{len(causes) - CAUSES_SHOWN} more log partitions"] if len(causes) > CAUSES_SHOWN else []
        super().__init__("; ".join(shown + more))
        self.causes = causes


@define(eq=False)
class _Load(Generic[PartitionT]):
    partition: PartitionT
    started_ms: int
    # None before the first step, which opens the log.
    records: Iterator[LogRecord | LoadedCommits] | None = None


class Appending(ABC, Generic[PartitionT]):
    """Base of coordinators: loads log partitions, sends appends to a log store and handles its answers.

    Leader epochs and append numbers outlast a load.

    Attributes:
        on_durable: called with the number of a log partition when an append is durable, or None.
    """

    NOT_STATE: ClassVar[tuple[str, ...]] = ("_loads",)
    NOT_COUNTED = ("_leader_epochs", "_next_appends")

    clock: Clock
    log_store: LogStore
    on_durable: Callable[[int], None] | None = None
    _make_partition: Callable[[int, int], PartitionT]
    """Creates a log partition from its index and the number of its first append."""

    def __init__(self, partitions: PartitionTable[Any, PartitionT]) -> None:
        self._partitions = partitions
        self._loads: dict[int, _Load[PartitionT]] = {}
        # Below every epoch, so that the first load is never outdated.
        self._leader_epochs = [-1] * len(partitions)
        self._next_appends = [0] * len(partitions)

    @property
    def partition_count(self) -> int:
        """Number of log partitions, served or not."""
        return len(self._partitions)

    def partition(self, index: int) -> PartitionT | None:
        """Return a served log partition, or None. Observers and tests must not change it."""
        return self._partitions.active[index]

    # ------------------------------------------------------------ loads

    @abstractmethod
    def load(self, partition: int, leader_epoch: int = 0) -> None:
        """Read the records of a log partition and serve it.

        An epoch that is not newer than the last one is ignored, unless the partition has failed. On a partition that is
        served already a newer one is only stored.

        Raises:
            LoadError: the log can't be read; requests fail with NOT_COORDINATOR until the partition is loaded again.
        """

    def load_all(self) -> None:
        """Load every log partition, as the only coordinator.

        Raises:
            LoadError: some could not be loaded; the others are served.
        """
        causes: dict[int, Exception] = {}
        for index in range(len(self._partitions)):
            try:
                self.load(index)
            except LoadError as error:
                causes.update(error.causes)
        if causes:
            raise LoadError(causes)

    def _begin_load(self, index: int, leader_epoch: int) -> bool:
        """Begin to load a log partition; return False if there is nothing to load."""
        status = self._partitions.status[index]
        is_newer = leader_epoch > self._leader_epochs[index]
        # After a failed load any epoch is accepted.
        if not is_newer and status is not PartitionStatus.FAILED:
            return False
        self._partitions.is_closed = False
        # A newer epoch is kept in any case.
        self._leader_epochs[index] = max(leader_epoch, self._leader_epochs[index])
        # Kafka keeps the state then, without another load.
        if status in (PartitionStatus.ACTIVE, PartitionStatus.LOADING):
            return False
        self._partitions.status[index] = PartitionStatus.LOADING
        partition = self._make_partition(index, self._next_appends[index])
        self._loads[index] = _Load(partition, self.clock.now_ms())
        return True

    def _step_load(self, index: int, max_records: int | None) -> bool:
        """Load at most ``max_records`` records, or all that are left.

        Returns:
            True if the partition is served, or is no longer loading.

        Raises:
            LoadError: the log can't be read.
        """
        load = self._loads.get(index)
        # Unloaded or abandoned between two steps.
        if load is None:
            return True
        try:
            if load.records is None:
                load.records = iter(self._read(index))
            count = 0
            for record in islice(load.records, max_records):
                load.partition.replay(record.offset, record.record)
                count += 1
        # A store may raise anything; other log partitions are served.
        except Exception as error:
            del self._loads[index]
            self._partitions.status[index] = PartitionStatus.FAILED
            raise LoadError({index: error}) from error
        # There may be more; an empty next step ends the load.
        if count == max_records:
            return False
        del self._loads[index]
        # Groups and timers exist before the first request is handled.
        self._loaded(load.partition, load.started_ms)
        self._partitions.serve(load.partition)
        return True

    def _stop_load(self, index: int, leader_epoch: int | None) -> bool:
        """Stop loading and serving a log partition; return False if the epoch is outdated."""
        if leader_epoch is not None and leader_epoch <= self._leader_epochs[index]:
            return False
        # Without an epoch the next load may have any.
        self._leader_epochs[index] = -1 if leader_epoch is None else leader_epoch
        self._loads.pop(index, None)
        self._partitions.status[index] = PartitionStatus.UNLOADED
        return True

    def _abandon_load(self, index: int) -> None:
        if self._loads.pop(index, None) is not None:
            self._partitions.status[index] = PartitionStatus.FAILED

    def _withdraw(self, partition: PartitionT, status: PartitionStatus) -> None:
        # Answers to earlier appends are recognized by their numbers.
        self._next_appends[partition.index] = partition.writer.next_number
        self._partitions.withdraw(partition.index, status)

    def _read(self, index: int) -> Iterable[LogRecord | LoadedCommits]:
        return self.log_store.read(index)

    def _loaded(self, partition: PartitionT, started_ms: int) -> None:
        """Prepare a loaded partition before it is served; ``started_ms`` is when its load began."""

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
            for turn, result in writer.in_turn(number, answer) if writer.refusals else ((number, answer),):
                if isinstance(result, LogStoreError):
                    self._refused(partition, turn, result, now_ms)
                    if self._partitions.active[partition.index] is not partition:  # its outcome is unknown
                        break
                    continue
                partition.appended(turn, result, now_ms)
                if self.on_durable is not None:
                    self.on_durable(partition.index)
        # Memory may differ from the log now.
        except StoreContractError:
            self._fail(partition.index, ErrorCode.UNKNOWN_SERVER_ERROR)
            raise

    # ------------------------------------------------------------ the way to the log store

    def _append(self, append: Append, now_ms: int) -> None:
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
            partition.writer.wait_for(number, now_ms)

    # ------------------------------------------------------------ what coordinators do in their own ways

    def _refused(self, partition: PartitionT, number: int, error: LogStoreError, now_ms: int) -> None:
        partition.append_failed(number, error.error_code, now_ms)
        # A load finds out what the log holds.
        if error.outcome_unknown:
            self._fail(partition.index, error.error_code)

    @abstractmethod
    def _settle(self, now_ms: int) -> None:
        """Process the appends and results that the last answer produced."""

    def _fail(self, index: int, error_code: ErrorCode) -> None:
        """Fail a log partition until it is loaded again."""
        if (partition := self._partitions.active[index]) is not None:
            self._stop(partition, error_code, PartitionStatus.FAILED)

    @abstractmethod
    def _stop(self, partition: PartitionT, error_code: ErrorCode, status: PartitionStatus) -> None:
        """Stop serving a log partition, and fail what waits there."""
