"""Log store with a writing thread, which writes waiting appends in one transaction and answers later."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from groupcoord.log_store import AppendOutcomeUnknownError, LogRecord, LogStoreError, StorageError, TakesAnswers, Ticket
from groupcoord.storage.stores.sql import SqlLogStore

logger = logging.getLogger("groupcoord")


class BatchingLogStore:
    """Log store whose thread writes waiting appends in one transaction: ``BatchingLogStore(SqliteLogStore(path))``.

    While a transaction is in progress, all appends wait for the next one, so many clients share the cost of a commit.
    Pass the coordinator to an :class:`~groupcoord.aio.AsyncCoordinator` or a
    :class:`~groupcoord.coordinator.threads.ThreadSafeCoordinator`, which receive the answers. The thread compacts when
    no append waits.

    Args:
        store: the store of the records, which this one owns from now on.
        transaction_records_max: the most records in a transaction, unless a single append has more.
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
        """Set the coordinator that receives the answers, in the writing thread."""
        with self._changed:
            self._coordinator = coordinator
            self._changed.notify_all()

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> None:
        """Queue records for writing; the answer comes later.

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
        """Time for which an owner may answer after a look at the owner's row, in milliseconds."""
        return self._store.lease_ms

    def check_ownership(self) -> bool:
        """Request a look at the owner's row between two transactions; the answer comes later."""
        with self._changed:
            self._wants_look = True
            self._changed.notify_all()
        return False

    def read(self, partition: int) -> Iterator[LogRecord]:
        """Return the records of a log partition, including those that waited until now.

        Raises:
            LogStoreError: the log can't be read, or is not owned any more.
        """
        # A load must see all earlier appends. This thread writes them, since the other may wait for it to take an
        # answer.
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
        """Compact all log partitions now, as :meth:`groupcoord.storage.stores.sql.SqlLogStore.compact` does."""
        self._store.compact()

    def flush(self) -> None:
        """Wait until all appends are written or refused and their answers are delivered."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or not (self._has_work() or self._is_busy))

    def close(self) -> None:
        """Write waiting appends, deliver their answers, and close the store. Close the coordinator first."""
        self.flush()
        self._end()
        self._store.close()

    def abandon(self) -> None:
        """Close as a killed process does: waiting appends are lost."""
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
                # Portions are compacted until none is left or there is work.
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
        with self._writing:
            appends = self._take_waiting()
            if not appends:
                return False
            try:
                outcomes = self._store.append_all([(ticket.partition, records) for ticket, records in appends])
            except Exception as error:
                logger.exception("an append has failed")
                # An exception must not stop the thread; what was written is unknown.
                outcomes = [AppendOutcomeUnknownError(repr(error))] * len(appends)
            with self._changed:
                for (ticket, _), outcome in zip(appends, outcomes, strict=True):
                    self._answers.append((ticket, outcome))
                    if isinstance(outcome, LogStoreError) and outcome.outcome_unknown:
                        # The coordinator unloads the log partition, and appends queued before that must not follow.
                        self._failed.add(ticket.partition)
                self._changed.notify_all()
            return True

    def _take_waiting(self) -> list[tuple[Ticket, Sequence[LogRecord]]]:
        appends: list[tuple[Ticket, Sequence[LogRecord]]] = []
        count = 0
        with self._changed:
            while self._waiting:
                ticket, records = self._waiting[0]
                if appends and count + len(records) > self._transaction_records_max:
                    break
                self._waiting.popleft()
                # Dropped without an answer: the coordinator has unloaded the log partition.
                if ticket.partition not in self._failed:
                    appends.append((ticket, records))
                    count += len(records)
        return appends

    def _tell(self) -> None:
        while True:
            with self._changed:
                if not self._answers or self._coordinator is None:
                    return
                # Without the lock, because the coordinator may append or read in turn.
                ticket, outcome = self._answers.popleft()
                coordinator = self._coordinator
            if isinstance(outcome, LogStoreError):
                self._pass_on(partial(coordinator.append_failed, ticket, outcome))
            else:
                self._pass_on(partial(coordinator.appended, ticket, outcome))

    def _pass_on(self, answer: Callable[[], None]) -> None:
        try:
            answer()
        except Exception:  # raised by code that handles responses or events
            logger.exception("the answer of the log store was not taken")
