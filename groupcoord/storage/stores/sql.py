"""Log stores in databases, SQLite and PostgreSQL: transactional appends, one owner at a time, compaction by key.

Opening the log increments the epoch, a number in a table with one row. Each transaction of an owner begins with a look
at the epoch that blocks increments until the end. So a former owner writes nothing any more, and its last transaction
is either visible to the new owner or never committed.

Answers from memory need no transaction. So an owner looks at the epoch from time to time, and counts these looks in the
same row. A look is valid for a lease, and the row holds its length. A process that takes over waits that long. A
standby takes over if the row has not changed for that long. No clocks are compared: each process measures durations.
"""

from __future__ import annotations

import logging
import re
import sqlite3
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple, Protocol, cast

from groupcoord.lazy import import_driver
from groupcoord.log_store import (
    AppendOutcomeUnknownError,
    LogRecord,
    LogStoreError,
    OwnershipLostError,
    RecordTooLargeError,
    StorageError,
    Ticket,
)
from groupcoord.storage.compaction import ReplacedRecords

logger = logging.getLogger("groupcoord")

PORTION_RECORDS = 500
"""Records that compaction handles without yielding, which takes a few milliseconds."""
COMPACTED_RECORDS_MIN = 1_000
"""A log partition with fewer new records is not compacted."""
LEASE_MS = 1_500
CLOCK_RATE_MARGIN = 1.01
"""Assumed bound of the ratio between the speeds of two machines' clocks."""

_TABLE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")

Row = tuple[Any, ...]


class DatabaseConnection(Protocol):
    """Database connection with explicit transactions."""

    def execute(self, query: str, parameters: Sequence[object] = ..., /) -> Any:
        """Execute a statement and return its cursor."""

    def cursor(self) -> Any:
        """Return a cursor."""

    def close(self) -> None:
        """Close it and roll back what was not committed."""


class Owner(NamedTuple):
    """The owner's row.

    Attributes:
        epoch: how many times the log was taken over.
        lease_ms: how long a look is valid, or 0 if the owner has released the log.
        looks: how many times this owner has looked.
    """

    epoch: int
    lease_ms: int
    looks: int


class SqlLogStore(ABC):
    """Keeps the records of ``__consumer_offsets`` in rows of a table: the part common to SQLite and PostgreSQL.

    An append is one transaction and as durable as the database's settings make it. Methods may be called from several
    threads.

    Args:
        name: the name of the table; ``name_owner`` is the table of the owner's row. Lower-case letters, digits and
            underscores. A database may hold several logs under different names, each with an owner.
        min_cleanable_ratio: the part of new records above which :meth:`compact_some` compacts a log partition
            (``min.cleanable.dirty.ratio``).
        lease_ms: how long a coordinator may answer after a look; it looks three times as often. A successor waits that
            long for an owner that has not closed the log.
        takes_over: True to own the log at once, as :meth:`take_over` does; False to stand by for :meth:`claim`.

    Raises:
        ValueError: the name is malformed, or the lease is not positive.
        StorageError: the database can't be opened.
    """

    # Statements and errors that differ between databases.
    begin: str
    lock_owner: str
    lock_owner_alone: str
    hasty: str
    careful: str
    blob: str
    table_options: str
    placeholder: str
    error: type[Exception]

    def __init__(self, *, name: str, min_cleanable_ratio: float, lease_ms: int, takes_over: bool) -> None:
        if not _TABLE_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name for a table: up to 48 small letters, digits and underscores")
        if lease_ms < 1:
            raise ValueError(f"a lease takes a millisecond at least, not {lease_ms}")
        self.name = name
        self._lease_ms = lease_ms
        self._seen: Owner | None = None
        self._seen_s = 0.0
        self._min_cleanable_ratio = min_cleanable_ratio
        self._epoch: int | None = None
        # Reentrant: a transaction may reconnect.
        self._lock = threading.RLock()
        self._connection: DatabaseConnection | None = None
        self._idle_readers: list[DatabaseConnection] = []
        self._end_offsets: dict[int, int] = {}
        self._dirty: dict[int, int] = {}
        self._clean: dict[int, int] = {}
        self._pass: Generator[None, None, None] | None = None
        self._is_closed = False
        if takes_over:
            self.take_over()
        else:
            self._become_owner(lambda owner: False)  # only creates the tables

    # ------------------------------------------------------------ the log

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        """Write ``records`` in a transaction.

        Raises:
            RecordTooLargeError: a record can't be encoded in Kafka's format; nothing was written.
            OwnershipLostError: another process has taken over.
            AppendOutcomeUnknownError: the database failed during the commit.
            StorageError: the database failed; nothing was written.
        """
        (outcome,) = self.append_all([(partition, records)])
        if isinstance(outcome, LogStoreError):
            raise outcome
        return outcome

    def append_all(self, appends: Sequence[tuple[int, Sequence[LogRecord]]]) -> list[int | LogStoreError]:
        """Write several appends in one transaction, in order.

        Args:
            appends: log partitions, each with its records.

        Returns:
            For each append the offset of its first record, or its error. An append that can't be encoded fails alone;
            on any other error all fail.
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
        """Yield the records of a log partition in order, as of one moment.

        Raises:
            OwnershipLostError: another process has taken over.
            StorageError: the database can't read it.
        """
        count = 0
        for record in self._records(partition):
            yield record
            count += 1
        with self._lock:
            # Rows from before this process may all be replaced.
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
        """Release the log and close all connections. Close the coordinator first: a successor no longer waits.

        Another process may have taken over long before.
        """
        with self._lock:
            if self._connection is not None:
                # A successor then need not wait. The condition keeps the row of a process that has taken over.
                query = f"UPDATE {self.name}_owner SET lease_ms = 0 WHERE epoch = {self._epoch}"
                with suppress(self.error):
                    self._connection.execute(query)
            self.abandon()

    def abandon(self) -> None:
        """Close all connections without releasing the log, as a killed process does."""
        with self._lock:
            self._is_closed = True
            self._discard_connection()
            while self._idle_readers:
                self._close(self._idle_readers.pop())

    # ------------------------------------------------------------ ownership

    @property
    def lease_ms(self) -> int:
        """Time for which an owner may answer after a look, in milliseconds."""
        return self._lease_ms

    def take_over(self) -> None:
        """Own the log from now on, after the lease of an owner that has not released it.

        Raises:
            StorageError: the database can't be reached, or the store was closed.
        """
        before = self._become_owner(lambda owner: True)
        assert before is not None
        # The previous owner may answer from memory until its lease ends. It cannot write any more.
        sleep(_seconds(before))

    def claim(self) -> bool:
        """Own the log if its owner has released it or has not looked for the time of its lease. Never waits.

        Call it again after a while, such as a tenth of a second, while another process owns the log.

        Returns:
            True if this store owns the log, now or already before.

        Raises:
            OwnershipLostError: this store owned the log and another process has taken over.
            StorageError: the database can't be reached, or the store was closed.
        """
        with self._lock:
            if self._epoch is not None:
                return self.check_ownership()
            with self._lent_reader() as (_, owner):
                now_s = monotonic()  # after the read: the row is at most this old
            if owner != self._seen:
                self._seen, self._seen_s = owner, now_s
            if now_s - self._seen_s < _seconds(owner):
                return False
            return self._become_owner(lambda found: found == owner) is not None

    def check_ownership(self) -> bool:
        """Check that the log is still owned and count the look in the owner's row; return True.

        Raises:
            OwnershipLostError: another process has taken over.
            StorageError: the database failed.
        """
        with self._lock:
            connection = self._own_connection()
            query = f"UPDATE {self.name}_owner SET looks = looks + 1 WHERE epoch = {self._epoch}"
            try:
                # Without a sync: a crash of the database that loses it ends the lease, too.
                connection.execute(self.hasty)
                updated = connection.execute(query)
                connection.execute(self.careful)
            except self.error as error:
                self._discard_connection()
                raise StorageError(str(error)) from error
            if updated.rowcount == 0:
                self._refuse_owner(None)
            return True

    # ------------------------------------------------------------ compaction

    def compact(self) -> None:
        """Delete the replaced records of all log partitions (:mod:`groupcoord.storage.compaction`).

        Raises:
            LogStoreError: the database failed, or another process has taken over.
        """
        for partition in self.partitions():
            for _ in self._compact(partition):
                pass

    def compact_some(self, now_ms: int) -> bool:
        """Compact a portion if a log partition is dirty enough; return True if there is more to do.

        Errors are logged; compaction starts again after more new records.

        Args:
            now_ms: ignored, because nothing is kept for a time.
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
                # As min.cleanable.dirty.ratio, counted in records instead of bytes.
                if dirty >= COMPACTED_RECORDS_MIN and share > self._min_cleanable_ratio:
                    return partition
        return None

    def _compact(self, partition: int) -> Generator[None, None, None]:
        """Compact a log partition, yielding after each portion. The rest is consistent at any time."""
        with self._lock:
            self._clean[partition] = self._clean.get(partition, 0) + self._dirty.pop(partition, 0)
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

    def _insert(self, connection: DatabaseConnection, partition: int, rows: list[Row]) -> int:
        base_offset = self._end_offsets.get(partition)
        if base_offset is None:
            # Compaction never deletes the last record, so the maximum marks the end.
            query = f"SELECT coalesce(max(log_offset) + 1, 0) FROM {self.name} WHERE log_partition = ?"
            (base_offset,) = connection.execute(self._words(query), (partition,)).fetchone()
        assert base_offset is not None
        placed = [(partition, offset, *row) for offset, row in enumerate(rows, base_offset)]
        query = f"INSERT INTO {self.name} VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        connection.cursor().executemany(self._words(query), placed)
        # Kept until a transaction fails: only the owner writes.
        self._end_offsets[partition] = base_offset + len(rows)
        self._dirty[partition] = self._dirty.get(partition, 0) + len(rows)
        return base_offset

    def read_from(self, partition: int, offset: int) -> Iterator[LogRecord]:
        """Return the records of a log partition from an offset on, with the errors of :meth:`read`."""
        return self._records(partition, offset)

    def _records(self, partition: int, offset: int = 0) -> Iterator[LogRecord]:
        columns = "log_offset, timestamp_ms, record_key, record_value, producer_id, producer_epoch, is_control"
        query = f"SELECT {columns} FROM {self.name} WHERE log_partition = ? AND log_offset >= ? ORDER BY log_offset"
        query = self._words(query)
        with self._reader() as connection, closing(self._rows(connection, query, (partition, offset))) as rows:
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
    def _transaction(self) -> Iterator[DatabaseConnection]:
        """Begin a transaction of the owner and commit it. After an error it is rolled back, or its outcome unknown."""
        connection = self._begin()
        try:
            # The row is locked until the commit, so no other process can take over before the last write.
            self._refuse_owner(self._read_owner(connection, self.lock_owner))
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
            # After a lost connection the commit may have happened. Only an error of the database proves a rollback.
            is_rolled_back = isinstance(error, self.error) and self._refused_commit(connection, error)
            self._discard_connection()
            if not isinstance(error, self.error):
                raise
            raise (StorageError if is_rolled_back else AppendOutcomeUnknownError)(str(error)) from error

    def _begin(self) -> DatabaseConnection:
        for may_retry in (True, False):
            connection = self._own_connection()
            try:
                connection.execute(self.begin)
                break
            except self.error as error:  # the connection may have been lost long ago
                self._discard_connection()
                if not may_retry:
                    raise StorageError(str(error)) from error
        return connection

    def _roll_back(self, connection: DatabaseConnection) -> None:
        try:
            connection.execute("ROLLBACK")
        except self.error:
            self._discard_connection()

    def _own_connection(self) -> DatabaseConnection:
        if self._connection is None:
            # A closed store fails in _become_owner, with its own message.
            is_known = self._epoch is not None or self._is_closed
            if not is_known or self._become_owner(lambda owner: owner.epoch == self._epoch) is None:
                self._refuse_owner(None)
        assert self._connection is not None
        return self._connection

    def _become_owner(self, may: Callable[[Owner], bool]) -> Owner | None:
        """Connect and increment the epoch if ``may`` accepts the current owner; return the previous owner, or None."""
        with self._lock:
            if self._is_closed:
                raise StorageError(f"the log {self.name} was closed")
            self._discard_connection()
            try:
                self._connection = connection = self._connect()
                self._prepare(connection)
                connection.execute(self.begin)
                if self._epoch is None:
                    self._make_tables(connection)
                # Waits for the open transaction of a lost connection.
                owner = self._read_owner(connection, self.lock_owner_alone)
                if may(owner):
                    epoch = owner.epoch + 1
                    query = f"UPDATE {self.name}_owner SET epoch = {epoch}, lease_ms = {self._lease_ms}, looks = 0"
                    connection.execute(query)
                    connection.execute("COMMIT")
                    # After the commit: if that fails, the log is still owned with the old epoch.
                    self._epoch = epoch
                    return owner
                connection.execute("COMMIT")
                self._discard_connection()
                return None
            except self.error as error:
                self._discard_connection()
                raise StorageError(str(error)) from error
            except BaseException:
                self._discard_connection()
                raise

    def _make_tables(self, connection: DatabaseConnection) -> None:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self.name} (log_partition INTEGER NOT NULL, log_offset BIGINT NOT NULL, "
            f"timestamp_ms BIGINT NOT NULL, record_key {self.blob} NOT NULL, record_value {self.blob}, "
            "producer_id BIGINT NOT NULL, producer_epoch INTEGER NOT NULL, is_control BOOLEAN NOT NULL, "
            f"PRIMARY KEY (log_partition, log_offset)) {self.table_options}"
        )
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self.name}_owner (id INTEGER PRIMARY KEY, epoch BIGINT NOT NULL, "
            "lease_ms BIGINT NOT NULL, looks BIGINT NOT NULL)"
        )
        connection.execute(f"INSERT INTO {self.name}_owner VALUES (0, 0, 0, 0) ON CONFLICT DO NOTHING")

    def _read_owner(self, connection: DatabaseConnection, lock: str = "") -> Owner:
        return Owner(*connection.execute(f"SELECT epoch, lease_ms, looks FROM {self.name}_owner {lock}").fetchone())

    def _refuse_owner(self, owner: Owner | None) -> None:
        """Raise OwnershipLostError if another process owns the log."""
        if owner is None or owner.epoch != self._epoch:
            whose = "is not owned yet" if self._epoch is None else "was lost: another process has opened it"
            raise OwnershipLostError(f"the log {self.name} {whose}")

    # ------------------------------------------------------------ connections

    @contextmanager
    def _reader(self) -> Iterator[DatabaseConnection]:
        with self._lock:
            self._own_connection()
        with self._lent_reader() as (connection, owner):
            self._refuse_owner(owner)
            yield connection

    @contextmanager
    def _lent_reader(self) -> Iterator[tuple[DatabaseConnection, Owner]]:
        with self._lock:
            connection = self._idle_readers.pop() if self._idle_readers else None
        owner = None
        try:
            if connection is not None:
                try:
                    owner = self._read_owner(connection)
                except self.error:  # the idle connection was lost
                    self._close(connection)
            if connection is None or owner is None:
                connection = self._connect()
                owner = self._read_owner(connection)
            yield connection, owner
        except BaseException as error:
            if connection is not None:
                self._close(connection)
            if isinstance(error, self.error):
                raise StorageError(str(error)) from error
            raise
        with self._lock:
            if self._is_closed:
                self._close(connection)
            else:
                self._idle_readers.append(connection)

    def _discard_connection(self) -> None:
        if self._connection is not None:
            self._close(self._connection)
            self._connection = None

    def _close(self, connection: DatabaseConnection) -> None:
        with suppress(self.error):
            connection.close()

    @abstractmethod
    def _connect(self) -> DatabaseConnection:
        """Open a connection."""

    @abstractmethod
    def _prepare(self, connection: DatabaseConnection) -> None:
        """Prepare a connection for writing."""

    @abstractmethod
    def _rows(self, connection: DatabaseConnection, query: str, parameters: Row) -> Generator[Row, None, None]:
        """Yield the rows of a query as of one moment, without holding them in memory."""

    @abstractmethod
    def _refused_commit(self, connection: DatabaseConnection, error: Exception) -> bool:
        """Return whether a transaction with a failed commit is certainly rolled back."""


def _columns(record: LogRecord) -> Row:
    key, value = record.encoded()
    return record.timestamp_ms, key, value, record.producer_id, record.producer_epoch, record.is_control


def _seconds(owner: Owner) -> float:
    return owner.lease_ms * CLOCK_RATE_MARGIN / 1000


BUSY_TIMEOUT_S = 5.0
BUSY_RETRY_S = 0.01


class SqliteLogStore(SqlLogStore):
    """Keeps the records of ``__consumer_offsets`` in an SQLite file; needs only the standard library.

    The file is in WAL mode, and each commit is flushed to the disk (``synchronous = FULL``).

    Args:
        path: the file, which is created if it does not exist.
        name: as in :class:`~groupcoord.storage.stores.sql.SqlLogStore`.
        min_cleanable_ratio: as there.
        lease_ms: as there.
        takes_over: as there.

    Raises:
        ValueError: the name is malformed, or the lease is not positive.
        StorageError: the file can't be opened, or is no database.
    """

    begin = "BEGIN IMMEDIATE"
    lock_owner = ""  # a write transaction of SQLite excludes all others
    lock_owner_alone = ""
    hasty = "PRAGMA synchronous = NORMAL"
    careful = "PRAGMA synchronous = FULL"
    blob = "BLOB"
    table_options = "WITHOUT ROWID"
    placeholder = "?"
    error = sqlite3.Error

    def __init__(
        self,
        path: str | Path,
        *,
        name: str = "consumer_offsets",
        min_cleanable_ratio: float = 0.5,
        lease_ms: int = LEASE_MS,
        takes_over: bool = True,
    ) -> None:
        self.path = Path(path).absolute()
        super().__init__(name=name, min_cleanable_ratio=min_cleanable_ratio, lease_ms=lease_ms, takes_over=takes_over)

    def _connect(self) -> DatabaseConnection:
        return sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)

    def _prepare(self, connection: DatabaseConnection) -> None:
        deadline_s = monotonic() + BUSY_TIMEOUT_S
        # SQLite refuses at once while another connection creates the file.
        while not self._uses_wal(connection, may_retry=monotonic() < deadline_s):
            sleep(BUSY_RETRY_S)
        connection.execute(self.careful)

    def _uses_wal(self, connection: DatabaseConnection, *, may_retry: bool) -> bool:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if may_retry and error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                return False
            raise
        return True

    def _rows(self, connection: DatabaseConnection, query: str, parameters: Row) -> Generator[Row, None, None]:
        with closing(connection.execute(query, parameters)) as cursor:
            yield from cursor

    def _refused_commit(self, connection: DatabaseConnection, error: Exception) -> bool:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        code = getattr(error, "sqlite_errorcode", None)
        # Nothing was written; after other errors the WAL may hold the commit.
        return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL)


ROWS_AT_ONCE = 2_000
IDLE_IN_TRANSACTION_MAX = "60s"
"""Ends the transaction of an owner on a failed machine, so that another one can take over."""


class PostgresLogStore(SqlLogStore):
    """Keeps the records of ``__consumer_offsets`` in a table of PostgreSQL (``pip install 'groupcoord[postgres]'``).

    After a lost connection the next call connects again.

    Args:
        conninfo: the database, as libpq writes it: ``"postgresql://user@host/database"`` or ``"host=… dbname=…"``. The
            tables are created in the first schema of its ``search_path``.
        name: as in :class:`~groupcoord.storage.stores.sql.SqlLogStore`.
        min_cleanable_ratio: as there.
        lease_ms: as there.
        takes_over: as there.

    Raises:
        ModuleNotFoundError: psycopg is not installed.
        ValueError: the name is malformed.
        StorageError: the database can't be reached, or the user may not create or change tables.
    """

    begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
    lock_owner = "FOR SHARE"
    lock_owner_alone = "FOR UPDATE"
    hasty = "SET synchronous_commit = off"
    careful = "RESET synchronous_commit"
    blob = "BYTEA"
    table_options = ""
    placeholder = "%s"

    def __init__(
        self,
        conninfo: str,
        *,
        name: str = "consumer_offsets",
        min_cleanable_ratio: float = 0.5,
        lease_ms: int = LEASE_MS,
        takes_over: bool = True,
    ) -> None:
        self._psycopg = import_driver("psycopg", "PostgresLogStore", "psycopg", "postgres")
        self.error = self._psycopg.Error
        self._conninfo = conninfo
        super().__init__(name=name, min_cleanable_ratio=min_cleanable_ratio, lease_ms=lease_ms, takes_over=takes_over)

    def _connect(self) -> DatabaseConnection:
        return cast(DatabaseConnection, self._psycopg.connect(self._conninfo, autocommit=True))

    def _prepare(self, connection: DatabaseConnection) -> None:
        connection.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION_MAX}'")

    def _make_tables(self, connection: DatabaseConnection) -> None:
        # Concurrent creation of a table fails in spite of IF NOT EXISTS.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (zlib.crc32(self.name.encode()),))
        super()._make_tables(connection)

    def _rows(self, connection: DatabaseConnection, query: str, parameters: Row) -> Generator[Row, None, None]:
        reader = cast(Any, connection)
        # A named cursor is on the server; otherwise psycopg holds all rows in memory.
        with reader.transaction(), reader.cursor(name="groupcoord") as cursor:
            cursor.itersize = ROWS_AT_ONCE
            cursor.execute(query, parameters)
            yield from cursor

    def _refused_commit(self, connection: DatabaseConnection, error: Exception) -> bool:
        return not cast(Any, connection).broken  # the server has reported that itself
