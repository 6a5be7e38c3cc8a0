"""Log stores with coroutines: written in order, loaded after what was written, and never silent about a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from groupcoord import (
    ErrorCode,
    GroupCoordinator,
    LogRecord,
    MemoryLogStore,
    PartitionStatus,
    StoreContractError,
    Ticket,
)
from groupcoord.aio import AsyncCoordinator, TaskLogStore, ThreadLogStore
from groupcoord.log_store import NotEnoughReplicasError
from groupcoord.storage.stores.segments import SegmentLogStore

from .requests import CONFIG, GROUP, commit, committed, fetch
from .test_coordinator import run


class SlowStore:
    """Store that takes a few turns of the event loop for each append, and fails on demand."""

    def __init__(self) -> None:
        self.log = MemoryLogStore()
        self.under_way: list[int] = []
        self.failures: list[Exception] = []

    async def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        assert partition not in self.under_way, "two appends of one log partition at once"
        self.under_way.append(partition)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            if self.failures:
                raise self.failures.pop(0)
            base_offset = self.log.append(partition, ticket, records)
            assert base_offset is not None
            return base_offset
        finally:
            self.under_way.remove(partition)

    async def read(self, partition: int) -> AsyncIterator[LogRecord]:
        for record in self.log.read(partition):
            await asyncio.sleep(0)
            yield record


def open_on(store: SlowStore) -> AsyncCoordinator:
    return AsyncCoordinator(GroupCoordinator(config=CONFIG, log_store=TaskLogStore(store)))


def test_appends_of_one_partition_follow_each_other() -> None:
    """Twenty commits of several groups are answered, and the next coordinator finds the last of each."""

    async def story() -> None:
        store = SlowStore()
        async with open_on(store) as coordinator:
            asked = [coordinator.ask(commit(number, f"group {number % 4}")) for number in range(20)]
            for answer in await asyncio.gather(*asked):
                assert answer.topics[0].partitions[0].error_code is ErrorCode.NONE
        async with open_on(store) as coordinator:
            found = [committed(await coordinator.ask(fetch(f"group {number}"))) for number in range(4)]
            assert found == [[16], [17], [18], [19]]

    run(story())


def test_an_append_that_is_refused() -> None:
    """The request fails; earlier commits stay, and the next one is written."""

    async def story() -> None:
        store = SlowStore()
        async with open_on(store) as coordinator:
            await coordinator.ask(commit(1))
            store.failures.append(NotEnoughReplicasError("one copy of two"))
            refused, written = await asyncio.gather(coordinator.ask(commit(2)), coordinator.ask(commit(3, "other")))
            assert refused.topics[0].partitions[0].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert written.topics[0].partitions[0].error_code is ErrorCode.NONE
            assert committed(await coordinator.ask(fetch())) == [1]
            await coordinator.ask(commit(4))
            assert committed(await coordinator.ask(fetch())) == [4]

    run(story())


def test_an_append_of_unknown_outcome() -> None:
    """After an unexpected exception the partition has failed; loading it again shows the log's content."""

    async def story() -> None:
        store = SlowStore()
        async with open_on(store) as coordinator:
            await coordinator.ask(commit(1))
            store.failures.append(RuntimeError("the connection is gone"))
            lost, behind = await asyncio.gather(coordinator.ask(commit(2)), coordinator.ask(commit(3)))
            codes = [answer.topics[0].partitions[0].error_code for answer in (lost, behind)]
            assert codes == [ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR]
            partition = coordinator.coordinator.partition_of(GROUP)
            assert coordinator.coordinator.status(partition) is PartitionStatus.FAILED
            await coordinator.load(partition)
            assert committed(await coordinator.ask(fetch())) == [1]

    run(story())


def test_a_load_waits_for_what_is_being_written() -> None:
    """A log partition that moves away and back has what was on its way to the log meanwhile."""

    async def story() -> None:
        store = SlowStore()
        async with open_on(store) as coordinator:
            partition = coordinator.coordinator.partition_of(GROUP)
            waiting = coordinator.submit(commit(1))
            await asyncio.sleep(0)
            coordinator.change(lambda inner: inner.unload(partition, 1))
            assert (await waiting).topics[0].partitions[0].error_code is ErrorCode.NOT_COORDINATOR
            await coordinator.load(partition, 2)
            assert committed(await coordinator.ask(fetch())) == [1]

    run(story())


def test_closing_waits_for_the_store() -> None:
    async def story() -> None:
        store = SlowStore()
        async with open_on(store) as coordinator:
            coordinator.submit(commit(1))
            await asyncio.sleep(0)
            assert store.under_way
        assert not store.under_way

    run(story())


def test_files_behind_threads(tmp_path: Path) -> None:
    async def story() -> None:
        files = SegmentLogStore(tmp_path)
        store = TaskLogStore(ThreadLogStore(files))
        async with AsyncCoordinator(GroupCoordinator(config=CONFIG, log_store=store)) as coordinator:
            await asyncio.gather(*(coordinator.ask(commit(number)) for number in range(10)))
            assert committed(await coordinator.ask(fetch())) == [9]
        files.close()

    run(story())
    again = SegmentLogStore(tmp_path)
    coordinator = GroupCoordinator(config=CONFIG, log_store=again)
    coordinator.load_all()
    assert committed(coordinator.call(fetch())) == [9]
    again.close()


def test_loading_past_the_event_loop() -> None:
    """Loading such a store without the event loop raises an error that names the right way."""
    store = TaskLogStore(SlowStore())
    with pytest.raises(StoreContractError, match="AsyncCoordinator"):
        list(store.read(0))
