"""Offsets of deleted topics, and expiry where the state timestamp is unknown (KIP-211)."""

from __future__ import annotations

from uuid import UUID

import pytest

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
