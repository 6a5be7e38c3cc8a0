"""Loading of log partitions: their records are read at once or in steps, and leader epochs order loads and unloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from groupcoord.clock import Clock
from groupcoord.coordinator.appending import ServedPartition
from groupcoord.core.router.partition_table import PartitionStatus, PartitionTable
from groupcoord.errors import GroupcoordError
from groupcoord.log_store import LoadedCommits, LogRecord

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


def load_each(load: Callable[[int], None], count: int) -> None:
    """Load ``count`` log partitions, also after one that can't be loaded; raise one LoadError for all failures."""
    causes: dict[int, Exception] = {}
    for index in range(count):
        try:
            load(index)
        except LoadError as error:
            causes.update(error.causes)
    if causes:
        raise LoadError(causes)


class LoadedPartition(ServedPartition, Protocol):
    """Log partition that is served after its records were replayed."""

    def replay(self, log_offset: int, record: Any) -> None:
        """Replay a record of the log."""


PartitionT = TypeVar("PartitionT", bound=LoadedPartition)


class _Load(Generic[PartitionT]):
    __slots__ = ("partition", "records", "started_ms")

    def __init__(self, partition: PartitionT, started_ms: int) -> None:
        self.partition = partition
        # None before the first step, which opens the log.
        self.records: Iterator[LogRecord | LoadedCommits] | None = None
        self.started_ms = started_ms


class Loader(Generic[PartitionT]):
    """Loads the log partitions of a coordinator; leader epochs and append numbers outlast a load.

    Args:
        read: returns the records of a log partition.
        make_partition: creates a log partition from its index and the number of its first append.
        loaded: called with each loaded partition before it is served, and the start time of its load.
    """

    NOT_STATE = ("_loads",)
    NOT_COUNTED = ("_leader_epochs", "_next_appends")

    def __init__(
        self,
        partitions: PartitionTable[Any, PartitionT],
        read: Callable[[int], Iterable[LogRecord | LoadedCommits]],
        clock: Clock,
        make_partition: Callable[[int, int], PartitionT],
        loaded: Callable[[PartitionT, int], None],
    ) -> None:
        self._partitions = partitions
        self._read = read
        self._clock = clock
        self._make_partition = make_partition
        self._loaded = loaded
        self._loads: dict[int, _Load[PartitionT]] = {}
        # Below every epoch, so that the first load is never outdated.
        self._leader_epochs = [-1] * len(partitions)
        self._next_appends = [0] * len(partitions)

    def begin(self, index: int, leader_epoch: int) -> bool:
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
        self._loads[index] = _Load(partition, self._clock.now_ms())
        return True

    def step(self, index: int, max_records: int | None) -> bool:
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

    def stop(self, index: int, leader_epoch: int | None) -> bool:
        """Stop loading and serving a log partition; return False if the epoch is outdated."""
        if leader_epoch is not None and leader_epoch <= self._leader_epochs[index]:
            return False
        # Without an epoch the next load may have any.
        self._leader_epochs[index] = -1 if leader_epoch is None else leader_epoch
        self._loads.pop(index, None)
        self._partitions.status[index] = PartitionStatus.UNLOADED
        return True

    def abandon(self, index: int) -> None:
        if self._loads.pop(index, None) is not None:
            self._partitions.status[index] = PartitionStatus.FAILED

    def withdraw(self, partition: PartitionT, status: PartitionStatus) -> None:
        # Answers to earlier appends are recognized by their numbers.
        self._next_appends[partition.index] = partition.writer.next_number
        self._partitions.withdraw(partition.index, status)
