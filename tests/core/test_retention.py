"""Sweeps for expired offsets: when they come, and expiry where the state timestamp is unknown (KIP-211)."""

from __future__ import annotations

from tests.core.driver import Driver, Group

INTERVAL_MS = 600_000
RETENTION_MS = 10 * 60_000


def test_no_sweep_without_groups() -> None:
    """No deadline is named before there is a group; then sweeps come at the moments at which they always come."""
    driver = Driver()
    group = Group(driver)
    assert driver.coordinator.next_deadline_ms() is None
    driver.sleep(INTERVAL_MS * 5 // 2)
    group.commit(1)
    assert driver.coordinator.next_deadline_ms() == driver.clock.now_ms() + INTERVAL_MS // 2
    driver.sleep(INTERVAL_MS // 2)
    assert driver.coordinator.next_deadline_ms() == driver.clock.now_ms() + INTERVAL_MS


def test_no_sweep_after_the_last_group() -> None:
    driver = Driver(offsets_retention_minutes=1)
    Group(driver).commit(1)
    driver.sleep(INTERVAL_MS)
    assert Group(driver).state is None
    assert driver.coordinator.next_deadline_ms() is None


def test_a_managed_group_with_unknown_timestamp() -> None:
    """Without the moment of emptying, each offset counts from its commit."""
    driver = Driver(offsets_retention_minutes=10, offsets_retention_check_interval_ms=1_000)
    group = Group(driver)
    (a,) = group.stable("a", session_ms=1_800_000)
    group.left(a)
    group.inside.state_timestamp_ms = None
    driver.sleep_until(10_000)
    group.commit(1)
    driver.sleep_until(RETENTION_MS + 9_000)
    assert group.committed() == {"orders": {0: 1}}
    driver.sleep_until(RETENTION_MS + 10_000)
    assert group.state is None
