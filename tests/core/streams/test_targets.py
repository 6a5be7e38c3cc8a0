"""Target assignments of a streams group that rests or has waited for more members."""

from __future__ import annotations

from groupcoord.testing.topics import Topics
from tests.core.driver import Driver
from tests.core.streams.members import SETTINGS, Threads, active, answered


def test_who_has_no_tasks_when_the_group_rests_gets_them_with_another_epoch() -> None:
    """The target of the log stays as it is: what it was made for grows with the epoch."""
    threads = Threads(Driver(topics=Topics(lines=4), **SETTINGS))
    threads.join("a", instance_id="i")
    threads.join("b")
    threads.beat("a", 2, {}, instance_id="i")
    assert active(threads.beat("b", 3)) == {"0": (2, 3)}
    threads.join("c", instance_id="i")
    threads.beat("a", -2, instance_id="i")
    assert active(threads.join("a", instance_id="i")) == {}
    before = [member.target_assignment for member in threads.described.members]
    told = answered(threads.beat("a", 3, instance_id="i"))
    assert (told.member_epoch, dict(told.active_tasks or ())) == (4, {"0": (0, 1)})
    assert [member.target_assignment for member in threads.described.members] == before
    assert threads.described.assignment_epoch == 4
