"""What observers are told is bounded, and the counters can be read by name."""

from __future__ import annotations

from groupcoord.core.events import RebalanceCompleted
from groupcoord.core.observer import MAX_TRIGGERS
from tests.core.driver import Driver, Group


def test_a_rebalance_remembers_its_first_reasons_only() -> None:
    """A rebalance that is started over again and again does not collect reasons without end."""
    driver = Driver()
    driver.coordinator.observe()
    group = Group(driver)
    member_ids = group.generation_of("a", "b")
    for number in range(MAX_TRIGGERS + 5):
        for member_id in member_ids:
            group.rejoin(member_id, "range", f"other-{number}")
    group.assign()
    (completed,) = [event for event in driver.coordinator.take_events() if isinstance(event, RebalanceCompleted)]
    assert len(completed.triggers) == MAX_TRIGGERS
    assert completed.generation_id - completed.old_generation_id == MAX_TRIGGERS + 6


def test_counters_by_name() -> None:
    """All totals come under the names of their attributes."""
    driver = Driver()
    group = Group(driver)
    group.stable("a")
    group.commit({0: 1, 1: 1}, member_id="a-1")
    totals = driver.coordinator.counters.as_dict()
    assert (totals["group_completed_rebalances"], totals["offset_commits"], totals["partition_loads"]) == (1, 2, 1)
    assert all(getattr(driver.coordinator.counters, name) == total for name, total in totals.items())
