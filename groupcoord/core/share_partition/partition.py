"""Share-partition of a share group: acquired records, acknowledgements, and the start offset.

The caller passes the time, writes each :class:`StateWrite`, and reports the share coordinator's response with
:meth:`SharePartition.written` or :meth:`SharePartition.refused`. Until then the records keep their state, except those
with expired locks, and can't be acknowledged again.

Source: ``SharePartition`` of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from attrs import field
from sortedcontainers import SortedDict

from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.core.fast_construct import define
from groupcoord.core.share_partition.in_flight import (
    FINISHED,
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    InFlightBatch,
    LogBatch,
    RecordState,
    RefusedAcknowledgementError,
    Run,
    Wanted,
    divide,
    end_of_portion,
)
from groupcoord.core.share_state.records import DeliveryState, StateBatch, append_joined, merge_batches
from groupcoord.errors import ErrorCode, GroupcoordError, InvariantError

KNOWN_STATES = {state.value: state for state in DeliveryState} | {DeliveryState.ACQUIRED.value: DeliveryState.AVAILABLE}
"""Logged states by number; acquisitions are never logged."""

STALE_LOCKS_LIMIT = 64
"""Number of outdated locks that are tolerated in any case."""

PENDING_RETRY_MS = 1_000
"""Time until an expired lock is checked again during a write of its records."""


class UnknownStateError(GroupcoordError):
    """Unknown delivery state in the log."""


@define(eq=False)
class StateWrite:
    """Write to the share coordinator.

    Attributes:
        start_offset: first unfinished offset.
        delivery_complete_count: number of finished records from there on, with this write.
        batches: changed batches.
        runs: the records of the write.
    """

    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    runs: list[Run]


class SharePartition:
    """Records of one partition for one share group.

    Raises:
        UnknownStateError: the log has an unknown delivery state.

    Attributes:
        start_offset: first unfinished offset.
        end_offset: last offset in flight; the start offset without any.
    """

    def __init__(self, start_offset: int, batches: Sequence[StateBatch] = ()) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self._batches: SortedDict[int, InFlightBatch] = SortedDict()
        self._next_offset: int | None = None  # None if unknown
        self._locks: list[tuple[int, int]] = []  # heap: the end of a lock in ms, and an offset of its batch
        self._locks_limit = STALE_LOCKS_LIMIT
        for first, last, state, count in batches:
            known = KNOWN_STATES.get(state)
            if known is None:
                raise UnknownStateError(f"{state} is no state of records")
            # Logged batches have no owner: a new leader gives acquired records out again.
            self._batches[first] = InFlightBatch(first, last, RecordState(known, count))
            self.end_offset = max(self.end_offset, last)
        self._advance()

    # ------------------------------------------------------------ state

    def batches(self) -> list[InFlightBatch]:
        return list(self._batches.values())

    def runs(self) -> Iterator[Run]:
        for batch in self._batches.values():
            yield from batch.runs(self.start_offset, batch.last)

    @property
    def in_flight_count(self) -> int:
        """Number of offsets from the first unfinished one to the last in flight."""
        return self.end_offset - self.start_offset + 1 if self._batches else 0

    def next_fetch_offset(self) -> int:
        """Return the first offset that is available or was never acquired."""
        # Kept until a record changes, because finding it visits every batch.
        if self._next_offset is None:
            self._next_offset = self._find_available()
        return self._next_offset

    def _find_available(self) -> int:
        expected = self.start_offset
        for batch in self.batches():
            if batch.first > expected:
                return expected  # a hole
            for run in batch.runs(self.start_offset, batch.last):
                if run.state.is_available:
                    return run.first
            expected = batch.last + 1
        # Without batches the next record is the start offset itself.
        return expected if self._batches else self.end_offset

    def can_acquire(self, settings: ShareGroupSettings) -> bool:
        """Return whether records could be acquired if they are in the log."""
        # At the limit only records up to the last in flight can be acquired.
        return self.in_flight_count < settings.partition_max_record_locks or self.next_fetch_offset() <= self.end_offset

    def delivery_complete_count(self) -> int:
        return sum(run.size for run in self.runs() if run.state.state in FINISHED)

    # ------------------------------------------------------------ acquiring

    def last_wanted(self, count: int) -> int:
        """Return the offset up to which this number of records may be available."""
        offset = self.next_fetch_offset()
        batches: Sequence[InFlightBatch] = self._batches.values()[max(self._batches.bisect_right(offset) - 1, 0) :]
        for batch in batches:
            count -= max(batch.first - offset, 0)  # a hole
            if count <= 0:
                return batch.first
            offset = max(batch.last + 1, offset)
            count -= sum(run.size for run in batch.runs(self.start_offset, batch.last) if run.state.is_available)
            if count <= 0:
                return batch.last
        return offset + count - 1

    def acquire(
        self, wanted: Wanted, batches: Sequence[LogBatch], settings: ShareGroupSettings, now_ms: int
    ) -> list[Acquired]:
        if not batches or wanted.max_records <= 0:
            return []
        until_ms = now_ms + settings.record_lock_duration_ms
        acquired = _Acquisition(self, self._batches, wanted, batches, settings, until_ms).run()
        self._next_offset = None
        self._forget_stale_locks()
        return acquired

    def _forget_stale_locks(self) -> None:
        if len(self._locks) <= self._locks_limit:
            return
        self._locks = [
            (until_ms, batch.first)
            for batch in self._batches.values()
            for until_ms in {
                run.state.locked_until_ms
                for run in batch.runs(self.start_offset, batch.last)
                if run.state.state is DeliveryState.ACQUIRED
            }
        ]
        heapify(self._locks)
        # Grows with the live locks, so that renewals cost constant time on average.
        self._locks_limit = 2 * len(self._locks) + STALE_LOCKS_LIMIT

    def lock(self, first: int, until_ms: int) -> None:
        heappush(self._locks, (until_ms, first))

    # ------------------------------------------------------------ acknowledging

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], settings: ShareGroupSettings, now_ms: int
    ) -> StateWrite | None:
        """Apply a member's acknowledgements, all or none; return the write, or None.

        Raises:
            RefusedAcknowledgementError: INVALID_RECORD_STATE if the member does not own the records, or may not renew;
                INVALID_REQUEST for offsets that were never acquired.
        """
        moved: list[tuple[Run, DeliveryState]] = []
        renewed: list[Run] = []
        try:
            for acknowledgement in acknowledgements:
                # Each run is pending before the next is judged: a record acknowledged twice fails.
                for run, kind in self._judge(member_id, acknowledgement, settings):
                    if kind is AcknowledgeType.RENEW:
                        renewed.append(run)
                    else:
                        run.state.pending = _outcome(run.state, kind, settings)
                        run.state.is_rejected = kind is AcknowledgeType.REJECT
                        moved.append((run, run.state.pending))
        # One invalid acknowledgement fails all of them, so the pending states of the others go.
        except RefusedAcknowledgementError:
            _take_back(run for run, _ in moved)
            raise
        # Renewal is not written: locks are in memory only (KIP-1222).
        for run in renewed:
            run.state.locked_until_ms = now_ms + settings.record_lock_duration_ms
            self.lock(run.first, run.state.locked_until_ms)
        self._forget_stale_locks()
        # Renewals, and records before the start offset, write nothing.
        return self._pend(moved) if moved else None

    def _judge(
        self, member_id: str, acknowledgement: Acknowledgement, settings: ShareGroupSettings
    ) -> Iterator[tuple[Run, AcknowledgeType]]:
        first, last, _ = acknowledgement
        # All of it is finished: Kafka ignores the acknowledgement.
        if last < self.start_offset:
            return
        # Kafka skips offsets before the start offset, which are finished.
        begin = max(first, self.start_offset)
        batches = self._batches
        position = batches.bisect_right(begin) - 1
        if position < 0:
            raise RefusedAcknowledgementError(ErrorCode.INVALID_RECORD_STATE)
        end = batches.bisect_right(last)
        # End of the last batch that begins within the range.
        behind = batches.values()[end - 1].last
        # Kafka distinguishes offsets that were never acquired from a wrong state.
        if begin > behind or last > behind:
            raise RefusedAcknowledgementError(ErrorCode.INVALID_REQUEST)
        for batch in batches.values()[position:end]:
            for held in batch.runs(begin, last):
                _check_owner(held.state, member_id)
                for said_first, said_last, kind in acknowledgement.said(held.first, held.last):
                    if kind is AcknowledgeType.RENEW and not settings.renew_acknowledge_enable:
                        raise RefusedAcknowledgementError(ErrorCode.INVALID_RECORD_STATE)
                    yield batch.cut(said_first, said_last), kind

    def release(self, member_id: str, settings: ShareGroupSettings) -> StateWrite | None:
        """Release the records of a member that is gone; return the write, or None."""
        held = [
            (run, _outcome(run.state, AcknowledgeType.RELEASE, settings))
            for run in self.runs()
            if run.state.state is DeliveryState.ACQUIRED
            and run.state.member_id == member_id
            # If that write fails, the lock expires and releases the record.
            and run.state.pending is None
        ]
        return self._pend(held) if held else None

    def next_lock_ms(self) -> int | None:
        return self._locks[0][0] if self._locks else None

    def expire_locks(self, settings: ShareGroupSettings, now_ms: int, until_ms: int | None = None) -> StateWrite | None:
        """Release records with locks that end by ``until_ms``, by default now; return the write, or None."""
        until_ms = now_ms if until_ms is None else until_ms
        written: list[Run] = []
        expired: list[tuple[Run, DeliveryState]] = []
        due: dict[int, InFlightBatch] = {}
        while self._locks and self._locks[0][0] <= until_ms:
            _, first = heappop(self._locks)
            position = self._batches.bisect_right(first) - 1
            # The batch may be finished and discarded by now.
            if position >= 0:
                batch: InFlightBatch = self._batches.values()[position]
                # Each batch once, though it may have a lock for each renewal.
                due[batch.first] = batch
        for batch in due.values():
            for run in batch.runs(self.start_offset, batch.last):
                state = run.state
                # Renewed or acquired again since: a later lock is queued.
                if state.state is not DeliveryState.ACQUIRED or state.locked_until_ms > until_ms:
                    continue
                # A pending write decides about the record; the expiry is checked again after it.
                if state.pending is None:
                    expired.append((run, _outcome(state, AcknowledgeType.RELEASE, settings)))
                else:
                    written.append(run)
        for run in written:
            self.lock(run.first, now_ms + PENDING_RETRY_MS)  # in case that write is refused
        # Before the write is durable, because acquisitions are not in the log: its response changes no record.
        write = self._pend(expired) if expired else None
        if write is not None:
            for run, outcome in expired:
                run.state.become(outcome)
            write.runs = []
            self._advance()
        return write

    def _pend(self, moved: list[tuple[Run, DeliveryState]]) -> StateWrite:
        """Return the write of new states, which are pending until its response."""
        self._next_offset = None
        for run, outcome in moved:
            run.state.pending = outcome
        # Including other pending writes: the last one to become durable has the total.
        finished = sum([batch.outcome_count(FINISHED, self.start_offset) for batch in self._batches.values()])
        # Records before the start offset are not written.
        batches = merge_batches((), [run.batch(outcome) for run, outcome in moved], self.start_offset)
        # The start offset moves after this write, so the stored one trails, as in Kafka.
        return StateWrite(self.start_offset, finished, batches, [run for run, _ in moved])

    # ------------------------------------------------------------ responses of the share coordinator

    def written(self, write: StateWrite) -> None:
        for run in write.runs:
            outcome = run.state.pending
            assert outcome is not None, "what is written waits for that"
            run.state.become(outcome)
        self._advance()

    def refused(self, write: StateWrite) -> None:
        _take_back(write.runs)

    def archiving(self) -> list[Run]:
        return [run for run in self.runs() if run.state.state is DeliveryState.ARCHIVING and run.state.pending is None]

    def archive(self, runs: Sequence[Run]) -> StateWrite:
        return self._pend([(run, DeliveryState.ARCHIVED) for run in runs])

    def archive_unseen(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Archive acquired records of aborted transactions, which are not delivered, in memory only."""
        for first, last in ranges:
            for batch in self._overlapping(first, last):
                for run in batch.runs(first, last):
                    # Not written: a new leader reads the log and finds them aborted again.
                    batch.cut(run.first, run.last).state.become(DeliveryState.ARCHIVED)
        self._advance()

    def _overlapping(self, first: int, last: int) -> list[InFlightBatch]:
        position = max(self._batches.bisect_right(first) - 1, 0)
        return [batch for batch in self._batches.values()[position:] if batch.first <= last and batch.last >= first]

    def log_starts_at(self, offset: int) -> None:
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        self._advance()

    def _advance(self) -> None:
        """Move the start offset over finished records, and discard them."""
        self._next_offset = None
        batches = self._batches
        while batches:
            batch: InFlightBatch = batches.values()[0]
            if batch.last < self.start_offset:
                del batches[batch.first]
                continue
            # A hole, which was never acquired, keeps the start offset.
            if batch.first > self.start_offset:
                return
            for run in batch.runs(self.start_offset, batch.last):
                if run.state.state not in FINISHED:
                    return
                self.start_offset = run.last + 1
            del batches[batch.first]
        if self.start_offset > self.end_offset or not batches:
            self.end_offset = self.start_offset

    # ------------------------------------------------------------ invariants

    def check(self) -> None:
        """Raise InvariantError unless batches in flight, their owners and locks, and the end offset are consistent."""
        behind = -1
        locked = [first for _, first in self._locks]
        for batch in self._batches.values():
            if batch.first <= behind or batch.last < max(batch.first, self.start_offset):
                raise InvariantError(f"batches overlap, or lie before {self.start_offset}: {self.batches()}")
            behind = batch.last
            for run in batch.runs(self.start_offset, batch.last):
                if (run.state.state is DeliveryState.ACQUIRED) != bool(run.state.member_id):
                    raise InvariantError(f"{run} is acquired without a member, or has a member without being acquired")
                is_acquired = run.state.state is DeliveryState.ACQUIRED
                if is_acquired and not any(batch.first <= first <= batch.last for first in locked):
                    raise InvariantError(f"the lock of {run} is never over")
        if self._batches and behind != self.end_offset:
            raise InvariantError(f"the last record in flight is {behind}, not {self.end_offset}")


def _check_owner(state: RecordState, member_id: str) -> None:
    # A pending write decides about the records, so they can't be acknowledged again.
    if state.state is not DeliveryState.ACQUIRED or state.member_id != member_id or state.pending is not None:
        raise RefusedAcknowledgementError(ErrorCode.INVALID_RECORD_STATE)


def _take_back(runs: Iterable[Run]) -> None:
    for run in runs:
        run.state.pending = None
        if run.state.state is DeliveryState.ACQUIRED:
            run.state.is_rejected = False


def _outcome(state: RecordState, kind: AcknowledgeType, settings: ShareGroupSettings) -> DeliveryState:
    if kind is AcknowledgeType.ACCEPT:
        return DeliveryState.ACKNOWLEDGED
    # At the delivery limit a released record is archived.
    if kind is AcknowledgeType.RELEASE and state.count < settings.delivery_count_limit:
        return DeliveryState.AVAILABLE
    # A gap has no record that could go to a dead letter queue.
    is_gap = kind is AcknowledgeType.GAP
    return DeliveryState.ARCHIVING if settings.dead_letter_topic and not is_gap else DeliveryState.ARCHIVED


@define(eq=False)
class _Acquisition:
    """One acquisition from read batches."""

    _partition: SharePartition
    _in_flight: SortedDict[int, InFlightBatch]
    _wanted: Wanted
    _batches: Sequence[LogBatch]
    _settings: ShareGroupSettings
    _until_ms: int
    _acquired: list[Acquired] = field(factory=list)
    _count: int = 0
    _is_over: bool = False

    def run(self) -> list[Acquired]:
        partition = self._partition
        first, last = partition.next_fetch_offset(), self._batches[-1].last
        position = max(self._in_flight.bisect_right(first) - 1, 0)
        # A copy, because acquired holes become new batches.
        for batch in list(self._in_flight.values()[position:]):
            if self._is_done or batch.first > last:
                break
            if batch.last < first:
                continue
            if batch.first > first:
                self._acquire_new(first, batch.first - 1)  # a hole
                if self._is_done:
                    break
            self._acquire_again(batch, first, last)
            first = batch.last + 1
        if not self._is_done and first <= last:
            if self._in_flight and first <= partition.end_offset:
                self._acquire_new(first, last)  # a hole, of which not all was read
            # Holes and finished records between count for the limit, as in Kafka.
            elif (room := self._settings.partition_max_record_locks - partition.in_flight_count) > 0:
                self._acquire_new(first, last, room)
        return self._acquired

    @property
    def _throttled_from(self) -> int:
        """Delivery count from which records come in smaller portions."""
        return max(2, -(-self._settings.delivery_count_limit // 2))  # rounded up

    @property
    def _left(self) -> int:
        return self._wanted.max_records - self._count

    @property
    def _is_done(self) -> bool:
        return self._is_over or self._left <= 0

    def _take(self, first: int, last: int, state: RecordState) -> Acquired:
        state.acquire(self._wanted.member_id, self._until_ms)
        self._partition.lock(first, self._until_ms)
        self._count += last - first + 1
        return Acquired(first, last, state.count)

    # ------------------------------------------------------------ records in flight

    def _acquire_again(self, batch: InFlightBatch, first: int, last: int) -> None:
        """Acquire available records of a batch: all, as many as are wanted, or a smaller portion (KIP-1240)."""
        throttled = self._first_throttled(batch, first, last)
        if throttled is not None:
            # A throttled batch is not begun behind other records.
            if not self._count:
                self._acquire_throttled(batch, first, last, throttled)
            self._is_over = True  # throttled records come without others
            return
        whole = batch.whole
        is_inside = batch.first >= first and batch.last <= last
        # Without a strict limit the last batch may exceed the wanted number (KIP-1206).
        fits = not self._wanted.is_limit or batch.size <= self._left
        if whole is not None and is_inside and fits:
            if whole.is_available:
                self._acquired.append(self._take(batch.first, batch.last, whole))
            return
        if whole is not None and not whole.is_available:
            return
        limit = self._left if self._wanted.is_limit else batch.size
        self._acquire_each(batch, first, last, limit)

    def _acquire_each(self, batch: InFlightBatch, first: int, last: int, limit: int) -> None:
        acquired: list[Acquired] = []
        for found in batch.runs(first, last):
            if not limit:
                break
            if found.state.is_available:
                run = batch.cut(found.first, min(found.last, found.first + limit - 1))
                # Neighbours with one delivery count are one range in the response.
                append_joined(acquired, self._take(*run))
                limit -= run.size
        self._acquired += acquired

    def _first_throttled(self, batch: InFlightBatch, first: int, last: int) -> int | None:
        throttled_from = self._throttled_from
        counts = (run.state.count for run in batch.runs(first, last) if run.state.is_available)
        return next((count for count in counts if count >= throttled_from), None)

    def _acquire_throttled(self, batch: InFlightBatch, first: int, last: int, count: int) -> None:
        # Half of the batch at first, then half of that (KIP-1240).
        portion = min(max(1, batch.size >> (count - self._throttled_from + 1)), self._left)
        chosen = 0
        for run in list(batch.runs(first, last)):
            if run.state.is_available:
                # The portion ends before a record at its last attempt, which comes alone.
                if run.state.count >= self._settings.delivery_count_limit - 1 > 1:
                    portion = chosen or 1
                    break
                chosen += run.size
                if chosen >= portion:
                    break
        self._acquire_each(batch, first, last, portion)

    # ------------------------------------------------------------ new records

    def _acquire_new(self, first: int, last: int, room: int | None = None) -> None:
        count = self._left if room is None else min(self._left, room)
        end = end_of_portion(first, last, self._batches, count, is_limit=self._wanted.is_limit)
        for begin, stop in divide(first, end, self._batches, self._wanted.batch_size):
            state = RecordState(DeliveryState.AVAILABLE, 0)
            self._in_flight[begin] = InFlightBatch(begin, stop, state)
            self._acquired.append(self._take(begin, stop, state))
        # With a strict limit the rest of the log's batch is in flight and available.
        rest = next((batch.last for batch in self._batches if batch.first <= end < batch.last), end)
        rest = min(rest, last)
        if rest > end:
            self._in_flight[end + 1] = InFlightBatch(end + 1, rest, RecordState(DeliveryState.AVAILABLE, 0))
        self._partition.end_offset = max(self._partition.end_offset, rest)
