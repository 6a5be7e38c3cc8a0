"""Events of groups and their causes."""

from __future__ import annotations

import pytest

from groupcoord import Config, GroupCoordinator, ManualClock, MemoryLogStore
from groupcoord.core.observer import MAX_TRIGGERS
from groupcoord.events import (
    Cause,
    Event,
    GroupLoaded,
    GroupRemoved,
    MemberAdded,
    MemberAssigned,
    MemberRemoved,
    MemberReplaced,
    RebalanceCompleted,
    RebalanceStarted,
    Trigger,
)
from groupcoord.log_store import RecordTooLargeError, StorageError
from groupcoord.messages import (
    DeleteGroups,
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetDelete,
    OffsetToCommit,
    SyncGroup,
    TopicToCommit,
    TopicToDelete,
)
from tests.core.driver import Driver, Group

SESSION_MS = 10_000
REBALANCE_MS = 30_000


class Fleet:
    """A coordinator on a virtual clock, and short ways to send it requests."""

    def __init__(self, **settings: int) -> None:
        self.clock = ManualClock(1_000_000)
        self.store = MemoryLogStore()
        self.config = Config(group_initial_rebalance_delay_ms=0, **settings)
        self.ids = iter(f"m{number}" for number in range(1, 100))
        self.coordinator = self.boot()

    def boot(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(
            config=self.config, clock=self.clock, log_store=self.store, new_member_id=lambda _: next(self.ids)
        )
        coordinator.observe()
        coordinator.load_all()
        return coordinator

    def join(self, member_id: str = "", *, instance: str | None = None, metadata: bytes = b"") -> str:
        """Send a join that needs no second step; return the id of a newcomer that was answered at once."""
        self.coordinator.submit(
            JoinGroup(
                "group",
                member_id,
                protocols=(JoinProtocol("range", metadata),),
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                group_instance_id=instance,
                client_id="client",
                client_host="/127.0.0.1",
                requires_known_member_id=False,
            )
        )
        self.coordinator.tick()
        replies = self.coordinator.take_replies()
        return replies[-1].response.member_id if replies else ""

    def sync(self, *member_ids: str, generation_id: int) -> None:
        for member_id in member_ids:
            self.coordinator.submit(SyncGroup("group", generation_id, member_id))
        self.coordinator.take_replies()

    def heartbeat_for(self, duration_ms: int, member_id: str, *, generation_id: int) -> None:
        """Advance the clock while a member sends heartbeats."""
        for _ in range(duration_ms // 5_000):
            self.pass_time(5_000)
            self.coordinator.submit(Heartbeat("group", generation_id, member_id))
        self.coordinator.take_replies()

    def pass_time(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.coordinator.tick()

    def events(self) -> list[Event]:
        return self.coordinator.take_events()

    def stable(self) -> str:
        """Bring one member to a stable generation 1, its events taken."""
        member_id = self.join()
        self.sync(member_id, generation_id=1)
        self.events()
        return member_id


def starts(events: list[Event]) -> list[Trigger]:
    return [event.trigger for event in events if isinstance(event, RebalanceStarted)]


def test_a_first_generation_is_told_from_join_to_stable() -> None:
    """Events name the member, the cause of the rebalance, the generation and its duration."""
    fleet = Fleet()
    fleet.join()
    fleet.clock.advance(250)
    fleet.sync("m1", generation_id=1)
    assert fleet.events() == [
        MemberAdded("group", 1_000_000, "m1", None, "client", "/127.0.0.1"),
        RebalanceStarted("group", 1_000_000, 0, Trigger(Cause.JOIN, "m1")),
        MemberAssigned("group", 1_000_250, "m1", None, 1, b""),
        RebalanceCompleted("group", 1_000_250, 0, 1, (Trigger(Cause.JOIN, "m1"),), 250, 1),
    ]


def test_events_are_off_by_default() -> None:
    """Without an observer nothing is collected; counters still count."""
    fleet = Fleet()
    fleet.coordinator.observe(events=False)
    fleet.stable()
    assert fleet.events() == []
    assert fleet.coordinator.counters.group_completed_rebalances == 1


@pytest.mark.parametrize(("metadata", "cause"), [(b"", Cause.LEADER_REJOIN), (b"new", Cause.METADATA_CHANGE)])
def test_a_rejoin_is_the_cause(metadata: bytes, cause: Cause) -> None:
    """A leader that rejoins unchanged and a member with changed metadata have different causes."""
    fleet = Fleet()
    member_id = fleet.stable()
    fleet.join(member_id, metadata=metadata)
    assert starts(fleet.events()) == [Trigger(cause, member_id)]


def test_a_leave_is_the_cause() -> None:
    """A member that leaves is removed for that, and the group falls empty."""
    fleet = Fleet()
    member_id = fleet.stable()
    fleet.coordinator.submit(LeaveGroup("group", (LeavingMember(member_id),)))
    assert fleet.events() == [
        MemberRemoved("group", 1_000_000, member_id, None, Cause.LEAVE),
        RebalanceStarted("group", 1_000_000, 1, Trigger(Cause.LEAVE, member_id)),
        RebalanceCompleted("group", 1_000_000, 1, 2, (Trigger(Cause.LEAVE, member_id),), 0, 0),
    ]


def test_a_silent_member_is_the_cause() -> None:
    """A session that expires names its member, and is counted."""
    fleet = Fleet()
    member_id = fleet.stable()
    fleet.pass_time(SESSION_MS)
    events = fleet.events()
    assert events[0] == MemberRemoved("group", 1_010_000, member_id, None, Cause.SESSION_EXPIRY)
    assert starts(events) == [Trigger(Cause.SESSION_EXPIRY, member_id)]
    assert fleet.coordinator.counters.session_expirations == 1


def test_a_member_that_does_not_rejoin_in_time_is_removed_for_that() -> None:
    """The rebalance time-out removes who lives but did not join; the rebalance keeps the cause it had."""
    fleet = Fleet()
    member_id = fleet.stable()
    fleet.join()
    fleet.heartbeat_for(REBALANCE_MS, member_id, generation_id=1)
    events = fleet.events()
    assert MemberRemoved("group", 1_000_000 + REBALANCE_MS, member_id, None, Cause.REBALANCE_TIMEOUT) in events
    assert starts(events) == [Trigger(Cause.JOIN, "m2")]


def test_a_member_that_does_not_sync_in_time_is_the_cause() -> None:
    fleet = Fleet()
    member_id = fleet.join()
    fleet.events()
    fleet.heartbeat_for(REBALANCE_MS, member_id, generation_id=1)
    events = fleet.events()
    assert events[0] == MemberRemoved("group", 1_000_000 + REBALANCE_MS, member_id, None, Cause.SYNC_TIMEOUT)
    assert starts(events) == [Trigger(Cause.SYNC_TIMEOUT, member_id)]


def test_a_restarted_static_member_is_replaced_without_a_rebalance() -> None:
    """The new id stands for the old one; nothing else happens in a stable group."""
    fleet = Fleet()
    member_id = fleet.join(instance="i")
    fleet.sync(member_id, generation_id=1)
    fleet.events()
    fleet.join(instance="i")
    assert fleet.events() == [MemberReplaced("group", 1_000_000, member_id, "m2", "i")]


def test_a_replaced_static_member_is_the_cause_while_completing() -> None:
    """Before the assignments are out, a restart starts the round over; the rebalance has both causes then."""
    fleet = Fleet()
    fleet.join(instance="i")
    fleet.join(instance="i")
    fleet.sync("m2", generation_id=2)
    triggers = (Trigger(Cause.JOIN, "m1"), Trigger(Cause.STATIC_REPLACE, "m2"))
    assert fleet.events()[-1] == RebalanceCompleted("group", 1_000_000, 0, 2, triggers, 0, 1)


def test_a_failed_write_of_assignments_is_the_cause() -> None:
    """Members rejoin since the log refused the assignments."""
    fleet = Fleet()
    member_id = fleet.join()
    fleet.events()
    fleet.store.fail_next(RecordTooLargeError("injected"))
    fleet.sync(member_id, generation_id=1)
    assert starts(fleet.events()) == [Trigger(Cause.ASSIGNMENT_FAILED)]


def test_a_load_tells_the_groups_and_an_unload_that_they_are_gone() -> None:
    """Groups come with a load, generation and size included, and go with an unload."""
    fleet = Fleet()
    fleet.stable()
    fleet.coordinator = fleet.boot()
    assert fleet.events() == [GroupLoaded("group", 1_000_000, 1, 1)]
    fleet.coordinator.unload(fleet.coordinator.partition_of("group"))
    assert fleet.events() == [GroupRemoved("group", 1_000_000, Cause.UNLOAD)]


def test_a_group_larger_than_the_limit_rebalances_because_of_the_load() -> None:
    """A lowered group.max.size makes a loaded group start over."""
    fleet = Fleet()
    fleet.join()
    fleet.join()
    fleet.join("m1")
    fleet.coordinator.submit(SyncGroup("group", 2, "m1"))
    fleet.config = Config(group_initial_rebalance_delay_ms=0, group_max_size=1)
    fleet.coordinator = fleet.boot()
    assert starts(fleet.events()) == [Trigger(Cause.LOAD)]


def test_deletions_and_expiry_are_told_and_counted() -> None:
    """A deleted group and an expired one have their reasons; offsets are counted under the same ones."""
    fleet = Fleet(offsets_retention_minutes=1, offsets_retention_check_interval_ms=60_000)
    topics = (TopicToCommit("t", (OffsetToCommit(0, 1), OffsetToCommit(1, 1))),)
    fleet.coordinator.call(OffsetCommit("deleted", topics))
    fleet.coordinator.call(OffsetCommit("expired", topics))
    fleet.coordinator.call(OffsetDelete("deleted", (TopicToDelete("t", (0,)),)))
    fleet.coordinator.call(DeleteGroups(("deleted",)))
    fleet.pass_time(60_000)
    assert fleet.events() == [
        GroupRemoved("deleted", 1_000_000, Cause.DELETION),
        GroupRemoved("expired", 1_060_000, Cause.EXPIRY),
    ]
    counters = fleet.coordinator.counters
    assert (counters.offset_commits, counters.offset_deletions, counters.offset_expirations) == (4, 2, 2)


def test_a_group_that_was_never_written() -> None:
    """A group whose first record fails emits its removal, and its successor begins in Empty."""
    driver = Driver(late=True)
    driver.coordinator.observe()
    group = Group(driver)
    group.join("a")
    driver.refuse(StorageError("no"))
    *_, last = driver.coordinator.take_events()
    assert last == GroupRemoved("group", driver.clock.now_ms(), Cause.CREATION_FAILED)
    driver.sleep(100_000)
    group.join("b")
    driver.write()
    driver.sleep(3_000)
    leader = group.members[0]
    group.sync(leader)
    driver.write()
    *_, completed = driver.coordinator.take_events()
    assert isinstance(completed, RebalanceCompleted)
    assert completed.duration_ms == 3_000
    assert [trigger.member_id for trigger in completed.triggers] == [leader]


def test_a_rebalance_remembers_its_first_reasons_only() -> None:
    """A rebalance that is started over again and again does not collect reasons without end."""
    driver = Driver()
    driver.coordinator.observe()
    group = Group(driver)
    member_ids = group.generation_of("a", "b")
    for number in range(MAX_TRIGGERS + 5):
        for member_id in member_ids:
            group.rejoin(member_id, "range", f"other-{number}")
    group.assign()
    (completed,) = [event for event in driver.coordinator.take_events() if isinstance(event, RebalanceCompleted)]
    assert len(completed.triggers) == MAX_TRIGGERS
    assert completed.generation_id - completed.old_generation_id == MAX_TRIGGERS + 6
