"""A log store around another one, with the faults of a bad day: it answers late, refuses, and loses what waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from groupcoord.log_store import AppendTimedOutError, LogRecord, LogStore, LogStoreError, Ticket

Answer = tuple[Ticket, int | LogStoreError]
"""What became of an append: its base offset, or why it failed."""


class FaultyLogStore:
    """Passes appends on to another store: at once, or (``is_late``) when :meth:`write` says so.

    An append that is refused or lost here never reaches the other store, which must answer at once.

    Attributes:
        store: the other store.
        is_late: appends wait. Those that wait already go on waiting when this is turned off.
    """

    def __init__(self, store: LogStore, *, is_late: bool = False) -> None:
        self.store = store
        self.is_late = is_late
        self._held: list[tuple[Ticket, Sequence[LogRecord]]] = []
        self._failures: list[LogStoreError] = []
        self._seen: dict[int, tuple[LogRecord, ...]] = {}

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        """Append, wait or fail. See :meth:`LogStore.append`.

        Raises:
            LogStoreError: the append was to fail, or the other store refused it.
        """
        if self.is_late or self._held:
            self._held.append((ticket, records))
            return None
        if self._failures:
            raise self._failures.pop(0)
        return self._write(ticket, records)

    def read(self, partition: int) -> Iterator[LogRecord]:
        """Return the records of a log partition. The other store is asked once after each append to it."""
        if partition not in self._seen:
            self._seen[partition] = tuple(self.store.read(partition))
        return iter(self._seen[partition])

    def fail_next(self, *errors: LogStoreError) -> None:
        """Let the next appends fail, one with each of ``errors`` in turn."""
        self._failures.extend(errors)

    def waiting(self) -> list[Ticket]:
        """Return the tickets of the appends that wait, oldest first."""
        return [ticket for ticket, _ in self._held]

    def write(self, count: int | None = None) -> list[Answer]:
        """Pass the oldest ``count`` waiting appends on (all by default).

        Returns:
            What became of each, for :meth:`GroupCoordinator.appended` and :meth:`GroupCoordinator.append_failed`.
        """
        chosen, self._held = self._held[:count], self._held[len(self._held[:count]) :]
        answers: list[Answer] = []
        for ticket, records in chosen:
            try:
                answers.append((ticket, self._write(ticket, records)))
            except LogStoreError as error:
                answers.append((ticket, error))
        return answers

    def refuse(self, error: LogStoreError) -> list[Answer]:
        """Refuse every append that waits.

        Returns:
            As for :meth:`write`.
        """
        return [(ticket, error) for ticket in self.lose()]

    def time_out(self, *, is_written: bool) -> list[Answer]:
        """Leave it open what became of the oldest append that waits; later ones of its log partition are lost.

        Args:
            is_written: the other store has it all the same.

        Returns:
            As for :meth:`write`.
        """
        ticket, records = self._held.pop(0)
        if is_written:
            self._write(ticket, records)
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
        base_offset = self.store.append(ticket.partition, ticket, records)
        if base_offset is None:
            raise TypeError(
                f"{type(self.store).__name__}.append() returned None: give the machine a store that answers at once; "
                "late answers are made here"
            )
        return base_offset
