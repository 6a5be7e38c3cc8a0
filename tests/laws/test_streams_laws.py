"""The laws of streams groups bite: a task runs in one place, and its copies are in other processes."""

from __future__ import annotations

import pytest

from groupcoord.core.groups.streams.reconciliation import HeldTasks, TaskAssignment, TaskState
from groupcoord.core.groups.streams.records import StreamsGroupMemberMetadataRecord, StreamsGroupMetadataRecord
from groupcoord.core.groups.streams.state import StreamsState
from groupcoord.laws import LawBrokenError, check_sound_streams_group

TASK = ("0", 3)
RUNS = HeldTasks({TASK: 1})
COPIES = HeldTasks(standby=frozenset({TASK}))
NOTHING = HeldTasks()


def state_of(*members: tuple[str, HeldTasks, HeldTasks], epoch: int = 0) -> StreamsState:
    """Return a group of members, each with its process, the tasks it has, and those that it has to give up."""
    state = StreamsState("counts")
    state.apply(StreamsGroupMetadataRecord("counts", 5, 0))
    for number, (process_id, assigned, pending) in enumerate(members):
        member_id = f"m{number}"
        state.apply(StreamsGroupMemberMetadataRecord("counts", member_id, None, None, "", "", process_id=process_id))
        has_to = TaskState.UNREVOKED_TASKS if pending else TaskState.STABLE
        state.apply(state.assignment_record(member_id, TaskAssignment(epoch, epoch, has_to, assigned, pending)))
    return state


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("p", RUNS, NOTHING), ("q", RUNS, NOTHING)], "is active at"),
        ([("p", NOTHING, RUNS), ("q", RUNS, NOTHING)], "is active at"),
        ([("p", RUNS, NOTHING), ("p", COPIES, NOTHING)], "of its process are standby"),
        ([("p", RUNS, NOTHING), ("p", NOTHING, COPIES)], "of its process are standby"),
        ([("p", HeldTasks({TASK: 1}, frozenset({TASK})), NOTHING)], "has a task twice"),
    ],
)
def test_a_task_twice(members: list[tuple[str, HeldTasks, HeldTasks]], message: str) -> None:
    """It isn't active at two members, nor beside a copy in its process, also while somebody has it to give up."""
    with pytest.raises(LawBrokenError, match=message):
        check_sound_streams_group(state_of(*members))


def test_a_copy_elsewhere() -> None:
    """A copy in another process is sound, and so is a member's of what it still has to give up."""
    check_sound_streams_group(state_of(("p", RUNS, NOTHING), ("q", COPIES, NOTHING)))
    check_sound_streams_group(state_of(("p", COPIES, RUNS)))


def test_a_member_ahead_of_the_target() -> None:
    with pytest.raises(LawBrokenError, match="epochs"):
        check_sound_streams_group(state_of(("p", RUNS, NOTHING), epoch=5))
