"""State of a streams group, independent of the order in which a log or its compaction leaves records."""

from __future__ import annotations

from itertools import permutations

from groupcoord.core.groups.streams.group import StreamsState
from groupcoord.core.groups.streams.reconciliation import HeldTasks, TaskAssignment, TaskState
from groupcoord.core.groups.streams.records import (
    AssignedTaskIds,
    KeyValue,
    StreamsGroupCurrentMemberAssignmentRecord,
    StreamsGroupMemberMetadataRecord,
    StreamsGroupMetadataRecord,
    StreamsGroupTargetAssignmentMemberRecord,
    StreamsGroupTargetAssignmentMetadataRecord,
    StreamsGroupTopologyRecord,
    Subtopology,
    TaskIds,
)

MEMBER = StreamsGroupMemberMetadataRecord("g", "m", "i", None, "c", "/h", 1_000, 0, "p")
ASSIGNMENT = TaskAssignment(
    3,
    2,
    TaskState.UNREVOKED_TASKS,
    HeldTasks({("0", 0): 2, ("0", 1): 3}, frozenset({("1", 0)})),
    HeldTasks({("1", 1): 2}),
)
RECORDS = (
    StreamsGroupMetadataRecord("g", 4, 77, 0, (KeyValue("num.standby.replicas", "1"),)),
    MEMBER,
    StreamsGroupTargetAssignmentMetadataRecord("g", 4, 1_234),
    StreamsGroupTargetAssignmentMemberRecord("g", "m", (TaskIds("0", (0, 1)),), (TaskIds("1", (0,)),)),
    StreamsState("g").assignment_record("m", ASSIGNMENT),
    StreamsGroupTopologyRecord("g", 0, (Subtopology("0", ("t",)), Subtopology("1", ("u",)))),
)


def test_any_order_of_records_says_the_same() -> None:
    """A compacted log may have a group's records in any order."""
    expected = StreamsState.of("g", RECORDS).facts()

    assert all(StreamsState.of("g", order).facts() == expected for order in permutations(RECORDS))


def test_tombstones_leave_nothing_in_any_order() -> None:
    """A group's tombstones leave nothing, in any order."""
    empty = StreamsState("g").facts()
    tombstones = StreamsState.of("g", RECORDS).tombstones()
    assert [tombstone.key[0] for tombstone in tombstones] == [22, 21, 20, 19, 17, 23]
    for order in permutations(tombstones):
        state = StreamsState.of("g", RECORDS)
        for tombstone in order:
            state.apply(tombstone)
        assert state.facts() == empty


def test_epochs_that_are_not_written_are_the_members() -> None:
    """Assignment epochs that a record lacks, or has too few of, are the epoch of the member."""
    record = StreamsGroupCurrentMemberAssignmentRecord(
        "g",
        "m",
        7,
        6,
        1,
        (AssignedTaskIds("0", (0, 1)), AssignedTaskIds("1", (0, 1), (3,)), AssignedTaskIds("2", (0,), None)),
    )

    assert set(StreamsState.of("g", [record]).members["m"].assignment.assigned.active.values()) == {7}
