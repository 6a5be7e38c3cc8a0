"""Contract of log stores (``LogStore``), their optional capabilities, and a store in memory.

A host brings its own persistence by implementing two methods. Rules of the contract:

* ``append`` receives records that are written together or not at all, for one log partition, under a *ticket*. A
  synchronous store returns the offset of the first record. An asynchronous one returns ``None`` and answers later
  through :meth:`GroupCoordinator.appended` or :meth:`GroupCoordinator.append_failed`.
* Answers of one log partition come in the order of its tickets. The answer to *n* also acknowledges all unanswered
  tickets before *n*; their records must directly precede its own, without gaps.
* An error that ``append`` raises may come before the answers to earlier tickets. The coordinator handles it after them,
  and an answer to a later ticket does not acknowledge this one.
* Offsets grow. Gaps are allowed, because other writers and compaction leave them.
* An error states whether the records can still appear in the log. If they can (``outcome_unknown``), the log partition
  fails and must be loaded again, because its state could otherwise miss a durable record.

A store that other processes can open, too, has one owner at a time and a longer contract: :class:`OwnedStore`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat
from operator import attrgetter
from typing import NamedTuple, Protocol, overload, runtime_checkable
from uuid import UUID

from groupcoord.core.log.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    CommitRecords,
    OffsetCommitRecord,
    OpaqueRecord,
    Record,
    TransactionMarker,
)
from groupcoord.errors import (
    AppendOutcomeUnknownError as AppendOutcomeUnknownError,
    AppendTimedOutError as AppendTimedOutError,
    LogStoreError as LogStoreError,
    NotEnoughReplicasError as NotEnoughReplicasError,
    NotLeaderError as NotLeaderError,
    OwnershipLostError as OwnershipLostError,
    RecordTooLargeError as RecordTooLargeError,
    StorageError as StorageError,
)


class Ticket(NamedTuple):
    """Identifies one append: the log partition and a sequence number. Tickets of a partition compare in order."""

    partition: int
    number: int


_OF_PRODUCERS = (OffsetCommitRecord, TransactionMarker, OpaqueRecord)


class LogRecord:
    """One record as a log store sees it. The bytes of key and value are encoded on demand, once.

    Attributes:
        record: the record as a value.
        timestamp_ms: append time, milliseconds since the Unix epoch.
        offset: its offset in the log partition, or -1 before it is appended.
    """

    __slots__ = ("_encoded", "offset", "record", "timestamp_ms")

    def __init__(
        self,
        record: Record,
        timestamp_ms: int,
        offset: int = -1,
        encoded: tuple[bytes, bytes | None] | None = None,
    ) -> None:
        self.record = record
        self.timestamp_ms = timestamp_ms
        self.offset = offset
        self._encoded = encoded

    @classmethod
    def from_bytes(
        cls,
        key: bytes,
        value: bytes | None,
        *,
        offset: int,
        timestamp_ms: int = -1,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
        is_control: bool = False,
    ) -> LogRecord:
        """Return a record from its stored bytes.

        Args:
            key: the bytes of the key.
            value: the bytes of the value, or None for a tombstone.
            offset: its offset in the log partition.
            timestamp_ms: append time.
            producer_id: of a transactional record or a marker; -1 for all others.
            producer_epoch: the epoch of ``producer_id``.
            is_control: whether it is a transaction marker.
        """
        from groupcoord.records.codec import decode_control, decode_record

        if is_control:
            record: Record = decode_control(key, value, producer_id, producer_epoch)
        else:
            record = decode_record(key, value, producer_id, producer_epoch)
        return cls(record, timestamp_ms, offset, (key, value))

    def encoded(self) -> tuple[bytes, bytes | None]:
        """Return the bytes of key and value, as Kafka 4.4 writes them; the value of a tombstone is None.

        Raises:
            ValueError: the record can't be encoded, for example because a name is longer than 32,767 bytes.
        """
        encoded = self._encoded
        if encoded is None:
            encoded = self._encoded = _encoder()(self.record)
        return encoded

    @property
    def key(self) -> bytes:
        """Bytes of the key; see :meth:`encoded`."""
        return self.encoded()[0]

    @property
    def value(self) -> bytes | None:
        """Bytes of the value, or None for a tombstone; see :meth:`encoded`."""
        return self.encoded()[1]

    @property
    def producer_id(self) -> int:
        """Producer of the record's transaction, or -1."""
        record = self.record
        return record.producer_id if isinstance(record, _OF_PRODUCERS) else NO_PRODUCER_ID

    @property
    def producer_epoch(self) -> int:
        """Epoch of :attr:`producer_id`, or -1."""
        record = self.record
        return record.producer_epoch if isinstance(record, _OF_PRODUCERS) else NO_PRODUCER_EPOCH

    @property
    def is_control(self) -> bool:
        """True for a transaction marker and for other records of control batches."""
        record = self.record
        return isinstance(record, TransactionMarker) or (isinstance(record, OpaqueRecord) and record.is_control)

    def __repr__(self) -> str:
        return f"LogRecord({self.record!r}, timestamp_ms={self.timestamp_ms}, offset={self.offset})"


class LogRecords(Sequence[LogRecord]):
    """Records of one append. A :class:`LogRecord` is made on access, so a store that uses ``values`` needs none.

    Attributes:
        values: the records as values.
        timestamp_ms: the append time of all of them.
    """

    __slots__ = ("_made", "timestamp_ms", "values")

    def __init__(self, values: Sequence[Record], timestamp_ms: int) -> None:
        self.values = values
        self.timestamp_ms = timestamp_ms
        self._made: list[LogRecord] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> LogRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[LogRecord]: ...
    def __getitem__(self, index: int | slice) -> LogRecord | list[LogRecord]:
        return [*self][index]

    def __iter__(self) -> Iterator[LogRecord]:
        if self._made is None:
            self._made = list(map(LogRecord, self.values, repeat(self.timestamp_ms)))
        return iter(self._made)


@cache
def _encoder() -> Callable[[Record], tuple[bytes, bytes | None]]:
    from groupcoord.records.codec import encode_record

    return encode_record


class LoadedCommits(NamedTuple):
    """Adjacent records of one commit in a log, for a load.

    Attributes:
        offset: the offset of the first record.
        record: all of these records as one value.
    """

    offset: int
    record: CommitRecords


class LogStore(Protocol):
    """Storage of the records of ``__consumer_offsets``. The module's docstring states the contract."""

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        """Append ``records`` together to a log partition.

        Args:
            partition: the log partition, 0 … ``offsets.topic.num.partitions`` - 1.
            ticket: identifies a later answer.
            records: at least one. Transactional records and markers belong to one producer and are not mixed with
                others.

        Returns:
            The offset of the first record if they are written, or None if the answer comes later.

        Raises:
            LogStoreError: nothing was written, or the outcome is unknown (``outcome_unknown``). There is no other
                answer then, also while earlier appends are unanswered.
        """

    def read(self, partition: int) -> Iterable[LogRecord]:
        """Return every record of a log partition in order, with offsets; nothing for one that was never written.

        Raises:
            LogStoreError: the log can't be read. Any other exception counts as this: the log partition is not served.
        """


# Optional capabilities of a store, which are detected by type: ``isinstance(store, FlushingStore)``.


@runtime_checkable
class CondensingStore(Protocol):
    """Log store that can condense the records of a load."""

    def read_last(self, partition: int) -> Iterable[LogRecord | LoadedCommits]:
        """Return the records of a log partition for a load.

        They may lack commits that are replaced by later ones of the same partitions, as after compaction. Adjacent
        records may come as one :class:`LoadedCommits`.

        Raises:
            LogStoreError: the log can't be read.
        """


@runtime_checkable
class PositionedStore(Protocol):
    """Log store that can read a log partition from an offset on."""

    def read_from(self, partition: int, offset: int) -> Iterable[LogRecord]:
        """Return the records of a log partition from an offset on, as :meth:`LogStore.read` does.

        Raises:
            LogStoreError: the log can't be read.
        """


@runtime_checkable
class FlushingStore(Protocol):
    """Log store that flushes by time (``log.flush.interval.ms``)."""

    def flush_due(self, now_ms: int) -> int | None:
        """Flush what is due at ``now_ms``; return when the next flush is due, or None."""


@runtime_checkable
class CompactingStore(Protocol):
    """Log store that compacts its log in portions (``log.cleaner.*``)."""

    def compact_some(self, now_ms: int) -> bool:
        """Compact one portion, which takes a millisecond or two; return True if there is more to do."""


@runtime_checkable
class PrunableStore(Protocol):
    """Log store that can delete the beginning of a log partition."""

    def delete_before(self, partition: int, offset: int) -> None:
        """Delete records before an offset, as far as that is cheap; the rest may stay."""


@runtime_checkable
class FailingStore(Protocol):
    """Log store that detects failed log partitions by itself."""

    def find_failed(self) -> Mapping[int, LogStoreError]:
        """Return the log partitions that failed outside of appends since the last call, with the errors."""


@runtime_checkable
class ListingStore(Protocol):
    """Log store that knows which log partitions exist."""

    def partitions(self) -> Sequence[int]:
        """Return the log partitions that were ever written."""


@runtime_checkable
class IdentifiedStore(Protocol):
    """Log store that knows the topic id of ``__consumer_offsets``, as Kafka's directories do."""

    @property
    def topic_id(self) -> UUID:
        """The topic id."""


@runtime_checkable
class ClosableStore(Protocol):
    """Log store that holds files or locks."""

    def close(self) -> None:
        """Write what is buffered and release everything; the store is not used after that."""


def close_store(store: object) -> None:
    """Close a log store if it is a :class:`ClosableStore`."""
    if isinstance(store, ClosableStore):
        store.close()


class TakesAnswers(Protocol):
    """Receiver of a store's answers to appends and ownership checks, from any thread."""

    def appended(self, ticket: Ticket, base_offset: int) -> None:
        """Handle a written append."""

    def append_failed(self, ticket: Ticket, error: LogStoreError) -> None:
        """Handle a failed append, or one with an unknown outcome."""

    def ownership_checked(self, error: LogStoreError | None = None) -> None:
        """Handle the result of a check: the log is still owned, or ``error`` states that it is lost or unknown."""


@runtime_checkable
class AnsweringStore(Protocol):
    """Log store that delivers answers from another thread or task."""

    def answer_to(self, coordinator: TakesAnswers) -> None:
        """Set the receiver of the answers."""


@runtime_checkable
class OwnedStore(Protocol):
    """Log store that one process owns until another one takes it over, by force or because the owner seems to be dead.

    An owner may answer from memory for the time of a lease. A lease starts when a successful ownership check starts; a
    successful read counts as a check. After a take-over, each check, read and append of the former owner raises
    :class:`OwnershipLostError`. The new owner gets the log when the former one has released it, or when the former
    one's lease has expired. So at most one owner answers at a time, if clocks run at the same speed; their times may
    differ.
    """

    @property
    def lease_ms(self) -> int | None:
        """The time that an owner may answer after a check, in milliseconds; None if the log can't be taken over."""

    def check_ownership(self) -> bool:
        """Check whether the log is still owned.

        Returns:
            True if it is, or False if the answer comes later through :meth:`TakesAnswers.ownership_checked`.

        Raises:
            OwnershipLostError: another process owns it.
            LogStoreError: the owner is unknown; the next check may succeed.
        """


@runtime_checkable
class SharedStore(OwnedStore, Protocol):
    """Log store of a log that several processes share, each partition with an owner.

    A log partition is read when it is taken over, before it is loaded. So here a load does not count as a check.
    """

    @property
    def owned(self) -> Mapping[int, int]:
        """The log partitions that this process owns, with their leader epochs."""


@runtime_checkable
class AbandonableStore(Protocol):
    """Log store that can be left as by a killed process, for tests in one process."""

    def abandon(self) -> None:
        """Close files and locks without anything else; the store is not used after that."""


class MemoryLogStore:
    """Log in memory, with faults for tests.

    By default every append is written at once. With ``acknowledge_late`` appends wait until :meth:`write_waiting`
    writes them and returns the answers, which the caller passes to the coordinator. :meth:`fail_next` makes appends
    fail, and :meth:`take_over` gives the log to another owner.

    Args:
        acknowledge_late: whether appends wait for :meth:`write_waiting`.
        lease_ms: the lease of :class:`OwnedStore`, or None to answer without one.
    """

    def __init__(self, *, acknowledge_late: bool = False, lease_ms: int | None = None) -> None:
        self.acknowledge_late = acknowledge_late
        self.lease_ms = lease_ms
        self._is_lost = False
        self._logs: dict[int, list[LogRecord]] = {}
        self._end_offsets: dict[int, int] = {}
        self._waiting: list[tuple[Ticket, list[LogRecord]]] = []
        self._failures: list[LogStoreError] = []

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        """Append the records at once, keep them until :meth:`write_waiting`, or raise the next planned error."""
        if self._is_lost:  # saves each append a call
            self._check_not_lost()
        if self._failures:
            raise self._failures.pop(0)
        if self.acknowledge_late:
            self._waiting.append((ticket, list(records)))
            return None
        return self._write(partition, records)

    def read(self, partition: int) -> Iterator[LogRecord]:
        """Return the records of a log partition in order."""
        self._check_not_lost()
        return iter(tuple(self._logs.get(partition, ())))

    def read_from(self, partition: int, offset: int) -> Iterator[LogRecord]:
        """Return the records of a log partition from an offset on, in order."""
        self._check_not_lost()
        records = self._logs.get(partition, [])
        return iter(records[bisect_left(records, offset, key=attrgetter("offset")) :])

    def delete_before(self, partition: int, offset: int) -> None:
        """Delete the records of a log partition before an offset."""
        records = self._logs.get(partition, [])
        del records[: bisect_left(records, offset, key=attrgetter("offset"))]

    def check_ownership(self) -> bool:
        """Return True, or raise OwnershipLostError after :meth:`take_over`."""
        self._check_not_lost()
        return True

    def take_over(self) -> MemoryLogStore:
        """Return the same log for another owner. Appends, reads and checks of this store raise OwnershipLostError from
        now on; waiting appends are dropped.

        The test must let the lease pass before the other owner answers.
        """
        successor = MemoryLogStore(acknowledge_late=self.acknowledge_late, lease_ms=self.lease_ms)
        successor._logs, successor._end_offsets = self._logs, self._end_offsets
        self._is_lost, self._waiting = True, []
        return successor

    def end_offset(self, partition: int) -> int:
        """Return the offset of the next record of a log partition."""
        return self._end_offsets.get(partition, 0)

    def skip_offsets(self, partition: int, count: int) -> None:
        """Leave a gap of ``count`` offsets, as another writer of the log would."""
        self._end_offsets[partition] = self.end_offset(partition) + count

    def fail_next(self, *errors: LogStoreError) -> None:
        """Make the next appends fail with ``errors``, one each."""
        self._failures.extend(errors)

    def waiting(self) -> list[Ticket]:
        """Return the tickets of waiting appends, oldest first."""
        return [ticket for ticket, _ in self._waiting]

    def write_waiting(self, count: int | None = None) -> list[tuple[Ticket, int]]:
        """Write the oldest ``count`` waiting appends (all by default); return ticket and base offset of each."""
        # ``count`` may be None or too high.
        chosen, self._waiting = self._waiting[:count], self._waiting[len(self._waiting[:count]) :]
        return [(ticket, self._write(ticket.partition, records)) for ticket, records in chosen]

    def drop_waiting(self) -> list[Ticket]:
        """Drop all waiting appends, as a crash before the write does; return their tickets, oldest first."""
        tickets = self.waiting()
        self._waiting = []
        return tickets

    def _check_not_lost(self) -> None:
        # A subclass may override check_ownership() with a check that is answered later.
        if self._is_lost:
            raise OwnershipLostError("another owner has taken the log over")

    def _write(self, partition: int, records: Sequence[LogRecord]) -> int:
        log = self._logs.setdefault(partition, [])
        base_offset = end_offset = self._end_offsets.get(partition, 0)
        for record in records:
            record.offset = end_offset
            log.append(record)
            end_offset += 1
        self._end_offsets[partition] = end_offset
        return base_offset
