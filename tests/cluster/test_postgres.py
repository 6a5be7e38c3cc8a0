"""A slot log in PostgreSQL: the contract, connections that are lost, and owners that take over from each other."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable

import pytest

from groupcoord.cluster.carrying_out import carry_out
from groupcoord.cluster.postgres import PostgresSlotLog, unsafe_settings
from groupcoord.cluster.slot_log import SlotLogError
from groupcoord.cluster.slot_writer import UNKNOWN, Acknowledged, Event, Failed, Loaded, Lost, SlotWriter
from groupcoord.testing import check_log_store, check_slot_log
from tests.storage.sql.postgres_server import PostgresServer

from .black_hole import BlackHole
from .processes import TakenOverAtEachLook

pytestmark = pytest.mark.ci

APPENDS = 60

_numbers = itertools.count()


def run(postgres: PostgresServer, act: Callable[[PostgresSlotLog, PostgresSlotLog], Awaitable[None]]) -> None:
    """Do something with two connections to an engine of its own."""
    name = f"slots_{next(_numbers)}"

    async def work() -> None:
        one, other = (PostgresSlotLog(postgres.conninfo, name=name) for _ in range(2))
        async with one, other:
            await act(one, other)

    asyncio.run(work())


async def break_connections(of_others: PostgresSlotLog) -> None:
    """Break all connections to the database but the one that is used for it."""
    await of_others._ask(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        "AND backend_type = 'client backend'"
    )


def test_it_keeps_the_contract(postgres: PostgresServer) -> None:
    """Clause by clause, also where two put at a time."""
    opened: list[PostgresSlotLog] = []
    name = f"slots_{next(_numbers)}"

    async def connect() -> PostgresSlotLog:
        slot_log = PostgresSlotLog(postgres.conninfo, name=name)
        await slot_log.open()
        opened.append(slot_log)
        return slot_log

    check_slot_log(connect, connect_again=lambda one: connect())
    assert len(opened) == 2


def test_it_keeps_the_contract_of_log_stores(postgres: PostgresServer) -> None:
    """Whoever reads has just taken over from a process that died, and finds what was acknowledged, and snapshots."""
    opened: list[PostgresSlotLog] = []
    with asyncio.Runner() as runner:

        def make() -> TakenOverAtEachLook:
            opened.append(PostgresSlotLog(postgres.conninfo, name=f"slots_{next(_numbers)}"))
            runner.run(opened[-1].open())
            return TakenOverAtEachLook(opened[-1], 1_000_000, runner.run)

        check_log_store(
            make,
            reopen=TakenOverAtEachLook.reopened,
            compact=TakenOverAtEachLook.compact,
            settle=TakenOverAtEachLook.settle,
        )
        for slot_log in opened:
            runner.run(slot_log.close())


def test_a_user_who_may_not_make_tables_uses_those_that_are_there(postgres: PostgresServer) -> None:
    """An administrator makes them, and grants what a replica needs."""
    number = next(_numbers)
    name, user = f"slots_{number}", f"service_{number}"

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
    """What was on its way may have been done or not; the next call finds out."""

    async def act(one: PostgresSlotLog, other: PostgresSlotLog) -> None:
        assert await one.put(0, 0, b"first") is None
        await break_connections(other)
        with pytest.raises(SlotLogError):
            await one.put(0, 1, b"second")
        assert await one.put(0, 1, b"second") is None

    run(postgres, act)


def test_a_database_that_is_not_there_is_an_error() -> None:
    """It says where it was looked for."""

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
    """What matters for fail-over matters where there is a standby."""
    assert [line.split(":")[0] for line in unsafe_settings(settings)] == names


def test_tables_that_others_have_made_are_looked_at(postgres: PostgresServer, caplog: pytest.LogCaptureFixture) -> None:
    """Without its key a table decides no race, so nothing is put there; a crash would empty one that isn't logged."""
    name = f"slots_{next(_numbers)}"

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
        name = f"slots_{next(_numbers)}"
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


async def work(slot_log: PostgresSlotLog, writer: SlotWriter) -> list[Event]:
    """Do what an owner wants to have done, and return what came of it."""
    events: list[Event] = []
    while (operation := writer.next_operation()) is not None:
        try:
            writer.done(operation, await carry_out(slot_log, 3, operation))
        except SlotLogError:
            writer.done(operation, UNKNOWN)
        events += writer.take_events()
    return events


def test_owners_take_over_from_each_other(postgres: PostgresServer) -> None:
    """Each finds what was acknowledged before, its connections may break, and who was fenced appends nothing more."""

    async def act(one: PostgresSlotLog, other: PostgresSlotLog) -> None:
        acknowledged: list[bytes] = []
        former: SlotWriter | None = None
        for life, slot_log in enumerate((one, other, one)):
            writer = SlotWriter(life.to_bytes(16, "big"))
            writer.take_over()
            (loaded,) = await work(slot_log, writer)
            assert isinstance(loaded, Loaded)
            assert loaded.appends == acknowledged
            if former is not None:
                former.append("late", b"late")
                events = await work(slot_log, former)
                assert [type(event) for event in events] == [Failed, Lost]
            for number in range(APPENDS):
                body = b"%d-%d" % (life, number)
                writer.append(body, body)
                if number == APPENDS // 2:
                    await break_connections(other if slot_log is one else one)
                events = await work(slot_log, writer)
                assert events == [Acknowledged(body)]
                acknowledged.append(body)
            former = writer
        assert len(acknowledged) == 3 * APPENDS

    run(postgres, act)
