"""Conversion of a group's type while the log answers late."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupState
from groupcoord.core.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    encode_assignment,
    encode_subscription,
)
from groupcoord.core.groups.consumer.heartbeat import REFRESH_PAUSE_MS
from groupcoord.core.groups.consumer.records import ConsumerGroupRegularExpressionRecord
from groupcoord.log_store import NotEnoughReplicasError
from groupcoord.messages import Heartbeat
from groupcoord.testing.topics import Topics
from tests.core.consumer.members import Members, waiting_appends
from tests.core.driver import SESSION_MS, Driver, Group, protocols_of

NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


def classic_member(driver: Driver, group: Group) -> str:
    """A stable classic group of one consumer, who has every partition; return its id."""
    subscription = encode_subscription(Subscription(("orders",)))
    join = group.join("old", protocols=protocols_of("range", metadata=subscription))
    driver.sleep(3_000)
    driver.write()
    member_id = join.member_id
    share = Assignment(tuple(TopicPartition("orders", index) for index in range(6)))
    group.sync(member_id, {member_id: encode_assignment(share)})
    driver.write()
    assert group.state is GroupState.STABLE
    return member_id


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def test_a_classic_session_that_ends_during_an_upgrade(driver: Driver, members: Members, group: Group) -> None:
    """Refused, the classic group loses its member."""
    classic_member(driver, group)
    members.join("new")
    driver.sleep(SESSION_MS)
    driver.refuse(NotEnoughReplicasError())
    assert group.state is GroupState.EMPTY


def test_a_topic_that_comes_during_an_upgrade(driver: Driver, members: Members, group: Group, topics: Topics) -> None:
    """The consumer group looks at its topics once more."""
    classic_member(driver, group)
    members.join("new", "orders", "payments")
    topics.create("payments", 1)
    driver.coordinator.topics_created(["payments"])
    driver.write()
    before = members.described.group_epoch
    members.heartbeat("new", before)
    driver.write()
    assert members.described.group_epoch == before + 1


@pytest.fixture
def mixed(driver: Driver, members: Members, group: Group) -> str:
    """A consumer group of one classic member, whose id this is, and ``new``."""
    old = classic_member(driver, group)
    members.join("new")
    driver.write()
    return old


def test_a_heartbeat_like_the_last_one_during_a_downgrade(driver: Driver, members: Members, mixed: str) -> None:
    """It waits for the classic group, which has no such member; before, it was answered at once."""
    epoch = members.described.group_epoch
    members.heartbeat("new", epoch)
    driver.write()
    assert not members.heartbeat("new", epoch).is_waiting
    members.leave("new")
    late = members.heartbeat("new", epoch)
    assert late.is_waiting
    driver.write()
    assert late.error is NOT_FOUND


def test_who_waits_behind_the_leave_that_makes_a_classic_group(
    driver: Driver, members: Members, group: Group, mixed: str
) -> None:
    members.heartbeat("new", members.described.group_epoch, names=("orders", "payments"))
    leave, waiting = members.leave("new"), members.join("third")
    driver.write()
    assert (leave.is_waiting, waiting.is_waiting) == (True, True)
    driver.write()
    assert (leave.error, waiting.is_waiting) == (ErrorCode.NONE, True)
    assert members.described.error_code is NOT_FOUND
    driver.sleep(0)
    driver.write()
    assert waiting.error is ErrorCode.NONE
    assert sorted(members.ids) == sorted([mixed, "third"])


@pytest.mark.parametrize("fails", [False, True])
def test_expressions_that_are_matched_during_a_downgrade(
    driver: Driver, members: Members, group: Group, topics: Topics, mixed: str, fails: bool
) -> None:
    """Nothing is written about them then; if the group stays a consumer group, the next heartbeat has them matched."""
    members.join("third", regex="o.*")
    members.join("fourth")
    while waiting_appends(driver):
        driver.write()
    topics.create("others", 1)
    driver.coordinator.topics_created(["others"])
    driver.sleep(REFRESH_PAUSE_MS // 2)
    driver.submit(Heartbeat("group", 1, mixed, None))
    driver.sleep(REFRESH_PAUSE_MS // 2 + 1)
    assert waiting_appends(driver) == 0
    epoch = next(member.member_epoch for member in members.described.members if member.member_id == "third")
    members.leave("fourth")
    asking = members.heartbeat("third", epoch)
    leaves = [members.leave("third"), members.leave("new")]
    driver.write()
    assert [sent.is_waiting for sent in (asking, *leaves)] == [True, True, True]
    assert waiting_appends(driver) == 1
    driver.refuse(NotEnoughReplicasError()) if fails else driver.write()
    if not fails:
        assert (group.members, group.state) == ([mixed], GroupState.PREPARING_REBALANCE)
        return
    members.heartbeat("third", epoch)
    while waiting_appends(driver):
        driver.write()
    assert ConsumerGroupRegularExpressionRecord in map(type, driver.written()[-5:])
