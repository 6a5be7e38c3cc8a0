"""A member joins again: when that means a rebalance, and what is told to whom."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupState
from groupcoord.messages import JoinGroupResponse
from tests.core.driver import Driver, Group


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def test_an_unchanged_follower_of_a_stable_group(group: Group) -> None:
    """It is told its generation at once, without members, and nobody rebalances."""
    a, b = group.stable("a", "b")
    expected = JoinGroupResponse(ErrorCode.NONE, b, 1, "consumer", "range", a)
    assert group.rejoin(b).joined == expected
    assert group.state is GroupState.STABLE


def test_the_timeouts_of_an_unchanged_follower(driver: Driver, group: Group) -> None:
    """Other time-outs in such a rejoin are ignored, and its session is not renewed."""
    a, b = group.stable("a", "b")
    driver.sleep(5_000)
    group.heartbeat(a)
    group.rejoin(b, session_timeout_ms=100_000, rebalance_timeout_ms=1)
    assert group.inside.members[b].rebalance_timeout_ms == 60_000
    driver.sleep(5_000)
    assert group.members == [a]


def test_an_unchanged_leader_of_a_stable_group(group: Group) -> None:
    """A leader that rejoins wants a rebalance."""
    a, _ = group.stable("a", "b")
    assert group.rejoin(a).is_waiting
    assert group.state is GroupState.PREPARING_REBALANCE


def test_unchanged_members_while_completing(group: Group) -> None:
    """In CompletingRebalance, unchanged members are told the generation again: the leader with the members."""
    a, b = group.generation_of("a", "b")
    leader, follower = group.rejoin(a), group.rejoin(b)
    assert [member.member_id for member in leader.joined.members] == [a, b]
    assert follower.joined.members == ()
    assert leader.joined.generation_id == follower.joined.generation_id == 1
    assert group.state is GroupState.COMPLETING_REBALANCE


def test_an_unchanged_rejoin_leaves_the_waiting_sync(group: Group) -> None:
    """A follower that waits in sync and rejoins unchanged is answered on both, the sync with its assignment."""
    a, b = group.generation_of("a", "b")
    waiting = group.sync(b)
    assert group.rejoin(b).joined.generation_id == 1
    assert waiting.is_waiting
    group.sync(a, {b: b"share"})
    assert waiting.synced.assignment == b"share"


def test_a_changed_member_while_completing(group: Group) -> None:
    """A changed rejoin starts a new round: waiting syncs are REBALANCE_IN_PROGRESS, assignments are cleared."""
    a, b = group.generation_of("a", "b")
    waiting = group.sync(b)
    rejoined = group.rejoin(a, "range", "sticky")
    assert rejoined.is_waiting
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.state is GroupState.PREPARING_REBALANCE


def test_rejoining_twice(group: Group) -> None:
    """While a join waits, a newer one replaces it: the older is never answered, and the newer protocols count."""
    a, b = group.stable("a", "b")
    older = group.rejoin(a)
    newer = group.rejoin(a, "range", "sticky")
    assert older.is_dropped
    group.rejoin(b, "range", "sticky")
    assert newer.joined.generation_id == 2
    assert group.inside.supported_protocols == {"range": 2, "sticky": 2}


def test_a_known_id_of_an_emptied_group(group: Group) -> None:
    """Who left an Empty group is unknown there."""
    (a,) = group.stable("a")
    group.left(a)
    assert group.rejoin(a).joined == JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID, a)


def test_a_rejoin_does_not_touch_the_session(driver: Driver, group: Group) -> None:
    """A changed session time-out counts from the next generation on."""
    a, b = group.stable("a", "b")
    group.rejoin(a, session_timeout_ms=30_000)
    driver.sleep(5_000)
    group.rejoin(b)
    group.assign()
    driver.sleep(9_000)
    group.heartbeat(b)
    driver.sleep(20_999)
    assert a in group.members
    driver.sleep(1)
    assert a not in group.members
