"""A log store that answers later: a thread writes what waits, all of it in one transaction."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from groupcoord.log_store import (
    AppendOutcomeUnknownError,
    LogRecord,
    LogStoreError,
    StorageError,
    TakesAnswers,
    Ticket,
)
from groupcoord.storage.sql.store import SqlLogStore

logger = logging.getLogger("groupcoord")


class BatchingLogStore:
    """Writes from a thread of its own what waits in one transaction: ``BatchingLogStore(SqliteLogStore(path))``.

    While a transaction is on its way, all appends wait for the next one, so many clients share the time that a commit
    takes. Give the coordinator to an :class:`~groupcoord.aio.AsyncCoordinator` or a
    :class:`~groupcoord.coordinator.threads.ThreadSafeCoordinator`: the answers come there. When nothing waits, the
    thread compacts.

    Args:
        store: where the records go; belongs to this one from now on.
        transaction_records_max: no transaction has more records than this, unless a single append has.
    """

    def __init__(self, store: SqlLogStore, *, transaction_records_max: int = 10_000) -> None:
        self._store = store
        self._transaction_records_max = transaction_records_max
        self._writing = threading.Lock()
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Ticket, Sequence[LogRecord]]] = deque()
        self._answers: deque[tuple[Ticket, int | LogStoreError]] = deque()
        self._failed: set[int] = set()
        self._coordinator: TakesAnswers | None = None
        self._wants_look = False
        self._is_closed = False
        self._is_busy = False
        self._thread = threading.Thread(target=self._work, name="groupcoord-log", daemon=True)
        self._thread.start()

    def answer_to(self, coordinator: TakesAnswers) -> None:
        """Tell this one from now on what comes of appends, from the thread that writes."""
        with self._changed:
            self._coordinator = coordinator
            self._changed.notify_all()

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> None:
        """Let records be written; the answer comes later. See :meth:`groupcoord.log_store.LogStore.append`.

        Raises:
            StorageError: the store was closed.
        """
        with self._changed:
            if self._is_closed:
                raise StorageError("the log store was closed")
            self._waiting.append((ticket, records))
            self._changed.notify_all()

    @property
    def lease_ms(self) -> int:
        """How long an owner may answer after a look; see :class:`~groupcoord.log_store.OwnedStore`."""
        return self._store.lease_ms

    def check_ownership(self) -> bool:
        """Let the thread look whether the log is still owned, between two transactions; the answer comes later."""
        with self._changed:
            self._wants_look = True
            self._changed.notify_all()
        return False

    def read(self, partition: int) -> Iterator[LogRecord]:
        """Return the records of a log partition, with those that have waited until now.

        Raises:
            LogStoreError: the log can't be read, or isn't owned any more.
        """
        # Written here: the thread may be waiting for who reads, with an answer in its hands.
        while self._write_some():
            pass
        with self._changed:
            self._failed.discard(partition)
        return self._store.read(partition)

    def partitions(self) -> Sequence[int]:
        """Return the log partitions that were ever written.

        Raises:
            StorageError: the database can't read them.
        """
        return self._store.partitions()

    def compact(self) -> None:
        """Compact all log partitions now: see :meth:`groupcoord.storage.sql.store.SqlLogStore.compact`."""
        self._store.compact()

    def flush(self) -> None:
        """Wait until all that was appended is written or refused, and somebody was told."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or not (self._has_work() or self._is_busy))

    def close(self) -> None:
        """Write what waits, tell what came of it, and close the store. Close the coordinator before."""
        self.flush()
        self._end()
        self._store.close()

    def abandon(self) -> None:
        """Let go of everything as a killed process does: what waits is lost."""
        with self._changed:
            self._waiting.clear()
        self._end()
        self._store.abandon()

    # ------------------------------------------------------------ the thread

    def _end(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _has_work(self) -> bool:
        return bool(self._waiting or (self._coordinator and (self._answers or self._wants_look)))

    def _work(self) -> None:
        is_dirty = False
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                if not is_dirty:
                    self._changed.wait_for(lambda: self._is_closed or self._has_work())
                if self._is_closed:
                    return
                has_work = self._is_busy = self._has_work()
            if has_work:
                self._look()
                self._write_some()
                self._tell()
                is_dirty = True
            else:
                is_dirty = self._compact_some()

    def _compact_some(self) -> bool:
        try:
            return self._store.compact_some(0)
        except Exception:
            logger.exception("compaction has failed")
            return False

    def _look(self) -> None:
        """Look whose the log is, if somebody wants to know, and tell."""
        with self._changed:
            coordinator = self._coordinator if self._wants_look else None
            if coordinator is None:
                return
            self._wants_look = False
        error: LogStoreError | None = None
        try:
            self._store.check_ownership()
        except LogStoreError as known:
            error = known
        except Exception as unknown:
            logger.exception("a look at the owner of the log has failed")
            error = StorageError(repr(unknown))
        self._pass_on(partial(coordinator.ownership_checked, error))

    def _write_some(self) -> bool:
        """Write what waits in one transaction, as far as it may have so much; return False if nothing did."""
        with self._writing:
            appends = self._take_waiting()
            if not appends:
                return False
            try:
                outcomes = self._store.append_all([(ticket.partition, records) for ticket, records in appends])
            except Exception as error:
                logger.exception("an append has failed")
                outcomes = [AppendOutcomeUnknownError(repr(error))] * len(appends)
            with self._changed:
                for (ticket, _), outcome in zip(appends, outcomes, strict=True):
                    self._answers.append((ticket, outcome))
                    if isinstance(outcome, LogStoreError) and outcome.outcome_unknown:
                        self._failed.add(ticket.partition)
                self._changed.notify_all()
            return True

    def _take_waiting(self) -> list[tuple[Ticket, Sequence[LogRecord]]]:
        """Take appends from those that wait; those to a log partition that has to be loaded again are lost."""
        appends: list[tuple[Ticket, Sequence[LogRecord]]] = []
        count = 0
        with self._changed:
            while self._waiting:
                ticket, records = self._waiting[0]
                if appends and count + len(records) > self._transaction_records_max:
                    break
                self._waiting.popleft()
                if ticket.partition not in self._failed:
                    appends.append((ticket, records))
                    count += len(records)
        return appends

    def _tell(self) -> None:
        """Tell the coordinator what came of appends, in order."""
        while True:
            with self._changed:
                if not self._answers or self._coordinator is None:
                    return
                ticket, outcome = self._answers.popleft()
                coordinator = self._coordinator
            if isinstance(outcome, LogStoreError):
                self._pass_on(partial(coordinator.append_failed, ticket, outcome))
            else:
                self._pass_on(partial(coordinator.appended, ticket, outcome))

    def _pass_on(self, answer: Callable[[], None]) -> None:
        try:
            answer()
        except Exception:  # of what hangs on answers, or on events
            logger.exception("the answer of the log store was not taken")
