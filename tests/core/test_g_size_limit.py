"""``group.max.size``: who is refused, who has to go (KIP-389)."""

from __future__ import annotations

from groupcoord import ErrorCode, GroupState
from groupcoord.messages import JoinGroupResponse
from tests.core.driver import REBALANCE_MS, Driver, Group

REFUSED = JoinGroupResponse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def full_group(size: int, *clients: str, **how: object) -> Group:
    """Return a stable group of these clients, with room for ``size``."""
    group = Group(Driver(group_max_size=size))
    group.stable(*clients, **how)
    return group


def test_a_second_member_of_one() -> None:
    """With room for one, the second first join is refused, with an empty member id."""
    group = Group(Driver(group_max_size=1))
    group.join("a")
    assert group.join("b").joined == REFUSED
    assert group.members == ["a-1"]


def test_static_members_count() -> None:
    """Static members count like others."""
    group = Group(Driver(group_max_size=2))
    joins = [group.join(name, instance=name) for name in "xyz"]
    assert [sent.is_waiting for sent in joins] == [True, True, False]
    assert joins[2].joined == REFUSED


def test_a_full_group_hands_out_no_ids() -> None:
    """In a full group that isn't Empty, a newcomer is refused at once; protocols and ids are not looked at."""
    group = full_group(1, "a")
    assert group.join("b", asks_for_id=True).joined == REFUSED
    assert group.join("b", member_id="made-up").joined == REFUSED
    assert group.join("b", protocol_type="connect").joined == REFUSED
    group.rejoin("a-1", "range", "sticky")
    assert group.state is GroupState.COMPLETING_REBALANCE
    assert group.join("b", asks_for_id=True).joined == REFUSED


def test_known_members_of_a_full_group() -> None:
    """Known members of a full group rejoin freely; a static one that lost its id does not, as in Kafka."""
    group = full_group(2, "a", "@x")
    assert group.rejoin("x-1").error is ErrorCode.NONE
    assert group.join("x", instance="x").joined == REFUSED
    assert group.members == ["a-1", "x-1"]


def test_the_last_to_rejoin_lose() -> None:
    """After a load with a lower limit, the first to rejoin stay, the others are refused and removed."""
    driver = Driver()
    group = Group(driver)
    a, b = group.stable("a", "b")
    driver.restart(group_max_size=1)
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.heartbeat(a) is ErrorCode.REBALANCE_IN_PROGRESS
    kept = group.rejoin(b)
    assert kept.is_waiting
    assert group.rejoin(a).joined == REFUSED
    assert group.members == [b]
    assert group.inside.leader == b
    assert kept.is_waiting
    driver.sleep(REBALANCE_MS)
    assert kept.joined.leader == b


def test_a_newcomer_takes_a_place() -> None:
    """In PreparingRebalance only waiting joins count: a newcomer can take the place of who is late."""
    driver = Driver(group_max_size=2)
    group = Group(driver)
    a, b = group.stable("a", "b")
    pending = [group.rejoin(a)]
    pending.append(group.join("c"))
    assert [sent.is_waiting for sent in pending] == [True, True]
    assert group.rejoin(b).joined == REFUSED
    assert pending[0].is_waiting
    driver.sleep(REBALANCE_MS)
    assert [sent.joined.generation_id for sent in pending] == [2, 2]


def test_a_waiting_member_joins_again() -> None:
    """Who waits already may join again although as many as allowed wait."""
    driver = Driver(group_max_size=1)
    group = Group(driver)
    first = group.join("a")
    assert group.rejoin("a-1").is_waiting
    assert first.is_dropped


def test_a_refused_id_is_forgotten() -> None:
    """A handed-out id that is refused for the size is gone, with its timer."""
    driver = Driver(group_max_size=1)
    group = Group(driver)
    b = group.ask_for_id("b")
    group.stable("a")
    assert group.rejoin(b).joined == REFUSED
    assert group.inside.pending_members == {}
    assert all(timer.key.member_id != b for timer in driver.coordinator._timers.armed())


def test_a_higher_limit() -> None:
    """After a restart with a higher limit there is room."""
    driver = Driver(group_max_size=1)
    group = Group(driver)
    group.stable("a")
    assert group.join("b").joined == REFUSED
    driver.restart(group_max_size=2)
    assert group.join("b").is_waiting
