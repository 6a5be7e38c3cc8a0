"""Conversions that are refused, and timers of converted members, as in Kafka's own classes."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupState
from groupcoord.config import MigrationPolicy
from groupcoord.core.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    encode_assignment,
    encode_subscription,
)
from groupcoord.log_store import NotEnoughReplicasError
from groupcoord.messages import ConsumerGroupHeartbeat, JoinGroupResponse
from groupcoord.testing.topics import Topics
from tests.core.consumer.members import Members, answered
from tests.core.driver import Driver, Group, protocols_of

ORDERS = protocols_of("range", metadata=encode_subscription(Subscription(("orders",))))
READABLE = protocols_of("range", "sticky", metadata=encode_subscription(Subscription(("orders",))))
CONSUMER_SESSION_MS = 45_000


@pytest.fixture
def topics() -> Topics:
    return Topics(orders=6, payments=6)


@pytest.fixture
def driver(topics: Topics) -> Driver:
    return Driver(
        topics=topics,
        group_consumer_assignment_interval_ms=0,
        group_consumer_migration_policy=MigrationPolicy.BIDIRECTIONAL,
    )


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


# ---------------------------------------------------------------- the group begins or ends


@pytest.fixture
def emptied(driver: Driver, members: Members) -> Members:
    """Return a consumer group after its only member has left."""
    members.join("a")
    members.leave("a")
    assert members.described.group_state == "Empty"
    return members


def test_a_join_that_ends_an_empty_consumer_group_and_is_refused_by_the_log(
    driver: Driver, group: Group, emptied: Members
) -> None:
    driver.store.fail_next(NotEnoughReplicasError())
    join = group.join("old", protocols=ORDERS)
    assert join.answer(JoinGroupResponse).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert emptied.described.group_state == "Empty"
    assert group.ask_for_id("old", protocols=ORDERS)
    assert group.state is GroupState.EMPTY


def test_an_expression_of_who_upgrades_a_group_that_everybody_has_left(
    driver: Driver, members: Members, group: Group
) -> None:
    """The member is at the group's epoch 0 already: no assignment is written before the expression is matched."""
    join = group.join("old", protocols=ORDERS)
    group.leave(join.member_id)
    before = len(driver.written())
    members.join("new", regex="o.*")
    kinds = [record.key[0] for record in driver.written()[before:]]
    assert kinds[:4] == [2, 3, 6, 5]
    assert 8 not in kinds


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [("a", "b", ErrorCode.GROUP_ID_NOT_FOUND), ("b", "a", ErrorCode.UNKNOWN_SERVER_ERROR)],
)
def test_an_upgrade_that_two_members_prevent(
    driver: Driver, members: Members, group: Group, first: str, second: str, error: ErrorCode
) -> None:
    """One member has an unreadable assignment, the other lacks the chosen protocol: the error is that of the first
    member in Kafka's hash map.
    """
    old = group.join(first, protocols=READABLE)
    driver.sleep(3_000)
    group.sync(old.member_id, {old.member_id: b"raw"})
    group.join(second, protocols=READABLE[1:])
    assert members.join("new").error is error


def test_an_upgrade_of_members_that_have_the_same_partition(driver: Driver, members: Members, group: Group) -> None:
    """A classic leader assigned one partition twice. Kafka 4.4 refuses the upgrade, and the classic group stays."""
    first = group.join("a", protocols=ORDERS)
    driver.sleep(3_000)
    second = group.join("b", protocols=ORDERS)
    group.rejoin(first.member_id)
    orders = encode_assignment(Assignment((TopicPartition("orders", 0),)))
    group.sync(first.member_id, {first.member_id: orders, second.member_id: orders})
    assert members.join("new").error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert group.state is GroupState.STABLE


# ---------------------------------------------------------------- timers of members


def test_a_static_member_that_leaves_while_it_gives_partitions_back(
    driver: Driver, members: Members, topics: Topics
) -> None:
    """It may return until its session expires; the rebalance timeout no longer applies."""
    owned = answered(members.join("a", instance="i", rebalance_ms=5_000)).member_epoch
    members.heartbeat("a", owned, names=("payments",))
    driver.submit(ConsumerGroupHeartbeat("group", "a", member_epoch=-2, instance_id="i"))
    driver.sleep(5_000)
    assert members.ids == ["a"]
    driver.sleep(CONSUMER_SESSION_MS)
    assert members.ids == []


def test_an_initial_rebalance_without_anybody_who_waits(driver: Driver, members: Members, group: Group) -> None:
    """An upgrade that fails has sent its static member away: it is repeated, and newcomers delay it no longer."""
    group.join("old", protocols=ORDERS, instance="i", rebalance_ms=5_000)
    assert members.join("new").error is ErrorCode.UNKNOWN_SERVER_ERROR
    driver.sleep(3_000)
    newcomer = group.join("newcomer", protocols=ORDERS, rebalance_ms=5_000)
    driver.sleep(5_000)
    assert newcomer.error is ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1, 3])
def test_a_downgrade_writes_assignments_in_the_version_of_the_subscription(
    driver: Driver, members: Members, version: int
) -> None:
    """A classic member can read the assignment that the log has for it after the downgrade."""
    group = Group(driver)
    metadata = encode_subscription(Subscription(("orders",)), version)
    join = group.join("old", protocols=protocols_of("range", metadata=metadata))
    driver.sleep(3_000)
    group.sync(join.member_id, {join.member_id: encode_assignment(Assignment(()), version)})
    members.join("new")
    members.leave("new")
    assert group.members == [join.member_id]
    written = group.inside.members[join.member_id].assignment
    assert int.from_bytes(written[:2], "big") == version


def test_a_classic_member_that_names_no_rack_keeps_its_rack(driver: Driver, members: Members) -> None:
    """A rejoin without a rack changes the topics alone (``classicGroupJoinToConsumerGroup``)."""
    members.join("new")
    group = Group(driver)
    at_rack = encode_subscription(Subscription(("orders",), rack_id="r1"))
    member_id = group.join("old", protocols=protocols_of("range", metadata=at_rack)).member_id
    without_rack = encode_subscription(Subscription(("payments",)))
    assert group.rejoin(member_id, protocols=protocols_of("range", metadata=without_rack)).error is ErrorCode.NONE
    (member,) = (member for member in members.described.members if member.member_id == member_id)
    assert (member.rack_id, member.subscribed_topic_names) == ("r1", ("payments",))
