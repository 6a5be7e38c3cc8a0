"""Static members, delays and time-outs of a streams group (Kafka 4.4)."""

from __future__ import annotations

import pytest

from groupcoord.core.groups.streams.records import (
    AssignedTaskIds,
    StreamsGroupCurrentMemberAssignmentRecord,
)
from groupcoord.messages import StreamsStatusCode
from groupcoord.testing.topics import Topics
from tests.core.driver import Driver
from tests.core.streams.members import SETTINGS, Threads, active, statuses


def started(**settings: int) -> Threads:
    """Return a group that is none yet."""
    return Threads(Driver(topics=Topics(lines=4), **{**SETTINGS, **settings}))


# ---------------------------------------------------------------- what is written


def test_who_leaves_for_a_while_keeps_its_tasks() -> None:
    """A static member's record says what it has, since no epoch, and that nothing is to be given back."""
    threads = started()
    threads.join("a", instance_id="i")
    threads.join("b")
    threads.beat("a", 2, instance_id="i")  # is to give two of four tasks back
    threads.beat("a", -2, instance_id="i")
    assert threads.driver.written()[-1] == StreamsGroupCurrentMemberAssignmentRecord(
        "group", "a", -2, 2, 2, (AssignedTaskIds("0", (0, 1), (0, 0)),)
    )
    assert threads.described.group_state == "Reconciling"
    assert active(threads.beat("b", 3)) == {"0": (2, 3)}


# ---------------------------------------------------------------- time


def test_who_left_for_a_while_has_nothing_to_give_back_in_time() -> None:
    """Its time to do so runs on, and finds that it has moved on."""
    threads = started()
    threads.join("a", instance_id="i", rebalance_timeout_ms=1_000)
    threads.join("b")
    threads.beat("a", 2, instance_id="i")
    threads.driver.advance(500)
    threads.beat("a", -2, instance_id="i")
    threads.driver.advance(2_000)
    assert [member.member_id for member in threads.described.members] == ["a", "b"]


@pytest.mark.parametrize("gives_back", [True, False])
def test_time_to_give_back_runs_anew_after_a_load(gives_back: bool) -> None:
    """Sessions do, too."""
    threads = started()
    threads.join("a", rebalance_timeout_ms=1_000)
    threads.join("b")
    threads.beat("a", 2)
    threads.driver.restart()
    threads.driver.advance(999)
    if gives_back:
        threads.beat("a", 2, {"0": (0, 1)})
    threads.driver.advance(1)
    assert len(threads.described.members) == (2 if gives_back else 1)
    threads.driver.advance(44_000)
    assert [member.member_id for member in threads.described.members] == (["a"] if gives_back else [])


# ---------------------------------------------------------------- waiting for more members


def test_a_delay_is_that_of_the_first() -> None:
    """Neither the next member nor one that comes when all have left begins it anew."""
    threads = started(group_streams_initial_rebalance_delay_ms=3_000)
    threads.join("a")
    assert threads.described.group_state == "Assigning"
    threads.driver.advance(1_000)
    threads.join("b")
    threads.driver.advance(1_000)
    for member_id in ("a", "b"):
        threads.beat(member_id, -1)
    assert statuses(threads.join("c")) == [StreamsStatusCode.ASSIGNMENT_DELAYED]
    threads.driver.advance(999)
    assert active(threads.beat("c", 5)) is None
    threads.driver.advance(1)
    assert active(threads.beat("c", 5)) == {"0": (0, 1, 2, 3)}


def test_a_group_of_one_heartbeat_gets_no_tasks_when_the_delay_is_over() -> None:
    """What its topology comes to is not known then, as the heartbeat that makes a group forgets it (Kafka 4.4)."""
    threads = started(group_streams_initial_rebalance_delay_ms=3_000)
    threads.join("a")
    written = len(threads.driver.written())
    threads.driver.advance(3_000)
    assert len(threads.driver.written()) == written
    assert active(threads.beat("a", 1)) == {"0": (0, 1, 2, 3)}


def test_who_comes_back_within_the_interval_has_its_old_target() -> None:
    """The target that was used at an epoch goes on being used, though the log has forgotten it (Kafka 4.4)."""
    threads = started(group_streams_assignment_interval_ms=1_000)
    threads.join("a")
    threads.driver.advance(1_000)
    threads.join("b")
    threads.beat("a", 2, {"0": (0, 1)})
    threads.beat("a", -1)
    assert active(threads.join("a")) == {"0": (0, 1)}


# ---------------------------------------------------------------- what goes with a member


def test_a_wish_to_shut_down_of_the_first_is_told_once() -> None:
    """The heartbeat that makes a group is told what it wished itself, and nobody else is (Kafka 4.4)."""
    threads = started()
    assert statuses(threads.join("a", shutdown_application=True)) == [StreamsStatusCode.SHUTDOWN_APPLICATION]
    assert statuses(threads.beat("a", 2)) == []
