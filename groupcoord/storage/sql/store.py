"""The log as rows of a table, whatever the database: appends in transactions, one owner at a time, compaction by key.

Who opens the log takes it over: the epoch, a number in a table of one row, grows by one. Each transaction of an owner
begins with a look at it that keeps it from growing until the end. So an owner from whom the log was taken over writes
nothing any more, and what it was just writing is there before the new one reads, or never.
"""

from __future__ import annotations

import logging
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, Protocol

from groupcoord.log_store import (
    AppendOutcomeUnknownError,
    LogRecord,
    LogStoreError,
    NotLeaderError,
    RecordTooLargeError,
    StorageError,
    Ticket,
)
from groupcoord.storage.replaced import ReplacedRecords

logger = logging.getLogger("groupcoord")

PORTION_RECORDS = 500
"""Compaction passes over so many records, or deletes so many, before others have their turn: a few milliseconds."""
COMPACTED_RECORDS_MIN = 1_000
"""A log partition with fewer new records isn't worth a pass."""

_TABLE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")

Row = tuple[Any, ...]


class Connection(Protocol):
    """What is used of a connection to a database that leaves transactions to who uses it."""

    def execute(self, query: str, parameters: Sequence[object] = ..., /) -> Any:
        """Run a statement, and return its cursor."""

    def cursor(self) -> Any:
        """Return a cursor."""

    def close(self) -> None:
        """Close it; what was not committed is rolled back."""


class OwnershipLostError(NotLeaderError):
    """Somebody else has opened the log since, and owns it now; nothing was written.

    Memory can't follow what the new owner writes, so the log partition has failed for the coordinator here: its clients
    are told NOT_COORDINATOR.
    """

    outcome_unknown = True


class SqlLogStore(ABC):
    """Keeps the records of ``__consumer_offsets`` as rows of a table: what SQLite and PostgreSQL have in common.

    An append is one transaction, and durable when it returns, as far as the database is set up so. Methods may be
    called from several threads.

    Args:
        name: of the table, and of the one beside it that says who owns the log (``name_owner``): small letters, digits
            and underscores. Logs of several names may lie in a database, each with an owner.
        min_cleanable_ratio: :meth:`compact_some` compacts a log partition when more than this part of its records was
            not compacted before (``min.cleanable.dirty.ratio``).

    Raises:
        ValueError: the name is none.
        StorageError: the database can't be opened.
    """

    # What differs: the words of the database, and the errors of its driver.
    begin: str
    lock_owner: str
    blob: str
    table_options: str
    placeholder: str
    error: type[Exception]

    def __init__(self, *, name: str, min_cleanable_ratio: float) -> None:
        if not _TABLE_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name for a table: up to 48 small letters, digits and underscores")
        self.name = name
        self._min_cleanable_ratio = min_cleanable_ratio
        self._epoch: int | None = None
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._idle_readers: list[Connection] = []
        self._end_offsets: dict[int, int] = {}
        self._dirty: dict[int, int] = {}
        self._clean: dict[int, int] = {}
        self._pass: Generator[None, None, None] | None = None
        self._is_closed = False
        self._own_connection()

    # ------------------------------------------------------------ the log

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        """Write ``records`` in a transaction; see :meth:`groupcoord.log_store.LogStore.append`.

        Raises:
            RecordTooLargeError: a record has no bytes in Kafka's format; nothing was written.
            OwnershipLostError: somebody else has opened the log.
            AppendOutcomeUnknownError: the database failed while it committed.
            StorageError: the database failed; nothing was written.
        """
        (outcome,) = self.append_all([(partition, records)])
        if isinstance(outcome, LogStoreError):
            raise outcome
        return outcome

    def append_all(self, appends: Sequence[tuple[int, Sequence[LogRecord]]]) -> list[int | LogStoreError]:
        """Write several appends in one transaction, in order.

        Args:
            appends: log partitions, each with the records to append there.

        Returns:
            For each append the offset of its first record, or why it failed: one without bytes alone, all others
            together.
        """
        outcomes: list[int | LogStoreError] = []
        sound: list[tuple[int, int, list[Row]]] = []
        for place, (partition, records) in enumerate(appends):
            try:
                sound.append((place, partition, [_columns(record) for record in records]))
                outcomes.append(0)
            except ValueError as error:
                outcomes.append(RecordTooLargeError(str(error)))
        if sound:
            with self._lock:
                try:
                    with self._transaction() as connection:
                        for place, partition, rows in sound:
                            outcomes[place] = self._insert(connection, partition, rows)
                except LogStoreError as error:
                    for place, _, _ in sound:
                        outcomes[place] = error
        return outcomes

    def read(self, partition: int) -> Iterator[LogRecord]:
        """Return the records of a log partition in order, all from the same moment.

        Raises:
            OwnershipLostError: somebody else has opened the log.
            StorageError: the database can't read it.
        """
        count = 0
        for record in self._records(partition):
            yield record
            count += 1
        with self._lock:
            if partition not in self._clean:
                self._dirty[partition] = max(count, self._dirty.get(partition, 0))

    def partitions(self) -> Sequence[int]:
        """Return the log partitions that were ever written.

        Raises:
            StorageError: the database can't read them.
        """
        query = f"SELECT DISTINCT log_partition FROM {self.name} ORDER BY log_partition"
        with self._reader() as connection, closing(self._rows(connection, query, ())) as rows:
            return [partition for (partition,) in rows]

    def close(self) -> None:
        """Close all connections. Another owner may have opened the log long before."""
        with self._lock:
            self._is_closed = True
            self._discard_connection()
            while self._idle_readers:
                self._close(self._idle_readers.pop())

    abandon = close

    # ------------------------------------------------------------ compaction

    def compact(self) -> None:
        """Delete what later records have replaced, of all log partitions: see :mod:`groupcoord.storage.replaced`.

        Raises:
            LogStoreError: the database failed, or somebody else has opened the log.
        """
        for partition in self.partitions():
            for _ in self._compact(partition):
                pass

    def compact_some(self, now_ms: int) -> bool:
        """Do a portion of compaction if a log partition is dirty enough; return True if there is more to do.

        What fails is logged, and begun anew when there are more new records.

        Args:
            now_ms: makes no difference, as nothing is kept for some time.
        """
        if self._pass is None:
            dirty = self._next_dirty()
            if dirty is None:
                return False
            self._pass = self._compact(dirty)
        try:
            next(self._pass)
        except StopIteration:
            self._pass = None
        except LogStoreError as error:
            self._pass = None
            logger.warning("the log %s can't be compacted: %s", self.name, error)
        return self._pass is not None or self._next_dirty() is not None

    def _next_dirty(self) -> int | None:
        with self._lock:
            for partition, dirty in self._dirty.items():
                share = dirty / (dirty + self._clean.get(partition, 0) or 1)
                if dirty >= COMPACTED_RECORDS_MIN and share > self._min_cleanable_ratio:
                    return partition
        return None

    def _compact(self, partition: int) -> Generator[None, None, None]:
        """Compact a log partition, and pause after each portion. What is left is sound at any time."""
        with self._lock:
            self._clean.setdefault(partition, 0)
            self._clean[partition] += self._dirty.pop(partition, 0)  # also if this fails: not again at once
        replaced, count = ReplacedRecords(), 0
        for count, record in enumerate(self._records(partition), 1):
            replaced.note(record)
            if not count % PORTION_RECORDS:
                yield
        offsets = replaced.offsets()
        query = self._words(f"DELETE FROM {self.name} WHERE log_partition = ? AND log_offset = ?")
        for start in range(0, len(offsets), PORTION_RECORDS):
            portion = [(partition, offset) for offset in offsets[start : start + PORTION_RECORDS]]
            with self._lock, self._transaction() as connection:
                connection.cursor().executemany(query, portion)
            yield
        with self._lock:
            self._clean[partition] = count - len(offsets)

    # ------------------------------------------------------------ rows

    def _insert(self, connection: Connection, partition: int, rows: list[Row]) -> int:
        """Put rows behind those of a log partition; return the offset of the first."""
        base_offset = self._end_offsets.get(partition)
        if base_offset is None:
            query = f"SELECT coalesce(max(log_offset) + 1, 0) FROM {self.name} WHERE log_partition = ?"
            (base_offset,) = connection.execute(self._words(query), (partition,)).fetchone()
        assert base_offset is not None
        placed = [(partition, offset, *row) for offset, row in enumerate(rows, base_offset)]
        query = f"INSERT INTO {self.name} VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        connection.cursor().executemany(self._words(query), placed)
        self._end_offsets[partition] = base_offset + len(rows)
        self._dirty[partition] = self._dirty.get(partition, 0) + len(rows)
        return base_offset

    def _records(self, partition: int) -> Iterator[LogRecord]:
        columns = "log_offset, timestamp_ms, record_key, record_value, producer_id, producer_epoch, is_control"
        query = self._words(f"SELECT {columns} FROM {self.name} WHERE log_partition = ? ORDER BY log_offset")
        with self._reader() as connection, closing(self._rows(connection, query, (partition,))) as rows:
            for offset, timestamp_ms, key, value, producer_id, producer_epoch, is_control in rows:
                yield LogRecord.from_bytes(
                    key,
                    value,
                    offset=offset,
                    timestamp_ms=timestamp_ms,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    is_control=bool(is_control),
                )

    def _words(self, query: str) -> str:
        return query.replace("?", self.placeholder)

    # ------------------------------------------------------------ transactions and ownership

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Begin a transaction of the owner, and commit it.

        Raises:
            LogStoreError: it was rolled back, or nobody knows.
        """
        connection = self._begin()
        try:
            query = f"SELECT epoch FROM {self.name}_owner {self.lock_owner}"
            self._check_epoch(connection.execute(query).fetchone())
            yield connection
        except BaseException as error:
            self._end_offsets.clear()
            self._roll_back(connection)
            if isinstance(error, self.error):
                raise StorageError(str(error)) from error
            raise
        try:
            connection.execute("COMMIT")
        except BaseException as error:
            self._end_offsets.clear()
            is_rolled_back = isinstance(error, self.error) and self._refused_commit(connection, error)
            self._discard_connection()
            if not isinstance(error, self.error):
                raise
            raise (StorageError if is_rolled_back else AppendOutcomeUnknownError)(str(error)) from error

    def _begin(self) -> Connection:
        """Begin a transaction, on a new connection if the one there was is lost."""
        connection = self._own_connection()
        try:
            connection.execute(self.begin)
        except self.error:
            self._discard_connection()
            connection = self._own_connection()
            try:
                connection.execute(self.begin)
            except self.error as error:
                self._discard_connection()
                raise StorageError(str(error)) from error
        return connection

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.execute("ROLLBACK")
        except self.error:
            self._discard_connection()

    def _own_connection(self) -> Connection:
        """Return the connection that writes. One that had to be opened anew owns the log again, or raises.

        To own it again waits for whatever a lost connection has begun, as that keeps the epoch from growing.
        """
        if self._is_closed:
            raise StorageError(f"the log {self.name} was closed")
        if self._connection is not None:
            return self._connection
        try:
            self._connection = connection = self._connect()
            self._prepare(connection)
            connection.execute(self.begin)
            if self._epoch is None:
                self._make_tables(connection)
            condition = "" if self._epoch is None else f"WHERE epoch = {self._epoch}"
            updated = connection.execute(f"UPDATE {self.name}_owner SET epoch = epoch + 1 {condition}")
            if updated.rowcount == 0:
                self._check_epoch(None)
            (epoch,) = connection.execute(f"SELECT epoch FROM {self.name}_owner").fetchone()
            connection.execute("COMMIT")
            self._epoch = epoch  # not before: a commit that fails leaves the old one, and the log is still ours
        except self.error as error:
            self._discard_connection()
            raise StorageError(str(error)) from error
        except BaseException:
            self._discard_connection()
            raise
        return connection

    def _make_tables(self, connection: Connection) -> None:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self.name} (log_partition INTEGER NOT NULL, log_offset BIGINT NOT NULL, "
            f"timestamp_ms BIGINT NOT NULL, record_key {self.blob} NOT NULL, record_value {self.blob}, "
            "producer_id BIGINT NOT NULL, producer_epoch INTEGER NOT NULL, is_control BOOLEAN NOT NULL, "
            f"PRIMARY KEY (log_partition, log_offset)) {self.table_options}"
        )
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self.name}_owner (id INTEGER PRIMARY KEY, epoch BIGINT NOT NULL)"
        )
        connection.execute(f"INSERT INTO {self.name}_owner VALUES (0, 0) ON CONFLICT DO NOTHING")

    def _check_epoch(self, row: Row | None) -> None:
        if row is None or row[0] != self._epoch:
            raise OwnershipLostError(f"somebody else has opened the log {self.name}")

    # ------------------------------------------------------------ connections

    @contextmanager
    def _reader(self) -> Iterator[Connection]:
        """Lend a connection to who reads, if this is still the owner."""
        with self._lock:
            self._own_connection()
            connection = self._idle_readers.pop() if self._idle_readers else None
        query = f"SELECT epoch FROM {self.name}_owner"
        is_sound = False
        try:
            if connection is not None:
                try:
                    connection.execute(query)
                except self.error:  # it was lost while nobody looked
                    self._close(connection)
                    connection = None
            connection = connection or self._connect()
            self._check_epoch(connection.execute(query).fetchone())
            yield connection
            is_sound = True
        except GeneratorExit:
            is_sound = True
            raise
        except self.error as error:
            raise StorageError(str(error)) from error
        finally:
            with self._lock:
                if is_sound and not self._is_closed and connection is not None:
                    self._idle_readers.append(connection)
                elif connection is not None:
                    self._close(connection)

    def _discard_connection(self) -> None:
        if self._connection is not None:
            self._close(self._connection)
            self._connection = None

    def _close(self, connection: Connection) -> None:
        with suppress(self.error):
            connection.close()

    @abstractmethod
    def _connect(self) -> Connection:
        """Open a connection."""

    @abstractmethod
    def _prepare(self, connection: Connection) -> None:
        """Set up a connection that is to write."""

    @abstractmethod
    def _rows(self, connection: Connection, query: str, parameters: Row) -> Generator[Row, None, None]:
        """Return what a query finds, all from the same moment, without holding it in memory."""

    @abstractmethod
    def _refused_commit(self, connection: Connection, error: Exception) -> bool:
        """Tell whether a transaction whose commit has failed is certainly rolled back."""


def _columns(record: LogRecord) -> Row:
    key, value = record.encoded()
    return record.timestamp_ms, key, value, record.producer_id, record.producer_epoch, record.is_control
