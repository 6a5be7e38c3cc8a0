"""A slot log in PostgreSQL: connections that are lost, and what the database must be like."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import time
from collections.abc import Awaitable, Callable

import pytest

from groupcoord.cluster.postgres import PostgresSlotLog, unsafe_settings
from groupcoord.cluster.slot_log import SlotLogError
from tests.storage.sql.postgres_server import PostgresServer

from .black_hole import BlackHole
from .engines import break_connections

pytestmark = pytest.mark.ci

_numbers = itertools.count()


def run(postgres: PostgresServer, act: Callable[[PostgresSlotLog, PostgresSlotLog], Awaitable[None]]) -> None:
    """Run a function with two connections to a new engine."""
    name = f"tables_{next(_numbers)}"

    async def work() -> None:
        one, other = (PostgresSlotLog(postgres.conninfo, name=name) for _ in range(2))
        async with one, other:
            await act(one, other)

    asyncio.run(work())


def test_a_user_who_may_not_make_tables_uses_those_that_are_there(postgres: PostgresServer) -> None:
    """An administrator makes them, and grants what a replica needs."""
    number = next(_numbers)
    name, user = f"tables_{number}", f"service_{number}"

    async def act() -> None:
        async with PostgresSlotLog(postgres.conninfo, name=name) as administrator:
            await administrator._ask(f"CREATE ROLE {user} LOGIN")
            await administrator._ask(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name}_slots, {name}_nodes TO {user}")
        conninfo = postgres.conninfo.replace("user=postgres", f"user={user}")
        async with PostgresSlotLog(conninfo, name=name) as service:
            assert await service.put(0, 0, b"first") is None
            assert [beat.node_id for beat in await service.beat("a", b"")] == ["a"]
        with pytest.raises(SlotLogError, match="permission denied"):
            await PostgresSlotLog(conninfo, name=f"{name}_other").open()

    asyncio.run(act())


def test_a_connection_that_is_lost_is_opened_again(postgres: PostgresServer) -> None:
    """Calls in flight have an unknown outcome, which the next call finds out."""

    async def act(one: PostgresSlotLog, other: PostgresSlotLog) -> None:
        assert await one.put(0, 0, b"first") is None
        await break_connections(one, other)
        with pytest.raises(SlotLogError):
            await one.put(0, 1, b"second")
        assert await one.put(0, 1, b"second") is None

    run(postgres, act)


def test_a_database_that_is_not_there_is_an_error() -> None:
    """The error has its address."""

    async def act() -> None:
        with pytest.raises(SlotLogError, match="port 1 failed"):
            await PostgresSlotLog("host=127.0.0.1 port=1").open()

    asyncio.run(act())


@pytest.mark.parametrize("options", [{"name": "no name"}, {"name": ""}, {"connections_max": 0}])
def test_what_can_not_be_is_refused(options: dict[str, object]) -> None:
    """Names become part of statements."""
    with pytest.raises(ValueError, match=r"."):
        PostgresSlotLog("", **options)  # type: ignore[arg-type]


def test_settings_that_are_not_safe_are_told(postgres: PostgresServer, caplog: pytest.LogCaptureFixture) -> None:
    """The tests' server runs without fsync: who opens a log there is warned."""

    async def act(one: PostgresSlotLog, other: PostgresSlotLog) -> None:
        return

    with caplog.at_level(logging.WARNING):
        run(postgres, act)
    assert caplog.messages[:1] == [
        "fsync is off: a power failure may take back what was acknowledged, and damage the database"
    ]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}, []),
        (
            {"fsync": "on", "full_page_writes": "off", "synchronous_commit": "off"},
            ["full_page_writes is off", "synchronous_commit is off"],
        ),
        ({"synchronous_commit": "local", "synchronous_standby_names": ""}, []),
        ({"synchronous_commit": "local", "synchronous_standby_names": "b"}, ["synchronous_commit is local"]),
        (
            {"synchronous_commit": "remote_write", "synchronous_standby_names": "*"},
            ["synchronous_commit is remote_write"],
        ),
        ({"synchronous_commit": "remote_apply", "synchronous_standby_names": "*"}, []),
    ],
)
def test_which_settings_are_not_safe(settings: dict[str, str], names: list[str]) -> None:
    """Settings for fail-over matter if there is a standby."""
    assert [line.split(":")[0] for line in unsafe_settings(settings)] == names


def test_tables_that_others_have_made_are_looked_at(postgres: PostgresServer, caplog: pytest.LogCaptureFixture) -> None:
    """Without its key a table decides no race, so nothing is put there; a crash would empty one that isn't logged."""
    name = f"tables_{next(_numbers)}"

    async def act() -> None:
        async with PostgresSlotLog(postgres.conninfo, name=name) as one:
            await one._ask(f"ALTER TABLE {name}_slots SET UNLOGGED")
            await one._ask(f"ALTER TABLE {name}_slots DROP CONSTRAINT {name}_slots_pkey")
        async with PostgresSlotLog(postgres.conninfo, name=name) as other:
            with pytest.raises(SlotLogError, match="no unique or exclusion constraint"):
                await other.put(0, 0, b"first")

    with caplog.at_level(logging.WARNING):
        asyncio.run(act())
    assert f"table {name}_slots is not permanent: a crash of the database empties it" in caplog.messages


def test_who_waits_no_more_does_not_wait_for_a_server_that_is_cut_off(postgres: PostgresServer) -> None:
    """A beat that was given up ends at once, though psycopg still tries to tell the server, and the next gets through.

    Otherwise a replica would be without a beat for ten seconds for each connection that nothing comes back on.
    """

    async def act() -> None:
        name = f"tables_{next(_numbers)}"
        async with (
            BlackHole(postgres.port) as hole,
            PostgresSlotLog(postgres.conninfo_by(hole.port), name=name) as slot_log,
        ):
            await slot_log.beat("a", b"first")
            hole.swallows = True
            began_s = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await slot_log.beat("a", b"second")
            hole.swallows = False
            assert [beat.content for beat in await slot_log.beat("a", b"third")] == [b"third"]
            assert time.monotonic() - began_s < 4, "half of what psycopg would wait"

    asyncio.run(act())


def test_an_error_of_a_call_that_was_given_up_is_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """psycopg may fail while it cancels a statement that no caller waits for any more."""
    slot_log = PostgresSlotLog("")

    async def fail_late(*_: object) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise slot_log._psycopg.OperationalError("late") from None

    async def act() -> None:
        slot_log._free.append(None)  # type: ignore[arg-type]
        monkeypatch.setattr(slot_log, "_execute", fail_late)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slot_log.read(0, 0), 0.01)
        await slot_log.close()

    asyncio.run(act())
    gc.collect()
    assert caplog.messages == []
