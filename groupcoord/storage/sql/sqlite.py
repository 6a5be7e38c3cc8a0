"""Log store in an SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic, sleep

from groupcoord.storage.sql.store import LEASE_MS, DatabaseConnection, Row, SqlLogStore

BUSY_TIMEOUT_S = 5.0
BUSY_RETRY_S = 0.01


class SqliteLogStore(SqlLogStore):
    """Keeps the records of ``__consumer_offsets`` in an SQLite file; needs only the standard library.

    The file is in WAL mode, and each commit is flushed to the disk (``synchronous = FULL``).

    Args:
        path: the file, which is created if it does not exist.
        name: as in :class:`~groupcoord.storage.sql.store.SqlLogStore`.
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
        # One connection at a time creates a new file; SQLite refuses the others at once, without waiting.
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
        return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL)
