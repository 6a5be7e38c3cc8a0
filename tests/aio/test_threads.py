"""``ThreadSafeCoordinator``: threads ask, one more looks after the time, and none is left at the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from attrs import evolve

from groupcoord import ErrorCode, GroupCoordinator, LoadError, ManualClock, MemoryLogStore
from groupcoord.coordinator.threads import ThreadSafeCoordinator
from groupcoord.errors import UnansweredError
from groupcoord.events import Event, MemberAdded, MemberRemoved
from groupcoord.log_store import LogRecord, StorageError
from groupcoord.messages import JoinGroupResponse, OffsetFetchResponse

from .requests import CONFIG, commit, committed, describe, fetch, join, sync

WAIT_S = 20


def test_threads_share_it() -> None:
    """Four threads commit and fetch, each for its group, and read their last commits."""

    def work(number: int) -> list[int]:
        found: list[int] = []
        for offset in range(50):
            coordinator.ask(commit(offset, f"group {number}"))
            found += committed(coordinator.ask(fetch(f"group {number}")))
        return found

    with ThreadSafeCoordinator(GroupCoordinator(config=CONFIG)) as coordinator, ThreadPoolExecutor() as pool:
        assert list(pool.map(work, range(4))) == [list(range(50))] * 4


def test_members_wait_for_each_other() -> None:
    """Members in threads of their own join one generation, and each gets what the leader gave it."""
    clock = ManualClock()
    config = evolve(CONFIG, group_initial_rebalance_delay_ms=100)
    with (
        ThreadSafeCoordinator(GroupCoordinator(config=config, clock=clock)) as coordinator,
        ThreadPoolExecutor(3) as pool,
    ):
        waiting = [coordinator.submit(join()) for _ in range(3)]
        for _ in range(5):
            clock.advance(100)
            coordinator.change(GroupCoordinator.tick)
        joined: list[JoinGroupResponse] = [each.result(WAIT_S) for each in waiting]
        assert [each.generation_id for each in joined] == [1, 1, 1]
        synced = pool.map(lambda each: coordinator.ask(sync(each), timeout_s=WAIT_S), joined)
        assert [each.assignment.decode() for each in synced] == [each.member_id for each in joined]


def test_time_passes_by_itself() -> None:
    """Timers fire without requests: a first join waits for others, a silent member expires."""
    expired = threading.Event()
    seen: list[type[Event]] = []

    def on_event(event: Event) -> None:
        seen.append(type(event))
        if type(event) is MemberRemoved:
            expired.set()

    config = evolve(CONFIG, group_initial_rebalance_delay_ms=20)
    with ThreadSafeCoordinator(GroupCoordinator(config=config), on_event=on_event) as coordinator:
        joined = coordinator.ask(evolve(join(), session_timeout_ms=30), timeout_s=WAIT_S)
        assert joined.generation_id == 1
        assert expired.wait(WAIT_S)
    assert seen[0] is MemberAdded


def test_who_stops_waiting_has_asked() -> None:
    """A join whose caller no longer waits still takes effect, as that of a disconnected client."""
    clock = ManualClock()
    config = evolve(CONFIG, group_initial_rebalance_delay_ms=3_000)
    with ThreadSafeCoordinator(GroupCoordinator(config=config, clock=clock)) as coordinator:
        with pytest.raises(TimeoutError):
            coordinator.ask(join(), timeout_s=0)
        clock.advance(3_000)
        coordinator.change(GroupCoordinator.tick)
        (group,) = coordinator.ask(describe()).groups
        assert len(group.members) == 1


def test_a_request_that_is_replaced() -> None:
    """A waiting join that a newer one replaces is cancelled, with a reason."""
    config = evolve(CONFIG, group_initial_rebalance_delay_ms=3_000)
    with ThreadSafeCoordinator(GroupCoordinator(config=config, clock=ManualClock())) as coordinator:
        required = coordinator.ask(evolve(join(), requires_known_member_id=True))
        assert required.error_code is ErrorCode.MEMBER_ID_REQUIRED
        waiting = coordinator.submit(join(required.member_id))
        coordinator.submit(join(required.member_id))
        with pytest.raises(UnansweredError):
            waiting.result(WAIT_S)


def test_what_hangs_on_an_answer_may_ask() -> None:
    """A future's callback may submit requests, and delays no others."""
    with ThreadSafeCoordinator(GroupCoordinator(config=CONFIG)) as coordinator:
        found: Future[OffsetFetchResponse] = Future()
        store = coordinator.submit(commit(7))
        store.add_done_callback(lambda _: found.set_result(coordinator.ask(fetch())))
        assert committed(found.result(WAIT_S)) == [7]


def test_closing() -> None:
    """Waiting requests fail with NOT_COORDINATOR, later ones since the coordinator is closed."""
    before = threading.active_count()
    config = evolve(CONFIG, group_initial_rebalance_delay_ms=3_000)
    with ThreadSafeCoordinator(GroupCoordinator(config=config)) as coordinator:
        waiting = coordinator.submit(join())
    assert waiting.result(WAIT_S).error_code is ErrorCode.NOT_COORDINATOR
    assert coordinator.ask(join()).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert threading.active_count() == before


def test_a_store_that_answers_from_a_thread() -> None:
    store = MemoryLogStore(acknowledge_late=True)
    with ThreadSafeCoordinator(GroupCoordinator(config=CONFIG, log_store=store)) as coordinator:
        written, refused = coordinator.submit(commit(5)), coordinator.submit(commit(6))
        ((ticket, base_offset),) = store.write_waiting(1)
        (dropped,) = store.drop_waiting()
        threading.Thread(target=coordinator.appended, args=(ticket, base_offset)).start()
        assert written.result(WAIT_S).topics[0].partitions[0].error_code is ErrorCode.NONE
        threading.Thread(target=coordinator.append_failed, args=(dropped, StorageError("full"))).start()
        assert refused.result(WAIT_S).topics[0].partitions[0].error_code is ErrorCode.NOT_COORDINATOR


class _BrokenStore(MemoryLogStore):
    def read(self, partition: int) -> Iterator[LogRecord]:
        raise StorageError("no such disk")


def test_a_log_that_cannot_be_read() -> None:
    """Entering raises, and leaves no thread behind."""
    before = threading.active_count()
    with (
        pytest.raises(LoadError, match="no such disk"),
        ThreadSafeCoordinator(GroupCoordinator(config=CONFIG, log_store=_BrokenStore())),
    ):
        pytest.fail("it was entered")
    assert threading.active_count() == before


def test_time_goes_on_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """An error of timed work is logged, and the next timer still fires."""
    calls: list[Any] = []
    again = threading.Event()

    def on_event(event: Event) -> None:
        if type(event) is MemberRemoved:
            calls.append(event)
            if len(calls) == 2:
                again.set()
            raise ValueError("a mistake of the program")

    with ThreadSafeCoordinator(GroupCoordinator(config=CONFIG), on_event=on_event) as coordinator:
        for _ in range(2):
            coordinator.submit(evolve(join(), group_id=f"group {len(calls)}", session_timeout_ms=20))
            coordinator.submit(evolve(join(), group_id="another", session_timeout_ms=40))
        assert again.wait(WAIT_S)
    assert "timed work failed" in caplog.text
