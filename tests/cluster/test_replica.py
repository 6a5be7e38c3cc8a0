"""Replicas in an event loop, one after the other on an engine in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from groupcoord import Config, ErrorCode, GroupCoordinator
from groupcoord.cluster.replica import Replica
from groupcoord.cluster.slot_log import Beat, MemorySlotLog, SlotLogError
from groupcoord.cluster.slot_store import SlotStore
from groupcoord.messages import GroupToFetch, OffsetFetch

from .nodes import PARTITIONS, commit

BEAT_MS = 5


class FailingSlotLog(MemorySlotLog):
    """An engine that can be out of reach."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False

    async def put(self, partition: int, slot: int, payload: bytes) -> int | None:
        self._fail()
        return await super().put(partition, slot, payload)

    async def beat(self, node_id: str, content: bytes) -> list[Beat]:
        self._fail()
        return await super().beat(node_id, content)

    def _fail(self) -> None:
        if self.is_away:
            raise SlotLogError("it is away")


def coordinator(lease_ms: int = 1_000) -> GroupCoordinator:
    return GroupCoordinator(
        config=Config(offsets_topic_num_partitions=PARTITIONS), log_store=SlotStore(lease_ms=lease_ms)
    )


def replica(slot_log: MemorySlotLog, name: str, lease_ms: int = 1_000) -> Replica:
    return Replica(coordinator(lease_ms), slot_log, f"host-{name}", node_id=name, beat_ms=BEAT_MS)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(BEAT_MS / 1000)


async def commit_until_taken(one: Replica, offset: int) -> None:
    """Commit until it is acknowledged."""
    async with asyncio.timeout(30):
        while (await one.ask(commit("g", offset))).topics[0].partitions[0].error_code is not ErrorCode.NONE:
            await asyncio.sleep(BEAT_MS / 1000)


async def fetched(one: Replica) -> tuple[ErrorCode, int | None]:
    """Return what is told of the group: an error, or what it has committed."""
    (group,) = (await one.ask(OffsetFetch((GroupToFetch("g"),)))).groups
    return group.error_code, group.topics[0].partitions[0].committed_offset if group.topics else None


def test_a_replica_hands_over_to_the_next() -> None:
    """Who comes when the first has left knows at once what was acknowledged; the first one answers no more."""

    async def act() -> None:
        slot_log = MemorySlotLog()
        async with replica(slot_log, "a") as one:
            assert (await fetched(one))[0] is ErrorCode.NOT_COORDINATOR
            assert one.coordinator_of("g") is None
            await commit_until_taken(one, 7)
            owner = one.coordinator_of("g")
            assert owner is not None
            assert (owner.node_id, owner.address) == ("a", "host-a")
            status = one.status()
            assert (status.may_answer, status.live, status.losses) == (True, ("a",), 0)
            assert status.take_overs == len(status.partitions) == PARTITIONS
            figures = status.partitions[one.coordinator.coordinator.partition_of("g")]
            assert (figures.epoch, figures.snapshot_bytes) == (0, 0)
            assert figures.unread_bytes > 0
        assert (await fetched(one))[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
        async with replica(slot_log, "b") as other:
            await until(lambda: other.coordinator_of("g") is not None)
            await commit_until_taken(other, 8)
            assert await fetched(other) == (ErrorCode.NONE, 8)

    asyncio.run(act())


def test_who_is_not_heard_answers_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """When its lease is over, until it is heard again; it says both in the log, once."""

    async def act() -> None:
        slot_log = FailingSlotLog()
        async with replica(slot_log, "a", lease_ms=50) as one:
            await commit_until_taken(one, 7)
            slot_log.is_away = True
            await until(lambda: not one.coordinator.coordinator.may_answer())
            assert (await fetched(one))[0] is ErrorCode.NOT_COORDINATOR
            slot_log.is_away = False
            await commit_until_taken(one, 8)
            assert await fetched(one) == (ErrorCode.NONE, 8)

    with caplog.at_level(logging.WARNING):
        asyncio.run(act())
    told = [record.message for record in caplog.records if record.message.startswith("replica a ")]
    assert [message.split(",")[0] for message in told] == ["replica a is not heard", "replica a is heard again"]


def test_it_needs_a_slot_store_with_a_lease() -> None:
    """Without a lease, one that was stopped would answer what was true before."""
    for core in (GroupCoordinator(), GroupCoordinator(log_store=SlotStore(lease_ms=None))):
        with pytest.raises(ValueError, match="a SlotStore with a lease"):
            Replica(core, MemorySlotLog(), "here")
