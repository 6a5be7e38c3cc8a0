"""Target assignments of a streams group that rests or has waited for more members."""

from __future__ import annotations

from attrs import evolve

from groupcoord.messages import TaskOffset
from groupcoord.testing.topics import Topics
from tests.core.driver import Driver
from tests.core.streams.members import COUNTS, SETTINGS, OwnSettings, Threads, active, answered


def resting_static_members() -> Threads:
    """Return a group at rest: a static member ``a`` of instance ``i`` with two tasks, and ``b`` with the others."""
    threads = Threads(Driver(topics=Topics(lines=4), **SETTINGS))
    threads.join("a", instance_id="i")
    threads.join("b")
    threads.beat("a", 2, {}, instance_id="i")
    assert active(threads.beat("b", 3)) == {"0": (2, 3)}
    return threads


def comes_back(threads: Threads) -> dict[str, tuple[int, ...]] | None:
    """Let ``a`` leave for a while and come back; return the tasks that it gets."""
    threads.beat("a", -2, instance_id="i")
    return active(threads.join("a", instance_id="i"))


def test_who_waited_for_others_has_the_settings_of_that_time() -> None:
    """When the delay of a new group is over, copies are made by the settings of its epoch, not by those of now."""
    driver = OwnSettings(Topics(lines=4, counts=4), group_streams_initial_rebalance_delay_ms=3_000)
    threads = Threads(driver, COUNTS)
    for member_id in ("a", "b"):
        threads.join(member_id)
    driver.settings = evolve(driver.settings, num_standby_replicas=1)
    driver.advance(3_000)
    targets = [member.target_assignment for member in threads.described.members]
    assert all(target.active_tasks and not target.standby_tasks for target in targets)


def test_who_has_no_tasks_when_the_group_rests_gets_them_with_another_epoch() -> None:
    """The target of the log stays as it is: what it was made for grows with the epoch."""
    threads = resting_static_members()
    threads.join("c", instance_id="i")
    assert comes_back(threads) == {}
    before = [member.target_assignment for member in threads.described.members]
    told = answered(threads.beat("a", 3, instance_id="i"))
    assert (told.member_epoch, dict(told.active_tasks or ())) == (4, {"0": (0, 1)})
    assert [member.target_assignment for member in threads.described.members] == before
    assert threads.described.assignment_epoch == 4


def test_tasks_go_to_who_has_their_state() -> None:
    """Offsets that a member tells of tasks say so, though it runs none of them."""
    settings = {**SETTINGS, "group_streams_initial_rebalance_delay_ms": 3_000}
    threads = Threads(Driver(topics=Topics(lines=4, counts=4), **settings), COUNTS)
    for member_id in ("a", "b"):
        threads.join(member_id)
    threads.beat("b", 1, task_offsets=(TaskOffset("0", 0, 7), TaskOffset("0", 1, 7)))
    threads.driver.advance(3_000)
    assert active(threads.beat("b", 1)) == {"0": (0, 1)}
    assert active(threads.beat("a", 1)) == {"0": (2, 3)}
