"""``check_slot_log`` passes what is a slot log, and names the clause that others break."""

from __future__ import annotations

import time

import pytest

from groupcoord.cluster.slot_log import Beat, MemorySlotLog, Slot
from groupcoord.testing import check_slot_log


class TimedSlotLog(MemorySlotLog):
    """Has the time of the machine."""

    async def beat(self, node_id: str, content: bytes) -> list[Beat]:
        self.now_ms = int(time.monotonic() * 1_000)
        return await super().beat(node_id, content)


class Overwrites(TimedSlotLog):
    async def put(self, partition: int, slot: int, payload: bytes) -> int | None:
        self._slots.setdefault(partition, {})[slot] = payload
        self._ends[partition] = slot + 1
        return None


class TakesGaps(TimedSlotLog):
    async def put(self, partition: int, slot: int, payload: bytes) -> int | None:
        if slot >= self._ends.get(partition, 0):
            self._ends[partition] = slot
        return await super().put(partition, slot, payload)


class Refills(TimedSlotLog):
    async def purge(self, partition: int, before_slot: int) -> None:
        await super().purge(partition, before_slot)
        self._ends[partition] = len(self._slots.get(partition, {}))


class KeepsPurged(TimedSlotLog):
    async def purge(self, partition: int, before_slot: int) -> None:
        return


class Cuts(TimedSlotLog):
    async def read(self, partition: int, from_slot: int) -> list[Slot]:
        return [Slot(number, payload[:1_000]) for number, payload in await super().read(partition, from_slot)]


class OneForAll(TimedSlotLog):
    async def put(self, partition: int, slot: int, payload: bytes) -> int | None:
        return await super().put(0, slot, payload)


class Deaf(TimedSlotLog):
    async def beat(self, node_id: str, content: bytes) -> list[Beat]:
        return [beat for beat in await super().beat(node_id, content) if beat.node_id == node_id]


class Timeless(TimedSlotLog):
    async def beat(self, node_id: str, content: bytes) -> list[Beat]:
        return [beat._replace(age_ms=0) for beat in await super().beat(node_id, content)]


def check(slot_log: MemorySlotLog) -> None:
    async def connect() -> MemorySlotLog:
        return slot_log

    async def connect_again(other: MemorySlotLog) -> MemorySlotLog:
        return other

    check_slot_log(connect, connect_again=connect_again)


@pytest.mark.parametrize("read_max", [1, 100])
def test_one_that_keeps_it(read_max: int) -> None:
    """The one in memory does, however few slots it returns at a time."""
    check(TimedSlotLog(read_max))


@pytest.mark.parametrize(
    ("kind", "clause"),
    [
        (Overwrites, "is the last"),
        (TakesGaps, "is the last"),
        (Refills, "is the last"),
        (KeepsPurged, "is left after purge"),
        (Cuts, "are read otherwise"),
        (OneForAll, "is the last"),
        (Deaf, "must return all nodes"),
        (Timeless, "ms apart"),
    ],
)
def test_those_that_break_it(kind: type[MemorySlotLog], clause: str) -> None:
    """For each clause there is an engine that breaks it, and the check fails."""
    with pytest.raises(AssertionError, match=clause):
        check(kind())
