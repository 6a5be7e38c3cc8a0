"""``AsyncCoordinator``: answers are awaited, time passes by one timer, and nothing stays behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from attrs import evolve

from groupcoord import ErrorCode, GroupCoordinator, LoadError, LogRecord, ManualClock, MemoryLogStore, PartitionStatus
from groupcoord.aio import AsyncCoordinator, TaskLogStore, ThreadLogStore
from groupcoord.aio.coordinator import RECORDS_AT_ONCE
from groupcoord.coordinator.answers import sleep_s
from groupcoord.core.log.records import OffsetCommitRecord
from groupcoord.errors import UnansweredError
from groupcoord.events import Event, MemberAdded, MemberAssigned, MemberRemoved, RebalanceCompleted, RebalanceStarted
from groupcoord.log_store import StorageError, Ticket
from groupcoord.messages import Heartbeat, HeartbeatResponse, JoinGroupResponse

from .requests import CONFIG, GROUP, TOPIC, commit, committed, describe, fetch, join, sync


def run(story: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine; errors that the event loop only logs fail the test."""
    problems: list[dict[str, Any]] = []

    async def told() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
        await story

    asyncio.run(told())
    assert problems == []


def test_members_join_and_sync() -> None:
    """A waiting join delays no other request; each response has its request's type."""

    async def story() -> None:
        async with AsyncCoordinator(GroupCoordinator(config=CONFIG)) as coordinator:
            first = await coordinator.ask(join())
            await coordinator.ask(sync(first))
            second = coordinator.submit(join())
            beat: HeartbeatResponse = await coordinator.ask(Heartbeat(GROUP, first.generation_id, first.member_id))
            assert beat.error_code is ErrorCode.REBALANCE_IN_PROGRESS
            assert not second.done()
            joined: list[JoinGroupResponse] = [await coordinator.ask(join(first.member_id)), await second]
            synced = await asyncio.gather(*(coordinator.ask(sync(each)) for each in joined))
            assert [each.assignment.decode() for each in synced] == [each.member_id for each in joined]

    run(story())


def test_time_passes_by_itself() -> None:
    """Timers fire without requests: a first join waits for others, a silent member expires."""

    async def story() -> None:
        config = evolve(CONFIG, group_initial_rebalance_delay_ms=20)
        expired = asyncio.Event()
        async with AsyncCoordinator(
            GroupCoordinator(config=config),
            on_event=lambda event: expired.set() if type(event) is MemberRemoved else None,
        ) as coordinator:
            joined = await coordinator.ask(evolve(join(), session_timeout_ms=30))
            assert joined.generation_id == 1
            await asyncio.wait_for(expired.wait(), 10)

    run(story())


@pytest.mark.parametrize("how", ["timeout", "cancel"])
def test_who_stops_waiting_has_asked(how: str) -> None:
    """A join whose caller no longer waits still takes effect, as that of a disconnected client."""

    async def story() -> None:
        clock = ManualClock()
        config = evolve(CONFIG, group_initial_rebalance_delay_ms=3_000)
        async with AsyncCoordinator(GroupCoordinator(config=config, clock=clock)) as coordinator:
            if how == "timeout":
                with pytest.raises(TimeoutError):
                    await coordinator.ask(join(), timeout_s=0)
            else:
                waiting = asyncio.create_task(coordinator.ask(join()))
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.wait((waiting,))
            other = coordinator.submit(join())
            for _ in range(2):
                clock.advance(3_000)
                coordinator.change(GroupCoordinator.tick)
            (group,) = (await coordinator.ask(describe())).groups
            assert len(group.members) == 2
            assert other.done()

    run(story())


@pytest.mark.parametrize(("advance_ms", "sleep"), [(0, 3.0), (1_500, 1.5), (4_000, 0.0)])
def test_the_time_until_the_next_deadline(advance_ms: int, sleep: float) -> None:
    clock = ManualClock()
    coordinator = GroupCoordinator(config=evolve(CONFIG, group_initial_rebalance_delay_ms=3_000), clock=clock)
    coordinator.load_all()
    coordinator.submit(join())
    clock.advance(advance_ms)
    assert sleep_s(coordinator) == sleep


def test_a_request_that_is_replaced() -> None:
    """A waiting join that a newer one replaces is cancelled, with a reason."""

    async def story() -> None:
        config = evolve(CONFIG, group_initial_rebalance_delay_ms=3_000)
        async with AsyncCoordinator(GroupCoordinator(config=config, clock=ManualClock())) as coordinator:
            required = await coordinator.ask(evolve(join(), requires_known_member_id=True))
            assert required.error_code is ErrorCode.MEMBER_ID_REQUIRED
            waiting = coordinator.submit(join(required.member_id))
            coordinator.submit(join(required.member_id))
            with pytest.raises(UnansweredError):
                await waiting

    run(story())


def test_events_come_in_order() -> None:
    """The observer is called for each event, and may submit requests."""

    async def story() -> None:
        seen: list[type[Event]] = []
        coordinator: AsyncCoordinator

        def on_event(event: Event) -> None:
            seen.append(type(event))
            coordinator.submit(describe())

        coordinator = AsyncCoordinator(GroupCoordinator(config=CONFIG), on_event=on_event)
        async with coordinator:
            await coordinator.ask(sync(await coordinator.ask(join())))
            await asyncio.sleep(0)
        assert seen == [MemberAdded, RebalanceStarted, MemberAssigned, RebalanceCompleted]

    run(story())


def test_closing() -> None:
    """Waiting requests fail with NOT_COORDINATOR, later ones since the coordinator is closed."""

    async def story() -> None:
        config = evolve(CONFIG, group_initial_rebalance_delay_ms=3_000)
        coordinator = AsyncCoordinator(GroupCoordinator(config=config))
        async with coordinator:
            waiting = coordinator.submit(join())
        assert (await waiting).error_code is ErrorCode.NOT_COORDINATOR
        assert (await coordinator.ask(join())).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(story())


def test_before_it_is_started() -> None:
    async def story() -> None:
        with pytest.raises(RuntimeError, match="async with"):
            await AsyncCoordinator(GroupCoordinator()).ask(describe())

    run(story())


def test_a_store_that_answers_from_a_thread() -> None:
    """A commit is answered when a thread reports its write, or refused when it reports a failure."""

    async def story() -> None:
        store = MemoryLogStore(acknowledge_late=True)
        async with AsyncCoordinator(GroupCoordinator(config=CONFIG, log_store=store)) as coordinator:
            answers = [coordinator.submit(commit(5)), coordinator.submit(commit(6))]
            ((ticket, base_offset),) = store.write_waiting(1)
            (refused,) = store.drop_waiting()

            def answer() -> None:
                coordinator.appended(ticket, base_offset)
                coordinator.append_failed(refused, StorageError("full"))

            threading.Thread(target=answer).start()
            codes = [(await each).topics[0].partitions[0].error_code for each in answers]
            assert codes == [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]
            assert committed(await coordinator.ask(fetch())) == [5]

    run(story())


def test_loading_lets_others_have_their_turn() -> None:
    """A long log is read a part at a time; meanwhile its groups are being loaded, and then they are served."""

    async def story() -> None:
        store = MemoryLogStore()
        for number in range(3 * RECORDS_AT_ONCE):
            record = OffsetCommitRecord(GROUP, TOPIC, 0, number)
            store.append(0, Ticket(0, number), [LogRecord(record, 0)])
        config = evolve(CONFIG, offsets_topic_num_partitions=1)
        coordinator = AsyncCoordinator(GroupCoordinator(config=config, log_store=store))
        starting = asyncio.create_task(coordinator.start())
        await asyncio.sleep(0)
        codes = []
        while not starting.done():
            codes.append((await coordinator.ask(fetch())).groups[0].error_code)
            await asyncio.sleep(0)
        assert set(codes[:2]) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        assert committed(await coordinator.ask(fetch())) == [3 * RECORDS_AT_ONCE - 1]
        await coordinator.close()

    run(story())


class _BrokenStore(MemoryLogStore):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error, self.is_broken = error, True

    def read(self, partition: int) -> Any:
        if self.is_broken and partition == 1:
            raise self.error
        return super().read(partition)


@pytest.mark.parametrize("error", [StorageError("no such disk"), OSError("no such disk")])
@pytest.mark.parametrize("in_tasks", [False, True])
def test_a_log_that_cannot_be_read(error: Exception, in_tasks: bool) -> None:
    """Entering raises; who starts by hand serves the others, and loads the broken one again later."""

    async def story() -> None:
        broken = _BrokenStore(error)
        store = TaskLogStore(ThreadLogStore(broken)) if in_tasks else broken
        with pytest.raises(LoadError, match="no such disk"):
            async with AsyncCoordinator(GroupCoordinator(config=CONFIG, log_store=store)):
                pytest.fail("it was entered")
        coordinator = AsyncCoordinator(GroupCoordinator(config=CONFIG, log_store=store))
        with pytest.raises(LoadError):
            await coordinator.start()
        status = coordinator.coordinator.status
        assert [status(0), status(1), status(2)] == [
            PartitionStatus.ACTIVE,
            PartitionStatus.FAILED,
            PartitionStatus.ACTIVE,
        ]
        broken.is_broken = False
        await coordinator.load(1)
        assert status(1) is PartitionStatus.ACTIVE
        await coordinator.close()

    run(story())
