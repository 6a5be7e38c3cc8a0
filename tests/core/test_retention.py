"""What expires and when (KIP-211), and what a deleted topic takes with it."""

from __future__ import annotations

from uuid import UUID

import pytest

from groupcoord import ErrorCode, GroupState
from groupcoord.core.log.records import GroupTombstone, OffsetCommitRecord, OffsetTombstone
from groupcoord.log_store import LogStoreError
from groupcoord.messages import OffsetToCommit, TopicToCommit, TxnOffsetCommit
from groupcoord.testing.consumers import subscription
from tests.core.driver import Driver, Group, protocols_of

MINUTE_MS = 60_000
CHECK_MS = 1_000
RETENTION_MS = 10 * MINUTE_MS
FOREVER_MS = 1_800_000
OLD_TOPIC, NEW_TOPIC = UUID(int=1), UUID(int=2)


@pytest.fixture
def driver() -> Driver:
    return Driver(offsets_retention_minutes=10, offsets_retention_check_interval_ms=CHECK_MS)


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def test_a_simple_group(driver: Driver, group: Group) -> None:
    """Each offset expires when its commit is old enough, to the millisecond; the group goes with the last one."""
    group.commit(1)
    driver.sleep(5_000)
    group.commit({1: 1})
    driver.sleep_until(RETENTION_MS - 1)
    assert group.committed() == {"orders": {0: 1, 1: 1}}
    driver.sleep_until(RETENTION_MS)
    assert group.committed() == {"orders": {1: 1}}
    assert group.state is GroupState.EMPTY
    driver.sleep_until(RETENTION_MS + 5_000)
    assert group.state is None
    assert driver.written()[-2:] == [OffsetTombstone("group", "orders", 1), GroupTombstone("group")]


@pytest.mark.parametrize("interval_ms", [700, 600_000])
def test_the_interval_of_the_check(interval_ms: int) -> None:
    """The first check is one interval after the load; an Empty group without offsets does not survive it."""
    driver = Driver(offsets_retention_check_interval_ms=interval_ms)
    group = Group(driver)
    a = group.ask_for_id("a", session_ms=FOREVER_MS)
    driver.sleep(interval_ms - 1)
    assert group.state is GroupState.EMPTY
    driver.sleep(1)
    assert group.state is None
    assert group.rejoin(a).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_managed_group_counts_from_when_it_emptied(driver: Driver, group: Group) -> None:
    """All its offsets expire together, a fresh one too, when it has been Empty for the retention time."""
    (a,) = group.stable("a", session_ms=FOREVER_MS)
    group.commit(1, member_id=a)
    driver.sleep_until(20_000)
    group.left(a)
    driver.sleep_until(20_000 + RETENTION_MS - CHECK_MS)
    group.commit({1: 1})
    assert group.committed() == {"orders": {0: 1, 1: 1}}
    driver.sleep(CHECK_MS)
    assert group.state is None


def test_a_managed_group_with_unknown_timestamp(driver: Driver, group: Group) -> None:
    """Without the moment of emptying, each offset counts from its commit."""
    (a,) = group.stable("a", session_ms=FOREVER_MS)
    group.left(a)
    group.inside.state_timestamp_ms = None
    driver.sleep_until(10_000)
    group.commit(1)
    driver.sleep_until(RETENTION_MS + 9_000)
    assert group.committed() == {"orders": {0: 1}}
    driver.sleep_until(RETENTION_MS + 10_000)
    assert group.state is None


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "left"),
    [
        ("consumer", subscription("orders"), {"orders": {0: 1}}),
        ("consumer", subscription("orders", "other"), {"orders": {0: 1}, "other": {0: 1}}),
        ("consumer", subscription(), {}),
        ("consumer", b"unreadable", {"orders": {0: 1}, "other": {0: 1}}),
        ("connect", subscription("orders"), {"orders": {0: 1}, "other": {0: 1}}),
    ],
    ids=["one", "both", "none", "unreadable", "connect"],
)
def test_a_stable_group(
    driver: Driver, group: Group, protocol_type: str, metadata: bytes, left: dict[str, dict[int, int]]
) -> None:
    """Only what no consumer subscribes to expires; where subscriptions cannot be known, nothing does."""
    how = {"session_ms": FOREVER_MS, "protocol_type": protocol_type}
    (a,) = group.stable("a", protocols=protocols_of("range", metadata=metadata), **how)
    group.commit(1, member_id=a)
    group.commit(1, member_id=a, topic="other")
    driver.sleep(RETENTION_MS + CHECK_MS)
    assert group.committed() == left
    assert group.state is GroupState.STABLE


def test_a_rebalancing_group(driver: Driver, group: Group) -> None:
    """Nothing expires during a rebalance (KAFKA-13636)."""
    how = {"session_ms": FOREVER_MS, "rebalance_ms": FOREVER_MS}
    (a,) = group.stable("a", protocols=protocols_of("range", metadata=subscription()), **how)
    group.commit(1, member_id=a, retention_ms=1_000)
    group.ask_for_id("b", session_ms=FOREVER_MS)
    group.rejoin(a)
    driver.sleep(RETENTION_MS + CHECK_MS)
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.committed() == {"orders": {0: 1}}


@pytest.mark.parametrize(
    ("retention_ms", "expires_at_ms"),
    [(2_000, 2_000), (0, CHECK_MS), (-5, CHECK_MS), (RETENTION_MS + 5_000, RETENTION_MS + 5_000)],
)
def test_a_retention_of_its_own(driver: Driver, group: Group, retention_ms: int, expires_at_ms: int) -> None:
    """An expiry time of the offset's own counts alone, whether it is earlier or later than the broker's."""
    group.commit(1, retention_ms=retention_ms)
    driver.sleep_until(expires_at_ms - 1)
    assert group.committed() == {"orders": {0: 1}}
    driver.sleep_until(expires_at_ms)
    assert group.state is None


def test_a_later_commit_takes_the_expiry_away(driver: Driver, group: Group) -> None:
    """A commit without a retention of its own counts by the broker's again."""
    group.commit(1, retention_ms=2_000)
    group.commit(2)
    driver.sleep(3_000)
    assert group.committed() == {"orders": {0: 2}}


def test_an_open_transaction_protects(driver: Driver, group: Group) -> None:
    """An offset that an open transaction replaces is kept, and so is the group (KAFKA-19163)."""
    group.commit({0: 1, 1: 1})
    driver.submit(TxnOffsetCommit("group", (TopicToCommit("orders", (OffsetToCommit(0, 2),)),), 9, 0))
    driver.sleep(RETENTION_MS)
    assert group.committed() == {"orders": {0: 1}}


def test_a_transaction_on_another_partition_keeps_the_group(driver: Driver, group: Group) -> None:
    """All plain offsets may go, the group stays as long as the transaction is open."""
    group.commit(1)
    driver.submit(TxnOffsetCommit("group", (TopicToCommit("orders", (OffsetToCommit(5, 2),)),), 9, 0))
    driver.sleep(RETENTION_MS)
    assert (group.committed(), group.state) == ({}, GroupState.EMPTY)


def test_a_commit_under_way_protects() -> None:
    """An offset whose successor is on its way to the log does not expire."""
    driver = Driver(late=True, offsets_retention_minutes=1, offsets_retention_check_interval_ms=MINUTE_MS)
    group = Group(driver)
    group.commit(1)
    driver.write()
    driver.sleep(MINUTE_MS - 1)
    group.commit(2)
    driver.sleep(1)
    driver.write()
    assert group.committed() == {"orders": {0: 2}}


def test_a_sweep_that_fails(driver: Driver, group: Group) -> None:
    """Nothing is lost, and the next check tries again."""
    group.commit(1)
    driver.sleep_until(RETENTION_MS - 1)
    driver.store.fail_next(LogStoreError("injected"))
    driver.sleep(1)
    assert group.committed() == {"orders": {0: 1}}
    assert group.state is GroupState.EMPTY
    driver.sleep(CHECK_MS)
    assert group.state is None


def test_one_write_for_a_sweep() -> None:
    """Everything that a log partition's check finds goes into one append."""
    driver = Driver(late=True, offsets_retention_minutes=1, offsets_retention_check_interval_ms=MINUTE_MS)
    for group_id in ("a", "b"):
        Group(driver, group_id).commit(1)
    driver.write()
    driver.sleep(2 * MINUTE_MS)
    assert len(driver.store.waiting()) == 1


# ---------------------------------------------------------------- deleted topics


def test_a_deleted_topic(driver: Driver, group: Group) -> None:
    """Its offsets are deleted in every group; the groups are left to the next check."""
    group.commit({0: 1, 1: 1})
    group.commit(1, topic="other")
    Group(driver, "second").commit(1)
    driver.coordinator.topic_deleted("orders")
    driver.deliver()
    assert (group.committed(), Group(driver, "second").committed()) == ({"other": {0: 1}}, {})
    assert Group(driver, "second").state is GroupState.EMPTY
    driver.sleep(CHECK_MS)
    assert Group(driver, "second").state is None


@pytest.mark.parametrize(
    ("stored", "deleted", "is_gone"),
    [
        (OLD_TOPIC, OLD_TOPIC, True),
        (UUID(int=0), OLD_TOPIC, True),
        (NEW_TOPIC, OLD_TOPIC, False),
    ],
)
def test_a_deleted_topic_with_an_id(driver: Driver, group: Group, stored: UUID, deleted: UUID, is_gone: bool) -> None:
    """Offsets of a newer topic of the same name stay; those without an id go."""
    group.commit(1, topic_id=stored)
    driver.coordinator.topic_deleted("orders", deleted)
    driver.deliver()
    assert (group.committed() == {}) == is_gone


def test_a_deleted_topic_nobody_used(driver: Driver, group: Group) -> None:
    """Nothing is written for it."""
    group.commit(1)
    driver.coordinator.topic_deleted("other")
    assert len(driver.written()) == 1


def test_a_deleted_topic_and_commits_under_way() -> None:
    """Offsets on their way to the log go too, and those of an open transaction."""
    driver = Driver(late=True)
    group = Group(driver)
    group.commit(1)
    driver.submit(TxnOffsetCommit("group", (TopicToCommit("orders", (OffsetToCommit(1, 2),)),), 9, 0))
    driver.write()
    group.commit({2: 3})
    driver.coordinator.topic_deleted("orders")
    driver.deliver()
    driver.write()
    assert group.committed() == {}
    assert not group.fetch(index=1, require_stable=True).error_code


def test_a_deleted_topic_and_open_transactions(driver: Driver, group: Group) -> None:
    """Kafka 4.4 writes a tombstone for what is committed, and one for each transaction that has the partition."""
    group.commit(1)
    for producer_id in (9, 8):
        driver.submit(TxnOffsetCommit("group", (TopicToCommit("orders", (OffsetToCommit(0, 2),)),), producer_id, 0))
    before = len(driver.written())
    driver.coordinator.topic_deleted("orders")
    driver.deliver()
    assert driver.written()[before:] == [OffsetTombstone("group", "orders", 0)] * 3


def test_a_newer_topics_commit_under_way() -> None:
    """A commit for the newer topic of the same name, still on its way, is spared."""
    driver = Driver(late=True)
    group = Group(driver)
    group.commit(1, topic_id=OLD_TOPIC)
    driver.write()
    group.commit(2, topic_id=NEW_TOPIC)
    driver.coordinator.topic_deleted("orders", OLD_TOPIC)
    driver.deliver()
    driver.write()
    assert group.committed() == {"orders": {0: 2}}
    assert [type(record) for record in driver.written()] == [OffsetCommitRecord] * 2
