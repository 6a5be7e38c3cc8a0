"""How members of a streams group go and come back, in time or not, and what the log says then."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode
from groupcoord.core.groups.streams.records import (
    AssignedTaskIds,
    StreamsGroupCurrentMemberAssignmentRecord,
    StreamsGroupTargetAssignmentMetadataRecord,
)
from groupcoord.core.log.records import GroupTombstone
from groupcoord.messages import DeleteGroups, StreamsStatusCode, TaskOffset
from groupcoord.testing.topics import Topics
from tests.core.driver import Driver
from tests.core.streams.members import SETTINGS, Threads, active, answered, statuses

WAITING = {**SETTINGS, "group_streams_initial_rebalance_delay_ms": 3_000}


def started(**settings: int) -> Threads:
    """Return a group that is none yet."""
    return Threads(Driver(topics=Topics(lines=4), **{**SETTINGS, **settings}))


def written_types(threads: Threads, since: int) -> list[tuple[int, bool]]:
    """Return the types of the records that were written, and whether they are tombstones."""
    records = threads.driver.written()[since:]
    return [(record.key[0], isinstance(record, GroupTombstone)) for record in records]


# ---------------------------------------------------------------- what is written


def test_the_last_to_leave_writes_the_targets_end() -> None:
    """Its own tombstones, the next epoch, and that this has its target, made at no time."""
    threads = started()
    threads.join("a")
    written = len(threads.driver.written())
    threads.beat("a", -1)
    assert written_types(threads, written) == [(22, True), (21, True), (19, True), (17, False), (20, False)]
    assert threads.driver.written()[-1] == StreamsGroupTargetAssignmentMetadataRecord("group", 3, 0)


def test_a_deleted_group_leaves_its_topologys_tombstone_last() -> None:
    """The topology's is behind the group's own, as in Kafka."""
    threads = started()
    threads.join("a")
    threads.beat("a", -1)
    written = len(threads.driver.written())
    threads.driver.submit(DeleteGroups(("group",)))
    assert written_types(threads, written) == [(20, True), (17, True), (23, True)]


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


def test_who_comes_back_takes_the_place_of_what_it_was() -> None:
    """Under another id, with its tasks and at its group's epoch: nobody else notices."""
    threads = started()
    threads.join("a", instance_id="i")
    threads.beat("a", -2, instance_id="i")
    assert answered(threads.beat("a", 2, instance_id="i")).error_code is ErrorCode.FENCED_MEMBER_EPOCH
    back = answered(threads.join("z", instance_id="i", process_id="process-a"))
    assert (back.member_epoch, dict(back.active_tasks or ())) == (2, {"0": (0, 1, 2, 3)})
    assert [member.member_id for member in threads.described.members] == ["z"]
    assert answered(threads.beat("a", 2, instance_id="i")).error_code is ErrorCode.FENCED_INSTANCE_ID


def test_nobody_leaves_in_anothers_name() -> None:
    """Who leaves must be the member that has the place, whatever its epoch."""
    threads = started()
    threads.join("a", instance_id="i")
    for epoch in (-1, -2):
        assert answered(threads.beat("b", epoch, instance_id="i")).error_code is ErrorCode.FENCED_INSTANCE_ID
        assert answered(threads.beat("a", epoch, instance_id="j")).error_code is ErrorCode.UNKNOWN_MEMBER_ID
        assert answered(threads.beat("b", epoch)).error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.INVALID_REQUEST)
    assert len(threads.described.members) == 1


def test_a_present_static_member_keeps_its_place() -> None:
    """Whoever comes with its instance id, and be it itself."""
    threads = started()
    threads.join("a", instance_id="i")
    for member_id in ("a", "b"):
        told = answered(threads.join(member_id, instance_id="i"))
        assert told.error_code is ErrorCode.UNRELEASED_INSTANCE_ID


# ---------------------------------------------------------------- time


def test_who_left_for_a_while_is_gone_when_its_session_is_over() -> None:
    """It goes on from the last heartbeat."""
    threads = started()
    threads.join("a", instance_id="i")
    threads.driver.advance(40_000)
    threads.beat("a", -2, instance_id="i")
    threads.driver.advance(5_000)
    assert threads.described.members == ()


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


def test_a_refused_heartbeat_is_no_sign_of_life() -> None:
    """Nor is one that is fenced."""
    threads = started()
    threads.join("a")
    threads.driver.advance(40_000)
    threads.beat("a", 9)
    threads.beat("a", 2, {"7": (1,)})
    threads.driver.advance(5_000)
    assert threads.described.members == ()


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


def test_an_empty_group_waits_again() -> None:
    """When the delay is over, the next begins with who joins an empty group; with nobody in it nothing is written."""
    threads = started(group_streams_initial_rebalance_delay_ms=3_000)
    threads.join("a")
    threads.beat("a", 1)
    threads.beat("a", -1)
    written = len(threads.driver.written())
    threads.driver.advance(3_000)
    assert len(threads.driver.written()) == written
    assert statuses(threads.join("b")) == [StreamsStatusCode.ASSIGNMENT_DELAYED]


def test_a_group_of_one_heartbeat_gets_no_tasks_when_the_delay_is_over() -> None:
    """What its topology comes to is not known then, as the heartbeat that makes a group forgets it (Kafka 4.4)."""
    threads = started(group_streams_initial_rebalance_delay_ms=3_000)
    threads.join("a")
    written = len(threads.driver.written())
    threads.driver.advance(3_000)
    assert len(threads.driver.written()) == written
    assert active(threads.beat("a", 1)) == {"0": (0, 1, 2, 3)}


def test_a_loaded_group_waits_for_nobody() -> None:
    """The delay is forgotten in a restart."""
    threads = started(group_streams_initial_rebalance_delay_ms=3_000)
    threads.join("a")
    threads.driver.restart()
    assert active(threads.beat("a", 1)) == {"0": (0, 1, 2, 3)}


def test_targets_have_a_least_distance() -> None:
    """Until the interval is over the old target counts, and members are told that there will be another."""
    threads = started(group_streams_assignment_interval_ms=1_000)
    threads.join("a")
    told = threads.join("b")
    assert (statuses(told), answered(told).member_epoch) == ([StreamsStatusCode.ASSIGNMENT_DELAYED], 2)
    threads.driver.advance(999)
    assert statuses(threads.beat("b", 2)) == [StreamsStatusCode.ASSIGNMENT_DELAYED]
    threads.driver.advance(1)
    assert answered(threads.beat("b", 2)).member_epoch == 3


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


def test_offsets_of_tasks_go_with_their_member() -> None:
    """A list that is given takes the place of the last, and one that isn't leaves it; all end with the member."""
    threads = started()
    one, two = (TaskOffset("0", 0, 1),), (TaskOffset("0", 0, 2),)
    threads.join("a")
    threads.beat("a", 2, task_offsets=one, task_end_offsets=two)
    threads.beat("a", 2, task_end_offsets=one)
    (member,) = threads.described.members
    assert (member.task_offsets, member.task_end_offsets) == (one, one)
    threads.beat("a", 2, task_offsets=())
    (member,) = threads.described.members
    assert (member.task_offsets, member.task_end_offsets) == ((), one)
    threads.beat("a", -1)
    threads.join("a")
    (member,) = threads.described.members
    assert (member.task_offsets, member.task_end_offsets) == ((), ())


def test_a_wish_to_shut_down_of_who_leaves_counts() -> None:
    """The others are told, as long as there are any; a restart forgets it."""
    threads = started()
    for member_id in ("a", "b", "c"):
        threads.join(member_id)
    threads.beat("c", -1, shutdown_application=True)
    assert statuses(threads.beat("a", 2)) == [StreamsStatusCode.SHUTDOWN_APPLICATION]
    threads.beat("a", -1)
    assert statuses(threads.beat("b", 3)) == [StreamsStatusCode.SHUTDOWN_APPLICATION]
    threads.driver.restart()
    assert statuses(threads.beat("b", 3)) == []


def test_a_wish_to_shut_down_of_the_first_is_told_once() -> None:
    """The heartbeat that makes a group is told what it wished itself, and nobody else is (Kafka 4.4)."""
    threads = started()
    assert statuses(threads.join("a", shutdown_application=True)) == [StreamsStatusCode.SHUTDOWN_APPLICATION]
    assert statuses(threads.beat("a", 2)) == []
