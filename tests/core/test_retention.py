"""Offsets of deleted topics, and expiry where the state timestamp is unknown (KIP-211)."""

from __future__ import annotations

from uuid import UUID

import pytest

from groupcoord.core.log.records import OffsetCommitRecord, OffsetTombstone
from groupcoord.messages import OffsetToCommit, TopicToCommit, TxnOffsetCommit
from tests.core.driver import Driver, Group

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
