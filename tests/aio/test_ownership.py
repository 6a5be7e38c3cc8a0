"""Take-over of the log by another owner: the former one sends no outdated responses."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from attrs import evolve

from groupcoord import ConfigError, ErrorCode, GroupCoordinator, ManualClock, MemoryLogStore, PartitionStatus, Ticket
from groupcoord.aio import AsyncCoordinator, TaskLogStore, ThreadLogStore
from groupcoord.clock import LeapingClock
from groupcoord.coordinator.threads import ThreadSafeCoordinator
from groupcoord.errors import OwnershipLostError, StorageError
from groupcoord.events import Event, GroupRemoved, MemberAdded, OwnershipLost
from groupcoord.laws import error_codes
from groupcoord.log_store import LogStoreError, OwnedStore, TakesAnswers
from groupcoord.messages import (
    CompleteTransaction,
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    CoordinatorType,
    DeleteGroups,
    FindCoordinator,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetDelete,
    Request,
    TopicToDelete,
)

from .requests import CONFIG, GROUP, TOPIC, commit, committed, describe, fetch, join, sync
from .test_coordinator import run

S = TypeVar("S", bound=MemoryLogStore)
LEASE_MS, LOOK_MS = 1_500, 500
WAIT_S = 20
GONE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
EVERYTHING: tuple[Request[Any], ...] = (
    join(),
    Heartbeat(GROUP, 1, "m"),
    LeaveGroup(GROUP, (LeavingMember("m"),)),
    commit(1),
    fetch(),
    describe(),
    ListGroups(),
    DeleteGroups((GROUP,)),
    OffsetDelete(GROUP, (TopicToDelete(TOPIC, (0,)),)),
    FindCoordinator(CoordinatorType.GROUP, (GROUP,)),
    CompleteTransaction(0, 7, 0, True),
    ConsumerGroupHeartbeat(GROUP, "m", 1),
    ConsumerGroupDescribe((GROUP,)),
)


class LateLooks(MemoryLogStore):
    """Log in memory with immediate writes and late ownership checks, answered by the test."""

    def __init__(self) -> None:
        super().__init__(lease_ms=LEASE_MS)
        self.asked = 0
        self.coordinator: TakesAnswers | None = None

    def check_ownership(self) -> bool:
        self.asked += 1
        return False

    def answer(self, error: LogStoreError | None = None) -> None:
        assert self.coordinator is not None
        try:
            super().check_ownership()
        except OwnershipLostError as lost:
            error = lost
        self.asked -= 1
        self.coordinator.ownership_checked(error)


class FailingLooks(MemoryLogStore):
    """Log in memory whose ownership check fails for a while."""

    error: LogStoreError | None = None

    def check_ownership(self) -> bool:
        if self.error is not None:
            raise self.error
        return super().check_ownership()


def coordinator_on(store: MemoryLogStore, clock: ManualClock) -> GroupCoordinator:
    coordinator = GroupCoordinator(config=CONFIG, clock=clock, log_store=store)
    if isinstance(store, LateLooks):
        store.coordinator = coordinator
    coordinator.observe()
    coordinator.load_all()
    return coordinator


def joined(coordinator: GroupCoordinator) -> JoinGroupResponse:
    coordinator.submit(join())
    coordinator.tick()
    ((_, answer),) = coordinator.take_replies()
    assert isinstance(answer, JoinGroupResponse)
    coordinator.call(sync(answer))
    return answer


def owner(store: S) -> tuple[ManualClock, S, GroupCoordinator, JoinGroupResponse]:
    """Return a coordinator that owns a log with a lease, with clock, store and the only member of its group."""
    clock = ManualClock()
    coordinator = coordinator_on(store, clock)
    return clock, store, coordinator, joined(coordinator)


def beat(coordinator: GroupCoordinator, member: JoinGroupResponse) -> ErrorCode:
    return coordinator.call(Heartbeat(GROUP, member.generation_id, member.member_id)).error_code


# ---------------------------------------------------------------- the coordinator by itself


def test_a_deposed_owner_finds_out_though_nothing_is_written() -> None:
    """It checks three times a lease; until then heartbeats are answered, and later all requests fail."""
    clock, store, coordinator, member = owner(MemoryLogStore(lease_ms=LEASE_MS))
    lost: list[OwnershipLostError] = []
    coordinator.on_lost = lost.append
    coordinator.take_events()
    store.take_over()

    clock.advance(LOOK_MS - 1)
    coordinator.tick()
    assert beat(coordinator, member) is ErrorCode.NONE
    assert coordinator.next_deadline_ms() == LOOK_MS
    clock.advance(1)
    coordinator.tick()

    assert lost == [coordinator.lost]
    events = coordinator.take_events()
    assert [type(event) for event in events] == [OwnershipLost, GroupRemoved]
    assert {coordinator.status(index) for index in range(3)} == {PartitionStatus.FAILED}
    assert coordinator.next_deadline_ms() is None
    for request in EVERYTHING:
        answer = coordinator.call(request)
        assert set(error_codes(answer)) <= set(GONE), answer
        assert error_codes(answer), answer


def test_a_stalled_owner_says_nothing_that_was_true_before() -> None:
    """After a pause longer than a lease, earlier responses become refusals."""
    clock, store, coordinator, member = owner(MemoryLogStore(lease_ms=LEASE_MS))
    coordinator.submit(Heartbeat(GROUP, member.generation_id, member.member_id), "beat")
    coordinator.take_events()
    coordinator.submit(join(), "waits")
    store.take_over()

    clock.advance(LEASE_MS)

    assert coordinator.take_events() == []
    answers = dict(coordinator.take_replies())
    assert {token: answer.error_code for token, answer in answers.items()} == dict.fromkeys(
        ("beat", "waits"), ErrorCode.NOT_COORDINATOR
    )
    assert [type(event) for event in coordinator.take_events()] == [OwnershipLost, GroupRemoved]
    assert coordinator.waiting_tokens() == []


def test_a_stalled_owner_does_not_say_who_is_no_member() -> None:
    """Its view of a group may be outdated as well: the member may exist at the new owner."""
    clock, store, coordinator, member = owner(MemoryLogStore(lease_ms=LEASE_MS))
    store.take_over()
    clock.advance(LEASE_MS)
    coordinator.submit(evolve(commit(1), generation_id=member.generation_id, member_id="a stranger"), "commit")
    ((_, answer),) = coordinator.take_replies()
    assert error_codes(answer) == [ErrorCode.NOT_COORDINATOR]


def test_a_stalled_owner_that_owns_still_goes_on() -> None:
    """It checks at once, and then answers."""
    clock = ManualClock()
    coordinator = coordinator_on(MemoryLogStore(lease_ms=LEASE_MS), clock)
    member = joined(coordinator)

    clock.advance(LEASE_MS + 5_000)

    assert beat(coordinator, member) is ErrorCode.NONE
    coordinator.check()


def test_while_nobody_can_tell_nothing_is_said() -> None:
    """The database is out of reach for longer than a lease: refusals, and after that all is as before."""
    clock, store, coordinator, member = owner(FailingLooks(lease_ms=LEASE_MS))
    store.error = StorageError("no connection")
    for _ in range(2):
        clock.advance(LOOK_MS)
        coordinator.tick()
        assert beat(coordinator, member) is ErrorCode.NONE
    clock.advance(LOOK_MS)
    coordinator.tick()
    assert beat(coordinator, member) is ErrorCode.NOT_COORDINATOR
    assert coordinator.lost is None
    store.error = None
    clock.advance(LOOK_MS)
    coordinator.tick()

    assert beat(coordinator, member) is ErrorCode.NONE


def test_an_append_may_be_what_tells() -> None:
    """All log partitions are given up at once, not only the one that was to be written."""
    clock, store = ManualClock(), MemoryLogStore(lease_ms=LEASE_MS)
    coordinator = coordinator_on(store, clock)
    store.take_over()

    assert error_codes(coordinator.call(commit(1))) == [ErrorCode.NOT_COORDINATOR]
    assert coordinator.lost is not None
    assert {coordinator.status(index) for index in range(3)} == {PartitionStatus.FAILED}


def test_answers_wait_for_a_look_that_is_answered_later() -> None:
    """They are sent when the ownership is confirmed, and refused if it is unknown for a lease."""
    clock, store = ManualClock(), LateLooks()
    coordinator = coordinator_on(store, clock)
    assert store.asked == 1
    store.answer()
    member = joined(coordinator)
    request = Heartbeat(GROUP, member.generation_id, member.member_id)

    clock.advance(LEASE_MS)
    coordinator.submit(request, "waits")
    assert coordinator.take_replies() == []
    assert coordinator.waiting_tokens() == ["waits"]
    store.answer()
    ((token, answer),) = coordinator.take_replies()
    assert (token, answer and answer.error_code) == ("waits", ErrorCode.NONE)

    clock.advance(LEASE_MS)
    coordinator.submit(request, "waits in vain")
    assert coordinator.take_replies() == []
    clock.advance(LEASE_MS)
    coordinator.tick()
    ((token, answer),) = coordinator.take_replies()
    assert (token, answer and answer.error_code) == ("waits in vain", ErrorCode.NOT_COORDINATOR)
    assert store.asked == 1, "one look at a time"
    store.answer()  # so late that it says nothing any more
    coordinator.submit(request, "waits again")
    assert coordinator.take_replies() == []
    coordinator.close()
    ((token, answer),) = coordinator.take_replies()
    assert (token, answer and answer.error_code) == ("waits again", ErrorCode.NOT_COORDINATOR)
    store.answer()
    assert error_codes(coordinator.call(request)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert coordinator.next_deadline_ms() is None


def test_a_lease_begins_with_the_look_not_with_its_answer() -> None:
    clock, store = ManualClock(), LateLooks()
    coordinator = coordinator_on(store, clock)
    clock.advance(LEASE_MS - 100)
    store.answer()
    assert coordinator.may_answer()
    clock.advance(100)
    assert not coordinator.may_answer()


def test_who_closes_too_late_tells_of_nothing_but_the_end() -> None:
    """Events that wait for an ownership check are dropped when the coordinator is closed."""
    clock, store = ManualClock(), FailingLooks(lease_ms=LEASE_MS)
    coordinator = coordinator_on(store, clock)
    joined(coordinator)
    store.error = StorageError("no connection")
    clock.advance(LEASE_MS)
    coordinator.close()

    assert [type(event) for event in coordinator.take_events()] == [GroupRemoved]


def test_who_can_be_followed_by_nobody_looks_at_nothing() -> None:
    """A log in memory without a lease costs nothing, and its coordinator wants to be woken for nothing new."""
    coordinator = coordinator_on(MemoryLogStore(), ManualClock())

    assert coordinator._ownership is None
    assert coordinator.may_answer()
    assert coordinator.lost is None
    coordinator.ownership_checked()


def test_a_log_that_is_owned_again() -> None:
    """After a load, also after a loss, the coordinator owns its state again."""
    clock, store = ManualClock(), MemoryLogStore(lease_ms=LEASE_MS)
    coordinator = coordinator_on(store, clock)
    coordinator.call(commit(42))
    store.take_over()
    coordinator.call(commit(43))
    assert coordinator.lost
    store._is_lost = False  # as a store may that fights for its log
    coordinator.load_all()

    assert coordinator.lost is None
    assert committed(coordinator.call(fetch())) == [42]


def test_a_lease_is_shorter_than_a_session() -> None:
    """Otherwise sessions would end before another owner can take over."""
    with pytest.raises(ConfigError, match=r"45001 ms is longer than group\.consumer\.session\.timeout\.ms=45000"):
        GroupCoordinator(log_store=MemoryLogStore(lease_ms=45_001))


def test_what_was_taken_over_takes_nothing_more() -> None:
    """A late append of the deposed owner does not get into the log, nor does what waited."""
    store = MemoryLogStore(acknowledge_late=True, lease_ms=LEASE_MS)
    coordinator = coordinator_on(store, ManualClock())
    coordinator.submit(commit(1))
    successor = store.take_over()
    assert store.write_waiting() == []
    with pytest.raises(OwnershipLostError):
        store.append(0, Ticket(0, 9), [])
    assert [list(successor.read(index)) for index in range(3)] == [[], [], []]
    assert isinstance(successor, OwnedStore)


# ---------------------------------------------------------------- in an event loop


def make_stores() -> list[Callable[[MemoryLogStore], Any]]:
    """Return how a log that answers at once is given to a coordinator: as it is, or through threads."""
    return [lambda store: store, lambda store: TaskLogStore(ThreadLogStore(store))]


@pytest.mark.parametrize("given", make_stores(), ids=["at once", "by tasks"])
def test_the_body_ends_and_somebody_is_told(
    given: Callable[[MemoryLogStore], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """One line is logged, the event and the callback come, and OwnershipLostError comes out of the ``async with``."""
    told: list[object] = []

    async def story() -> None:
        clock, store = LeapingClock(), MemoryLogStore(lease_ms=LEASE_MS)
        inner = GroupCoordinator(config=CONFIG, clock=clock, log_store=given(store))
        coordinator = AsyncCoordinator(inner, on_event=told.append, on_lost=told.append)

        async def serve() -> None:
            async with coordinator:
                await coordinator.ask(sync(await coordinator.ask(join())))
                store.take_over()
                clock.advance(LOOK_MS)
                coordinator.change(GroupCoordinator.tick)
                await asyncio.sleep(WAIT_S)

        with pytest.raises(OwnershipLostError, match="another owner"):
            await serve()
        assert error_codes(await coordinator.ask(join())) == [ErrorCode.NOT_COORDINATOR]
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0

    with caplog.at_level(logging.ERROR, "groupcoord"):
        run(story())

    assert [record.getMessage() for record in caplog.records] == [
        "nothing is coordinated here any more, all is answered NOT_COORDINATOR: another owner has taken the log over"
    ]
    losses = [type(each) for each in told if isinstance(each, OwnershipLost | OwnershipLostError)]
    assert sorted(losses, key=str) == [OwnershipLost, OwnershipLostError]


def test_an_answer_that_was_given_before_the_stall_and_read_after_it() -> None:
    """A task that resumes after the end of the lease gets a response that was checked again."""

    async def story() -> None:
        clock, store = LeapingClock(), MemoryLogStore(lease_ms=LEASE_MS)
        config = evolve(CONFIG, group_initial_rebalance_delay_ms=LOOK_MS)
        coordinator = AsyncCoordinator(GroupCoordinator(config=config, clock=clock, log_store=store))
        await coordinator.start()
        asked = asyncio.ensure_future(coordinator.ask(join()))
        await asyncio.sleep(0)
        clock.advance(LOOK_MS)
        coordinator.change(GroupCoordinator.tick)  # the answer is there, and nobody has read it
        store.take_over()
        clock.advance(LEASE_MS)
        assert (await asked).error_code is ErrorCode.NOT_COORDINATOR
        await coordinator.close()

    run(story())


def test_an_event_that_was_held_up_is_not_told() -> None:
    """Assignments that may belong to another owner are not emitted."""
    told: list[Event] = []

    async def story() -> None:
        clock, store = LeapingClock(), MemoryLogStore(lease_ms=LEASE_MS)
        inner = GroupCoordinator(config=CONFIG, clock=clock, log_store=store)
        coordinator = AsyncCoordinator(inner, on_event=told.append)
        await coordinator.start()
        coordinator.submit(join())
        store.take_over()
        clock.advance(LEASE_MS)
        for _ in range(3):
            await asyncio.sleep(0)
        coordinator.change(GroupCoordinator.tick)
        for _ in range(3):
            await asyncio.sleep(0)
        await coordinator.close()

    run(story())
    assert MemberAdded not in map(type, told)
    assert OwnershipLost in map(type, told)


def test_another_error_of_the_body_comes_out_as_it_is() -> None:
    """So does a cancellation from outside; a body that has just ended raises the loss of the log."""

    async def story() -> None:
        async def serve(then: Callable[[], object]) -> None:
            store = MemoryLogStore(lease_ms=LEASE_MS)
            async with AsyncCoordinator(GroupCoordinator(config=CONFIG, log_store=store)) as coordinator:
                store.take_over()
                coordinator.submit(commit(1))
                then()

        with pytest.raises(OwnershipLostError):
            await serve(lambda: None)  # the body is over before it can be cancelled
        await asyncio.sleep(0)  # and no cancellation is left behind
        with pytest.raises(KeyError):
            await serve(lambda: {}["mine"])
        current = asyncio.current_task
        serving = asyncio.ensure_future(serve(lambda: (task := current()) and task.cancel()))
        await asyncio.wait((serving,))
        assert serving.cancelled()

    run(story())


def test_who_never_owned_the_log_does_not_start() -> None:
    async def story() -> None:
        store = MemoryLogStore(lease_ms=LEASE_MS)
        store.take_over()
        with pytest.raises(OwnershipLostError):
            async with AsyncCoordinator(GroupCoordinator(config=CONFIG, log_store=store)):
                pytest.fail("there is nothing to serve")

    run(story())


# ---------------------------------------------------------------- among threads


def test_among_threads(caplog: pytest.LogCaptureFixture) -> None:
    """The timer thread checks; the end of the ``with`` block raises the loss of the log."""
    store, lost = MemoryLogStore(lease_ms=30), threading.Event()
    inner = GroupCoordinator(config=CONFIG, log_store=store)

    def serve() -> None:
        with ThreadSafeCoordinator(inner, on_lost=lambda error: lost.set()) as coordinator:
            member = coordinator.ask(join(), timeout_s=WAIT_S)
            store.take_over()
            assert lost.wait(WAIT_S)
            answer = coordinator.ask(Heartbeat(GROUP, member.generation_id, member.member_id), timeout_s=WAIT_S)
            assert answer.error_code is ErrorCode.NOT_COORDINATOR

    with caplog.at_level(logging.ERROR, "groupcoord"), pytest.raises(OwnershipLostError):
        serve()
    assert len(caplog.records) == 1


def test_an_answer_that_a_thread_reads_too_late() -> None:
    """As in an event loop: it is checked again when the requesting thread resumes."""
    clock, store = ManualClock(), MemoryLogStore(lease_ms=LEASE_MS)

    class Stalls(GroupCoordinator):
        def may_answer(self) -> bool:
            store.take_over()
            clock.advance(LEASE_MS)
            return super().may_answer()

    with (
        pytest.raises(OwnershipLostError),
        ThreadSafeCoordinator(Stalls(config=CONFIG, clock=clock, log_store=store)) as coordinator,
    ):
        assert coordinator.ask(JoinGroup("other"), timeout_s=WAIT_S).error_code is ErrorCode.NOT_COORDINATOR
