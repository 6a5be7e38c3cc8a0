"""Is an engine what several owners of one log may rely on? :func:`check_slot_log` asks it, clause by clause.

def test_my_engine():
    check_slot_log(MySlotLog.connect, connect_again=lambda slot_log: MySlotLog.connect(slot_log.address))
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

from groupcoord.cluster.slot_log import Slot, SlotLog
from groupcoord.laws import require

SlotLogT = TypeVar("SlotLogT", bound=SlotLog)

PAYLOADS = (b"", b"\0", bytes(range(256)), b"x" * 1_000_000)
RACES, RACERS = 20, 4
PAUSE_MS = 30
TOLERANCE_MS = 2_000
LOOK_S = 0.01


def check_slot_log(
    connect: Callable[[], Awaitable[SlotLogT]],
    *,
    connect_again: Callable[[SlotLogT], Awaitable[SlotLogT]],
    lag_ms: int = 0,
) -> None:
    """Check that an engine keeps the contract of :class:`groupcoord.cluster.slot_log.SlotLog`.

    A slot is filled once, and only if the one before it is the last; of several that put at a time one does it. What
    was put is read as it was, from any slot on, without gaps. What is purged is gone, and stays filled. Nodes hear each
    other.

    Args:
        connect: returns an engine in which nothing was put yet; what it has as ``close()``, a coroutine, is called.
        connect_again: returns another connection to the same engine, as another process has one.
        lag_ms: for how long a read may miss what was just put or purged, since a replica that lags behind has answered.

    Raises:
        AssertionError: the engine breaks the contract; the message says how.
    """
    asyncio.run(_check(connect, connect_again, lag_ms))


async def _check(
    connect: Callable[[], Awaitable[SlotLogT]],
    connect_again: Callable[[SlotLogT], Awaitable[SlotLogT]],
    lag_ms: int,
) -> None:
    async with AsyncExitStack() as stack:
        one = await connect()
        _close_at_the_end(one, stack)
        other = await connect_again(one)
        _close_at_the_end(other, stack)
        await _check_puts(one, other)
        await _check_reads(one, other, lag_ms)
        await _check_purges(one, other, lag_ms)
        await _check_races(one, other, lag_ms)
        await _check_beats(one, other)


def _close_at_the_end(slot_log: SlotLog, stack: AsyncExitStack) -> None:
    close = getattr(slot_log, "close", None)
    if close is not None:
        stack.push_async_callback(close)


async def _put(slot_log: SlotLog, partition: int, slot: int, payload: bytes, expected: int | None) -> None:
    found = await slot_log.put(partition, slot, payload)
    what = f"put({partition}, {slot}, …) returned {found!r}, where {expected!r} was due"
    reason = "the slot before it is the last" if expected is None else f"slot {expected} is the last"
    require(found == expected, f"{what}: {reason}")


async def _read(
    slot_log: SlotLog, partition: int, from_slot: int, lag_ms: int, is_seen: Callable[[list[Slot]], bool]
) -> list[Slot]:
    """Return what is read when it is what is to be seen, or replicas may lag behind no longer."""
    end_s = asyncio.get_running_loop().time() + lag_ms / 1_000
    while not is_seen(slots := await slot_log.read(partition, from_slot)):
        if asyncio.get_running_loop().time() >= end_s:
            break
        await asyncio.sleep(LOOK_S)
    return slots


async def _check_puts(one: SlotLog, other: SlotLog) -> None:
    require(await one.read(0, 0) == [], "a log partition that was never written must be empty")
    await _put(one, 0, 1, b"early", -1)
    for slot, payload in enumerate(PAYLOADS):
        await _put(one, 0, slot, payload, None)
        for taken in (0, slot, slot + 2):
            await _put(other, 0, taken, b"another", slot)
    await _put(other, 1, 0, b"elsewhere", None)
    await _put(one, 1, 1, b"elsewhere too", None)


async def _check_reads(one: SlotLog, other: SlotLog, lag_ms: int) -> None:
    for reader in (one, other):
        for first in range(len(PAYLOADS) + 1):
            found: list[tuple[int, bytes]] = []
            while len(found) < len(PAYLOADS) - first:
                slots = await _read(reader, 0, first + len(found), lag_ms, bool)
                require(slots != [], f"slot {first + len(found)} was put, and is not read")
                found += slots
            expected = list(enumerate(PAYLOADS))[first:]
            require(found == expected, f"slots from {first} on are read otherwise than they were put")


async def _check_purges(one: SlotLog, other: SlotLog, lag_ms: int) -> None:
    last = len(PAYLOADS) - 1

    def is_gone(slots: list[Slot]) -> bool:
        return [slot for slot, _ in slots] == [last]

    for _ in range(2):
        await one.purge(0, last)
        slots = await _read(other, 0, 0, lag_ms, is_gone)
        require(is_gone(slots), f"only slot {last} is left after purge(0, {last})")
    await _put(other, 0, 0, b"again", last)
    await _put(other, 0, last + 1, b"next", None)
    kept = await _read(one, 1, 0, lag_ms, bool)
    require(kept[0] == (0, b"elsewhere"), "what is purged in one log partition stays in others")


async def _check_races(one: SlotLog, other: SlotLog, lag_ms: int) -> None:
    for slot in range(RACES):
        racers = [(one, other)[number % 2] for number in range(RACERS)]
        puts = (racer.put(2, slot, b"%d" % number) for number, racer in enumerate(racers))
        found = await asyncio.gather(*puts)
        require(found.count(None) == 1, f"of {RACERS} that put slot {slot} at a time one must do it: {found}")
        refused = {last for last in found if last is not None}
        require(refused == {slot}, f"who is refused must hear that slot {slot} is the last: {found}")
        (kept,) = await _read(other, 2, slot, lag_ms, bool)
        require(kept == (slot, b"%d" % found.index(None)), f"slot {slot} has another payload than the one that was put")


async def _check_beats(one: SlotLog, other: SlotLog) -> None:
    await one.beat("one", b"first")
    await asyncio.sleep(PAUSE_MS / 1_000)
    beats = {beat.node_id: beat for beat in await other.beat("other", b"second")}
    require(set(beats) == {"one", "other"}, f"beat() must tell of all nodes, the one that beats included: {beats}")
    contents = [beats[name].content for name in ("one", "other")]
    require(contents == [b"first", b"second"], f"beat() must tell what nodes have said: {contents}")
    require(0 <= beats["other"].age_ms <= TOLERANCE_MS, f"a beat of now is {beats['other'].age_ms} ms old")
    apart_ms = beats["one"].age_ms - beats["other"].age_ms
    require(0 < apart_ms <= TOLERANCE_MS, f"beats that are {PAUSE_MS} ms apart are {apart_ms} ms apart in age")
    (again,) = [beat for beat in await one.beat("one", b"third") if beat.node_id == "one"]
    require((again.content, again.age_ms <= TOLERANCE_MS) == (b"third", True), f"the last beat counts: {again}")
