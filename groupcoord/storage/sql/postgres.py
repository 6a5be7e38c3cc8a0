"""Log store in a PostgreSQL database, by psycopg 3."""

from __future__ import annotations

import zlib
from collections.abc import Generator
from typing import Any, cast

from groupcoord.storage.sql.store import LEASE_MS, DatabaseConnection, Row, SqlLogStore

ROWS_AT_ONCE = 2_000
IDLE_IN_TRANSACTION_MAX = "60s"
"""Ends the transaction of an owner whose machine has failed, so that another one can take over."""


class PostgresLogStore(SqlLogStore):
    """Keeps the records of ``__consumer_offsets`` in a table of PostgreSQL (``pip install 'groupcoord[postgres]'``).

    After a lost connection the next call connects again.

    Args:
        conninfo: the database, as libpq writes it: ``"postgresql://user@host/database"`` or ``"host=… dbname=…"``. The
            tables are created in the first schema of its ``search_path``.
        name: as in :class:`~groupcoord.storage.sql.store.SqlLogStore`.
        min_cleanable_ratio: as there.

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
        try:
            import psycopg
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "PostgresLogStore needs psycopg: pip install 'groupcoord[postgres]'", name=error.name
            ) from error
        self._psycopg = psycopg
        self.error = psycopg.Error
        self._conninfo = conninfo
        super().__init__(name=name, min_cleanable_ratio=min_cleanable_ratio, lease_ms=lease_ms, takes_over=takes_over)

    def _connect(self) -> DatabaseConnection:
        return cast(DatabaseConnection, self._psycopg.connect(self._conninfo, autocommit=True))

    def _prepare(self, connection: DatabaseConnection) -> None:
        connection.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION_MAX}'")

    def _make_tables(self, connection: DatabaseConnection) -> None:
        # Two sessions that create the same table concurrently get an error in spite of IF NOT EXISTS.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (zlib.crc32(self.name.encode()),))
        super()._make_tables(connection)

    def _rows(self, connection: DatabaseConnection, query: str, parameters: Row) -> Generator[Row, None, None]:
        reader = cast(Any, connection)
        with reader.transaction(), reader.cursor(name="groupcoord") as cursor:
            cursor.itersize = ROWS_AT_ONCE
            cursor.execute(query, parameters)
            yield from cursor

    def _refused_commit(self, connection: DatabaseConnection, error: Exception) -> bool:
        return not cast(Any, connection).broken  # the server has reported that itself
