"""Log store with a writing thread, which writes waiting appends in one transaction and answers later."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from groupcoord.log_store import AppendOutcomeUnknownError, LogRecord, LogStoreError, StorageError, TakesAnswers, Ticket
from groupcoord.storage.stores.sql import SqlLogStore

logger = logging.getLogger("groupcoord")


class BatchingLogStore:
    """Log store with one transaction for all waiting appends: ``BatchingLogStore(SqliteLogStore(path))``.

    While a transaction is in progress, all appends wait for the next one: clients share the cost of a commit.
    Pass the coordinator to an :class:`~groupcoord.aio.AsyncCoordinator` or a
    :class:`~groupcoord.coordinator.threads.ThreadSafeCoordinator`, which receive the answers. Its thread compacts when
    no append waits.

    Args:
        store: the store of the records, which this one owns from now on.
        transaction_records_max: the most records in a transaction, unless a single append has more.
    """

    def __init__(self, store: SqlLogStore, *, transaction_records_max: int = 10_000) -> None:
        self._store = store
        self._transaction_records_max = transaction_records_max
        self._writing = threading.Lock()
        self._lock = threading.Lock()  # for what follows
        self._waiting: deque[tuple[Ticket, Sequence[LogRecord]]] = deque()
        self._answers: deque[Callable[[TakesAnswers], None]] = deque()
        self._failed: set[int] = set()
        self._coordinator: TakesAnswers | None = None
        self._is_closed = False
        self._is_scheduled = self._is_compacting = False
        self._thread = ThreadPoolExecutor(1, "groupcoord-log")

    def answer_to(self, coordinator: TakesAnswers) -> None:
        """Set the coordinator that receives the answers, in the writing thread."""
        self._coordinator = coordinator
        self._begin(self._tell)

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> None:
        """Queue records for writing; the answer comes later.

        Raises:
            StorageError: the store was closed.
        """
        with self._lock:
            if self._is_closed:
                raise StorageError("the log store was closed")
            self._waiting.append((ticket, records))
            self._schedule()

    @property
    def lease_ms(self) -> int:
        """Time for which an owner may answer after a look at the owner's row, in milliseconds."""
        return self._store.lease_ms

    def check_ownership(self) -> bool:
        """Request a look at the owner's row between two transactions; the answer comes later."""
        self._begin(self._look)
        return False

    def read(self, partition: int) -> Iterator[LogRecord]:
        """Return the records of a log partition, including those that waited until now.

        Raises:
            LogStoreError: the log can't be read, or is not owned any more.
        """
        # A load must see all earlier appends. This thread writes them, since the other may wait for it to take an
        # answer.
        while self._write_some():
            self._begin(self._tell)
        with self._lock:
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
        is_done = False
        while not (is_done or self._is_closed):
            # The thread takes one after the other.
            self._thread.submit(int).result()
            is_done = not self._waiting

    def close(self) -> None:
        """Write waiting appends, deliver their answers, and close the store. Close the coordinator first."""
        self.flush()
        self._end()
        self._store.close()

    def abandon(self) -> None:
        """Close as a killed process does: waiting appends are lost."""
        with self._lock:
            self._waiting.clear()
        self._end()
        self._store.abandon()

    # ------------------------------------------------------------ the thread

    def _begin(self, work: Callable[[], None]) -> None:
        with self._lock:
            if not self._is_closed:
                self._thread.submit(work)

    def _end(self) -> None:
        with self._lock:
            self._is_closed = True
        self._thread.shutdown(cancel_futures=True)

    def _schedule(self) -> None:
        # Appends that come until it begins share the transaction.
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            self._thread.submit(self._work)

    def _work(self) -> None:
        self._is_scheduled = False
        self._write_some()
        self._tell()
        with self._lock:
            self._schedule()  # a transaction may not have taken all
        if not self._waiting and not self._is_compacting:
            self._is_compacting = True
            self._begin(self._compact_some)

    def _compact_some(self) -> None:
        """Compact a portion, and the next one later, while no append waits."""
        self._is_compacting = False
        try:
            self._is_compacting = not self._waiting and self._store.compact_some(0)
        except Exception:
            logger.exception("compaction has failed")
        if self._is_compacting:
            self._begin(self._compact_some)

    def _look(self) -> None:
        error: LogStoreError | None = None
        try:
            self._store.check_ownership()
        except LogStoreError as known:
            error = known
        except Exception as unknown:
            logger.exception("a look at the owner of the log has failed")
            error = StorageError(repr(unknown))
        self._answers.append(lambda coordinator: coordinator.ownership_checked(error))
        self._tell()

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
            with self._lock:
                for (ticket, _), outcome in zip(appends, outcomes, strict=True):
                    self._answers.append(partial(_answer, ticket, outcome))
                    if isinstance(outcome, LogStoreError) and outcome.outcome_unknown:
                        # The coordinator unloads the log partition, and appends queued before that must not follow.
                        self._failed.add(ticket.partition)
            return True

    def _take_waiting(self) -> list[tuple[Ticket, Sequence[LogRecord]]]:
        appends: list[tuple[Ticket, Sequence[LogRecord]]] = []
        count = 0
        with self._lock:
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
        # Without the lock, because the coordinator may append or read in turn.
        while self._answers and self._coordinator is not None:
            answer = self._answers.popleft()
            try:
                answer(self._coordinator)
            except Exception:  # raised by code that handles responses or events
                logger.exception("the answer of the log store was not taken")


def _answer(ticket: Ticket, outcome: int | LogStoreError, coordinator: TakesAnswers) -> None:
    if isinstance(outcome, LogStoreError):
        coordinator.append_failed(ticket, outcome)
    else:
        coordinator.appended(ticket, outcome)
