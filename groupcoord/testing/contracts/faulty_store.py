"""A log store around another one, with the faults of a bad day: it answers late, refuses, and loses what waits.

The other one may answer at once or later; then it is told to settle each append before anything else happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from groupcoord.log_store import AppendTimedOutError, LogRecord, LogStore, LogStoreError, StorageError, Ticket

Answer = tuple[Ticket, int | LogStoreError]
"""What became of an append: its base offset, or why it failed."""


Settle = Callable[[Any], Iterable[Answer]]
"""Lets a store that answers later come to an end with all of its appends, and returns what became of each, in order."""


def append_and_settle(store: LogStore, ticket: Ticket, records: Sequence[LogRecord], settle: Settle | None) -> int:
    """Append where nothing else is on its way, and wait for the answer.

    Args:
        store: it may answer at once or later.
        ticket: names the append.
        records: what is appended.
        settle: for a store that answers later.

    Returns:
        The offset of the first record.

    Raises:
        LogStoreError: the store refused the append.
        AssertionError: the store answers later and can't be settled, or has answered something else.
    """
    base_offset = store.append(ticket.partition, ticket, records)
    if base_offset is not None:
        return base_offset
    name = type(store).__name__
    if settle is None:
        raise AssertionError(
            f"{name}.append() returned None, so it answers later: say how it is settled (settle= of check_log_store, "
            "settle_log_store() of CoordinatorMachine)"
        )
    answers = list(settle(store))
    if [answered for answered, _ in answers] != [ticket]:
        raise AssertionError(f"{name} was asked to settle {ticket}, and answered {answers}")
    ((_, outcome),) = answers
    if isinstance(outcome, LogStoreError):
        raise outcome
    return outcome


class FaultyLogStore:
    """Passes appends on to another store: at once, or (``is_late``) when :meth:`write` says so.

    An append that is refused or lost here never reaches the other store.

    Args:
        store: the other store.
        is_late: see below.
        settle: for another store that answers later.

    Attributes:
        store: the other store.
        is_late: appends wait. Those that wait already go on waiting when this is turned off.
        on_append: is called with the records of each append, whatever becomes of it; None: nobody is.
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
        """Append, wait or fail. See :meth:`LogStore.append`.

        Raises:
            LogStoreError: the append was to fail, or the other store refused it.
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
        """Return the records of a log partition. The other store is asked once after each append to it.

        Raises:
            StorageError: the read was to break off.
        """
        if partition not in self._seen:
            self._seen[partition] = tuple(self.store.read(partition))
        breaks_after, self._breaks_after = self._breaks_after, None
        if breaks_after is None:
            return iter(self._seen[partition])
        return _broken_off(self._seen[partition][:breaks_after])

    @property
    def is_idle(self) -> bool:
        """True while appends and reads are passed on as they are: none waits, and no fault is to come."""
        return not (
            self.is_late or self._held or self._failures or self._loses_answer or self._breaks_after is not None
        )

    # ------------------------------------------------------------ faults to come

    @property
    def failures(self) -> Sequence[LogStoreError]:
        """What the next appends fail with, in turn."""
        return tuple(self._failures)

    def fail_next(self, *errors: LogStoreError) -> None:
        """Let the next appends fail at once, one with each of ``errors`` in turn, also while others wait."""
        self._failures.extend(errors)

    def lose_next_answer(self) -> None:
        """Write the next append that does not wait, and let its outcome be unknown all the same."""
        self._loses_answer = True

    def break_next_read(self, record_count: int) -> None:
        """Let the next read break off after so many records, as on a broken disk."""
        self._breaks_after = record_count

    def mend(self) -> None:
        """Forget the faults to come. What waits goes on waiting."""
        self._failures, self._loses_answer, self._breaks_after = [], False, None

    # ------------------------------------------------------------ what waits

    def waiting(self) -> list[Ticket]:
        """Return the tickets of the appends that wait, oldest first."""
        return [ticket for ticket, _ in self._held]

    def waiting_records(self) -> list[LogRecord]:
        """Return the records of the appends that wait, oldest first."""
        return [record for _, records in self._held for record in records]

    def settle(self, ticket: Ticket, error: LogStoreError | None = None) -> Answer:
        """Pass an append that waits on, or refuse it.

        Returns:
            What became of it, for :meth:`GroupCoordinator.appended` or :meth:`GroupCoordinator.append_failed`.
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
        """Pass the oldest ``count`` waiting appends on (all by default).

        Returns:
            What became of each: see :meth:`settle`.
        """
        return [self.settle(ticket) for ticket in self.waiting()[:count]]

    def refuse(self, error: LogStoreError) -> list[Answer]:
        """Refuse every append that waits.

        Returns:
            As for :meth:`write`.
        """
        return [self.settle(ticket, error) for ticket in self.waiting()]

    def time_out(self, *, is_written: bool) -> list[Answer]:
        """Leave it open what became of the oldest append that waits; later ones of its log partition are lost.

        Args:
            is_written: the other store has it all the same.

        Returns:
            As for :meth:`write`.
        """
        ticket = self.waiting()[0]
        if is_written:
            self.settle(ticket)
        self._held = [(other, lost) for other, lost in self._held if other.partition != ticket.partition]
        return [(ticket, AppendTimedOutError("nobody knows what became of it"))]

    def lose(self) -> list[Ticket]:
        """Forget what waits and every failure to come, as a crash does.

        Returns:
            The tickets of the lost appends, oldest first.
        """
        tickets = self.waiting()
        self._held, self._failures = [], []
        return tickets

    def forget_reads(self) -> None:
        """Ask the other store anew at the next :meth:`read`."""
        self._seen.clear()

    def _write(self, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        self._seen.pop(ticket.partition, None)
        return append_and_settle(self.store, ticket, records, self._settle)


def _broken_off(records: tuple[LogRecord, ...]) -> Iterator[LogRecord]:
    yield from records
    raise StorageError("the disk is broken")
