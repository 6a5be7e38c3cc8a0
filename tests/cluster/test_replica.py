"""Replicas in an event loop, one after the other on an engine in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from groupcoord import Config, ErrorCode, GroupCoordinator
from groupcoord.cluster import replica as replica_module
from groupcoord.cluster.membership import DEAD_MS
from groupcoord.cluster.replica import Replica
from groupcoord.cluster.shared_log import LayoutError
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
        self.puts = 0

    async def put(self, partition: int, slot: int, payload: bytes) -> int | None:
        self.puts += 1
        self._fail()
        return await super().put(partition, slot, payload)

    async def beat(self, node_id: str, content: bytes) -> list[Beat]:
        self._fail()
        return await super().beat(node_id, content)

    def _fail(self) -> None:
        if self.is_away:
            raise SlotLogError("it is away")


class BrokenSlotLog(FailingSlotLog):
    """Engine that sometimes raises errors outside of the contract."""

    async def put(self, partition: int, slot: int, payload: bytes) -> int | None:
        self.is_away = not self.is_away
        if self.is_away:
            raise OSError("broken")
        return await MemorySlotLog.put(self, partition, slot, payload)

    async def beat(self, node_id: str, content: bytes) -> list[Beat]:
        return await MemorySlotLog.beat(self, node_id, content)


class SilentSlotLog(FailingSlotLog):
    """Engine that does not answer while it is out of reach, nor later."""

    async def put(self, partition: int, slot: int, payload: bytes) -> int | None:
        await self._hang()
        return await super().put(partition, slot, payload)

    async def beat(self, node_id: str, content: bytes) -> list[Beat]:
        await self._hang()
        return await super().beat(node_id, content)

    async def _hang(self) -> None:
        if self.is_away:
            await asyncio.Event().wait()


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
    async with asyncio.timeout(30):
        while (await one.ask(commit("g", offset))).topics[0].partitions[0].error_code is not ErrorCode.NONE:
            await asyncio.sleep(BEAT_MS / 1000)


async def fetched(one: Replica) -> tuple[ErrorCode, int | None]:
    """Return the group's committed offsets, or the error."""
    (group,) = (await one.ask(OffsetFetch((GroupToFetch("g"),)))).groups
    return group.error_code, group.topics[0].partitions[0].committed_offset if group.topics else None


def test_a_replica_hands_over_to_the_next() -> None:
    """A replica that starts after the first has left knows all acknowledged records; the first one answers no more."""

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
            assert status.owners == dict.fromkeys(range(PARTITIONS), "a")
        assert (await fetched(one))[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
        async with replica(slot_log, "b") as other:
            await until(lambda: other.coordinator_of("g") is not None)
            await commit_until_taken(other, 8)
            assert await fetched(other) == (ErrorCode.NONE, 8)

    asyncio.run(act())


def test_who_is_not_heard_answers_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """Its answers end with its lease, until it is heard again; both are logged, once."""

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


def test_whatever_an_engine_raises_it_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """After an unexpected error no log partition is abandoned, and each logs its problem."""

    async def act() -> None:
        slot_log = BrokenSlotLog()
        slot_log.is_away = True  # what it does next, it does
        async with replica(slot_log, "a") as one:
            for offset in range(3):
                await commit_until_taken(one, offset)
            assert await fetched(one) == (ErrorCode.NONE, 2)

    with caplog.at_level(logging.WARNING):
        asyncio.run(act())
    told = [message for message in caplog.messages if "the engine is queried again" in message]
    assert told
    assert all("OSError('broken')" in message for message in told)


def test_who_was_cut_off_does_not_wait_for_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that is heard again sends new requests to the engine, before old ones time out."""
    monkeypatch.setattr(replica_module, "OPERATION_S", 60.0)

    async def act() -> None:
        slot_log = SilentSlotLog()
        async with Replica(coordinator(50), slot_log, "here", node_id="a", dead_ms=200, beat_ms=BEAT_MS) as one:
            await commit_until_taken(one, 1)
            slot_log.is_away = True
            asked = asyncio.ensure_future(one.ask(commit("g", 2)))
            await until(lambda: not one.status().may_answer)
            slot_log.is_away = False
            await asked
            await commit_until_taken(one, 3)
            assert await fetched(one) == (ErrorCode.NONE, 3)

    asyncio.run(act())


def test_troubles_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """While the engine is away, the log does not grow with each attempt."""

    async def act() -> None:
        slot_log = FailingSlotLog()
        async with replica(slot_log, "a", lease_ms=1_400) as one:
            await commit_until_taken(one, 1)
            slot_log.is_away = True
            asked = asyncio.ensure_future(one.ask(commit("g", 2)))
            puts_before = slot_log.puts
            await until(lambda: slot_log.puts >= puts_before + 3)
            slot_log.is_away = False
            await asked

    with caplog.at_level(logging.WARNING):
        asyncio.run(act())
    assert len([message for message in caplog.messages if "the engine is queried again" in message]) == 1


def test_another_number_of_log_partitions_is_refused() -> None:
    """Groups would be looked for in other log partitions: such a replica does not begin."""

    async def act() -> None:
        slot_log = MemorySlotLog()
        async with replica(slot_log, "a"):
            config = Config(offsets_topic_num_partitions=PARTITIONS + 1)
            other = Replica(GroupCoordinator(config=config, log_store=SlotStore()), slot_log, "there")
            with pytest.raises(LayoutError):
                await other.start()
            await other.close()

    asyncio.run(act())


def test_it_needs_a_slot_store_with_a_lease() -> None:
    """Without a lease, one that was stopped would answer what was true before."""
    for core in (GroupCoordinator(), GroupCoordinator(log_store=SlotStore(lease_ms=None))):
        with pytest.raises(ValueError, match="a SlotStore with a lease"):
            Replica(core, MemorySlotLog(), "here")


@pytest.mark.parametrize("lease_ms", [0, DEAD_MS])
def test_a_lease_ends_before_a_node_counts_as_dead(lease_ms: int) -> None:
    """Else it would answer when others own already what it owned."""
    with pytest.raises(ValueError, match="must be shorter"):
        replica(MemorySlotLog(), "a", lease_ms)
