"""Heartbeats and sessions: who is kept alive by what, and what follows when a session ends."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupState
from groupcoord.core.log.records import GroupMetadataRecord
from tests.core.driver import SESSION_MS, Driver, Group


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def test_heartbeats_keep_alive(driver: Driver, group: Group) -> None:
    """A member that sends heartbeats within its session time-out stays, however long."""
    (a,) = group.stable("a", session_ms=6_000)
    for _ in range(10):
        driver.sleep(5_999)
        assert group.heartbeat(a) is ErrorCode.NONE
    assert group.state is GroupState.STABLE


def test_silence(driver: Driver, group: Group) -> None:
    """A silent member is removed exactly at its session time-out, and the others are told to rejoin."""
    a, b = group.stable("a", "b")
    driver.sleep(SESSION_MS - 1)
    assert group.heartbeat(a) is ErrorCode.NONE
    assert group.members == [a, b]
    driver.sleep(1)
    assert group.members == [a]
    assert group.heartbeat(a) is ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeat_while_preparing(driver: Driver, group: Group) -> None:
    """REBALANCE_IN_PROGRESS keeps the session alive too (KAFKA-10134)."""
    a, b = group.stable("a", "b")
    group.rejoin(a)
    for _ in range(5):
        driver.sleep(9_999)
        assert group.heartbeat(b) is ErrorCode.REBALANCE_IN_PROGRESS
    assert b in group.members


def test_commits_keep_alive(driver: Driver, group: Group) -> None:
    """A commit of the current generation counts as a heartbeat, in Stable and while preparing (KAFKA-3470)."""
    a, b = group.stable("a", "b")
    driver.sleep(9_000)
    group.commit(1, member_id=a)
    group.commit(1, member_id=b)
    driver.sleep(9_000)
    group.rejoin(a)
    assert group.commit(2, member_id=b).error is ErrorCode.NONE
    driver.sleep(9_999)
    assert b in group.members
    driver.sleep(1)
    assert b not in group.members


def test_a_heartbeat_of_another_generation(driver: Driver, group: Group) -> None:
    """Refused heartbeats and commits do not keep anybody alive."""
    (a,) = group.stable("a")
    driver.sleep(9_000)
    assert group.heartbeat(a, generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert group.commit(1, member_id=a, generation=0).error is ErrorCode.ILLEGAL_GENERATION
    assert group.commit(1, member_id="m", generation=1).error is ErrorCode.UNKNOWN_MEMBER_ID
    driver.sleep(1_000)
    assert group.state is GroupState.EMPTY


def test_the_last_member_expires(driver: Driver, group: Group) -> None:
    """The group is Empty at once, one generation further, and that is written."""
    group.stable("a")
    driver.sleep(SESSION_MS)
    record = driver.written()[-1]
    assert isinstance(record, GroupMetadataRecord)
    assert (record.generation_id, record.members) == (2, ())
    assert (group.state, group.generation) == (GroupState.EMPTY, 2)


def test_expiry_in_completing(driver: Driver, group: Group) -> None:
    """A member that expires before the leader has synced starts a new round."""
    a, b = group.generation_of("a", "b")
    driver.sleep(9_000)
    group.heartbeat(a)
    driver.sleep(1_000)
    assert (group.members, group.state) == ([a], GroupState.PREPARING_REBALANCE)
    assert group.heartbeat(b) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_deleted_group_has_no_timers(driver: Driver, group: Group) -> None:
    """After a deletion nothing of the group fires any more."""
    group.ask_for_id("a")
    driver.delete("group")
    driver.sleep(SESSION_MS)
    assert group.state is None
    assert [timer.key.kind.value for timer in driver.coordinator._timers.armed()] == ["expiry"]


def test_a_new_session_timeout(driver: Driver, group: Group) -> None:
    """A session time-out that a rejoin brings takes effect when the session starts anew."""
    (a,) = group.stable("a")
    group.rejoin(a, session_timeout_ms=30_000)
    group.assign()
    driver.sleep(29_999)
    assert group.members == [a]
    driver.sleep(1)
    assert group.members == []


def test_a_commit_shortens_a_first_join(driver: Driver) -> None:
    """A commit by a newcomer whose first join waits starts its session: it no longer has five minutes."""
    driver = Driver(group_initial_rebalance_delay_ms=60_000)
    group = Group(driver)
    sent = group.join("a")
    assert group.commit(1, member_id="a-1").error is ErrorCode.NONE
    driver.sleep(SESSION_MS)
    assert sent.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_sessions_that_end_together(driver: Driver, group: Group) -> None:
    """Members whose sessions end in the same moment leave one after the other, within one tick."""
    group.stable("a", "b", "c")
    driver.clock.advance(SESSION_MS)
    driver.coordinator.tick()
    driver.deliver()
    assert (group.state, group.generation) == (GroupState.EMPTY, 2)


def test_a_late_tick(driver: Driver, group: Group) -> None:
    """Time that passed unnoticed is caught up in one tick: what was due fires, in the order of the deadlines."""
    first, second = Group(driver, "one"), Group(driver, "two")
    first.stable("a", session_ms=20_000)
    second.stable("b", session_ms=10_000)
    driver.clock.advance(1_000_000)
    driver.coordinator.tick()
    driver.deliver()
    assert [record.group_id for record in driver.written()[-4:-2]] == ["two", "one"]
