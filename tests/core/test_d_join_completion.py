"""A join phase ends: who is in the next generation, who leads it, what each is told."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupState
from groupcoord.core.log.records import GroupMetadataRecord
from groupcoord.messages import JoinedMember, JoinGroupResponse
from tests.core.driver import REBALANCE_MS, SESSION_MS, Driver, Group, protocols_of


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def keep_alive(group: Group, duration_ms: int, *member_ids: str) -> None:
    """Let time pass while these members send heartbeats."""
    for _ in range(duration_ms // 5_000):
        group.driver.sleep(5_000)
        for member_id in member_ids:
            group.heartbeat(member_id)


def test_a_third_member_joins_a_stable_group(group: Group) -> None:
    """Everybody must rejoin; the generation is formed when the last has."""
    a, b = group.stable("a", "b")
    third = group.join("c")
    assert group.state is GroupState.PREPARING_REBALANCE
    first = group.rejoin(a)
    assert first.is_waiting
    second = group.rejoin(b)
    assert {sent.joined.generation_id for sent in (first, second, third)} == {2}
    assert group.state is GroupState.COMPLETING_REBALANCE


def test_what_each_is_told(driver: Driver, group: Group) -> None:
    """The leader gets all members with their metadata for the chosen protocol, the others nobody."""
    joins = [group.join("a", protocols=protocols_of("range", "sticky", metadata=b"A"))]
    joins.append(group.join("b", protocols=protocols_of("range", metadata=b"B"), instance="b"))
    driver.sleep(6_000)
    common = (1, "consumer", "range", "a-1", False)
    members = (JoinedMember("a-1", None, b"A"), JoinedMember("b-1", "b", b"B"))
    assert joins[0].joined == JoinGroupResponse(ErrorCode.NONE, "a-1", *common, members)
    assert joins[1].joined == JoinGroupResponse(ErrorCode.NONE, "b-1", *common, ())


def test_a_member_that_does_not_rejoin(driver: Driver, group: Group) -> None:
    """It is removed when the longest rebalance time-out is over, though its session lives."""
    a, b = group.stable("a", "b")
    waiting = [group.join("c"), group.rejoin(a)]
    keep_alive(group, REBALANCE_MS - 5_000, b)
    assert all(sent.is_waiting for sent in waiting)
    driver.sleep(5_000)
    assert [sent.joined.generation_id for sent in waiting] == [2, 2]
    assert group.members == [a, "c-1"]
    assert group.heartbeat(b) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_rejoin(driver: Driver, group: Group) -> None:
    """Somebody who has joined leads instead, and gets the members."""
    a, b = group.stable("a", "b")
    group.join("c")
    rejoined = group.rejoin(b)
    keep_alive(group, REBALANCE_MS, a)
    assert rejoined.joined.leader == b
    assert [member.member_id for member in rejoined.joined.members] == [b, "c-1"]


def test_only_static_members_are_missing(driver: Driver, group: Group) -> None:
    """If nobody but static members is left and none has rejoined, the round is repeated until their sessions end."""
    a, x = group.stable("a", "@x", session_ms=100_000)
    group.left(a)
    assert group.state is GroupState.PREPARING_REBALANCE
    driver.sleep(REBALANCE_MS)
    assert (group.state, group.generation, group.members) == (GroupState.PREPARING_REBALANCE, 1, [x])
    assert group.inside.join_timer.deadline_ms == driver.clock.now_ms() + REBALANCE_MS
    driver.sleep(100_000 - REBALANCE_MS)
    assert (group.state, group.generation) == (GroupState.EMPTY, 2)


@pytest.mark.parametrize("rebalance_ms", [0, -1])
def test_only_static_members_without_time_to_join(driver: Driver, group: Group, rebalance_ms: int) -> None:
    """With a rebalance time-out of 0 the repeated round lets time go on, and ends when the member is back."""
    group.join("a")
    group.join("x", instance="x", rebalance_ms=rebalance_ms)
    driver.sleep(6_000)
    group.assign()
    group.left("a-1")
    driver.sleep(20)
    assert (group.state, group.generation) == (GroupState.PREPARING_REBALANCE, 1)
    assert group.rejoin("x-1").joined.generation_id == 2


def test_a_handed_out_id_holds_a_round_up(driver: Driver, group: Group) -> None:
    """In a round that isn't the initial one, an id that has not joined is waited for: it joins, or it expires."""
    (a,) = group.stable("a")
    b = group.ask_for_id("b")
    first = group.rejoin(a)
    assert first.is_waiting
    second = group.rejoin(b)
    assert first.joined.generation_id == second.joined.generation_id == 2
    group.assign()
    group.ask_for_id("c", session_ms=7_000)
    first = group.rejoin(a)
    second = group.rejoin(b)
    driver.sleep(6_999)
    assert first.is_waiting
    driver.sleep(1)
    assert first.joined.generation_id == second.joined.generation_id == 3


def test_the_rebalance_timeout_does_not_wait_for_a_handed_out_id(driver: Driver, group: Group) -> None:
    """When the rebalance time-out is over, the round ends although an id has not joined; the id stays usable."""
    (a,) = group.stable("a", rebalance_ms=8_000)
    b = group.ask_for_id("b")
    first = group.rejoin(a)
    driver.sleep(8_000)
    assert first.joined.generation_id == 2
    assert list(group.inside.pending_members) == [b]
    assert group.rejoin(b).is_waiting


def test_a_missing_member_expires(driver: Driver, group: Group) -> None:
    """A member whose session ends while the others wait is not waited for any longer."""
    a, _ = group.stable("a", "b")
    waiting = [group.join("c"), group.rejoin(a)]
    driver.sleep(SESSION_MS - 1)
    assert waiting[0].is_waiting
    driver.sleep(1)
    assert [sent.joined.generation_id for sent in waiting] == [2, 2]


def test_a_waiting_member_does_not_expire(driver: Driver, group: Group) -> None:
    """A member whose rejoin waits outlives its session time-out, which starts anew with the next generation."""
    a, b = group.stable("a", "b")
    group.join("c")
    rejoined = group.rejoin(a)
    keep_alive(group, REBALANCE_MS, b)
    assert rejoined.joined.generation_id == 2
    driver.sleep(SESSION_MS - 1)
    assert a in group.members
    driver.sleep(1)
    assert a not in group.members


def test_a_first_join_in_a_long_round(driver: Driver, group: Group) -> None:
    """A newcomer that waits for five minutes is given up, an old member that waits as long is kept (KAFKA-7610)."""
    a, b = group.stable("a", "b", rebalance_ms=600_000)
    newcomer = group.join("c", rebalance_ms=600_000)
    rejoined = group.rejoin(a)
    keep_alive(group, 295_000, b)
    driver.sleep(4_999)
    assert newcomer.is_waiting
    driver.sleep(1)
    assert newcomer.joined == JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert rejoined.is_waiting
    assert group.members == [a, b]


def test_after_completion_a_newcomer_has_its_session(driver: Driver, group: Group) -> None:
    """When its generation is formed, a new member's five minutes are replaced by its session (KAFKA-9752)."""
    (a,) = group.generation_of("a")
    driver.sleep(SESSION_MS)
    assert a not in group.members


def test_generations_grow_by_one(group: Group) -> None:
    """Each completed round is one generation further."""
    (a,) = group.stable("a")
    seen = []
    for _ in range(3):
        seen.append(group.rejoin(a).joined.generation_id)
        group.assign()
    assert seen == [2, 3, 4]


def test_a_longer_timeout_counts_from_the_next_round_on(driver: Driver, group: Group) -> None:
    """A late joiner's longer rebalance time-out does not stretch the round that it joins, but the next."""
    a, b = group.stable("a", "b", rebalance_ms=20_000)
    first = group.rejoin(a)
    driver.sleep(1_000)
    late = group.join("c", rebalance_ms=90_000)
    keep_alive(group, 15_000, b)
    driver.sleep(4_000)
    assert first.joined.generation_id == late.joined.generation_id == 2
    group.assign()
    started = driver.clock.now_ms()
    group.rejoin(a)
    assert group.inside.join_timer.deadline_ms == started + 90_000


def test_the_last_member_leaves(driver: Driver, group: Group) -> None:
    """A round without members is one generation further too: Empty, without protocol, with the type that it had."""
    (a,) = group.stable("a")
    group.left(a)
    last = driver.written()[-1]
    assert isinstance(last, GroupMetadataRecord)
    expected = ("consumer", 2, None, None, ())
    assert (last.protocol_type, last.generation_id, last.protocol_name, last.leader, last.members) == expected
    assert last.state_timestamp_ms == driver.clock.now_ms()


def test_all_leave_while_an_id_is_awaited(driver: Driver, group: Group) -> None:
    """A group that all have left but that awaits an id is Empty at the next tick, one generation further."""
    a, b = group.stable("a", "b")
    group.ask_for_id("c")
    group.left(a, b)
    assert (group.state, group.members) == (GroupState.PREPARING_REBALANCE, [])
    driver.sleep(0)
    assert (group.state, group.generation) == (GroupState.EMPTY, 2)


def test_silent_dynamic_members_and_a_static_one(driver: Driver, group: Group) -> None:
    """A static member that joins alone leads; silent later, it is kept and another one leads."""
    group.stable("a", "b", session_ms=90_000)
    static = group.join("x", instance="x", session_ms=200_000)
    driver.sleep(REBALANCE_MS)
    assert (static.joined.leader, static.joined.generation_id) == ("x-1", 2)
    group.assign()
    dynamic = group.join("c")
    driver.sleep(REBALANCE_MS)
    assert (dynamic.joined.leader, dynamic.joined.generation_id) == ("c-1", 3)
    assert [member.member_id for member in dynamic.joined.members] == ["x-1", "c-1"]
