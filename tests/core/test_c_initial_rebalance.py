"""An empty group waits for company before its first generation (KIP-134)."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupState
from groupcoord.core.log.records import GroupMetadataRecord
from groupcoord.messages import JoinGroupResponse
from tests.core.driver import Driver, Group


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def test_one_member_waits_for_the_delay(driver: Driver, group: Group) -> None:
    """A lone member is answered when the delay is over, not a millisecond earlier."""
    sent = group.join("a")
    driver.sleep(2_999)
    assert sent.is_waiting
    driver.sleep(1)
    assert sent.joined.generation_id == 1
    assert group.state is GroupState.COMPLETING_REBALANCE


def test_a_second_member_extends_the_delay(driver: Driver, group: Group) -> None:
    """Somebody who joins during the delay makes it last once more; both are answered together."""
    first = group.join("a")
    driver.sleep(1_000)
    second = group.join("b")
    driver.sleep_until(5_999)
    assert first.is_waiting
    assert second.is_waiting
    driver.sleep_until(6_000)
    assert first.joined.generation_id == second.joined.generation_id == 1


@pytest.mark.parametrize(
    ("rebalance_ms", "answered_at_ms"), [(10_000, 10_000), (8_000, 8_000), (6_000, 6_000), (3_001, 3_001)]
)
def test_the_delay_ends_with_the_rebalance_timeout(
    driver: Driver, group: Group, rebalance_ms: int, answered_at_ms: int
) -> None:
    """However many keep arriving, it ends with the rebalance time-out of the member that came first."""
    first = group.join("a", rebalance_ms=rebalance_ms)
    for number, moment in enumerate((2_000, 2_999, 5_999, 8_999)):
        if moment < answered_at_ms:
            driver.sleep_until(moment)
            group.join(f"b{number}")
    driver.sleep_until(answered_at_ms - 1)
    assert first.is_waiting
    driver.sleep_until(answered_at_ms)
    assert first.joined.generation_id == 1


@pytest.mark.parametrize("rebalance_ms", [2_000, 0, -1])
def test_a_rebalance_timeout_below_the_delay(driver: Driver, group: Group, rebalance_ms: int) -> None:
    """A rebalance time-out below the delay does not shorten it."""
    sent = group.join("a", rebalance_ms=rebalance_ms)
    driver.sleep(2_999)
    assert sent.is_waiting
    driver.sleep(1)
    assert sent.joined.error_code is ErrorCode.NONE


@pytest.mark.parametrize("delay_ms", [0, -5])
def test_no_delay(delay_ms: int) -> None:
    """Without a delay the generation is formed at the next tick, not within the join; a negative delay is none."""
    driver = Driver(group_initial_rebalance_delay_ms=delay_ms)
    group = Group(driver)
    first, second = group.join("a"), group.join("b")
    assert first.is_waiting
    driver.sleep(0)
    assert first.joined.generation_id == second.joined.generation_id == 1


@pytest.mark.parametrize("rebalance_ms", [0, -1])
def test_no_time_to_sync(driver: Driver, group: Group, rebalance_ms: int) -> None:
    """A lone member with a rebalance time-out of 0 or less is removed right after the answer; the next is in gen 3."""
    sent = group.join("a", rebalance_ms=rebalance_ms)
    a = sent.member_id
    driver.sleep(3_000)
    assert sent.joined.generation_id == 1
    assert (group.state, group.generation) == (GroupState.EMPTY, 2)
    assert group.sync(a, generation=1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.heartbeat(a, generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    group.generation_of("b")
    assert group.generation == 3


def test_everybody_leaves_during_the_delay(driver: Driver, group: Group) -> None:
    """A sole member's waiting join is UNKNOWN_MEMBER_ID; without members the group waits on, then is Empty, gen 1."""
    sent = group.join("a")
    assert group.left(sent.member_id) == [ErrorCode.NONE]
    assert sent.joined == JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert (group.state, group.members, group.generation) == (GroupState.PREPARING_REBALANCE, [], 0)
    driver.sleep(3_000)
    assert (group.state, group.generation) == (GroupState.EMPTY, 1)
    last = driver.written()[-1]
    assert isinstance(last, GroupMetadataRecord)
    assert (last.generation_id, last.protocol_type, last.protocol_name, last.leader) == (1, "consumer", None, None)


def test_joining_a_group_that_all_have_left(driver: Driver, group: Group) -> None:
    """During the delay of a group that all have left, any protocol of the same type is taken, another type is not."""
    group.left(group.join("a").member_id)
    refused = group.join("b", protocol_type="connect")
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.join("b", "other").is_waiting


def test_a_first_join_gives_up_after_five_minutes() -> None:
    """A first join that waits for five minutes is UNKNOWN_MEMBER_ID; nobody is left, so the delay ends early."""
    driver = Driver(group_initial_rebalance_delay_ms=600_000)
    group = Group(driver)
    sent = group.join("a", rebalance_ms=900_000)
    driver.sleep(299_999)
    assert sent.is_waiting
    driver.sleep(1)
    assert sent.joined == JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert (group.state, group.generation) == (GroupState.EMPTY, 1)


def test_a_handed_out_id_does_not_hold_the_delay_up(driver: Driver, group: Group) -> None:
    """An id that has not joined does not count when the delay is over; its join starts a new rebalance."""
    sent = group.join("a")
    pending = group.ask_for_id("b")
    driver.sleep(3_000)
    assert sent.joined.generation_id == 1
    assert group.rejoin(pending).is_waiting
    assert group.state is GroupState.PREPARING_REBALANCE


def test_an_id_that_expires_ends_the_delay() -> None:
    """Unlike a leave, the expiry of a handed-out id ends the initial rebalance if all others have joined."""
    driver = Driver(group_initial_rebalance_delay_ms=8_000)
    group = Group(driver)
    group.ask_for_id("b", session_ms=6_000)
    sent = group.join("a")
    driver.sleep(5_999)
    assert sent.is_waiting
    driver.sleep(1)
    assert sent.joined.generation_id == 1


def test_a_leave_does_not_end_the_delay(driver: Driver, group: Group) -> None:
    """A handed-out id that leaves does not end the initial rebalance."""
    pending = group.ask_for_id("b")
    sent = group.join("a")
    group.left(pending)
    assert sent.is_waiting


def test_a_rejoin_during_the_delay(driver: Driver, group: Group) -> None:
    """A member that joins again replaces its waiting join, which is never answered, and does not extend the delay."""
    first = group.join("a")
    driver.sleep(1_000)
    second = group.rejoin(first.member_id)
    assert first.is_dropped
    driver.sleep_until(3_000)
    assert second.joined.generation_id == 1


def test_a_static_return_during_the_delay(driver: Driver, group: Group) -> None:
    """A static member that returns during the delay fences its waiting join and does not extend the delay."""
    first = group.join("a", instance="i")
    driver.sleep(1_000)
    second = group.join("a", instance="i")
    assert first.joined == JoinGroupResponse(ErrorCode.FENCED_INSTANCE_ID, "i-1")
    driver.sleep_until(3_000)
    assert second.joined.generation_id == 1


def test_a_group_is_born_again(driver: Driver, group: Group) -> None:
    """An emptied group waits for company again, and counts its generations on."""
    (a,) = group.stable("a")
    group.left(a)
    assert group.generation == 2
    sent = group.join("b")
    driver.sleep(2_999)
    assert sent.is_waiting
    driver.sleep(1)
    assert sent.joined.generation_id == 3


def test_a_forced_end_leaves_its_mark(driver: Driver, group: Group) -> None:
    """After a first round that was forced to end, the next initial delay of the group is extended once, as in Kafka."""
    group.join("a", rebalance_ms=3_000)
    joined = group.join("b", rebalance_ms=3_000)
    driver.sleep(3_000)
    assert joined.joined.generation_id == 1
    group.left(*group.members)
    assert group.state is GroupState.EMPTY
    sent = group.join("c")
    driver.sleep(5_999)
    assert sent.is_waiting
    driver.sleep(1)
    assert sent.joined.generation_id == 3
