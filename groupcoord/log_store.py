"""The log that a coordinator writes to: the ``LogStore`` contract, its errors, and a store in memory.

A host brings its own persistence by implementing two methods. Rules of the contract:

* ``append`` is given records that go into the log together or not at all, for one log partition, under a *ticket*.
  A store that has written them returns the offset of the first. A store that works asynchronously returns ``None`` and
  answers later through :meth:`GroupCoordinator.appended` or :meth:`GroupCoordinator.append_failed`.
* Answers of one log partition come in the order of its tickets; an acknowledgement of *n* stands for all up to *n*
  (the earlier ones then lie right before it, without gaps). Only ``append`` may raise while earlier appends are
  unanswered: that is its answer, which waits in the coordinator until it is its turn, and nothing else stands for it.
* Offsets grow. Gaps are allowed: other writers and compaction leave them.
* A failure says whether the records can still appear in the log. If they can (``outcome_unknown``), the log partition
  fails and must be loaded again, since its state could otherwise miss a durable record.

A store that other processes can open too has one owner at a time, and more to promise: see :class:`OwnedStore`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import NamedTuple, NoReturn, Protocol, overload, runtime_checkable
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
    AppendOutcomeUnknownError,
    AppendTimedOutError,
    LogStoreError,
    NotEnoughReplicasError,
    NotLeaderError,
    OwnershipLostError,
    RecordTooLargeError,
    StorageError,
)

__all__ = [
    "AbandonableStore",
    "AnsweringStore",
    "AppendOutcomeUnknownError",
    "AppendTimedOutError",
    "ClosableStore",
    "CompactingStore",
    "CondensingStore",
    "FailingStore",
    "FlushingStore",
    "IdentifiedStore",
    "ListingStore",
    "LoadedCommits",
    "LogRecord",
    "LogRecords",
    "LogStore",
    "LogStoreError",
    "MemoryLogStore",
    "NotEnoughReplicasError",
    "NotLeaderError",
    "OwnedStore",
    "OwnershipLostError",
    "PrunableStore",
    "RecordTooLargeError",
    "SharedStore",
    "StorageError",
    "TakesAnswers",
    "Ticket",
]


class Ticket(NamedTuple):
    """Names one append: the log partition and its running number there. Tickets of a partition compare in order."""

    partition: int
    number: int


_OF_PRODUCERS = (OffsetCommitRecord, TransactionMarker, OpaqueRecord)


class LogRecord:
    """One record as a log store sees it: key and value bytes are made on demand, and once.

    Attributes:
        record: the record as a value.
        timestamp_ms: append time, milliseconds since the Unix epoch.
        offset: its place in the log partition; -1 before it was appended.
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
        """Make a record from what a store kept of it.

        Args:
            key: the key's bytes.
            value: the value's bytes; None for a tombstone.
            offset: its place in the log partition.
            timestamp_ms: append time.
            producer_id: of a transactional record or a marker; -1 for all others.
            producer_epoch: goes with ``producer_id``.
            is_control: it is a transaction marker.
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
            ValueError: the record can't be put into bytes, for example since a name is longer than 32,767 bytes.
        """
        encoded = self._encoded
        if encoded is None:
            encoded = self._encoded = _encoder()(self.record)
        return encoded

    @property
    def key(self) -> bytes:
        """The key's bytes; see :meth:`encoded`."""
        return self.encoded()[0]

    @property
    def value(self) -> bytes | None:
        """The value's bytes, None for a tombstone; see :meth:`encoded`."""
        return self.encoded()[1]

    @property
    def producer_id(self) -> int:
        """The producer whose transaction this record belongs to, or -1."""
        record = self.record
        return record.producer_id if isinstance(record, _OF_PRODUCERS) else NO_PRODUCER_ID

    @property
    def producer_epoch(self) -> int:
        """The epoch of :attr:`producer_id`, or -1."""
        record = self.record
        return record.producer_epoch if isinstance(record, _OF_PRODUCERS) else NO_PRODUCER_EPOCH

    @property
    def is_control(self) -> bool:
        """True for a transaction marker, and for other records of control batches."""
        record = self.record
        return isinstance(record, TransactionMarker) or (isinstance(record, OpaqueRecord) and record.is_control)

    def __repr__(self) -> str:
        return f"LogRecord({self.record!r}, timestamp_ms={self.timestamp_ms}, offset={self.offset})"


class LogRecords(Sequence[LogRecord]):
    """The records of one append: a :class:`LogRecord` is made for each only when it is looked at.

    A store that works on values needs none of them.

    Attributes:
        values: the records as values.
        timestamp_ms: append time of all of them.
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
        """Return the record at ``index``, or the list of a slice."""
        return self._all()[index]

    def __iter__(self) -> Iterator[LogRecord]:
        """Walk the records."""
        return iter(self._all())

    def _all(self) -> list[LogRecord]:
        if self._made is None:
            self._made = [LogRecord(value, self.timestamp_ms) for value in self.values]
        return self._made


@cache
def _encoder() -> Callable[[Record], tuple[bytes, bytes | None]]:
    """Return the codec, which is loaded only where somebody wants bytes."""
    from groupcoord.records.codec import encode_record

    return encode_record


class LoadedCommits(NamedTuple):
    """The records of a commit that lie side by side in a log, for a load.

    Attributes:
        offset: where the first one lies.
        record: what they are; it stands where a :class:`LogRecord` has one record.
    """

    offset: int
    record: CommitRecords


class LogStore(Protocol):
    """Where the records of ``__consumer_offsets`` live. See the module's text for the contract."""

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        """Append ``records`` together to a log partition.

        Args:
            partition: the log partition, 0 … ``offsets.topic.num.partitions`` - 1.
            ticket: to be given back with the answer, if that comes later.
            records: at least one; transactional records and markers are never mixed with others, and belong to
                one producer.

        Returns:
            The offset of the first record if they are written; None if the answer comes later.

        Raises:
            LogStoreError: nothing was written (or the outcome is unknown, see ``outcome_unknown``). There is no other
                answer then, also where earlier appends are unanswered.
        """

    def read(self, partition: int) -> Iterable[LogRecord]:
        """Return every record of a log partition in order, with offsets; nothing for one never written.

        Raises:
            LogStoreError: the log can't be read.
        """


# What a store may offer besides. Who could use it asks by type: ``isinstance(store, FlushingStore)``.


@runtime_checkable
class CondensingStore(Protocol):
    """A log store that gives a load less than everything."""

    def read_last(self, partition: int) -> Iterable[LogRecord | LoadedCommits]:
        """Do as :meth:`LogStore.read`, for a load.

        It may leave out commits that a later one of the same kind replaces, as compaction would, and give several as
        one :class:`LoadedCommits`.

        Raises:
            LogStoreError: the log can't be read.
        """


@runtime_checkable
class PositionedStore(Protocol):
    """A log store that need not read a log partition from its beginning."""

    def read_from(self, partition: int, offset: int) -> Iterable[LogRecord]:
        """Do as :meth:`LogStore.read`, for the records at this offset and behind it.

        Raises:
            LogStoreError: the log can't be read.
        """


@runtime_checkable
class FlushingStore(Protocol):
    """A log store that wants to be told when a flush by time is due (``log.flush.interval.ms``)."""

    def flush_due(self, now_ms: int) -> int | None:
        """Flush what is due at ``now_ms``; return when the next flush will be, or None."""


@runtime_checkable
class CompactingStore(Protocol):
    """A log store that compacts what it holds, in portions (``log.cleaner.*``)."""

    def compact_some(self, now_ms: int) -> bool:
        """Do one portion, which takes a millisecond or two; return True if there is more to do."""


@runtime_checkable
class PrunableStore(Protocol):
    """A log store that can let go of the beginning of a log partition."""

    def delete_before(self, partition: int, offset: int) -> None:
        """Delete the records before an offset, as far as that is easy: nobody will miss those that stay."""


@runtime_checkable
class FailingStore(Protocol):
    """A log store that notices by itself that a log partition has failed."""

    def find_failed(self) -> Mapping[int, LogStoreError]:
        """Return the log partitions that failed since the last call, other than in an append, and why."""


@runtime_checkable
class ListingStore(Protocol):
    """A log store that knows which log partitions it has something of."""

    def partitions(self) -> Sequence[int]:
        """Return the log partitions that were ever written."""


@runtime_checkable
class IdentifiedStore(Protocol):
    """A log store that knows the topic id of ``__consumer_offsets``, as Kafka's directories do."""

    @property
    def topic_id(self) -> UUID:
        """The topic id."""


@runtime_checkable
class ClosableStore(Protocol):
    """A log store that has something to give back: files, locks."""

    def close(self) -> None:
        """Write what is not written yet, and let go of everything; the store is not used after that."""


def close_store(store: object) -> None:
    """Close a log store that wants to be closed; nothing is done to others."""
    if isinstance(store, ClosableStore):
        store.close()


class TakesAnswers(Protocol):
    """Whoever is told what came of an append, from any thread."""

    def appended(self, ticket: Ticket, base_offset: int) -> None:
        """An append is written."""

    def append_failed(self, ticket: Ticket, error: LogStoreError) -> None:
        """An append is not written, or nobody knows."""

    def ownership_checked(self, error: LogStoreError | None = None) -> None:
        """The log is still owned; or it is lost, or nobody knows: ``error`` says which."""


@runtime_checkable
class AnsweringStore(Protocol):
    """A log store that answers later by itself, from a thread or a task of its own."""

    def answer_to(self, coordinator: TakesAnswers) -> None:
        """Tell this one from now on what comes of appends."""


@runtime_checkable
class OwnedStore(Protocol):
    """A log store that one process owns until another one takes it over: by force, or since it seems to be dead.

    What an owner answers from memory, it may answer for the time of a lease, counted from the beginning of its last
    look that found the log its own; a successful read counts as a look. So a store promises two things. After a
    take-over each look, read and append of the earlier owner raises :class:`OwnershipLostError`. And the new owner gets
    the log when the earlier one's lease is over, unless that has let go of it. So at most one owner answers at a time,
    whatever their clocks show: only how fast they go has to agree.
    """

    @property
    def lease_ms(self) -> int | None:
        """How long an owner may answer after a look, in milliseconds; None: nobody can take this log over."""

    def check_ownership(self) -> bool:
        """Look whether the log is still owned.

        Returns:
            True if it is; False if the answer comes later, through :meth:`TakesAnswers.ownership_checked`.

        Raises:
            OwnershipLostError: somebody else owns it.
            LogStoreError: nobody knows; the next look may tell.
        """


@runtime_checkable
class SharedStore(OwnedStore, Protocol):
    """A log store that shares its log with those of other processes: each log partition has an owner of its own.

    A log partition is read when it is taken over, before it is loaded. So here a load doesn't count as a look.
    """

    @property
    def owned(self) -> Mapping[int, int]:
        """The log partitions that this process owns, with the epochs of their leaders."""


@runtime_checkable
class AbandonableStore(Protocol):
    """A log store that can be left as a process leaves it that is killed, for tests in one process."""

    def abandon(self) -> None:
        """Let go of files and locks, and do nothing else; the store is not used after that."""


class MemoryLogStore:
    """A log in memory, with switches for the faults that a test wants to see.

    By default every append is written at once. With ``acknowledge_late`` they wait until :meth:`write_waiting`
    writes them and returns the answers, which the caller passes on to the coordinator. :meth:`fail_next` makes
    appends fail, and :meth:`take_over` gives the log to another owner.

    Args:
        acknowledge_late: see above.
        lease_ms: see :class:`OwnedStore`; None: the coordinator need not look whose the log is.
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
        """Append, wait or fail, as the switches say. See :meth:`LogStore.append`."""
        if self._is_lost:
            self._refuse()
        if self._failures:
            raise self._failures.pop(0)
        if self.acknowledge_late:
            self._waiting.append((ticket, list(records)))
            return None
        return self._write(partition, records)

    def read(self, partition: int) -> Iterator[LogRecord]:
        """Return the records of a log partition in order."""
        if self._is_lost:
            self._refuse()
        return iter(tuple(self._logs.get(partition, ())))

    def read_from(self, partition: int, offset: int) -> Iterator[LogRecord]:
        """Return the records of a log partition from an offset on, in order."""
        if self._is_lost:
            self._refuse()
        records = self._logs.get(partition, [])
        return iter(records[bisect_left(records, offset, key=attrgetter("offset")) :])

    def delete_before(self, partition: int, offset: int) -> None:
        """Delete the records of a log partition before an offset."""
        records = self._logs.get(partition, [])
        del records[: bisect_left(records, offset, key=attrgetter("offset"))]

    def check_ownership(self) -> bool:
        """Look whether the log is still owned. See :meth:`OwnedStore.check_ownership`."""
        if self._is_lost:
            self._refuse()
        return True

    def take_over(self) -> MemoryLogStore:
        """Return the same log for another owner. This one has lost it, with what waits, and finds out when it looks.

        Whoever plays the other owner waits for the lease to be over, before it answers anybody.
        """
        successor = MemoryLogStore(acknowledge_late=self.acknowledge_late, lease_ms=self.lease_ms)
        successor._logs, successor._end_offsets = self._logs, self._end_offsets
        self._is_lost, self._waiting = True, []
        return successor

    def end_offset(self, partition: int) -> int:
        """Return the offset that the next record of this log partition will have."""
        return self._end_offsets.get(partition, 0)

    def skip_offsets(self, partition: int, count: int) -> None:
        """Leave a gap of ``count`` offsets, as another writer of the log would."""
        self._end_offsets[partition] = self.end_offset(partition) + count

    def fail_next(self, *errors: LogStoreError) -> None:
        """Let the next appends fail, one with each of ``errors`` in turn."""
        self._failures.extend(errors)

    def waiting(self) -> list[Ticket]:
        """Return the tickets of appends that were neither written nor refused yet, oldest first."""
        return [ticket for ticket, _ in self._waiting]

    def write_waiting(self, count: int | None = None) -> list[tuple[Ticket, int]]:
        """Write the oldest ``count`` waiting appends (all by default).

        Returns:
            ``(ticket, base offset)`` of each, for :meth:`GroupCoordinator.appended`.
        """
        chosen, self._waiting = self._waiting[:count], self._waiting[len(self._waiting[:count]) :]
        return [(ticket, self._write(ticket.partition, records)) for ticket, records in chosen]

    def drop_waiting(self) -> list[Ticket]:
        """Forget every waiting append, as a crash does before the write.

        Returns:
            Their tickets, oldest first, for :meth:`GroupCoordinator.append_failed`.
        """
        tickets = self.waiting()
        self._waiting = []
        return tickets

    def _refuse(self) -> NoReturn:
        raise OwnershipLostError("somebody else has taken the log over")

    def _write(self, partition: int, records: Sequence[LogRecord]) -> int:
        log = self._logs.setdefault(partition, [])
        base_offset = end_offset = self._end_offsets.get(partition, 0)
        for record in records:
            record.offset = end_offset
            log.append(record)
            end_offset += 1
        self._end_offsets[partition] = end_offset
        return base_offset
