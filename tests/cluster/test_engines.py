"""Engines for slot logs on real servers: the contract, and owners that take over from each other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from groupcoord.cluster.replica import carry_out
from groupcoord.cluster.shared_log import NoLogError, copy_log
from groupcoord.cluster.slot_log import SlotLog, SlotLogError
from groupcoord.cluster.slot_writer import UNKNOWN, Acknowledged, Event, Failed, Loaded, Lost, SlotWriter
from groupcoord.testing import check_log_store, check_slot_log

from .engines import Engine, break_connections
from .processes import TakenOverAtEachLook

pytestmark = pytest.mark.ci

APPENDS = 60


def test_it_keeps_the_contract(engine: Engine) -> None:
    """Clause by clause, also where two put at a time."""
    opened: list[SlotLog] = []
    name = engine.new_name()

    async def connect() -> Any:
        slot_log = engine.slot_log(name)
        await slot_log.open()
        opened.append(slot_log)
        return slot_log

    check_slot_log(connect, connect_again=lambda one: connect(), lag_ms=engine.lag_ms)
    assert len(opened) == 2


def test_it_keeps_the_contract_of_log_stores(engine: Engine) -> None:
    """Each reader has just taken over from a dead process, and finds acknowledged records and snapshots."""
    opened: list[Any] = []
    with asyncio.Runner() as runner:

        def make() -> TakenOverAtEachLook:
            opened.append(engine.slot_log(engine.new_name()))
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


async def work(slot_log: SlotLog, writer: SlotWriter) -> list[Event]:
    """Do what an owner wants to have done, and return what came of it."""
    events: list[Event] = []
    while (operation := writer.next_operation()) is not None:
        try:
            writer.done(operation, await carry_out(slot_log, 3, operation))
        except SlotLogError:
            writer.done(operation, UNKNOWN)
        events += writer.take_events()
    return events


def test_owners_take_over_from_each_other(engine: Engine) -> None:
    """Each finds what was acknowledged before, its connections may break, and who was fenced appends nothing more."""

    async def act(one: SlotLog, other: SlotLog) -> None:
        acknowledged: list[bytes] = []
        former: SlotWriter | None = None
        for life, slot_log in enumerate((one, other, one)):
            writer = SlotWriter(life.to_bytes(16, "big"))
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
                    await break_connections(slot_log, other if slot_log is one else one)
                events = await work(slot_log, writer)
                assert events == [Acknowledged(body)]
                acknowledged.append(body)
            former = writer
        assert len(acknowledged) == 3 * APPENDS

    async def run() -> None:
        name = engine.new_name()
        async with engine.slot_log(name) as one, engine.slot_log(name) as other:
            await act(one, other)

    asyncio.run(run())


def test_a_log_that_nobody_has_begun_can_not_be_copied(engine: Engine, tmp_path: Any) -> None:
    """The error names the missing log, whatever else the engine has."""

    async def run() -> None:
        async with engine.slot_log(engine.new_name()) as slot_log:
            with pytest.raises(NoLogError, match="no replica has ever shared this log"):
                await copy_log(slot_log, tmp_path)

    asyncio.run(run())
