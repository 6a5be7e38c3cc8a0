"""What costs nothing: a coordinator without groups waits for nothing, and wakes when there is one."""

from __future__ import annotations

from groupcoord.log_store import StorageError
from tests.core.driver import Driver, Group

INTERVAL_MS = 600_000


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


def test_sweeps_go_on_when_a_deletion_fails() -> None:
    """A group that comes back, since its tombstones could not be written, expires in the end."""
    driver = Driver(late=True, offsets_retention_minutes=1)
    group = Group(driver)
    group.commit(1)
    driver.write()
    driver.sleep(INTERVAL_MS)
    driver.refuse(StorageError("no"))
    assert group.state is not None
    driver.sleep(INTERVAL_MS)
    driver.write()
    assert group.state is None
