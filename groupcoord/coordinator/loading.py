"""How log partitions come to be served: their records are read, at once or in steps, by leader epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from groupcoord.clock import Clock
from groupcoord.coordinator.ownership import Ownership
from groupcoord.core.front.partition_table import PartitionStatus, PartitionTable
from groupcoord.core.observer import Observer
from groupcoord.core.partition import Partition
from groupcoord.errors import GroupcoordError
from groupcoord.log_store import CondensingStore, LoadedCommits, LogRecord, LogStore


class LoadError(GroupcoordError):
    """Log partitions could not be loaded: their groups are answered NOT_COORDINATOR, all others are served.

    Attributes:
        causes: log partition → what went wrong.
    """

    def __init__(self, causes: dict[int, Exception]) -> None:
        super().__init__("; ".join(f"log partition {partition}: {cause}" for partition, cause in causes.items()))
        self.causes = causes


def load_each(load: Callable[[int], None], count: int) -> None:
    """Load so many log partitions one after the other, those behind one that can't be loaded as well.

    Raises:
        LoadError: some could not be loaded; the others are served.
    """
    causes: dict[int, Exception] = {}
    for index in range(count):
        try:
            load(index)
        except LoadError as error:
            causes.update(error.causes)
    if causes:
        raise LoadError(causes)


class _Load:
    """A load under way; ``records`` is None before the first step."""

    __slots__ = ("partition", "records", "started_ms")

    def __init__(self, partition: Partition, started_ms: int) -> None:
        self.partition = partition
        self.records: Iterator[LogRecord | LoadedCommits] | None = None
        self.started_ms = started_ms


class Loader:
    """Loads the log partitions of one coordinator, and remembers of each what outlasts a load.

    Args:
        partitions: where they are served once they are loaded.
        log_store: where their records are.
        clock: says when a load begins and ends.
        observer: counts loads.
        make_partition: makes the core of a log partition, from its number and that of its first append.
        ownership: hears of each load that succeeds; None: nobody else can take the log over.
    """

    def __init__(
        self,
        partitions: PartitionTable,
        log_store: LogStore,
        clock: Clock,
        observer: Observer,
        make_partition: Callable[[int, int], Partition],
        ownership: Ownership | None = None,
    ) -> None:
        self._partitions = partitions
        self._log_store = log_store
        self._clock = clock
        self._observer = observer
        self._make_partition = make_partition
        self._ownership = ownership
        self._loads: dict[int, _Load] = {}
        self._leader_epochs = [-1] * len(partitions)
        self._next_appends = [0] * len(partitions)

    def begin(self, index: int, leader_epoch: int) -> bool:
        """Begin to load a log partition, unless the epoch is out of date or it is loading or served already.

        Returns:
            True if there is something to load.
        """
        status = self._partitions.status[index]
        is_newer = leader_epoch > self._leader_epochs[index]
        if not is_newer and status is not PartitionStatus.FAILED:
            return False
        self._partitions.is_closed = False
        self._leader_epochs[index] = max(leader_epoch, self._leader_epochs[index])
        if status in (PartitionStatus.ACTIVE, PartitionStatus.LOADING):
            return False
        self._partitions.status[index] = PartitionStatus.LOADING
        partition = self._make_partition(index, self._next_appends[index])
        self._loads[index] = _Load(partition, self._clock.now_ms())
        return True

    def step(self, index: int, max_records: int | None) -> bool:
        """Load on: at most ``max_records`` records, or all that are left.

        Returns:
            True when the partition is served, or isn't loading any more.

        Raises:
            LoadError: the log can't be read.
        """
        load = self._loads.get(index)
        if load is None:
            return True
        try:
            if load.records is None:
                load.records = iter(self._read(index))
            count = 0
            for record in islice(load.records, max_records):
                load.partition.replay(record.offset, record.record)
                count += 1
        except Exception as error:
            del self._loads[index]
            self._partitions.status[index] = PartitionStatus.FAILED
            raise LoadError({index: error}) from error
        if count == max_records:
            return False
        del self._loads[index]
        now_ms = self._clock.now_ms()
        load.partition.loaded(now_ms)
        self._observer.partition_loaded(now_ms - load.started_ms)
        self._partitions.serve(load.partition)
        if self._ownership is not None:
            self._ownership.loaded(load.started_ms)
        return True

    def _read(self, index: int) -> Iterable[LogRecord | LoadedCommits]:
        store = self._log_store
        return store.read_last(index) if isinstance(store, CondensingStore) else store.read(index)

    def stop(self, index: int, leader_epoch: int | None) -> bool:
        """Load a log partition no longer, and have it served no longer.

        Returns:
            False if the epoch is out of date: then nothing changes.
        """
        if leader_epoch is not None and leader_epoch <= self._leader_epochs[index]:
            return False
        self._leader_epochs[index] = -1 if leader_epoch is None else leader_epoch
        self._loads.pop(index, None)
        if self._ownership is not None:
            self._ownership.disown_withheld()
        return True

    def forget_untold(self, index: int) -> None:
        """A log partition is about to be served no longer: what was found out after the lease is not told any more."""
        if self._ownership is not None and not self._ownership.may_answer():
            # What is of all groups, that the log is lost, names none: it is to be told.
            self._observer.forget_untold(
                lambda event: event.group_id != "" and self._partitions.index_of(event.group_id) == index
            )

    def abandon(self, index: int) -> None:
        """A load under way has failed, if there is one."""
        if self._loads.pop(index, None) is not None:
            self._partitions.status[index] = PartitionStatus.FAILED

    def withdraw(self, partition: Partition, status: PartitionStatus) -> None:
        """A log partition is served no longer; its appends are numbered on after the next load."""
        self._next_appends[partition.index] = partition.writer.next_number
        self._partitions.withdraw(partition.index, status)
