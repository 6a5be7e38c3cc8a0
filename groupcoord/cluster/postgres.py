"""Slot log in PostgreSQL, by psycopg 3: a table with the primary key (log partition, slot).

A put is one INSERT, and the primary key decides between concurrent ones. Durability and failover are up to the
database: ``synchronous_commit`` must be on, and no lagging standby may be promoted.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from groupcoord.cluster.slot_log import Beat, ConnectedSlotLog, Slot, SlotLogError
from groupcoord.lazy import import_driver

if TYPE_CHECKING:
    from psycopg import AsyncConnection


CONNECTIONS_MAX = 4
SLOTS_AT_ONCE = 20
FORGOTTEN_AFTER = "1 day"
"""Announcements of a node that was silent for this long are deleted."""

_UNSAFE = {
    ("fsync", "off"): "a power failure may take back what was acknowledged, and damage the database",
    ("full_page_writes", "off"): "a power failure may damage the database",
    ("synchronous_commit", "off"): "a crash of the database may take back what was acknowledged",
    ("synchronous_commit", "local"): "a fail-over may take back what was acknowledged",
    ("synchronous_commit", "remote_write"): "a crash of the standby at a fail-over may take back what was acknowledged",
}
_STANDBYS = "synchronous_standby_names"
_OF_STANDBYS = ("local", "remote_write")

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}")


class PostgresSlotLog(ConnectedSlotLog):
    """Slot log in a table of PostgreSQL (``pip install 'groupcoord[postgres]'``); ``async with`` opens and closes it.

    After a lost connection the next call connects again. Calls in flight raise :class:`SlotLogError`.

    Args:
        conninfo: the database, as libpq writes it. The tables are created in the first schema of its ``search_path``.
        name: prefix of the names of the tables.
        connections_max: the most concurrent calls, in addition to one heartbeat; further calls wait.

    Raises:
        ModuleNotFoundError: psycopg is not installed.
        ValueError: the name is malformed, or ``connections_max`` is less than 1.
    """

    def __init__(self, conninfo: str, *, name: str = "groupcoord", connections_max: int = CONNECTIONS_MAX) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a table: {_NAME.pattern}")
        if connections_max < 1:
            raise ValueError(f"connections_max={connections_max} must be at least 1")
        self._psycopg = import_driver("psycopg", "PostgresSlotLog", "psycopg", "postgres")
        self._conninfo = conninfo
        self._slots, self._nodes = f"{name}_slots", f"{name}_nodes"
        self._free: list[AsyncConnection[Any]] = []
        self._turns = asyncio.Semaphore(connections_max)
        self._beat_turns = asyncio.Semaphore(1)  # heartbeats must not wait for writes
        self._ending: set[asyncio.Task[Sequence[Any]]] = set()

    async def _connect(self) -> Iterable[str]:
        ((are_there,),) = await self._ask(
            "SELECT to_regclass(%(slots)s) IS NOT NULL AND to_regclass(%(nodes)s) IS NOT NULL",
            slots=self._slots,
            nodes=self._nodes,
        )
        # The user may have no right to create tables.
        if not are_there:
            await self._make_tables()
        await self._ask(f"DELETE FROM {self._nodes} WHERE said_at < clock_timestamp() - INTERVAL '{FORGOTTEN_AFTER}'")
        names = ", ".join(f"'{name}'" for name in {_STANDBYS, *(name for name, _ in _UNSAFE)})
        settings = dict(await self._ask(f"SELECT name, setting FROM pg_settings WHERE name IN ({names})"))
        unlogged = "SELECT relname FROM pg_class WHERE oid = to_regclass(%(slots)s) AND relpersistence <> 'p'"
        tables = await self._ask(unlogged, slots=self._slots)
        permanence = (f"table {name} is not permanent: a crash of the database empties it" for (name,) in tables)
        return [*unsafe_settings(settings), *permanence]

    async def _make_tables(self) -> None:
        # Concurrent creation of a table fails in spite of IF NOT EXISTS.
        await self._ask(
            "BEGIN",
            f"SELECT pg_advisory_xact_lock({zlib.crc32(self._slots.encode())})",
            f"CREATE TABLE IF NOT EXISTS {self._slots} (log_partition INTEGER NOT NULL, slot BIGINT NOT NULL, "
            "payload BYTEA NOT NULL, PRIMARY KEY (log_partition, slot))",
            f"CREATE TABLE IF NOT EXISTS {self._nodes} (node_id TEXT PRIMARY KEY, said_at TIMESTAMPTZ NOT NULL, "
            "content BYTEA NOT NULL)",
            "COMMIT",
        )

    async def _disconnect(self) -> None:
        for asking in self._ending:
            asking.cancel()
        if self._ending:
            await asyncio.wait(tuple(self._ending))
        while self._free:
            await self._free.pop().close()

    # ------------------------------------------------------------ slots

    async def put(self, partition: int, slot: int, payload: bytes) -> int | None:
        """Fill a slot by one INSERT."""
        end = f"SELECT coalesce(max(slot), -1) FROM {self._slots} WHERE log_partition = %(partition)s"
        filled = await self._ask(
            f"INSERT INTO {self._slots} (log_partition, slot, payload) "
            f"SELECT %(partition)s, %(slot)s, %(payload)s WHERE %(slot)s = ({end}) + 1 "
            "ON CONFLICT (log_partition, slot) DO NOTHING RETURNING slot",
            partition=partition,
            slot=slot,
            payload=payload,
        )
        if filled:
            return None
        # The INSERT does not see a row that was committed meanwhile.
        ((last,),) = await self._ask(end, partition=partition)
        return int(last)

    async def read(self, partition: int, from_slot: int) -> list[Slot]:
        """Return slots by one SELECT."""
        rows = await self._ask(
            f"SELECT slot, payload FROM {self._slots} WHERE log_partition = %(partition)s AND slot >= %(first)s "
            f"ORDER BY slot LIMIT {SLOTS_AT_ONCE}",
            partition=partition,
            first=from_slot,
        )
        return [Slot(slot, bytes(payload)) for slot, payload in rows]

    async def purge(self, partition: int, before_slot: int) -> None:
        """Delete rows."""
        await self._ask(
            f"DELETE FROM {self._slots} WHERE log_partition = %(partition)s AND slot < %(before)s",
            partition=partition,
            before=before_slot,
        )

    async def beat(self, node_id: str, content: bytes) -> list[Beat]:
        """Store and return announcements; ages are by the clock of the database."""
        await self._ask(
            f"INSERT INTO {self._nodes} VALUES (%(node)s, clock_timestamp(), %(content)s) ON CONFLICT (node_id) "
            "DO UPDATE SET said_at = excluded.said_at, content = excluded.content",
            turns=self._beat_turns,
            node=node_id,
            content=content,
        )
        # The clock of the database may be set back.
        rows = await self._ask(
            "SELECT node_id, greatest(extract(epoch FROM clock_timestamp() - said_at) * 1000, 0)::bigint, content "
            f"FROM {self._nodes} ORDER BY node_id",
            turns=self._beat_turns,
        )
        return [Beat(node, int(age_ms), bytes(said)) for node, age_ms, said in rows]

    # ------------------------------------------------------------ connections

    async def _ask(self, *statements: str, turns: asyncio.Semaphore | None = None, **values: object) -> Sequence[Any]:
        """Execute statements on one connection and return the rows of the last one, if it has any."""
        async with turns or self._turns:
            try:
                connection = self._free.pop() if self._free else await self._open_connection()
            except self._psycopg.Error as error:
                raise SlotLogError(str(error)) from error
            asking = asyncio.create_task(self._execute(connection, statements, values))
            try:
                # psycopg's cancel request takes seconds if the server can't be reached. Do not wait for it.
                return await asyncio.shield(asking)
            except asyncio.CancelledError:
                asking.cancel()
                self._ending.add(asking)
                asking.add_done_callback(self._has_ended)
                raise
            except self._psycopg.Error as error:
                raise SlotLogError(str(error)) from error

    async def _execute(
        self, connection: AsyncConnection[Any], statements: Sequence[str], values: Mapping[str, object]
    ) -> Sequence[Any]:
        try:
            for statement in statements:
                # As text, payloads would take twice the bytes.
                cursor = await connection.execute(statement, values, binary=True)
            rows: Sequence[Any] = await cursor.fetchall() if cursor.description else ()
        except BaseException:
            await connection.close()
            raise
        self._free.append(connection)
        return rows

    def _has_ended(self, asking: asyncio.Task[Sequence[Any]]) -> None:
        self._ending.discard(asking)
        if not asking.cancelled():
            asking.exception()  # otherwise asyncio logs it

    async def _open_connection(self) -> AsyncConnection[Any]:
        connection: AsyncConnection[Any] = await self._psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)
        return connection


def unsafe_settings(settings: Mapping[str, str]) -> Iterator[str]:
    """Yield one line for each setting of ``pg_settings`` that endangers acknowledged records."""
    has_standbys = bool(settings.get(_STANDBYS))
    for (name, value), what in _UNSAFE.items():
        if settings.get(name) == value and (has_standbys or value not in _OF_STANDBYS):
            yield f"{name} is {value}: {what}"
