"""Processes die: the one that writes, and the server of the database. What was acknowledged is there."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from groupcoord import LogRecord, Ticket
from groupcoord.core.log.records import GroupTombstone
from groupcoord.log_store import StorageError
from groupcoord.storage.stores import PostgresLogStore, SqliteLogStore, SqlLogStore

from .postgres_server import PostgresServer

PROGRAM = """
import sys
from groupcoord import LogRecord, Ticket
from groupcoord.core.log.records import GroupTombstone
from groupcoord.storage.stores import BatchingLogStore, PostgresLogStore, SqliteLogStore

class Tells:
    def appended(self, ticket, base_offset):
        print(ticket.number, base_offset, flush=True)

    def append_failed(self, ticket, error):
        raise error

kind, place = sys.argv[1:]
store = BatchingLogStore(SqliteLogStore(place) if kind == "sqlite" else PostgresLogStore(place, name="killed"))
store.answer_to(Tells())
for number in range(10**9):
    store.append(0, Ticket(0, number), [LogRecord(GroupTombstone(f"{number} {part}"), 1) for part in range(3)])
    if number % 10 == 0:
        store.flush()
"""


def killed_while_it_writes(kind: str, place: str) -> list[tuple[int, int]]:
    """Run a process that appends until it is killed; return its acknowledged appends and offsets."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, kind, place], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(200)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    return [(int(number), int(offset)) for number, offset in (line.split() for line in lines if line.endswith("\n"))]


def check_what_is_left(store: SqlLogStore, told: list[tuple[int, int]]) -> None:
    """All acknowledged appends are present, each as a whole."""
    found = [record.record.group_id for record in store.read(0)]  # type: ignore[union-attr]
    assert found == [f"{number} {part}" for number in range(len(found) // 3) for part in range(3)]
    assert len(told) >= 200
    for number, offset in told:
        assert offset == 3 * number
        assert offset < len(found)
    store.close()


def test_a_process_is_killed_over_sqlite(tmp_path: Path) -> None:
    """The next process finds all that was acknowledged, and no half of an append."""
    path = tmp_path / "log.sqlite"
    told = killed_while_it_writes("sqlite", str(path))
    check_what_is_left(SqliteLogStore(path), told)


@pytest.mark.ci
def test_a_process_is_killed_over_postgres(postgres: PostgresServer) -> None:
    """The next process finds all that was acknowledged, and no half of an append."""
    told = killed_while_it_writes("postgres", postgres.conninfo)
    check_what_is_left(PostgresLogStore(postgres.conninfo, name="killed"), told)


@pytest.mark.ci
def test_the_server_crashes(postgres: PostgresServer) -> None:
    """Appends are refused while it is down; afterwards the same store continues, and nothing is lost."""
    store = PostgresLogStore(postgres.conninfo, name="crashed")
    record = [LogRecord(GroupTombstone("g"), 1)]
    for number in range(3):
        store.append(0, Ticket(0, number), record)
    assert len(list(store.read(0))) == 3
    postgres.crash()
    with pytest.raises(StorageError) as refused:
        store.append(0, Ticket(0, 3), record)
    assert not refused.value.outcome_unknown
    with pytest.raises(StorageError):
        list(store.read(0))
    postgres.start()

    assert len(list(store.read(0))) == 3
    assert store.append(0, Ticket(0, 4), record) == 3
    store.close()
