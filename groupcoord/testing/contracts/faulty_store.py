"""Log store with faults around another one: late, failed and lost appends.

An inner store that answers later is settled after each append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from groupcoord.log_store import AppendTimedOutError, LogRecord, LogStore, LogStoreError, StorageError, Ticket

Answer = tuple[Ticket, int | LogStoreError]

Settle = Callable[[Any], Iterable[Answer]]
"""Completes all appends of a store that answers later, and returns the outcomes in order."""


def append_and_settle(store: LogStore, ticket: Ticket, records: Sequence[LogRecord], settle: Settle | None) -> int:
    base_offset = store.append(ticket.partition, ticket, records)
    if base_offset is not None:
        return base_offset
    name = type(store).__name__
    if settle is None:
        raise AssertionError(
            f"{name}.append() returned None, so it answers later: pass settle= to check_log_store, "
            "or override settle_log_store() of CoordinatorMachine"
        )
    answers = list(settle(store))
    if [answered for answered, _ in answers] != [ticket]:
        raise AssertionError(f"{name}: to settle {ticket} returned {answers}")
    ((_, outcome),) = answers
    if isinstance(outcome, LogStoreError):
        raise outcome
    return outcome


class FaultyLogStore:
    """Log store that passes appends to another one, at once or (``is_late``) on :meth:`write`.

    Failed and lost appends never reach the other store.

    Args:
        store: the other store.
        is_late: new appends wait; turning it off does not write the waiting ones.
        settle: completes appends of a store that answers later.
    """

    def __init__(self, store: LogStore, *, is_late: bool = False, settle: Settle | None = None) -> None:
        self.store = store
        self.is_late = is_late
        self._settle = settle
        self.on_append: Callable[[Sequence[LogRecord]], None] | None = None
        self._held: list[tuple[Ticket, Sequence[LogRecord]]] = []
        self._failures: list[LogStoreError] = []
        self._seen: dict[int, tuple[LogRecord, ...]] = {}
        self._loses_answer = False
        self._breaks_after: int | None = None

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        """Append, wait or fail; see :meth:`LogStore.append`.

        Raises:
            LogStoreError: a fault, or an error of the other store.
        """
        if self.on_append is not None:
            self.on_append(records)
        if self._failures:
            raise self._failures.pop(0)
        if self.is_late or self._held:
            self._held.append((ticket, records))
            return None
        base_offset = self._write(ticket, records)
        if self._loses_answer:
            self._loses_answer = False
            raise AppendTimedOutError("no answer in time")
        return base_offset

    def read(self, partition: int) -> Iterator[LogRecord]:
        """Return the records of a log partition, cached until the next append.

        Raises:
            StorageError: a fault broke the read.
        """
        if partition not in self._seen:
            self._seen[partition] = tuple(self.store.read(partition))
        breaks_after, self._breaks_after = self._breaks_after, None
        if breaks_after is None:
            return iter(self._seen[partition])
        return _broken_off(self._seen[partition][:breaks_after])

    @property
    def is_idle(self) -> bool:
        """True if no append waits and no fault is pending."""
        return not (
            self.is_late or self._held or self._failures or self._loses_answer or self._breaks_after is not None
        )

    # ------------------------------------------------------------ faults to come

    @property
    def failures(self) -> Sequence[LogStoreError]:
        """Errors of the next appends, in order."""
        return tuple(self._failures)

    def fail_next(self, *errors: LogStoreError) -> None:
        """Fail the next appends at once, one with each error, even while others wait."""
        self._failures.extend(errors)

    def lose_next_answer(self) -> None:
        """Write the next append that does not wait, but report an unknown outcome."""
        self._loses_answer = True

    def break_next_read(self, record_count: int) -> None:
        """Break the next read after ``record_count`` records, as on a broken disk."""
        self._breaks_after = record_count

    def mend(self) -> None:
        """Remove pending faults; waiting appends still wait."""
        self._failures, self._loses_answer, self._breaks_after = [], False, None

    # ------------------------------------------------------------ what waits

    def waiting(self) -> list[Ticket]:
        """Return the tickets of the waiting appends, oldest first."""
        return [ticket for ticket, _ in self._held]

    def waiting_records(self) -> list[LogRecord]:
        """Return the records of the waiting appends, oldest first."""
        return [record for _, records in self._held for record in records]

    def settle(self, ticket: Ticket, error: LogStoreError | None = None) -> Answer:
        """Write a waiting append, or fail it.

        Returns:
            The outcome, for :meth:`GroupCoordinator.appended` or :meth:`GroupCoordinator.append_failed`.
        """
        place = self.waiting().index(ticket)
        _, records = self._held.pop(place)
        if error is not None:
            return ticket, error
        try:
            return ticket, self._write(ticket, records)
        except LogStoreError as refusal:
            return ticket, refusal

    def write(self, count: int | None = None) -> list[Answer]:
        """Write the oldest ``count`` waiting appends (all by default), and return the outcomes."""
        return [self.settle(ticket) for ticket in self.waiting()[:count]]

    def refuse(self, error: LogStoreError) -> list[Answer]:
        """Fail every waiting append, and return the outcomes."""
        return [self.settle(ticket, error) for ticket in self.waiting()]

    def time_out(self, *, is_written: bool) -> list[Answer]:
        """Time out the oldest waiting append, which ``is_written`` or not; later ones of its log partition are lost."""
        ticket = self.waiting()[0]
        if is_written:
            self.settle(ticket)
        self._held = [(other, lost) for other, lost in self._held if other.partition != ticket.partition]
        return [(ticket, AppendTimedOutError("the outcome of the append is unknown"))]

    def lose(self) -> list[Ticket]:
        """Drop waiting appends and pending failures, as a crash does; return the tickets of the lost appends."""
        tickets = self.waiting()
        self._held, self._failures = [], []
        return tickets

    def forget_reads(self) -> None:
        """Drop the cache of :meth:`read`."""
        self._seen.clear()

    def _write(self, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        self._seen.pop(ticket.partition, None)
        return append_and_settle(self.store, ticket, records, self._settle)


def _broken_off(records: tuple[LogRecord, ...]) -> Iterator[LogRecord]:
    yield from records
    raise StorageError("the disk is broken")
