"""New logs in SQLite and in PostgreSQL, for tests of what both do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from groupcoord.storage.stores import PostgresLogStore, SqliteLogStore, SqlLogStore

from .postgres_server import NoServerError, PostgresServer

LEASE_MS = 1
"""So long waits who takes over a log that wasn't closed: hardly at all, in tests of other things."""


class OpenLog(Protocol):
    """Opens the log with a number; the same number is the same log."""

    def __call__(
        self, number: int = 0, *, min_cleanable_ratio: float = 0.5, lease_ms: int = LEASE_MS, takes_over: bool = True
    ) -> SqlLogStore:
        """Open it."""


_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server of PostgreSQL for all tests of this process."""
    pytest.importorskip("psycopg", reason="PostgreSQL needs psycopg: pip install 'groupcoord[postgres]'")
    try:
        server = PostgresServer()
    except NoServerError as error:
        pytest.skip(f"no PostgreSQL can be started: {error}")
    yield server
    server.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.ci)])
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> OpenLog:
    if request.param == "sqlite":

        def open_sqlite(number: int = 0, **options: Any) -> SqlLogStore:
            return SqliteLogStore(tmp_path / f"{number}.sqlite", **{"lease_ms": LEASE_MS, **options})

        return open_sqlite
    server: PostgresServer = request.getfixturevalue("postgres")
    test = next(_numbers)

    def open_postgres(number: int = 0, **options: Any) -> SqlLogStore:
        name = f"test_{test}_{number}"
        return PostgresLogStore(server.conninfo, name=name, **{"lease_ms": LEASE_MS, **options})

    return open_postgres
