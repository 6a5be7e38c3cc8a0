"""One owner at a time: a second one shuts the first out, wherever that one was in the middle of its work."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from groupcoord import GroupCoordinator, LogRecord, PartitionStatus, Ticket
from groupcoord.aio import AsyncCoordinator
from groupcoord.core.log.records import GroupTombstone
from groupcoord.errors import ErrorCode
from groupcoord.log_store import AppendOutcomeUnknownError, StorageError
from groupcoord.storage.stores import BatchingLogStore, OwnershipLostError, SqliteLogStore, SqlLogStore, sql
from groupcoord.storage.stores.sql import Owner
from tests.aio.requests import CONFIG, commit, committed, fetch

from .conftest import OpenLog

WRITERS, APPENDS = 4, 25


def append(store: SqlLogStore, group_id: str, number: int = 0) -> int:
    """Append one record to log partition 0."""
    return store.append(0, Ticket(0, number), [LogRecord(GroupTombstone(group_id), 1)])


def group_ids(store: SqlLogStore) -> list[str]:
    """Return what was appended to log partition 0."""
    return [record.record.group_id for record in store.read(0) if isinstance(record.record, GroupTombstone)]


def test_the_first_owner_is_shut_out(open_log: OpenLog) -> None:
    """After a second one has opened the log, the first neither writes nor reads nor compacts."""
    first = open_log()
    append(first, "before")
    second = open_log()

    with pytest.raises(OwnershipLostError, match="another process"):
        append(first, "too late")
    with pytest.raises(OwnershipLostError):
        list(first.read(0))
    with pytest.raises(OwnershipLostError):
        first.compact()
    append(second, "after")

    assert group_ids(second) == ["before", "after"]
    first.close()
    second.close()


def test_a_coordinator_that_lost_its_log_says_so(open_log: OpenLog) -> None:
    """Clients get NOT_COORDINATOR, and the log partition has failed until it owns the log again."""
    stores = [open_log(lease_ms=200)]
    coordinator = GroupCoordinator(config=CONFIG, log_store=stores[0])
    coordinator.load_all()
    coordinator.call(commit(1))
    stores.append(open_log(lease_ms=200))
    successor = GroupCoordinator(config=CONFIG, log_store=stores[1])
    successor.load_all()
    successor.call(commit(2))

    refused = coordinator.call(commit(3))

    assert refused.topics[0].partitions[0].error_code is ErrorCode.NOT_COORDINATOR
    assert coordinator.status(coordinator.partition_of("crew")) is PartitionStatus.FAILED
    assert committed(successor.call(fetch())) == [2]
    for store in stores:
        store.close()


@pytest.fixture
def slept_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time that stores have slept, which does not pass here."""
    slept: list[float] = []
    monkeypatch.setattr(sql, "sleep", slept.append)
    return slept


def test_who_takes_over_waits_for_the_lease_of_the_one_before(open_log: OpenLog, slept_s: list[float]) -> None:
    """The lease is that of the earlier owner; a closed log or none needs no wait."""
    first = open_log(lease_ms=2_000)
    second = open_log(lease_ms=100)
    assert second.check_ownership()
    with pytest.raises(OwnershipLostError, match="another process"):
        first.check_ownership()
    first.close()  # too late to let go of anything
    third = open_log(lease_ms=300)
    third.close()
    fourth = open_log()
    fourth.abandon()

    assert slept_s == pytest.approx([0, 2.02, 0.101, 0])
    second.close()


def test_a_connection_that_is_lost_keeps_the_log(open_log: OpenLog, slept_s: list[float]) -> None:
    """Opening it again keeps the ownership, unless another owner has come."""
    store = open_log()
    store._discard_connection()
    assert store.check_ownership()
    connection = store._connection
    assert connection is not None
    connection.close()
    with pytest.raises(StorageError):
        store.check_ownership()
    assert store.check_ownership()
    store._connection.close()
    assert store.append(0, Ticket(0, 0), [LogRecord(GroupTombstone("g"), 1)]) == 0
    other = open_log()
    store._discard_connection()
    with pytest.raises(OwnershipLostError):
        store.check_ownership()
    assert slept_s == pytest.approx([0, 0.00101])
    for each in (store, other):
        each.close()


def test_standing_by(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is free when its owner hasn't looked for a lease, as far as who stands by has seen; or was closed."""
    now_s = 0.0
    monkeypatch.setattr(sql, "monotonic", lambda: now_s)
    active = open_log(lease_ms=1_000)
    standby = open_log(lease_ms=1_000, takes_over=False)
    with pytest.raises(OwnershipLostError, match="not owned yet"):
        append(standby, "too early")
    assert not standby.claim()
    now_s = 1.0
    active.check_ownership()
    assert not standby.claim()
    now_s = 2.0
    assert not standby.claim()
    now_s = 2.02
    assert standby.claim()
    assert standby.claim()
    with pytest.raises(OwnershipLostError):
        active.check_ownership()

    third = open_log(takes_over=False)
    assert not third.claim()
    standby.close()
    assert third.claim()
    assert append(third, "mine") == 0
    for each in (active, third):
        each.close()


def test_an_owner_that_looks_in_the_last_moment(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a lease of silence it checks just before a standby takes the log: it stays the owner."""
    now_s = 0.0
    monkeypatch.setattr(sql, "monotonic", lambda: now_s)
    active = open_log(lease_ms=1_000)
    standby = open_log(takes_over=False)
    assert not standby.claim()
    now_s = 5.0
    become_owner = standby._become_owner

    def after_a_look(may: Callable[[Owner], bool]) -> Owner | None:
        active.check_ownership()
        return become_owner(may)

    monkeypatch.setattr(standby, "_become_owner", after_a_look)
    assert not standby.claim()
    assert append(active, "mine") == 0
    for each in (active, standby):
        each.close()


def test_a_lease_is_some_time(open_log: OpenLog) -> None:
    with pytest.raises(ValueError, match="a lease takes a millisecond at least, not 0"):
        open_log(lease_ms=0)


def test_a_batching_store_looks_from_its_thread(open_log: OpenLog) -> None:
    """The thread of an idle owner notices that the log is lost, and the coordinator's next request fails."""

    async def story() -> None:
        first = BatchingLogStore(open_log(lease_ms=60))
        lost = asyncio.Event()
        inner = GroupCoordinator(config=CONFIG, log_store=first)
        coordinator = AsyncCoordinator(inner, on_lost=lambda error: lost.set())
        await coordinator.start()
        assert committed(await coordinator.ask(fetch())) == []
        second = await asyncio.to_thread(open_log)
        await asyncio.wait_for(lost.wait(), 20)
        fetched = await coordinator.ask(fetch())
        assert fetched.groups[0].error_code is ErrorCode.NOT_COORDINATOR
        await coordinator.close()
        first.close()
        second.close()

    asyncio.run(story())


def test_owners_that_come_at_once(open_log: OpenLog) -> None:
    """Of many that open a log and write concurrently, each has written exactly its acknowledged appends."""
    acknowledged: dict[str, int] = {}
    begin = threading.Barrier(WRITERS)

    def write(name: str) -> None:
        begin.wait()
        store = open_log()
        try:
            for number in range(APPENDS):
                acknowledged[f"{name} {number}"] = append(store, f"{name} {number}", number)
        except OwnershipLostError:
            pass
        finally:
            store.close()

    threads = [threading.Thread(target=write, args=(f"writer {number}",)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    store = open_log()
    assert {record.record.group_id: record.offset for record in store.read(0)} == acknowledged  # type: ignore[union-attr]
    assert acknowledged
    store.close()


def test_logs_of_other_names_have_owners_of_their_own(open_log: OpenLog) -> None:
    """Opening one log of a database does not affect the owner of another."""
    first, other = open_log(0), open_log(1)
    append(first, "mine")
    append(other, "yours")

    assert (group_ids(first), group_ids(other)) == (["mine"], ["yours"])
    assert first.partitions() == [0]
    first.close()
    other.close()


def test_a_connection_that_breaks_in_a_commit(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outcome is unknown; the store owns the log again, and reads it."""
    store = open_log()
    append(store, "before")
    connection = store._connection
    assert connection is not None

    class BreaksInCommit:
        """Passes everything on, and commits without telling."""

        def execute(self, query: str, *parameters: object) -> object:
            found = connection.execute(query, *parameters)
            if query == "COMMIT":
                connection.close()
                connection.execute("SELECT 1")  # raises what the driver raises for a lost connection
            return found

        def __getattr__(self, name: str) -> object:
            return True if name == "broken" else getattr(connection, name)

    monkeypatch.setattr(store, "_connection", BreaksInCommit())
    with pytest.raises(AppendOutcomeUnknownError):
        append(store, "perhaps")

    assert group_ids(store) == ["before", "perhaps"]
    assert append(store, "after") == 2
    store.close()


def test_a_database_that_refuses_a_while(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """While no commit goes through, as on a full disk, nothing is written; the log is its owner's still, after that."""
    store = open_log()
    append(store, "before")
    connect = store._connect

    class RefusesCommits:
        """Passes everything on, but rolls back instead of committing."""

        def __init__(self) -> None:
            self._connection = connect()

        def execute(self, query: str, *parameters: object) -> object:
            if query == "COMMIT":
                self._connection.execute("ROLLBACK")
                raise store.error("the disk is full")
            return self._connection.execute(query, *parameters)

        def __getattr__(self, name: str) -> object:
            return getattr(self._connection, name)

    store._discard_connection()
    with monkeypatch.context() as context:
        context.setattr(store, "_connect", RefusesCommits)
        for number in (1, 2):
            with pytest.raises(StorageError, match="the disk is full"):
                append(store, "refused", number)

    assert append(store, "after") == 1
    assert group_ids(store) == ["before", "after"]
    store.close()


def test_what_cannot_be_opened(open_log: OpenLog, tmp_path: object) -> None:
    """An invalid name and a file that is no database are errors at once; so is a closed store."""
    with pytest.raises(ValueError, match="no name for a table"):
        SqliteLogStore(f"{tmp_path}/log.sqlite", name="log; DROP TABLE log")
    with pytest.raises(StorageError):
        SqliteLogStore(f"{tmp_path}")
    store = open_log()
    store.close()
    with pytest.raises(StorageError, match="closed"):
        append(store, "too late")


def test_who_comes_while_a_file_is_made_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite refuses to change the mode of a file that another connection is creating; that is retried."""
    maker = sqlite3.connect(tmp_path / "log.sqlite", isolation_level=None)
    maker.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(sql, "sleep", lambda seconds: maker.close())
    store = SqliteLogStore(tmp_path / "log.sqlite")

    assert append(store, "mine") == 0
    store.close()


def test_a_file_that_stays_locked_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock held longer than the timeout keeps a store from opening."""
    now_s = itertools.count()
    maker = sqlite3.connect(tmp_path / "log.sqlite", isolation_level=None)
    maker.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(sql, "sleep", lambda seconds: None)
    monkeypatch.setattr(sql, "monotonic", lambda: float(next(now_s)))

    with pytest.raises(StorageError, match="database is locked"):
        SqliteLogStore(tmp_path / "log.sqlite")
    maker.close()
