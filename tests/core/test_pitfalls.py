"""Bugs that Kafka and its re-implementations had over the years; each stays away."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupState, LogRecord, Ticket
from groupcoord.core.log.records import GroupMetadataRecord, GroupTombstone, OffsetCommitRecord
from groupcoord.messages import JoinedMember
from tests.core.driver import SESSION_MS, START_MS, Driver, Group


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def test_kafka_2017() -> None:
    """A failover before the assignments are durable brings no second leader's assignment to a member."""
    driver = Driver(late=True)
    group = Group(driver)
    a, b = group.generation_of("a", "b")
    driver.write()
    syncs = [group.sync(a, {b: b"B"}), group.sync(b)]
    assert [sent.is_waiting for sent in syncs] == [True, True]
    driver.restart()
    assert group.sync(b, generation=1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_kafka_2557(group: Group) -> None:
    """A stale generation is ILLEGAL_GENERATION also during a rebalance, the current one REBALANCE_IN_PROGRESS."""
    a, b = group.stable("a", "b")
    group.rejoin(a)
    assert group.heartbeat(b, generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert group.heartbeat(b, generation=1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_kafka_4362(driver: Driver, group: Group) -> None:
    """Members of a moved partition are told NOT_COORDINATOR, not that they are unknown."""
    (a,) = group.stable("a")
    driver.coordinator.unload(0)
    assert group.heartbeat(a, generation=1) is ErrorCode.NOT_COORDINATOR
    assert group.commit(1, member_id=a, generation=1).error is ErrorCode.NOT_COORDINATOR


def test_kafka_4704(driver: Driver, group: Group) -> None:
    """A group id may be used again for plain offsets after the group was deleted, and loads."""
    (a,) = group.stable("a")
    group.left(a)
    driver.delete("group")
    group.commit(5)
    driver.restart()
    assert group.committed() == {"orders": {0: 5}}
    assert isinstance(driver.written()[-2], GroupTombstone)


def test_kafka_7196(driver: Driver, group: Group) -> None:
    """A member that was dropped at the end of a round causes no ghost rebalance later."""
    a, _ = group.stable("a", "b", session_ms=70_000, rebalance_ms=10_000)
    group.rejoin(a)
    driver.sleep(10_000)
    group.assign()
    for _ in range(20):
        driver.sleep(5_000)
        assert group.heartbeat(a) is ErrorCode.NONE
    assert group.generation == 2


def test_kafka_8715(driver: Driver, group: Group) -> None:
    """After a load without a state timestamp, new member ids are still made and differ."""
    record = GroupMetadataRecord("group", "consumer", 3, None, None)
    driver.log.append(0, Ticket(0, 0), [LogRecord(record, START_MS)])
    driver.restart()
    assert group.ask_for_id("a") != group.ask_for_id("a")


def test_kafka_9801(group: Group) -> None:
    """A static member that returns in CompletingRebalance gets a share of its own, not its old id."""
    a, b = group.generation_of("a", "@b")
    group.join("b", instance="b")
    rejoined = group.rejoin(a)
    assert [member.member_id for member in rejoined.joined.members] == [a, "b-2"]
    assert b not in group.members


def test_kafka_9844(driver: Driver) -> None:
    """With a lower limit, it is the last to rejoin who lose, whatever the order in which they first joined."""
    group = Group(driver)
    ids = group.stable("a", "b", "c")
    driver.restart(group_max_size=2)
    results = [group.rejoin(member_id) for member_id in reversed(ids)]
    assert [sent.is_waiting for sent in results[:2]] == [True, True]
    assert results[2].error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_kafka_10401(driver: Driver, group: Group) -> None:
    """The moment of the state change is written, and survives a restart."""
    (a,) = group.stable("a")
    driver.sleep(1_000)
    group.left(a)
    emptied = driver.clock.now_ms()
    driver.sleep(5_000)
    driver.restart()
    assert group.inside.state_timestamp_ms == emptied


def test_kafka_14422(group: Group) -> None:
    """The leader is shown instance ids; what an old client cannot read is for its protocol version to drop."""
    group.generation_of("a", "@b")
    shown = group.rejoin("a-1").joined.members
    assert shown[1] == JoinedMember("b-1", "b", b"metadata")


def test_kop_380(group: Group) -> None:
    """A member that rejoins with changed metadata while it is not the one awaited updates its place."""
    a, b = group.stable("a", "b")
    group.rejoin(a)
    again = group.rejoin(a, "range", "sticky")
    assert group.rejoin(b).joined.generation_id == 2
    assert again.joined.error_code is ErrorCode.NONE


def test_a_generation_does_not_go_back_with_a_new_group(driver: Driver, group: Group) -> None:
    """A group that is deleted and made anew counts from 1; members of the old one are unknown."""
    (a,) = group.stable("a")
    group.left(a)
    driver.delete("group")
    (b,) = group.stable("b")
    assert group.generation == 1
    assert group.heartbeat(a, generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.heartbeat(b) is ErrorCode.NONE


def test_the_timer_of_a_former_member(driver: Driver, group: Group) -> None:
    """The session of a static member's former id has no effect on its new one."""
    a, _ = group.stable("a", "@x")
    driver.sleep(5_000)
    group.join("x", instance="x")
    group.heartbeat(a)
    driver.sleep(SESSION_MS - 5_000)
    assert group.members == [a, "x-2"]
    assert group.state is GroupState.STABLE


def test_a_commit_of_an_old_group_does_not_come_back(driver: Driver, group: Group) -> None:
    """A deletion that follows a commit in the log removes it, on the way or not."""
    driver = Driver(late=True)
    group = Group(driver)
    group.commit(1)
    driver.write()
    group.commit(2)
    driver.delete("group")
    driver.write()
    assert group.committed() == {}
    driver.restart()
    assert group.state is None
    assert isinstance(driver.written()[0], OffsetCommitRecord)
