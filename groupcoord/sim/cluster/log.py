"""Durable log of the simulated cluster, and each node's access to it: slow, failing or fenced as faults require."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from attrs import Factory, define, field, frozen

from groupcoord.coordinator import GroupCoordinator
from groupcoord.coordinator.share_coordinator import ShareCoordinator
from groupcoord.core.log.records import GroupMetadataRecord
from groupcoord.errors import OwnershipLostError
from groupcoord.laws import compacted
from groupcoord.log_store import (
    AppendTimedOutError,
    LogRecord,
    LogStoreError,
    MemoryLogStore,
    NotEnoughReplicasError,
    NotLeaderError,
    RecordTooLargeError,
    StorageError,
    Ticket,
)
from groupcoord.sim.kernel import Scheduler, ignore, mixed, rank_of_node, stable_number

if TYPE_CHECKING:
    from groupcoord.sim.cluster.nodes import CoordinatorNode

REFUSALS: tuple[type[LogStoreError], ...] = (
    NotEnoughReplicasError,
    NotLeaderError,
    RecordTooLargeError,
    StorageError,
    AppendTimedOutError,
)


class Leader(NamedTuple):
    """Node that may write to a log partition; ``node_id`` -1: none."""

    node_id: int
    epoch: int


NOBODY = Leader(-1, -1)


@frozen
class StoreFault:
    """Interval in which the log is slow, refuses writes, or has incomplete reads.

    Attributes:
        flush_ms: interval between writes; if longer than the fault, nothing is written until its end.
        refusal_percent, broken_read_percent: share of flushes that are refused, and of reads that end halfway.
    """

    start_ms: int
    end_ms: int
    flush_ms: int = 0
    refusal_percent: int = 0
    broken_read_percent: int = 0


@define(eq=False, slots=False)
class ClusterLog:
    """Durable records of all log partitions, their leaders, and the times of writes.

    The time of a flush depends on the clock alone, so skipped writes change nothing for others.

    Attributes:
        fresh: by log partition, the records that were not checked yet.
        on_look: called after an ownership check with the place, the owner's epoch, and the start of its lease.
        late: by log partition, the last records, whose responses may wait for an ownership check.
        has_snapshot: log partitions whose loads begin with a snapshot.
        unwritten_empties: groups whose latest record has no members and was refused.
    """

    scheduler: Scheduler
    _partition_count: int
    _seed: int
    _flush_ms: int
    _faults: Sequence[StoreFault] = ()
    leaders: list[Leader] = field(default=Factory(lambda log: [NOBODY] * log._partition_count, takes_self=True))
    _is_compacted: bool = True
    memory: MemoryLogStore = field(factory=MemoryLogStore)
    on_append: Callable[[Sequence[LogRecord]], None] = ignore
    on_look: Callable[[int, int, int], None] = ignore
    has_snapshot: set[int] = field(factory=set)
    unwritten_empties: set[str] = field(factory=set)
    _compacted: dict[int, tuple[int, list[LogRecord]]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.fresh: list[list[LogRecord]] = [[] for _ in range(self._partition_count)]
        self.late: list[list[LogRecord]] = [[] for _ in range(self._partition_count)]
        self._chance_key = stable_number(self._seed, "chance of the log")

    def durable_ms(self, now_ms: int) -> int:
        flush_ms = self._flush_ms
        active = self._active(now_ms)
        if active:
            slowest = max(active, key=lambda fault: fault.flush_ms)
            if slowest.flush_ms > flush_ms:
                return min(slowest.end_ms, next_multiple(now_ms, slowest.flush_ms))
        return next_multiple(now_ms, flush_ms) if flush_ms else now_ms

    def refusal(self, partition: int, now_ms: int) -> LogStoreError | None:
        percent = max((fault.refusal_percent for fault in self._active(now_ms)), default=0)
        number = mixed(self._chance_key + partition, now_ms) if percent else 0
        if not percent or number % 100 >= percent:
            return None
        return REFUSALS[number // 100 % len(REFUSALS)]("injected")

    def read(self, partition: int) -> Iterable[LogRecord]:
        """Return the records of a log partition, as written or as compacted. A broken read raises
        StorageError halfway.
        """
        is_compacted = self.is_loaded_compacted(partition)
        entries = self.compacted(partition) if is_compacted else self.memory.read(partition)
        now_ms = self.scheduler.time_ms
        percent = max((fault.broken_read_percent for fault in self._active(now_ms)), default=0)
        # Other digits than those that decide refusals.
        if percent and mixed(self._chance_key + partition, now_ms) // 100 % 100 < percent:
            return _broken_off(tuple(entries))
        return entries

    def _active(self, now_ms: int) -> list[StoreFault]:
        return [fault for fault in self._faults if fault.start_ms <= now_ms < fault.end_ms] if self._faults else []

    def survivors(self, partition: int, count: int) -> int:
        """Return how many of ``count`` writes with unknown outcome are durable, from the first on."""
        return mixed(self._chance_key + partition, ~self.scheduler.time_ms) % (count + 1)

    def write(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        entries = records[:]
        self.on_append(entries)
        base_offset = self.memory.append(partition, ticket, entries)
        assert base_offset is not None
        self.fresh[partition] += entries
        if self.unwritten_empties:
            self.unwritten_empties -= {e.record.group_id for e in entries if isinstance(e.record, GroupMetadataRecord)}
        return base_offset

    def write_foreign(self, partition: int, entry: LogRecord) -> None:
        self.write(partition, Ticket(partition, -1), [entry])

    def refused(self, records: Sequence[LogRecord]) -> None:
        for entry in records:
            if isinstance(entry.record, GroupMetadataRecord) and not entry.record.members:
                self.unwritten_empties.add(entry.record.group_id)

    def is_loaded_compacted(self, partition: int) -> bool:
        """Return whether a leader reads the log partition compacted, as every second one does."""
        is_left_by_cleaner = self._is_compacted and self.leaders[partition].epoch % 2 == 1
        return is_left_by_cleaner or partition in self.has_snapshot

    def compacted(self, partition: int) -> list[LogRecord]:
        end_offset = self.memory.end_offset(partition)
        known_offset, found = self._compacted.get(partition, (-1, []))
        if known_offset != end_offset:
            found = compacted(list(self.memory.read(partition)), 1.0, keeps_tombstones=True)
            self._compacted[partition] = end_offset, found
        return found


def _broken_off(entries: Sequence[LogRecord]) -> Iterator[LogRecord]:
    yield from entries[: len(entries) // 2]
    raise StorageError("injected")


def next_multiple(now_ms: int, interval_ms: int) -> int:
    return now_ms - now_ms % interval_ms + interval_ms


class Waiting(NamedTuple):
    """Append that is not durable yet."""

    durable_ms: int
    ticket: Ticket
    records: Sequence[LogRecord]


@define(eq=False, slots=False)
class NodeLog:
    """Log store of a node (a :class:`groupcoord.LogStore`), for the lifetime of its process.

    Args:
        settle: called with a log partition after results were given to the coordinator.
        failed: called with a log partition that must be loaded again after an append with unknown outcome.
    """

    answers_late: ClassVar = False

    _log: ClusterLog
    _node: CoordinatorNode
    _settle: Callable[[int], None]
    _failed: Callable[[int], None]
    lease_ms: int | None = None
    _waiting: dict[int, deque[Waiting]] = field(factory=dict)
    _answers: GroupCoordinator | ShareCoordinator | None = None

    @property
    def store(self) -> NodeLog:
        return self

    def connect(self, answers: GroupCoordinator | ShareCoordinator) -> None:
        self._answers = answers

    def owner_of(self, partition: int) -> int:
        """Return the leader of a log partition that the node knows, or -1."""
        return self._node.known_leader(partition)

    def epoch_of(self, partition: int) -> int:
        """Return the epoch in which the node owns the whole log, or last owned it, or -1."""
        known = self._node.leaders_known
        return max((epoch for node_id, epoch in known if node_id == self._node.node_id), default=-1)

    def has_all(self, partition: int) -> bool:
        """Return False: a node that does not lead a log partition may not know all its records."""
        return False

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        log = self._log
        if not self._node.leads(partition):
            log.refused(records)
            raise self._not_ours()
        waiting = self._waiting.get(partition)
        now_ms = self._log.scheduler.time_ms
        durable_ms = log.durable_ms(now_ms)
        if durable_ms == now_ms and not waiting:
            error = log.refusal(partition, now_ms)
            if error is not None:
                if error.outcome_unknown:
                    if log.survivors(partition, 1):
                        log.write(partition, ticket, records)
                    self._failed(partition)
                log.refused(records)
                raise error
            return log.write(partition, ticket, records)
        if waiting is None:
            waiting = self._waiting[partition] = deque()
        if waiting and waiting[-1].durable_ms > durable_ms:
            # The log has become faster, but earlier writes come first.
            durable_ms = waiting[-1].durable_ms
        if not waiting or waiting[-1].durable_ms != durable_ms:
            self._log.scheduler.at(durable_ms, rank_of_node(self._node.node_id), self._flush, partition)
        waiting.append(Waiting(durable_ms, ticket, records))
        return None

    def read(self, partition: int) -> Iterable[LogRecord]:
        if self.lease_ms is not None:
            self.check_ownership()
        return self._log.read(partition)

    def check_ownership(self) -> bool:
        if not self._node.leads(0):
            raise self._not_ours()
        self._log.on_look(0, self._log.leaders[0].epoch, self._log.scheduler.time_ms)
        return True

    def _not_ours(self) -> LogStoreError:
        if self.lease_ms is not None:
            return OwnershipLostError("another node owns the log")
        return NotLeaderError("another node leads this log partition")

    def _flush(self, partition: int) -> None:
        """Write what is due and report it. A failed flush fails as a whole."""
        waiting, now_ms = self._waiting[partition], self._log.scheduler.time_ms
        if not waiting or waiting[0].durable_ms > now_ms or self._answers is None:
            return
        error = self._log.refusal(partition, now_ms) if self._node.leads(partition) else self._not_ours()
        while waiting and waiting[0].durable_ms <= now_ms:
            if error is not None and error.outcome_unknown:
                self._lose(partition, error)
                break
            # Popped one by one: writes that a result causes come after those that still wait.
            _, ticket, records = waiting.popleft()
            if error is None:
                self._answers.appended(ticket, self._log.write(partition, ticket, records))
            else:
                self._log.refused(records)
                self._answers.append_failed(ticket, error)
        self._settle(partition)

    def _lose(self, partition: int, error: LogStoreError) -> None:
        """Give up all waiting appends. The next load shows which of them are in the log."""
        assert self._answers is not None
        waiting = self._waiting[partition]
        lost = list(waiting)
        waiting.clear()
        # Nothing of a former leader gets past the fence of its successor.
        written = self._log.survivors(partition, len(lost)) if self._node.leads(partition) else 0
        for _, ticket, records in lost[:written]:
            self._log.write(partition, ticket, records)
        self._answers.append_failed(lost[0].ticket, error)
        self._failed(partition)

    def cut(self) -> None:
        """End the process: a first part of the appends in flight is durable, the rest is lost."""
        self._answers = None
        for partition, waiting in self._waiting.items():
            if waiting and self._node.leads(partition):
                written = self._log.survivors(partition, len(waiting))
                for _, ticket, records in list(waiting)[:written]:
                    self._log.write(partition, ticket, records)
            waiting.clear()
